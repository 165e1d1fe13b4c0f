//! The pool of compiler processes, as the device host sees it: connections that come and go.
//!
//! The supervisor starts them when they are wanted. One that dies takes one compilation with it and
//! is replaced by the next that is wanted.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use salus_channel::{Inbox, blob, open_blob, send_all};
use salus_wire::{
    CompileRequest, CompilerWanted, Error, FromCompiler, Reader, StoredProgram, ToCompiler, Wire,
};

use super::Supervisor;

/// A compiler starts in a tenth of a second; this long without one means that none can start.
const START_DEADLINE: Duration = Duration::from_secs(60);
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

/// How long the supervisor may take to tell how a compiler ended.
const OBITUARY_DEADLINE: Duration = Duration::from_secs(2);

pub(super) struct Compilers {
    supervisor: Supervisor,
    limit: u32,
    start_deadline: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    /// Started or asked for.
    count: u32,
    /// How those ended whose end nobody has read yet.
    ended: BTreeMap<u64, String>,
}

pub(super) struct Connection {
    id: u64,
    socket: UnixStream,
}

impl Compilers {
    pub(super) fn new(supervisor: Supervisor, limit: u32) -> Self {
        Self {
            supervisor,
            limit: limit.max(1),
            start_deadline: START_DEADLINE,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Has one compiler started ahead of the first program.
    pub(super) fn prepare(&self) {
        let mut state = self.state.lock().expect("no panic under this lock");
        self.want(&mut state);
    }

    fn want(&self, state: &mut State) {
        if state.count < self.limit {
            state.count += 1;
            self.supervisor.send(CompilerWanted { count: 1 });
        }
    }

    pub(super) fn joined(&self, id: u64, socket: UnixStream) {
        let mut state = self.state.lock().expect("no panic under this lock");
        state.idle.push(Connection { id, socket });
        self.changed.notify_one();
    }

    pub(super) fn ended(&self, id: u64, how: String) {
        let mut state = self.state.lock().expect("no panic under this lock");
        let before = state.idle.len();
        state.idle.retain(|connection| connection.id != id);
        if state.idle.len() < before {
            // It died idle: nobody will ask how.
            state.count = state.count.saturating_sub(1);
        } else {
            state.ended.insert(id, how);
        }
        self.changed.notify_all();
    }

    /// Compiles in one of the processes, waiting for a free one.
    pub(super) fn compile(
        &self,
        format: &str,
        code: &[u8],
        options: &[u8],
    ) -> Result<StoredProgram, Error> {
        let connection = self.take()?;
        match converse(&connection, format, code, options) {
            Ok(result) => {
                let mut state = self.state.lock().expect("no panic under this lock");
                state.idle.push(connection);
                drop(state);
                self.changed.notify_one();
                result
            }
            Err(e) => Err(self.lost(connection, &e.to_string())),
        }
    }

    fn take(&self) -> Result<Connection, Error> {
        let deadline = Instant::now() + self.start_deadline;
        let mut state = self.state.lock().expect("no panic under this lock");
        loop {
            if let Some(connection) = state.idle.pop() {
                return Ok(connection);
            }
            self.want(&mut state);
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                // Busy ones are not a failure: compilations may take minutes.
                if state.count > 0 && state.ended.is_empty() {
                    drop(state);
                    return self.take();
                }
                return Err(error(
                    UNAVAILABLE,
                    format!(
                        "no compiler process could be started within {} s, so the program was not \
                         compiled: see the service's log for the reason, then start the job again",
                        self.start_deadline.as_secs_f64()
                    ),
                ));
            };
            state = self
                .changed
                .wait_timeout(state, left)
                .expect("no panic under this lock")
                .0;
        }
    }

    fn lost(&self, connection: Connection, symptom: &str) -> Error {
        let deadline = Instant::now() + OBITUARY_DEADLINE;
        let mut state = self.state.lock().expect("no panic under this lock");
        state.count = state.count.saturating_sub(1);
        let how = loop {
            if let Some(how) = state.ended.remove(&connection.id) {
                break how;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                break symptom.to_owned();
            };
            state = self
                .changed
                .wait_timeout(state, left)
                .expect("no panic under this lock")
                .0;
        };
        // Not `UNAVAILABLE`, which would say that trying again may help.
        error(
            INTERNAL,
            format!(
                "the compiler process ended while it compiled this program ({how}); no other job \
                 is affected. The vendor's compiler cannot cope with the program: change the \
                 program, or report it to the vendor"
            ),
        )
    }
}

fn error(code: u32, message: impl Into<String>) -> Error {
    Error {
        code,
        message: message.into(),
    }
}

/// One request and its answer. An outer error means that the process is gone or talks nonsense.
fn converse(
    connection: &Connection,
    format: &str,
    code: &[u8],
    options: &[u8],
) -> std::io::Result<Result<StoredProgram, Error>> {
    let request = CompileRequest {
        format: format.to_owned(),
        code_bytes: code.len() as u64,
        options: options.to_vec(),
    };
    send_all(
        &connection.socket,
        &ToCompiler::from(request),
        Some(blob(code)?),
    )?;
    let mut inbox = Inbox::default();
    let received = loop {
        match inbox
            .take::<FromCompiler>()
            .map_err(std::io::Error::other)?
        {
            Some(received) => break received,
            None if inbox.fill(&connection.socket, true)? == 0 => {
                return Err(std::io::Error::other("it closed the connection"));
            }
            None => {}
        }
    };
    match (received.message, received.descriptor) {
        (FromCompiler::CompileResult(result), Some(descriptor)) => {
            let bytes = open_blob(descriptor, result.bytes)?;
            let program = StoredProgram::take(&mut Reader::new(&bytes), 0);
            program.map(Ok).map_err(std::io::Error::other)
        }
        (FromCompiler::CompileError(failure), _) => Ok(Err(failure.error)),
        _ => Err(std::io::Error::other("it sent no program")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn compilers(start_deadline: Duration) -> (Compilers, UnixStream) {
        let (ours, supervisors) = UnixStream::pair().expect("a pair of sockets");
        let supervisor = Supervisor {
            socket: Arc::new(ours),
            outbox: Arc::default(),
        };
        let mut compilers = Compilers::new(supervisor, 1);
        compilers.start_deadline = start_deadline;
        (compilers, supervisors)
    }

    #[test]
    fn no_compiler_is_a_service_that_is_not_there() {
        let (compilers, _supervisor) = compilers(Duration::ZERO);
        // The one that was asked for could not be started, and the supervisor says so.
        compilers.prepare();
        compilers.ended(1, "it could not be started".into());
        let error = compilers.compile("mlir", b"code", b"").expect_err("none");
        assert_eq!(error.code, UNAVAILABLE);
        assert!(error.message.contains("within 0 s"), "{}", error.message);
    }

    #[test]
    fn a_compiler_that_dies_of_a_program_says_how() {
        let (compilers, _supervisor) = compilers(START_DEADLINE);
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        compilers.joined(1, ours);
        let error = std::thread::scope(|scope| {
            let compiling = scope.spawn(|| compilers.compile("mlir", b"code", b""));
            let mut inbox = Inbox::default();
            while inbox.take::<ToCompiler>().expect("a frame").is_none() {
                assert_ne!(inbox.fill(&theirs, true).expect("a frame"), 0);
            }
            compilers.ended(1, "signal 11".into());
            drop(theirs);
            compiling.join().expect("no panic").expect_err("it died")
        });
        assert_eq!(error.code, INTERNAL);
        assert!(error.message.contains("(signal 11)"), "{}", error.message);
    }
}
