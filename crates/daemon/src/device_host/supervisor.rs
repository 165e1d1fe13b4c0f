//! The connection to the supervisor: what it asks of the device host, and what is sent back.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use salus_channel::{Inbox, Outbox, Received, lock};
use salus_device::Device;
use salus_engine::{Event, Policy, SessionId};
use salus_wire::{
    AskTrace, Error, ErrorCode, Failed, FromHost, Reported, SessionClosed, ToHost, Traced, Wire,
    limits,
};

use crate::board;
use crate::device_host::programs::compiler_pool::AllCompilers;
use crate::device_host::session::job_settings;
use crate::device_host::{BOARD, Host, observe, session, warn_of_one_lane};
use crate::log;

/// The connection to the supervisor, for what is sent to it.
#[derive(Clone)]
pub(crate) struct Supervisor {
    socket: Arc<UnixStream>,
    outbox: Arc<Mutex<Outbox>>,
}

impl Supervisor {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self {
            socket: Arc::new(socket),
            outbox: Arc::default(),
        }
    }

    pub(crate) fn send(&self, message: impl Into<FromHost>) {
        self.send_with(message, None);
    }

    fn send_with(&self, message: impl Into<FromHost>, descriptor: Option<OwnedFd>) {
        let mut outbox = lock(&self.outbox);
        outbox.push(&message.into(), descriptor);
        // A supervisor that is gone is noticed where its frames are read.
        let _ = outbox.flush(&*self.socket, true);
    }
}

/// Does what the supervisor asks for, until it closes the connection.
pub(super) fn listen<D: Device>(host: &Arc<Host<D>>, compilers: &AllCompilers) -> ExitCode {
    let mut inbox = Inbox::default();
    loop {
        match inbox.take::<ToHost>() {
            Ok(Some(received)) => handle(host, compilers, received),
            Ok(None) => match inbox.fill(&*host.supervisor.socket, true) {
                Ok(n) if n > 0 => {}
                _ => return ExitCode::SUCCESS,
            },
            Err(e) => {
                let message = format!("the supervisor sent what is not a frame: {e}");
                let error = Error::new(ErrorCode::Internal, message);
                host.supervisor.send(Failed { error });
                return ExitCode::FAILURE;
            }
        }
    }
}

fn handle<D: Device>(host: &Arc<Host<D>>, compilers: &AllCompilers, received: Received<ToHost>) {
    match (received.message, received.descriptor) {
        (ToHost::Adopt(adopt), Some(descriptor)) => session::open(host, adopt, descriptor.into()),
        (ToHost::Report(report), _) => {
            send_report(host, report.request);
        }
        (ToHost::ChangeSession(changed), _) => {
            let session = SessionId(changed.session);
            job_settings::change(host, session, changed.change);
            send_report(host, changed.request);
        }
        (ToHost::ChangePolicy(ordered), _) => {
            match Policy::named(&ordered.policy) {
                Some(policy) => {
                    warn_of_one_lane(policy, host.device.description().lanes);
                    host.engine.tell(Event::PolicyChanged { policy });
                }
                None => log::error(format_args!(
                    "the policy stays as it is: expected the name of one, found `{}`",
                    ordered.policy
                )),
            }
            send_report(host, ordered.request);
        }
        (ToHost::AskTrace(asked), _) => send_trace(host, &asked),
        (ToHost::Board(_), descriptor) => use_board(host, descriptor),
        (ToHost::Convicted(convicted), _) => {
            host.programs.convict(convicted.program, convicted.error);
        }
        (ToHost::CompilerJoined(joined), Some(descriptor)) => {
            compilers.joined(joined.compiler, descriptor.into());
        }
        (ToHost::CompilerEnded(ended), _) => compilers.ended(ended.compiler, &ended.how),
        // The job sees that its connection is closed.
        (ToHost::Adopt(adopt), None) => {
            let session = adopt.session;
            log::error(format_args!(
                "session {session} is not opened: no descriptor is left for its connection; a higher \
                 limit of open files (`ulimit -n`) allows more jobs"
            ));
            host.supervisor.send(SessionClosed { session });
        }
        (ToHost::CompilerJoined(joined), None) => {
            log::error(format_args!(
                "compiler {} is not used: no descriptor is left for its connection",
                joined.compiler
            ));
            compilers.could_not_join();
        }
    }
}

/// From now on the supervisor sees what runs.
fn use_board<D: Device>(host: &Host<D>, descriptor: Option<OwnedFd>) {
    let Some(descriptor) = descriptor else {
        return log::warn("no descriptor is left for the board of running programs");
    };
    match board::Board::open(descriptor) {
        Ok(board) => {
            let writer = board::Writer::new(board);
            host.programs.set_board(writer.clone());
            let _ = BOARD.set(writer.clone());
            let _ = host.board.set(writer);
            if let Err(e) = observe::crash::note_who_sends_signals() {
                log::warn(format_args!(
                    "the senders of signals cannot be found out: {e}"
                ));
            }
        }
        Err(e) => log::warn(format_args!(
            "the board of running programs cannot be used: {e}"
        )),
    }
}

/// Sends the report, in a blob if it is too long for a frame.
fn send_report<D: Device>(host: &Host<D>, request: u64) {
    match salus_channel::with_text(observe::report::text(host), limits::JSON_BYTES) {
        Ok((json, blob)) => host.supervisor.send_with(Reported { request, json }, blob),
        // The supervisor tells its user that nothing came.
        Err(e) => log::warn(format_args!("no memory for a report: {e}")),
    }
}

/// Sends the trace, in a blob because it is too long for a frame.
fn send_trace<D: Device>(host: &Host<D>, asked: &AskTrace) {
    let mut copied = host.engine.recorded();
    if let Some(uid) = asked.names_of {
        copied.hide_names_from(uid);
    }
    let mut recording = copied.recording(host.device.description(), asked.seconds);
    recording.began_unix_ns = host.engine.began_unix_ns();
    let mut data = Vec::new();
    recording.put(&mut data);
    let (request, bytes) = (asked.request, data.len() as u64);
    match salus_channel::blob(&data) {
        Ok(blob) => host
            .supervisor
            .send_with(Traced { request, bytes }, Some(blob)),
        // The supervisor tells its user that nothing came.
        Err(e) => log::warn(format_args!("no memory for a trace of {bytes} bytes: {e}")),
    }
}
