//! The device host: owns one device and runs the iterations of every session on it.
//!
//! The main thread listens to the supervisor, which sends the sockets of jobs; each session has a
//! thread that reads its job's frames and, when the engine says so, starts its iterations. What
//! ends on the device is told to the job from the plugin's own thread, so that a job that waits is
//! one hop away.
//!
//! Promise: nothing here waits for a job; a session that does not read is closed.
//! Not here: accepting, versions, credentials (supervisor); compiling (compiler).

mod admission;
mod arrays;
mod callbacks;
mod compilers;
mod dying;
mod heap;
mod history;
mod launch;
mod leases;
mod operations;
mod outgoing;
mod overdue;
mod pages;
mod paging;
mod profile;
mod programs;
mod read;
mod reality;
mod report;
mod scheduling;
mod session;
mod terms;
mod trace;
mod turns;
mod uploads;

#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock};

use salus_channel::{Inbox, Outbox, Received};
use salus_device::Device;
use salus_wire::{
    AskTrace, Error, Failed, FromHost, Reported, SessionClosed, ToHost, Traced, Up, Wire, limits,
};

use crate::board;
use crate::cache::{Disk, Platform};
use crate::config::HostSettings;
use crate::log;
use salus_engine::{Engine, Event, Policy, SessionId};

use crate::opened::{Opened, open};
use crate::sandbox::Process;
use compilers::Compilers;
use programs::{Program, Programs};
use scheduling::Scheduling;
use session::Session;

/// What all sessions of the device share.
pub(crate) struct Host<D: Device> {
    pub(crate) device: Arc<D>,
    pub(crate) scheduling: Scheduling<D>,
    pub(crate) programs: Arc<Programs<D>>,
    /// Host memory for arrays that were paged out.
    pub(crate) pages: Arc<pages::Pool>,
    pub(crate) reality: reality::Reality,
    /// What earlier runs of the same programs came to.
    pub(crate) history: history::History,
    /// Arrays that jobs give are copied into memory that they cannot write.
    copy_uploads: bool,
    /// The most that a session may hold that has no limit of its own.
    session_bytes_max: Option<u64>,
    /// How long a callback may take.
    callback_limit: std::time::Duration,
    launchers: callbacks::Launchers,
    overdue: overdue::Limits,
    /// Where the supervisor looks for what ran, should this process die.
    board: OnceLock<board::Writer>,
    pub(crate) supervisor: Supervisor,
}

/// Which part of the host's memory for pages may be kept warm while no page is in it.
const PAGES_KEPT: u64 = 4;

impl<D: Device> Host<D> {
    /// What a session may hold that asked for this limit, 0 being none: no more than the service
    /// allows to each.
    fn session_limit(&self, asked: u64) -> Option<u64> {
        let asked = Some(asked).filter(|bytes| *bytes > 0);
        match (asked, self.session_bytes_max) {
            (Some(asked), Some(most)) => Some(asked.min(most)),
            (asked, most) => asked.or(most),
        }
    }

    /// Says that a program runs, until what is returned is dropped.
    fn runs(&self, lane: u64, session: SessionId, program: &Program<D>) -> Option<board::Taken> {
        let writer = self.board.get()?;
        let name = &program.signature.name;
        Some(writer.begin(lane, session.0, program.number.0, name))
    }

    /// What the device holds beyond what the ledger says, if it tells; a large drift is logged.
    fn drift_bytes(&self) -> Option<u64> {
        let known = self.scheduling.look(|engine, _| {
            let ledger = engine.ledger();
            ledger.resident_bytes() + ledger.scratch_bytes()
        });
        self.reality.drift_bytes(&*self.device, known)
    }

    /// Learns from the device what a program that just ended really takes.
    pub(crate) fn learn(&self, program: &programs::Program<D>) {
        let peak = || {
            self.scheduling
                .look(|engine, _| engine.ledger().peak_bytes())
        };
        let more_bytes = self.reality.surprise_bytes(&*self.device, peak);
        if more_bytes > 0 {
            program.learn(more_bytes);
        }
    }

    /// Starts the thread that wakes the engine, and the one that prepares memory for pages.
    fn start_threads(self: &Arc<Self>) -> std::io::Result<()> {
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let (alarm, pages) = (Arc::clone(self), Arc::clone(&self.pages));
        thread("alarm").spawn(move || alarm.scheduling.keep_time())?;
        thread("pages").spawn(move || pages.prepare())?;
        let host = Arc::clone(self);
        thread("overdue").spawn(move || overdue::watch(&host))?;
        Ok(())
    }
}

/// The way back to the supervisor, for the few things that the host says unasked.
#[derive(Clone)]
pub(crate) struct Supervisor {
    socket: Arc<UnixStream>,
    outbox: Arc<Mutex<Outbox>>,
}

impl Supervisor {
    pub(crate) fn send(&self, message: impl Into<FromHost>) {
        self.send_with(message, None);
    }

    fn send_with(&self, message: impl Into<FromHost>, descriptor: Option<OwnedFd>) {
        let mut outbox = self.outbox.lock().expect("no panic under this lock");
        outbox.push(&message.into(), descriptor);
        // A supervisor that is gone is noticed where its frames are read.
        let _ = outbox.flush(&*self.socket, true);
    }
}

/// The process. Returns when the supervisor closes the connection.
pub fn main(control: UnixStream, settings: &HostSettings) -> ExitCode {
    end_at_a_panic();
    let supervisor = Supervisor {
        socket: Arc::new(control),
        outbox: Arc::new(Mutex::new(Outbox::default())),
    };
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

/// For the hook above all: a panic knows no host.
static BOARD: OnceLock<board::Writer> = OnceLock::new();

/// A panic is a bug of ours and may leave what sessions share half changed. All of them get an
/// error at once and the supervisor starts a new device host, rather than some hanging in this one.
fn end_at_a_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if let Some(writer) = BOARD.get() {
            // No job's program is to blame for it.
            writer.board().panicked();
        }
        std::process::abort();
    }));
}

fn serve<D: Device>(device: D, settings: &HostSettings, supervisor: &Supervisor) -> ExitCode {
    let description = device.description().clone();
    let device = Arc::new(device);
    let compilers = Arc::new(Compilers::new(
        supervisor.clone(),
        settings.compilers_max(),
        std::time::Duration::from_secs(settings.compile_seconds),
    ));
    let programs = Programs::start(
        Arc::clone(&device),
        Platform::of(&description),
        Disk::open(&settings.cache_dir, settings.cache_disk_bytes),
        Arc::clone(&compilers),
        settings,
    );
    let room = settings.room(&description);
    let host = Arc::new(Host {
        scheduling: Scheduling::new(Engine::new(
            Policy::named(&settings.policy).unwrap_or(Policy::Fair),
            room,
            description.lanes,
            settings.lanes.unwrap_or(1),
        )),
        history: history::History::open(&settings.cache_dir),
        reality: reality::Reality::new(&*device, description.capacity_bytes - room.device_bytes),
        device,
        programs,
        pages: pages::Pool::new(room.host_bytes / PAGES_KEPT),
        copy_uploads: settings.copies_uploads(),
        session_bytes_max: settings.session_bytes_max,
        callback_limit: std::time::Duration::from_secs(settings.callback_seconds),
        launchers: callbacks::Launchers::default(),
        overdue: overdue::Limits {
            first: seconds(settings.first_iteration_seconds),
            most: settings.iteration_seconds.map(seconds),
        },
        board: OnceLock::new(),
        supervisor: supervisor.clone(),
    });
    if let Err(e) = host.start_threads() {
        let message = format!("no thread can be started: {e}");
        supervisor.send(Failed {
            error: Error { code: 8, message },
        });
        return ExitCode::FAILURE;
    }
    supervisor.send(Up {
        description,
        json: report::text(&host),
    });
    compilers.prepare();
    let mut inbox = Inbox::default();
    loop {
        match inbox.take::<ToHost>() {
            Ok(Some(received)) => handle(&host, &compilers, supervisor, received),
            Ok(None) => match inbox.fill(&*supervisor.socket, true) {
                Ok(n) if n > 0 => {}
                _ => return ExitCode::SUCCESS,
            },
            Err(e) => {
                let message = format!("the supervisor sent what it should not: {e}");
                supervisor.send(Failed {
                    error: Error { code: 13, message },
                });
                return ExitCode::FAILURE;
            }
        }
    }
}

fn seconds(seconds: u64) -> salus_engine::Duration {
    salus_engine::Duration(seconds.saturating_mul(1_000_000_000))
}

fn handle<D: Device>(
    host: &Arc<Host<D>>,
    compilers: &Compilers,
    supervisor: &Supervisor,
    received: Received<ToHost>,
) {
    match (received.message, received.descriptor) {
        (ToHost::Adopt(adopt), Some(descriptor)) => Session::start(host, adopt, descriptor.into()),
        (ToHost::Report(report), _) => {
            send_report(host, supervisor, report.request);
        }
        (ToHost::Changed(changed), _) => {
            let session = salus_engine::SessionId(changed.session);
            terms::change(host, session, changed.change);
            send_report(host, supervisor, changed.request);
        }
        (ToHost::Ordered(ordered), _) => {
            if let Some(policy) = Policy::named(&ordered.policy) {
                host.scheduling.tell(Event::Ordered { policy }, None);
            }
            send_report(host, supervisor, ordered.request);
        }
        (ToHost::AskTrace(asked), _) => send_trace(host, supervisor, &asked),
        (ToHost::Board(_), descriptor) => {
            let opened = descriptor.map(board::Board::open);
            match opened {
                Some(Ok(board)) => {
                    let writer = board::Writer::new(board);
                    host.programs.set_board(writer.clone());
                    let _ = BOARD.set(writer.clone());
                    let _ = host.board.set(writer);
                    if let Err(e) = dying::note_who_sends_signals() {
                        log::warn(format_args!("senders of signals cannot be told: {e}"));
                    }
                }
                Some(Err(e)) => log::warn(format_args!("what runs cannot be written down: {e}")),
                None => log::warn("no descriptor is left to write down what runs"),
            }
        }
        (ToHost::Convicted(convicted), _) => {
            host.programs.convict(convicted.program, convicted.why);
        }
        (ToHost::CompilerJoined(joined), Some(descriptor)) => {
            compilers.joined(joined.compiler, descriptor.into());
        }
        (ToHost::CompilerEnded(ended), _) => compilers.ended(ended.compiler, ended.how),
        // The job sees the end of its connection.
        (ToHost::Adopt(adopt), None) => {
            let session = adopt.session;
            log::error(format_args!(
                "session {session} is not opened: no descriptor is left for its connection; a higher \
                 limit of open files (`ulimit -n`) allows more jobs"
            ));
            supervisor.send(SessionClosed { session });
        }
        (ToHost::CompilerJoined(joined), None) => {
            let how = "no descriptor was left for its connection";
            compilers.ended(joined.compiler, how.into());
        }
    }
}

/// Sends how things are, in memory of its own if no frame holds it.
fn send_report<D: Device>(host: &Host<D>, supervisor: &Supervisor, request: u64) {
    match salus_channel::with_text(report::text(host), limits::JSON_BYTES) {
        Ok((json, blob)) => supervisor.send_with(Reported { request, json }, blob),
        // The supervisor says that nothing came.
        Err(e) => log::warn(format_args!("no memory for a report: {e}")),
    }
}

/// Sends what happened, in memory of its own because no frame holds it.
fn send_trace<D: Device>(host: &Host<D>, supervisor: &Supervisor, asked: &AskTrace) {
    let mut copied = host.scheduling.recorded();
    if let Some(uid) = asked.names_of {
        copied.hide_names_from(uid);
    }
    let recording = copied.recording(host.device.description(), asked.seconds);
    let mut data = Vec::new();
    recording.put(&mut data);
    let (request, bytes) = (asked.request, data.len() as u64);
    match salus_channel::blob(&data) {
        Ok(blob) => supervisor.send_with(Traced { request, bytes }, Some(blob)),
        // The supervisor says that nothing came.
        Err(e) => log::warn(format_args!("no memory for a trace of {bytes} bytes: {e}")),
    }
}
