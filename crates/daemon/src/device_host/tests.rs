//! A job played by hand against a device host on the scripted device: real sockets, real segments,
//! real threads, and a device whose every answer is known.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use salus_channel::{Inbox, Outbox, Segment};
use salus_device::{Clock, ScriptedConfig, ScriptedDevice};
use salus_engine::{Account, Engine, Policy, Room};
use salus_wire::{
    Adopt, Await, Compile, Completed, DropArrays, Error, Execute, Fetch, Form, FromService, Region,
    Shape, Terms, ToService, Upload, limits,
};

use super::compilers::Compilers;
use super::pages::Pool;
use super::programs::Programs;
use super::scheduling::Scheduling;
use super::session::Session;
use super::{Host, Supervisor};
use crate::cache::{Disk, Platform};
use crate::config::HostSettings;

mod bounds;
mod callbacks;
mod profiles;
mod programs;
mod sharing;
mod tokens;

const DEADLINE: Duration = Duration::from_secs(20);
const F32: u32 = 11;
const STEP: &str = "name: step; params: f32[4]; outputs: f32[4] alias 0; scratch: 100; ms: 5";
const KEEPING: &str = "name: keeping; params: f32[4]; outputs: f32[4]; ms: 5";

struct Fixture {
    host: Arc<Host<ScriptedDevice>>,
    sessions: u64,
    compilers: Arc<Compilers>,
    _cache: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::with(Clock::Real)
    }

    fn with(clock: Clock) -> Self {
        let room = Room {
            device_bytes: 1 << 20,
            host_bytes: 1 << 20,
            user_max: None,
        };
        Self::of(clock, room)
    }

    fn of(clock: Clock, room: Room) -> Self {
        Self::on(16 << 20, clock, room)
    }

    /// A device that has so much, whatever the ledger believes.
    fn on(capacity_bytes: u64, clock: Clock, room: Room) -> Self {
        Self::built(capacity_bytes, clock, room, DEADLINE)
    }

    fn built(capacity_bytes: u64, clock: Clock, room: Room, callback_limit: Duration) -> Self {
        let fixture = Self::configured(capacity_bytes, clock, room, callback_limit, |_| {});
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        fixture.compilers.joined(1, ours);
        let config = scripted(capacity_bytes, clock);
        std::thread::spawn(move || {
            let device = ScriptedDevice::open(&config);
            crate::compiler::serve(&device, &theirs)
        });
        fixture
    }

    /// With other settings, and without a compiler.
    fn configured(
        capacity_bytes: u64,
        clock: Clock,
        room: Room,
        callback_limit: Duration,
        change: impl FnOnce(&mut HostSettings),
    ) -> Self {
        let cache = tempfile::tempdir().expect("a temporary directory");
        let device = Arc::new(ScriptedDevice::open(&scripted(capacity_bytes, clock)));
        let mut settings = HostSettings {
            device: "scripted".into(),
            plugin: "scripted".into(),
            lapack: None,
            policy: "fair".into(),
            lanes: Some(1),
            capacity_bytes: None,
            host_bytes: None,
            session_bytes_max: None,
            user_bytes_max: None,
            user_programs_bytes_max: None,
            user_sessions_max: None,
            several_users: false,
            callback_seconds: 60,
            compile_seconds: 60,
            compile_bytes_max: None,
            first_iteration_seconds: 60,
            iteration_seconds: None,
            cache_dir: cache.path().to_owned(),
            cache_disk_bytes: 1 << 20,
            cache_memory_programs: 16,
            cache_memory_bytes: 1 << 20,
            compilers: 1,
            plugin_options: Default::default(),
        };
        change(&mut settings);
        let (supervisor, _) = UnixStream::pair().expect("sockets");
        let supervisor = Supervisor {
            socket: Arc::new(supervisor),
            outbox: Arc::new(Mutex::new(Outbox::default())),
        };
        let compilers = Compilers::new(supervisor.clone(), settings.compilers_max(), DEADLINE);
        let compilers = Arc::new(compilers);
        let programs = Programs::start(
            Arc::clone(&device),
            Platform::of(salus_device::Device::description(&*device)),
            Disk::open(cache.path(), 1 << 20),
            Arc::clone(&compilers),
            &settings,
        );
        let host = Arc::new(Host {
            reality: super::reality::Reality::new(&*device, 0),
            device,
            scheduling: Scheduling::new(Engine::new(Policy::Fair, room, 1, 1)),
            history: super::history::History::open(cache.path()),
            programs,
            pages: Pool::new(1 << 20),
            copy_uploads: settings.copies_uploads(),
            session_bytes_max: None,
            callback_limit,
            launchers: super::callbacks::Launchers::default(),
            overdue: super::overdue::Limits {
                first: salus_engine::Duration(60_000_000_000),
                most: None,
            },
            board: std::sync::OnceLock::new(),
            supervisor,
        });
        host.start_threads().expect("a thread");
        Self {
            host,
            sessions: 0,
            compilers,
            _cache: cache,
        }
    }

    fn job(&mut self, name: &str) -> Job {
        self.job_of(name, 1)
    }

    /// A job of another user.
    fn job_of(&mut self, name: &str, uid: u32) -> Job {
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
            terms: Terms::default(),
        };
        Session::start(&self.host, adopt, theirs);
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
            id: 0,
            bytes: 1 << 16,
        };
        job.outbox.push(&ToService::from(message), Some(descriptor));
        job.flush();
        job
    }

    fn sum(&self, what: impl Fn(&Account) -> u64) -> u64 {
        let mut sum = 0;
        self.host
            .scheduling
            .each(|_, account, _, _| sum += what(account));
        sum
    }

    fn until(&self, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !condition() {
            assert!(Instant::now() < deadline, "the condition never came true");
            std::thread::yield_now();
        }
    }

    /// Sessions whose next operation waits for the engine.
    fn waiting(&self) -> usize {
        let mut waiting = 0;
        self.host.scheduling.each(|session, _, engine, _| {
            waiting += usize::from(engine.waits_since(session.id).is_some());
        });
        waiting
    }

    /// Moves the manual clock until so many iterations have run.
    fn run_until(&self, iterations: u64) {
        self.until(|| {
            self.host.device.advance(Duration::from_millis(1));
            self.sum(|account| account.iterations) == iterations
        });
    }

    fn resident(&self) -> u64 {
        self.host
            .scheduling
            .look(|engine, _| engine.ledger().resident_bytes())
    }
}

fn scripted(capacity_bytes: u64, clock: Clock) -> ScriptedConfig {
    ScriptedConfig {
        lanes: 1,
        capacity_bytes,
        clock,
    }
}

struct Job {
    socket: UnixStream,
    inbox: Inbox,
    outbox: Outbox,
    segment: Segment,
    seen: Vec<FromService>,
    /// Of callbacks, in the order in which the service opened them.
    channels: VecDeque<UnixStream>,
}

impl Job {
    fn send(&mut self, message: impl Into<ToService>) {
        self.outbox.push(&message.into(), None);
        self.flush();
    }

    fn flush(&mut self) {
        self.outbox
            .flush(&self.socket, true)
            .expect("the service listens");
    }

    /// The first message, now or later, that is wanted; the others stay.
    fn next(&mut self, wanted: impl Fn(&FromService) -> bool) -> FromService {
        loop {
            if let Some(at) = self.seen.iter().position(&wanted) {
                return self.seen.remove(at);
            }
            match self.inbox.take::<FromService>().expect("well-formed") {
                Some(received) => {
                    if matches!(received.message, FromService::CallbackChannel(_)) {
                        let socket = received.descriptor.expect("a channel's socket");
                        self.channels.push_back(socket.into());
                    }
                    self.seen.push(received.message);
                }
                None => {
                    let n = self
                        .inbox
                        .fill(&self.socket, true)
                        .expect("an answer in time");
                    assert!(
                        n > 0,
                        "the service closed the session; seen: {:?}",
                        self.seen
                    );
                }
            }
        }
    }

    fn compile(&mut self, program: u64, script: &str) -> Result<(), Error> {
        self.ask_for(program, script);
        self.until_compiled()
    }

    fn ask_for(&mut self, program: u64, script: &str) {
        assert!(self.segment.copy_in(4096, script.as_bytes()));
        let code = Region {
            segment: 0,
            offset: 4096,
            length: script.len() as u64,
        };
        self.send(Compile {
            program,
            format: "mlir".into(),
            code,
            options: Vec::new(),
        });
    }

    fn until_compiled(&mut self) -> Result<(), Error> {
        let answer = self.next(|message| {
            matches!(
                message,
                FromService::Compiled(_) | FromService::CompileFailed(_)
            )
        });
        match answer {
            FromService::CompileFailed(failed) => Err(failed.error),
            _ => Ok(()),
        }
    }

    fn upload(&mut self, array: u64, values: [f32; 4]) {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect();
        let offset = 64 * array;
        assert!(self.segment.copy_in(offset, &bytes));
        let data = Region {
            segment: 0,
            offset,
            length: 16,
        };
        let shape = Shape {
            element_type: F32,
            dims: vec![4],
            minor_to_major: None,
        };
        self.send(Upload {
            array,
            shape,
            memory: 0,
            data,
        });
    }

    fn execute(&mut self, operation: u64, program: u64, arguments: &[u64], first_output: u64) {
        let arguments = arguments.to_vec();
        self.send(Execute {
            operation,
            program,
            first_output,
            arguments,
            keep: Vec::new(),
        });
    }

    /// How the operation ended.
    fn ended(&mut self, operation: u64) -> Result<(), Error> {
        self.send(Await { operation });
        let names = |completed: &Completed| {
            completed.done.contains(&operation)
                || completed
                    .failed
                    .iter()
                    .any(|(failed, _)| *failed == operation)
        };
        let message = self.next(
            |message| matches!(message, FromService::Completed(completed) if names(completed)),
        );
        let FromService::Completed(completed) = message else {
            panic!("not an end")
        };
        let error = completed
            .failed
            .iter()
            .find(|(failed, _)| *failed == operation)
            .map(|(_, e)| e.clone());
        // Others that were told in the same breath stay to be asked for.
        self.seen.push(FromService::Completed(completed));
        error.map_or(Ok(()), Err)
    }

    fn fetch(&mut self, request: u64, array: u64) -> Result<Vec<u8>, Error> {
        let offset = 8192 + 64 * request;
        let target = Region {
            segment: 0,
            offset,
            length: 16,
        };
        self.send(Fetch {
            request,
            array,
            target,
            form: Form::Raw,
        });
        let message = self.next(
            |message| matches!(message, FromService::Fetched(fetched) if fetched.request == request),
        );
        let FromService::Fetched(fetched) = message else {
            panic!("not a read")
        };
        match fetched.error {
            Some(error) => Err(error),
            None => Ok(self.segment.copy_out(offset, 16).expect("inside")),
        }
    }

    fn is_closed(&mut self) -> bool {
        loop {
            match self.inbox.fill(&self.socket, true) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
}

#[test]
fn a_step_with_donation_runs_and_its_result_is_read() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, STEP).expect("compiles");
    job.upload(1, [1.0, 2.0, 3.0, 4.0]);
    let before = job.fetch(1, 1).expect("an upload is ready at once");
    job.execute(1, 1, &[1], 10);
    job.ended(1).expect("the step ran");
    let after = job.fetch(2, 10).expect("the output is there");
    assert_ne!(before, after);
    let gone = job.fetch(3, 1).expect_err("the argument was donated");
    assert_eq!(gone.message, "array 1 has been deleted or donated");
    assert_eq!(
        fixture.resident(),
        16,
        "the output took the argument's place"
    );
    job.send(DropArrays { arrays: vec![10] });
    fixture.until(|| fixture.resident() == 0);
}

/// JAX asks whether a launch has ended as soon as it has read one of its outputs: if the read came
/// first, that would cost another round trip.
#[test]
fn the_end_of_a_launch_is_told_with_the_read_of_its_output() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, KEEPING).expect("compiles");
    job.upload(1, [1.0; 4]);
    for operation in 1..20 {
        job.execute(operation, 1, &[1], 100 + operation);
        job.fetch(operation, 100 + operation).expect("it ran");
        let told = job.seen.iter().any(|message| {
            matches!(message, FromService::Completed(ends) if ends.done.contains(&operation))
        });
        assert!(told, "launch {operation} was read before its end was told");
    }
}

#[test]
fn launches_are_pipelined_and_dependent_ones_need_no_answer() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, STEP).expect("compiles");
    job.upload(1, [1.0; 4]);
    for step in 0..10 {
        job.execute(
            step + 1,
            1,
            &[if step == 0 { 1 } else { 9 + step }],
            10 + step,
        );
    }
    job.ended(10).expect("the last ran");
    job.fetch(1, 19).expect("its output is there");
    assert_eq!(fixture.resident(), 16);
}

#[test]
fn arguments_are_checked_before_the_plugin_sees_them() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, STEP).expect("compiles");
    job.compile(2, "name: ints; params: s32[4]; outputs: s32[4]")
        .expect("compiles");
    job.compile(
        3,
        "name: two; params: f32[4], f32[4]; outputs: f32[4] alias 0",
    )
    .expect("compiles");
    job.upload(1, [1.0; 4]);
    let cases: [(u64, &[u64], &str); 5] = [
        (
            2,
            &[1],
            "argument 0 of `ints` is f32[4] and should be s32[4]",
        ),
        (1, &[1, 1], "`step` takes 1 arguments and was given 2"),
        (1, &[99], "array 99 has been deleted or donated"),
        (
            3,
            &[1, 1],
            "argument 0 of `two` is donated and is given twice",
        ),
        (77, &[1], "program 77 is not loaded in this session"),
    ];
    for (n, (program, arguments, message)) in cases.into_iter().enumerate() {
        let operation = n as u64 + 1;
        job.execute(operation, program, arguments, 100 * operation);
        let error = job.ended(operation).expect_err("refused");
        assert_eq!(error.message, message);
    }
    let inherited = job
        .fetch(1, 100)
        .expect_err("the output of a refused launch");
    assert_eq!(inherited.message, cases[0].2);
    job.execute(9, 1, &[1], 900);
    job.ended(9).expect("the session goes on");
}

#[test]
fn faults_of_a_program_reach_its_outputs_and_nobody_else() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("bad.py");
    let mut other = fixture.job("good.py");
    let refused = job
        .compile(1, "name: f; fail: compile")
        .expect_err("does not compile");
    assert!(!refused.message.is_empty());
    job.compile(2, "name: g; params: f32[4]; outputs: f32[4]; fail: launch")
        .expect("compiles");
    job.compile(
        3,
        "name: h; params: f32[4]; outputs: f32[4]; fail: async; ms: 5",
    )
    .expect("compiles");
    other.compile(1, KEEPING).expect("compiles");
    job.upload(1, [1.0; 4]);
    other.upload(1, [1.0; 4]);
    job.execute(1, 2, &[1], 10);
    job.ended(1).expect_err("fails at once");
    job.execute(2, 3, &[1], 20);
    job.ended(2).expect_err("fails while it runs");
    job.fetch(1, 20).expect_err("its output is poisoned");
    other.execute(1, 1, &[1], 10);
    other.ended(1).expect("undisturbed");
}

#[test]
fn sessions_take_turns_whoever_asks_faster() {
    let mut fixture = Fixture::with(Clock::Manual);
    let mut greedy = fixture.job("greedy.py");
    let mut modest = fixture.job("modest.py");
    for job in [&mut greedy, &mut modest] {
        job.compile(1, KEEPING).expect("compiles");
        job.upload(1, [1.0; 4]);
    }
    for step in 1..=20 {
        greedy.execute(step, 1, &[1], 100 * step);
    }
    fixture.until(|| fixture.sum(|account| u64::from(account.running)) == 2);
    modest.execute(1, 1, &[1], 10);
    fixture.until(|| fixture.waiting() == 2);
    // Whatever was granted may not have reached the device yet, so time moves until it has.
    fixture.until(|| {
        fixture.host.device.advance(Duration::from_millis(5));
        fixture.sum(|account| account.iterations) == 21
    });
    modest.ended(1).expect("it had its turn");
    greedy.ended(20).expect("all of it ran");
    // When a granted iteration runs is up to its thread; whom the engine chose is not.
    let copied = fixture.host.scheduling.recorded();
    let recording = copied.recording(salus_device::Device::description(&*fixture.host.device), 0);
    let (of_greedy, of_modest): (Vec<_>, Vec<_>) =
        recording.iterations.iter().partition(|i| i.session == 1);
    let waited = of_modest[0].ready_ns..of_modest[0].started_ns;
    let before = of_greedy.iter().filter(|i| waited.contains(&i.started_ns));
    assert!(before.count() <= 1, "{of_greedy:?} before {of_modest:?}");
}

#[test]
fn a_job_that_dies_leaves_nothing_behind() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("dies.py");
    let mut other = fixture.job("lives.py");
    for job in [&mut job, &mut other] {
        job.compile(1, STEP).expect("compiles");
        job.upload(1, [1.0; 4]);
    }
    for step in 0..5 {
        job.execute(
            step + 1,
            1,
            &[if step == 0 { 1 } else { 9 + step }],
            10 + step,
        );
    }
    drop(job);
    fixture.until(|| fixture.sum(|_| 1) == 1 && fixture.resident() == 16);
    other.execute(1, 1, &[1], 10);
    other.ended(1).expect("the device goes on");
}

/// Wherever the end of a job meets the engine: before its turn, in it, or just granted.
#[test]
fn jobs_that_die_at_any_moment_give_their_turns_back() {
    let mut fixture = Fixture::new();
    let script = "name: quick; params: f32[4]; outputs: f32[4]";
    let mut other = fixture.job("lives.py");
    other.compile(1, script).expect("compiles");
    other.upload(1, [1.0; 4]);
    for round in 1..=200 {
        let mut job = fixture.job("dies.py");
        job.compile(1, script).expect("is found");
        job.upload(1, [1.0; 4]);
        for step in 1..=8 {
            job.execute(step, 1, &[1], 10 * step);
            other.execute(8 * round + step, 1, &[1], 1000 * (8 * round + step));
        }
        if round % 2 == 0 {
            job.ended(round % 8 + 1).expect("it ran");
        }
        drop(job);
        other.ended(8 * round + 8).expect("undisturbed");
        other.send(DropArrays {
            arrays: (1..=8).map(|step| 1000 * (8 * round + step)).collect(),
        });
    }
    fixture.until(|| fixture.sum(|_| 1) == 1 && fixture.resident() == 16);
}

#[test]
fn a_region_comes_back_when_its_array_is_gone() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("feed.py");
    job.upload(1, [1.0; 4]);
    job.fetch(1, 1).expect("the array is there");
    job.send(DropArrays { arrays: vec![1] });
    let message = job.next(|message| matches!(message, FromService::Released(_)));
    let FromService::Released(released) = message else {
        panic!("not a release")
    };
    assert_eq!(
        released.regions,
        [Region {
            segment: 0,
            offset: 64,
            length: 16
        }]
    );
}

#[test]
fn a_library_that_breaks_the_protocol_loses_its_session_alone() {
    let mut fixture = Fixture::new();
    let mut other = fixture.job("lives.py");
    let outside = Region {
        segment: 0,
        offset: 1 << 15,
        length: 1 << 16,
    };
    let unknown = Region {
        segment: 9,
        offset: 0,
        length: 16,
    };
    let shape = Shape {
        element_type: F32,
        dims: vec![4],
        minor_to_major: None,
    };
    for data in [outside, unknown] {
        let mut job = fixture.job("broken.py");
        job.send(Upload {
            array: 1,
            shape: shape.clone(),
            memory: 0,
            data,
        });
        let message = job.next(|message| matches!(message, FromService::Refused(_)));
        let FromService::Refused(refused) = message else {
            panic!("not a refusal")
        };
        assert!(
            refused.error.message.contains("broke the protocol"),
            "{:?}",
            refused.error
        );
        assert!(job.is_closed());
    }
    other.upload(1, [1.0; 4]);
    other.fetch(1, 1).expect("undisturbed");
}

#[test]
fn equal_programs_are_compiled_once() {
    let mut fixture = Fixture::new();
    let (mut one, mut two) = (fixture.job("trial1.py"), fixture.job("trial2.py"));
    one.compile(1, STEP).expect("compiles");
    two.compile(5, STEP).expect("is found");
    let report = fixture.host.programs.report();
    assert_eq!(report["compiled"], 1);
    assert_eq!(report["found_loaded"], 1);
}

/// What a job computes with all the room in the world.
fn undisturbed(steps: u64) -> Vec<u8> {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("alone.py");
    let last = train(&mut job, steps, |_| {});
    job.fetch(99, last).expect("the output is there")
}

/// Steps of which each has the last one's output as its argument; returns the last output.
fn train(job: &mut Job, steps: u64, mut between: impl FnMut(u64)) -> u64 {
    job.compile(1, STEP).expect("compiles");
    job.upload(1, [1.0, 2.0, 3.0, 4.0]);
    let mut state = 1;
    for step in 1..=steps {
        job.execute(step, 1, &[state], 10 + step);
        state = 10 + step;
        job.ended(step).expect("it ran");
        between(step);
    }
    state
}

#[test]
fn sessions_that_do_not_fit_together_take_turns_on_the_device() {
    let expected = undisturbed(20);
    // An array and scratch of 100 bytes fit, and another array only without the scratch.
    let room = Room {
        device_bytes: 120,
        host_bytes: 1 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::of(Clock::Real, room);
    let jobs: Vec<Job> = (0..3).map(|_| fixture.job("train.py")).collect();
    let trained: Vec<_> = jobs
        .into_iter()
        .map(|mut job| {
            std::thread::spawn(move || {
                let last = train(&mut job, 20, |_| {});
                let bits = job.fetch(99, last).expect("the output is there");
                (job, bits)
            })
        })
        .collect();
    let trained: Vec<(Job, Vec<u8>)> = trained
        .into_iter()
        .map(|thread| thread.join().expect("it trains"))
        .collect();
    for (_, bits) in &trained {
        assert_eq!(*bits, expected);
    }
    let (peak, paged) = fixture.host.scheduling.look(|engine, _| {
        let ledger = engine.ledger();
        (ledger.peak_bytes(), ledger.paged_bytes())
    });
    assert!(peak <= room.device_bytes, "{peak} bytes at the peak");
    assert!(paged > 0, "somebody must have left");
    drop(trained);
    fixture.until(|| fixture.sum(|_| 1) == 0);
    let left = fixture.host.scheduling.look(|engine, _| {
        let ledger = engine.ledger();
        ledger.resident_bytes() + ledger.paged_bytes() + ledger.scratch_bytes()
    });
    assert_eq!(left, 0);
}

#[test]
fn a_quiet_session_that_is_asked_to_leave_twice_in_a_row_leaves_twice() {
    let room = Room {
        device_bytes: 2_300_000,
        host_bytes: 8 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::of(Clock::Manual, room);
    let mut jobs: Vec<Job> = (0..3).map(|_| fixture.job("train.py")).collect();
    for job in &mut jobs {
        let holds = "name: hold; params: f32[4]; outputs: f32[250000]; ms: 1";
        job.compile(1, holds).expect("compiles");
        job.upload(1, [1.0; 4]);
    }
    // The first holds two large arrays and is busy, so that both others wait for its room.
    for operation in 1..=2 {
        jobs[0].execute(operation, 1, &[1], 10 * operation);
        fixture.run_until(operation);
    }
    jobs[0].compile(2, STEP).expect("compiles");
    jobs[0].execute(3, 2, &[1], 30);
    fixture.until(|| fixture.sum(|account| account.running.into()) == 1);
    for job in &mut jobs[1..] {
        job.execute(1, 1, &[1], 10);
        job.flush();
    }
    fixture.until(|| fixture.waiting() == 2);
    fixture.run_until(5);
}

#[test]
fn a_launch_that_the_device_has_no_room_for_is_tried_again_with_more() {
    // The ledger believes in twice what the device has.
    let room = Room {
        device_bytes: 2 << 20,
        host_bytes: 8 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::on(1 << 20, Clock::Real, room);
    let (mut one, mut two) = (fixture.job("one.py"), fixture.job("two.py"));
    for job in [&mut one, &mut two] {
        let holds = "name: hold; params: f32[4]; outputs: f32[200000]";
        job.compile(1, holds).expect("compiles");
        job.upload(1, [1.0; 4]);
    }
    one.execute(1, 1, &[1], 10);
    one.ended(1).expect("it fits");
    two.execute(1, 1, &[1], 10);
    two.ended(1).expect("the other made room for it");
    let paged = fixture
        .host
        .scheduling
        .look(|engine, _| engine.ledger().paged_bytes());
    assert!(paged >= 800_000, "{paged} bytes have left");
    // More than the device ever has: the second failure is the job's.
    let large = "name: large; params: f32[4]; outputs: f32[4]; hidden: 2000000";
    two.compile(2, large).expect("compiles");
    two.execute(2, 2, &[1], 20);
    let error = two.ended(2).expect_err("the device is too small");
    assert!(error.message.contains("out of memory"), "{}", error.message);
    one.execute(2, 1, &[1], 20);
    one.ended(2).expect("nobody else noticed");
}

#[test]
fn scratch_that_the_compiler_does_not_count_is_learned_from_the_device() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(
        1,
        "name: s; params: f32[4]; outputs: f32[4]; scratch: 100; hidden: 5000",
    )
    .expect("compiles");
    job.upload(1, [1.0; 4]);
    let peak = |fixture: &Fixture| {
        let peak = |engine: &salus_engine::Engine, _| engine.ledger().peak_bytes();
        fixture.host.scheduling.look(peak)
    };
    job.execute(1, 1, &[1], 10);
    job.ended(1).expect("it ran");
    assert_eq!(peak(&fixture), 132);
    job.execute(2, 1, &[1], 20);
    job.ended(2).expect("it ran");
    assert_eq!(peak(&fixture), 5148, "the second run asks for all of it");
}

#[test]
fn a_trace_tells_who_ran_when_and_what_moved() {
    let room = Room {
        device_bytes: 120,
        host_bytes: 1 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::of(Clock::Real, room);
    let jobs = [fixture.job("one.py"), fixture.job("two.py")];
    let trained = jobs.map(|mut job| {
        std::thread::spawn(move || {
            train(&mut job, 10, |_| {});
            job
        })
    });
    let mut jobs = trained.map(|thread| thread.join().expect("it trains"));
    // On a busy machine the one may have been done before the other began. One of them has left by
    // now, and comes back for another step.
    for job in &mut jobs {
        job.execute(11, 1, &[20], 21);
        job.ended(11).expect("it ran");
    }
    // The end of the last iteration is told to its job first.
    fixture.until(|| fixture.sum(|account| account.iterations) == 22);
    let copied = fixture.host.scheduling.recorded();
    let recording = copied.recording(salus_device::Device::description(&*fixture.host.device), 0);
    let names: Vec<_> = recording.sessions.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["one.py", "two.py"]);
    assert_eq!(recording.programs[0].1, "step");
    assert_eq!(recording.iterations.len(), 22);
    let mut last_end = 0;
    for iteration in &recording.iterations {
        assert_eq!(iteration.program, recording.programs[0].0);
        assert!(iteration.ready_ns <= iteration.started_ns);
        assert!(iteration.started_ns <= iteration.began_ns);
        assert!(iteration.began_ns >= last_end, "two at once in a lane");
        assert!(iteration.ended_ns > iteration.began_ns);
        last_end = iteration.ended_ns;
    }
    // They do not fit together: whoever leaves comes back.
    assert!(recording.moves.iter().any(|moved| moved.out));
    assert!(recording.moves.iter().any(|moved| !moved.out));
    assert!(recording.moves.iter().all(|moved| moved.bytes <= 16));
    assert!(recording.iterations.iter().any(|i| i.memory_ns > 0));
    assert_eq!(recording.compilations.len(), 2);
    drop(jobs);
}

#[test]
fn what_is_paged_out_is_read_where_it_is() {
    let room = Room {
        device_bytes: 40,
        host_bytes: 1 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::of(Clock::Real, room);
    let (mut one, mut two) = (fixture.job("one.py"), fixture.job("two.py"));
    one.upload(1, [1.0, 2.0, 3.0, 4.0]);
    let before = one.fetch(1, 1).expect("it is there");
    two.upload(1, [5.0; 4]);
    two.upload(2, [6.0; 4]);
    two.fetch(1, 2).expect("room was made for it");
    let paged = |fixture: &Fixture| {
        let look = |engine: &salus_engine::Engine, _| engine.ledger().paged_bytes();
        fixture.host.scheduling.look(look)
    };
    assert_eq!(paged(&fixture), 16);
    assert_eq!(one.fetch(2, 1).expect("from its page"), before);
    assert_eq!(paged(&fixture), 16, "it stayed where it was");
    one.send(DropArrays { arrays: vec![1] });
    fixture.until(|| paged(&fixture) == 0);
}

#[test]
fn the_region_of_a_refused_upload_comes_back() {
    let room = Room {
        device_bytes: 8,
        host_bytes: 1 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::of(Clock::Real, room);
    let mut job = fixture.job("large.py");
    job.upload(1, [1.0; 4]);
    let failed = job.next(|message| matches!(message, FromService::ArrayFailed(_)));
    let FromService::ArrayFailed(failed) = failed else {
        panic!("not a failure")
    };
    assert_eq!(failed.error.code, 8);
    let message = job.next(|message| matches!(message, FromService::Released(_)));
    let FromService::Released(released) = message else {
        panic!("not a release")
    };
    assert_eq!(released.regions[0].offset, 64);
}
