//! The device host: owns one device and runs the iterations of every session on it.
//!
//! The main thread listens to the supervisor, which sends the sockets of jobs. Each session has a
//! thread that reads its job's frames and starts its iterations when the engine says so. When an
//! iteration ends, the plugin's own thread tells the job, so that no other thread must wake up first.
//!
//! Promise: nothing here waits for a job; the session of a job that does not read is closed.
//! Not here: accepting, versions, credentials (supervisor); compiling (compiler).

mod clocked_engine;
mod errors;
mod memory;
mod observe;
mod programs;
mod session;
mod supervisor;

#[cfg(test)]
mod tests;

use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock};

use salus_channel::lock;
use salus_device::{Device, is_host_memory};
use salus_engine::{Engine, Policy, Room, SessionId};
use salus_wire::{Description, Error, ErrorCode, Failed, Up};

use crate::board;
use crate::config::HostSettings;
use crate::log;
use crate::open_device::{Opened, open};
use crate::sandbox::{Process, Strength};
use clocked_engine::ClockedEngine;
use errors::resource_exhausted;
use programs::cache::{Disk, Platform};
use programs::compiler_pool::{AllCompilers, Compilers};
use programs::{Program, Programs, Tuned};
pub(crate) use supervisor::Supervisor;

/// Everything that the sessions of the device share.
pub(crate) struct Host<D: Device> {
    pub(crate) device: Arc<D>,
    pub(crate) engine: Arc<ClockedEngine<D>>,
    pub(crate) programs: Arc<Programs<D>>,
    /// Host memory for arrays that were paged out.
    pub(crate) pages: Arc<memory::page_pool::Pool>,
    pub(crate) audit: memory::audit::Audit,
    /// Device time that earlier runs of the same programs used.
    pub(crate) earlier_runs: programs::earlier_runs::EarlierRuns,
    /// Uploads are copied into memory that jobs cannot write.
    copy_uploads: bool,
    /// The most memory that a session may hold, whatever limit it asks for.
    session_bytes_max: Option<NonZeroU64>,
    /// How long a callback may take.
    callback_limit: std::time::Duration,
    /// Threads for launches that call back.
    launch_threads: session::callbacks::LaunchThreads,
    /// Which lanes a launch is being handed to.
    pub(crate) launch_calls: session::operations::launch::LaunchCalls,
    /// Whether the device still works.
    health: observe::health::Health,
    /// Lines in the log that launches of jobs cause.
    notices: Mutex<log::Quota>,
    overdue: observe::overdue::Limits,
    /// Where the supervisor sees what ran if this process dies.
    board: OnceLock<board::Writer>,
    pub(crate) supervisor: Supervisor,
}

/// Platforms whose compilers measure on the device.
const TUNED_PLATFORMS: &[&str] = &["cuda", "rocm"];

/// One part in this many of the host's memory for pages may stay mapped while no page is in it.
const PAGES_KEPT_DIVISOR: u64 = 4;

/// Lines a minute about what launches of jobs do to the device: jobs must not fill a disk.
const NOTICES_LOGGED: u32 = 60;

impl<D: Device> Host<D> {
    /// Starts everything but the sessions.
    fn new(
        device: D,
        settings: &HostSettings,
        supervisor: &Supervisor,
        compilers: &AllCompilers,
    ) -> Result<Arc<Self>, Error> {
        let description = device.description().clone();
        let device = Arc::new(device);
        let room = settings.room(&description);
        let lanes = settings.device.lanes.unwrap_or(1);
        let engine = engine(settings.scheduling.policy, room, &description, lanes);
        let engine = Arc::new(ClockedEngine::new(engine));
        let tuning = compilers.tuning.as_ref();
        let programs = Programs::start(
            Arc::clone(&device),
            Platform::of(&description),
            Disk::open(&settings.cache.directory, settings.cache.disk),
            Arc::clone(&compilers.plain),
            tuning.map(|tuning| Tuned::new(Arc::clone(tuning), Arc::clone(&engine))),
            settings,
        );
        let pinned_bytes = settings.pinned_bytes(&room);
        let pins = memory::pins::Pins::new(&device, pinned_bytes);
        let pages = memory::page_pool::Pool::new(
            room.host_bytes / PAGES_KEPT_DIVISOR,
            (!description.on_host).then_some(room.host_bytes),
            pins,
        );
        let host = Arc::new(Self {
            engine,
            earlier_runs: programs::earlier_runs::EarlierRuns::open(&settings.cache.directory),
            audit: memory::audit::Audit::new(
                &*device,
                description.capacity_bytes - room.device_bytes,
            ),
            device,
            programs,
            pages,
            // A device with memory of its own has copied an array before anything computes with it.
            copy_uploads: settings.copies_uploads() && description.on_host,
            session_bytes_max: settings.limits.memory_per_session.and_then(NonZeroU64::new),
            callback_limit: std::time::Duration::from_secs(settings.limits.callback_seconds.into()),
            launch_threads: session::callbacks::LaunchThreads::default(),
            launch_calls: session::operations::launch::LaunchCalls::new(&description),
            health: observe::health::Health::default(),
            notices: Mutex::new(log::Quota::of(NOTICES_LOGGED)),
            overdue: observe::overdue::Limits {
                first: seconds(settings.limits.first_iteration_seconds),
                most: settings.limits.iteration_seconds.map(seconds),
            },
            board: OnceLock::new(),
            supervisor: supervisor.clone(),
        });
        let started = host.start_threads();
        started.map_err(|e| resource_exhausted(format!("no thread can be started: {e}")))?;
        Ok(host)
    }

    /// For memory that jobs share with the service, if the device has memory of its own.
    fn pins(&self) -> Option<Arc<memory::pins::Pins>> {
        let on_host = self.device.description().on_host;
        (!on_host).then(|| Arc::clone(self.pages.pins()))
    }

    /// The memory limit of a session that asked for this one: no more than the configuration
    /// allows a session.
    fn session_limit(&self, asked: Option<NonZeroU64>) -> Option<NonZeroU64> {
        match (asked, self.session_bytes_max) {
            (Some(asked), Some(most)) => Some(asked.min(most)),
            (asked, most) => asked.or(most),
        }
    }

    /// Notes on the board that a program runs, until the returned value is dropped.
    fn note_on_board(
        &self,
        lane: u64,
        session: SessionId,
        program: &Program<D>,
    ) -> Option<board::Taken> {
        let writer = self.board.get()?;
        let name = &program.signature.name;
        Some(writer.begin(lane, session.0, program.number.0, name))
    }

    /// How much more memory the device has in use than the ledger says, if the device tells. A large
    /// drift is logged.
    fn drift_bytes(&self) -> Option<u64> {
        let known = self.engine.look(|engine, _| {
            let ledger = engine.ledger();
            ledger.resident_bytes() + ledger.scratch_bytes()
        });
        self.audit.drift_bytes(&*self.device, known)
    }

    /// What an array of this many bytes is charged in this memory of the device.
    pub(crate) fn charged_bytes(&self, memory: u32, bytes: u64) -> u64 {
        match is_host_memory(self.device.description(), memory) {
            true => bytes,
            false => self.device.allocated_bytes(bytes),
        }
    }

    /// Logs a warning that a job can cause as often as it likes.
    pub(crate) fn notice(&self, text: impl std::fmt::Display) {
        lock(&self.notices).warn(std::time::Instant::now(), text);
    }

    /// Learns from the device how much memory a program that just ended really took.
    pub(crate) fn learn(&self, program: &programs::Program<D>) {
        let peak = || self.engine.look(|engine, _| engine.ledger().peak_bytes());
        let more_bytes = self.audit.unexpected_bytes(&*self.device, peak);
        if more_bytes > 0 {
            program.learn(more_bytes);
        }
    }

    /// Starts the threads that wake the engine, prepare host memory for pages and look for overdue
    /// launches.
    fn start_threads(self: &Arc<Self>) -> std::io::Result<()> {
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let (alarm, pages) = (Arc::clone(self), Arc::clone(&self.pages));
        thread("alarm").spawn(move || alarm.engine.keep_time())?;
        thread("pages").spawn(move || pages.prepare())?;
        let host = Arc::clone(self);
        thread("overdue").spawn(move || observe::overdue::watch(&host))?;
        Ok(())
    }
}

/// The engine of a device.
fn engine(policy: Policy, room: Room, device: &Description, lanes: u32) -> Engine {
    let engine = Engine::new(policy, room, device.lanes, lanes);
    match device.on_host {
        true => engine,
        false => engine.with_own_memory(),
    }
}

/// The process. Returns when the supervisor closes the connection.
pub fn main(control: UnixStream, settings: &HostSettings) -> ExitCode {
    end_at_a_panic();
    let supervisor = Supervisor::new(control);
    let (opened, held) = match open(Process::DeviceHost, settings) {
        Ok(opened) => opened,
        Err(error) => {
            supervisor.send(Failed { error });
            return ExitCode::FAILURE;
        }
    };
    held.log_missing("device host");
    match opened {
        Opened::Pjrt(device) => serve(device, settings, &supervisor),
        Opened::Scripted(device) => serve(device, settings, &supervisor),
    }
}

/// For the panic hook and signal handlers, which have no `Host`.
static BOARD: OnceLock<board::Writer> = OnceLock::new();

/// A panic is a bug of Salus and may leave shared state half changed. The process ends, all jobs get an
/// error at once and the supervisor starts a new device host; otherwise some would hang in this one.
fn end_at_a_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if let Some(writer) = BOARD.get() {
            // So that no job's program is blamed for it.
            writer.board().panicked();
        }
        std::process::abort();
    }));
}

/// The lanes that were asked for are there. Fewer would change what the service does without a word.
fn check_lanes(settings: &HostSettings, has: u32) -> Result<(), Error> {
    let asked = settings.device.lanes.unwrap_or(1);
    if asked <= has {
        return Ok(());
    }
    let name = &settings.device.name;
    let lanes = if has == 1 { "lane" } else { "lanes" };
    let message = format!("`{name}` has {has} {lanes}, and {asked} are asked for");
    Err(
        Error::new(ErrorCode::InvalidArgument, message).hint(format!(
            "`--lanes {has}`, or `lanes = {has}` in [device] of salus.toml; only the CPU device has more than \
             one lane"
        )),
    )
}

/// Says that a policy which runs iterations side by side has no lanes for it.
fn warn_of_one_lane(policy: Policy, lanes: u32) {
    if policy.co_runs() && lanes == 1 {
        log::warn(format_args!(
            "`{}` runs programs side by side in lanes, and this device has one lane",
            policy.name()
        ));
    }
}

fn serve<D: Device>(device: D, settings: &HostSettings, supervisor: &Supervisor) -> ExitCode {
    let description = device.description().clone();
    if let Err(error) = check_lanes(settings, description.lanes) {
        supervisor.send(Failed { error });
        return ExitCode::FAILURE;
    }
    warn_of_one_lane(settings.scheduling.policy, description.lanes);
    let compilers = compilers(&description, settings, supervisor);
    let host = Host::new(device, settings, supervisor, &compilers);
    let host = host.and_then(|host| {
        let watched = observe::health::start(&host, observe::health::end_process);
        watched.map_err(|e| resource_exhausted(format!("no thread can be started: {e}")))?;
        Ok(host)
    });
    let host = match host {
        Ok(host) => host,
        Err(error) => {
            supervisor.send(Failed { error });
            return ExitCode::FAILURE;
        }
    };
    if settings.devices > 1
        && let Err(e) = observe::load::start(&host)
    {
        let error = resource_exhausted(format!("no thread can be started: {e}"));
        supervisor.send(Failed { error });
        return ExitCode::FAILURE;
    }
    supervisor.send(Up {
        description,
        json: observe::report::text(&host),
    });
    compilers.prepare();
    supervisor::listen(&host, &compilers)
}

/// The compilers of the device.
fn compilers(
    description: &Description,
    settings: &HostSettings,
    supervisor: &Supervisor,
) -> AllCompilers {
    let new = |most, seconds: u32| {
        let limit = std::time::Duration::from_secs(seconds.into());
        Compilers::new(supervisor.clone(), most, limit)
    };
    let mut plain = new(settings.compilers_max(), settings.limits.compile_seconds);
    let mut tuning = None;
    if Strength::of(&settings.device.name) == Strength::Light {
        plain = plain.without_the_device(description.clone());
        if settings.compilers.tune && TUNED_PLATFORMS.contains(&&*description.platform_name) {
            let one = new(1, settings.compilers.tune_seconds);
            tuning = Some(Arc::new(one.that_tune(description.clone())));
        }
    }
    AllCompilers {
        plain: Arc::new(plain),
        tuning,
    }
}

fn seconds(seconds: u32) -> salus_engine::Duration {
    salus_engine::Duration(u64::from(seconds) * 1_000_000_000)
}
