//! A device host on the scripted device.

use super::*;
use std::sync::{Mutex, mpsc};

use crate::board::Accusation;
use crate::config;
use crate::device_host::observe::health::{self, Health};

pub(super) struct Fixture {
    pub(super) host: Arc<Host<ScriptedDevice>>,
    pub(super) sessions: u64,
    pub(super) compilers: Arc<Compilers>,
    /// What the device host found when it would have ended.
    pub(super) broken: mpsc::Receiver<Accusation>,
    pub(super) _cache: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::with(Clock::Real)
    }

    pub(super) fn with(clock: Clock) -> Self {
        let room = Room {
            device_bytes: 1 << 20,
            host_bytes: 1 << 20,
            user_max: None,
        };
        Self::of(clock, room)
    }

    pub(super) fn of(clock: Clock, room: Room) -> Self {
        Self::on(16 << 20, clock, room)
    }

    /// A device that has so much, whatever the ledger believes.
    pub(super) fn on(capacity_bytes: u64, clock: Clock, room: Room) -> Self {
        Self::built(capacity_bytes, clock, room, DEADLINE)
    }

    pub(super) fn built(
        capacity_bytes: u64,
        clock: Clock,
        room: Room,
        callback_limit: Duration,
    ) -> Self {
        Self::built_on(scripted(capacity_bytes, clock), room, callback_limit)
    }

    /// A device with memory of its own, of which the ledger may give away `room.device_bytes`.
    pub(super) fn separate(clock: Clock, room: Room) -> Self {
        Self::accelerator(room.device_bytes, clock, room)
    }

    /// A device with so much memory of its own, whatever the ledger believes.
    pub(super) fn accelerator(capacity_bytes: u64, clock: Clock, room: Room) -> Self {
        let config = ScriptedConfig {
            on_host: false,
            ..scripted(capacity_bytes, clock)
        };
        Self::built_on(config, room, DEADLINE)
    }

    fn built_on(config: ScriptedConfig, room: Room, callback_limit: Duration) -> Self {
        let fixture = Self::configured_on(config, room, callback_limit, |_| {});
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        fixture.compilers.joined(1, ours);
        std::thread::spawn(move || {
            let device = ScriptedDevice::open(&config);
            crate::compiler::serve(&device, &theirs)
        });
        fixture
    }

    /// With other settings, and without a compiler.
    pub(super) fn configured(
        capacity_bytes: u64,
        clock: Clock,
        room: Room,
        callback_limit: Duration,
        change: impl FnOnce(&mut HostSettings),
    ) -> Self {
        let config = scripted(capacity_bytes, clock);
        Self::configured_on(config, room, callback_limit, change)
    }

    fn configured_on(
        config: ScriptedConfig,
        room: Room,
        callback_limit: Duration,
        change: impl FnOnce(&mut HostSettings),
    ) -> Self {
        let cache = tempfile::tempdir().expect("a temporary directory");
        let device = Arc::new(ScriptedDevice::open(&config));
        let mut settings = HostSettings {
            device_index: None,
            devices: 1,
            plugin: "scripted".into(),
            several_users: false,
            allow_raw_kernels: false,
            device: config::Device {
                name: "scripted".into(),
                lanes: Some(1),
                ..config::Device::default()
            },
            scheduling: config::Scheduling::default(),
            limits: config::Limits {
                callback_seconds: 60,
                compile_seconds: 60,
                ..config::Limits::default()
            },
            cache: config::Cache {
                directory: cache.path().to_owned(),
                disk: 1 << 20,
                memory: 1 << 20,
                memory_programs: 16,
            },
            compilers: config::Compilers {
                count: 1,
                ..config::Compilers::default()
            },
        };
        change(&mut settings);
        let (supervisor, _) = UnixStream::pair().expect("sockets");
        let supervisor = Supervisor::new(supervisor);
        let compilers = Compilers::new(supervisor.clone(), settings.compilers_max(), DEADLINE);
        let compilers = Arc::new(compilers);
        let programs = Programs::start(
            Arc::clone(&device),
            Platform::of(salus_device::Device::description(&*device)),
            Disk::open(cache.path(), 1 << 20),
            Arc::clone(&compilers),
            None,
            &settings,
        );
        let host = Arc::new(Host {
            audit: crate::device_host::memory::audit::Audit::new(&*device, 0),
            pages: Pool::new(
                1 << 20,
                (!config.on_host).then_some(room.host_bytes),
                Pins::new(&device, settings.pinned_bytes(&room)),
            ),
            launch_calls: crate::device_host::session::operations::launch::LaunchCalls::new(
                salus_device::Device::description(&*device),
            ),
            health: Health::default(),
            notices: Mutex::new(crate::log::Quota::of(1000)),
            engine: Arc::new(ClockedEngine::new(crate::device_host::engine(
                Policy::Fair,
                room,
                salus_device::Device::description(&*device),
                1,
            ))),
            device,
            earlier_runs: crate::device_host::programs::earlier_runs::EarlierRuns::open(
                cache.path(),
            ),
            programs,
            copy_uploads: settings.copies_uploads(),
            session_bytes_max: None,
            callback_limit,
            launch_threads: crate::device_host::session::callbacks::LaunchThreads::default(),
            overdue: crate::device_host::observe::overdue::Limits {
                first: salus_engine::Duration(60_000_000_000),
                most: None,
            },
            board: std::sync::OnceLock::new(),
            supervisor,
        });
        host.start_threads().expect("a thread");
        let (found, broken) = mpsc::channel();
        let end = move |accusation| drop(found.send(accusation));
        health::start(&host, end).expect("a thread");
        Self {
            broken,
            host,
            sessions: 0,
            compilers,
            _cache: cache,
        }
    }

    pub(super) fn job(&mut self, name: &str) -> Job {
        self.job_of(name, 1)
    }

    /// A job of another user.
    pub(super) fn job_of(&mut self, name: &str, uid: u32) -> Job {
        self.sessions += 1;
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        ours.set_read_timeout(Some(DEADLINE)).expect("settable");
        let adopt = Adopt {
            session: self.sessions,
            protocol: 1,
            pid: 1,
            uid,
            user: "ada".into(),
            name: name.into(),
            settings: JobSettings::default(),
        };
        crate::device_host::session::open(&self.host, adopt, theirs);
        let segment = Segment::create(1 << 16, false).expect("memory");
        let mut job = Job {
            socket: ours,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            segment,
            seen: Vec::new(),
            channels: VecDeque::new(),
        };
        let welcome = job.next(|message| matches!(message, FromService::Welcome(_)));
        let FromService::Welcome(welcome) = welcome else {
            panic!("not a welcome")
        };
        assert_eq!(welcome.window, limits::LAUNCHES);
        let descriptor = job
            .segment
            .as_fd()
            .try_clone_to_owned()
            .expect("a descriptor");
        let message = salus_wire::Segment {
            id: SegmentId(0),
            bytes: 1 << 16,
        };
        job.outbox.push(&ToService::from(message), Some(descriptor));
        job.flush();
        job
    }

    pub(super) fn sum(&self, what: impl Fn(&Account) -> u64) -> u64 {
        let mut sum = 0;
        self.host
            .engine
            .each(|_, account, _, _| sum += what(account));
        sum
    }

    pub(super) fn until(&self, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !condition() {
            assert!(Instant::now() < deadline, "the condition never came true");
            std::thread::yield_now();
        }
    }

    /// Sessions whose next operation waits for the engine.
    pub(super) fn waiting(&self) -> usize {
        let mut waiting = 0;
        self.host.engine.each(|session, _, engine, _| {
            waiting += usize::from(engine.waits_since(session.id).is_some());
        });
        waiting
    }

    /// Moves the manual clock until this many iterations have run.
    pub(super) fn run_until(&self, iterations: u64) {
        self.until(|| {
            self.host.device.advance(Duration::from_millis(1));
            self.sum(|account| account.iterations) == iterations
        });
    }

    pub(super) fn resident(&self) -> u64 {
        self.host
            .engine
            .look(|engine, _| engine.ledger().resident_bytes())
    }
}

pub(super) fn scripted(capacity_bytes: u64, clock: Clock) -> ScriptedConfig {
    ScriptedConfig {
        lanes: 1,
        capacity_bytes,
        clock,
        on_host: true,
    }
}
