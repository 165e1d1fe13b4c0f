//! The pool of compiler processes, as the device host sees it: connections that come and go.
//!
//! The supervisor starts them when they are wanted, and ends them when a compilation takes too long or
//! nobody waits for it any more ([`Cancel`]). One that dies takes one compilation with it and is
//! replaced by the next that is wanted; one that was killed from outside does not even do that.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use salus_channel::{Inbox, blob, open_blob, send_all};
use salus_wire::{
    CompileRequest, CompilerUnwanted, CompilerWanted, Error, FromCompiler, Reader, StoredProgram,
    ToCompiler, Wire,
};

use super::Supervisor;

/// A compiler starts in a tenth of a second; this long without one means that none can start.
const START_DEADLINE: Duration = Duration::from_secs(60);
const CANCELLED: u32 = 1;
const DEADLINE_EXCEEDED: u32 = 4;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

/// How long the supervisor may take to tell how a compiler ended.
const OBITUARY_DEADLINE: Duration = Duration::from_secs(2);

pub(super) struct Compilers {
    supervisor: Supervisor,
    limit: u32,
    start_deadline: Duration,
    /// How long a compilation may take.
    compile_limit: Duration,
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
    /// Found dead before they were told to have ended.
    dead: BTreeSet<u64>,
}

/// Ends a compilation that nobody waits for any more.
#[derive(Debug, Default)]
pub(super) struct Cancel(Mutex<Compilation>);

#[derive(Debug, Default)]
struct Compilation {
    cancelled: bool,
    /// The process that is at it.
    compiler: Option<u64>,
}

impl Cancel {
    fn lock(&self) -> std::sync::MutexGuard<'_, Compilation> {
        self.0.lock().expect("no panic under this lock")
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.lock().cancelled
    }

    /// False if it was cancelled before.
    fn begin(&self, compiler: u64) -> bool {
        let mut compilation = self.lock();
        compilation.compiler = Some(compiler);
        !compilation.cancelled
    }

    /// From here on the process is not ended on its account. False if it has been.
    fn end(&self) -> bool {
        let mut compilation = self.lock();
        compilation.compiler = None;
        !compilation.cancelled
    }
}

pub(super) struct Connection {
    id: u64,
    socket: UnixStream,
}

impl Compilers {
    pub(super) fn new(supervisor: Supervisor, limit: u32, compile_limit: Duration) -> Self {
        Self {
            supervisor,
            limit: limit.max(1),
            start_deadline: START_DEADLINE,
            compile_limit,
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
        } else if !state.dead.remove(&id) {
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
        cancel: &Cancel,
    ) -> Result<StoredProgram, Error> {
        match self.compile_once(format, code, options, cancel) {
            Err(Lost::FromOutside) => {}
            Err(Lost::Failed(error)) => return Err(error),
            Ok(result) => return result,
        }
        let again = self.compile_once(format, code, options, cancel);
        again.unwrap_or_else(|lost| match lost {
            Lost::Failed(error) => Err(error),
            Lost::FromOutside => Err(error(
                UNAVAILABLE,
                "two compiler processes were killed while they compiled this program; if the machine \
                 has run out of memory, its log says so, and fewer compilers (`[compilers] count`) \
                 need less",
            )),
        })
    }

    fn compile_once(
        &self,
        format: &str,
        code: &[u8],
        options: &[u8],
        cancel: &Cancel,
    ) -> Result<Result<StoredProgram, Error>, Lost> {
        let connection = self.take().map_err(Lost::Failed)?;
        let began = cancel.begin(connection.id);
        let answer = match began {
            true => converse(&connection, format, code, options, self.compile_limit),
            false => Ok(Err(cancelled())),
        };
        // Between the answer and here it may still have been cancelled, and then it is being ended.
        let spared = cancel.end() || !began;
        let late = matches!(&answer, Err(e) if is_late(e.kind()));
        match answer {
            Ok(result) if spared => {
                let mut state = self.state.lock().expect("no panic under this lock");
                state.idle.push(connection);
                drop(state);
                self.changed.notify_one();
                return Ok(result);
            }
            Ok(_) => {}
            Err(_) if late && spared => {
                let compiler = connection.id;
                self.supervisor.send(CompilerUnwanted { compiler });
            }
            Err(_) => {}
        }
        let how = self.obituary(connection);
        if !spared {
            return Err(Lost::Failed(cancelled()));
        }
        if late {
            return Err(Lost::Failed(error(
                DEADLINE_EXCEEDED,
                format!(
                    "the program was not compiled within {} s, so its compilation was ended\n\nhint: \
                     `[limits] compile_seconds` of salus.toml sets how long one may take; nested \
                     loops and very long programs take longest",
                    self.compile_limit.as_secs()
                ),
            )));
        }
        if how.contains("SIGKILL") || how.contains("SIGTERM") {
            return Err(Lost::FromOutside);
        }
        // Not `UNAVAILABLE`, which would say that trying again may help.
        Err(Lost::Failed(error(
            INTERNAL,
            format!(
                "the compiler process ended while it compiled this program ({how}); no other job \
                 is affected. The vendor's compiler cannot cope with the program: change the \
                 program, or report it to the vendor"
            ),
        )))
    }

    /// Nobody waits for this compilation any more.
    pub(super) fn cancel(&self, cancel: &Cancel) {
        let mut compilation = cancel.lock();
        if !std::mem::replace(&mut compilation.cancelled, true)
            && let Some(compiler) = compilation.compiler
        {
            self.supervisor.send(CompilerUnwanted { compiler });
        }
    }

    fn take(&self) -> Result<Connection, Error> {
        let deadline = Instant::now() + self.start_deadline;
        let mut state = self.state.lock().expect("no panic under this lock");
        loop {
            while let Some(connection) = state.idle.pop() {
                if connection.is_alive() {
                    return Ok(connection);
                }
                state.count = state.count.saturating_sub(1);
                state.dead.insert(connection.id);
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

    /// How the process ended, which the supervisor knows.
    fn obituary(&self, connection: Connection) -> String {
        let deadline = Instant::now() + OBITUARY_DEADLINE;
        let mut state = self.state.lock().expect("no panic under this lock");
        state.count = state.count.saturating_sub(1);
        loop {
            if let Some(how) = state.ended.remove(&connection.id) {
                return how;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                state.dead.insert(connection.id);
                return "nobody has told how".into();
            };
            state = self
                .changed
                .wait_timeout(state, left)
                .expect("no panic under this lock")
                .0;
        }
    }
}

/// Why a compilation has no answer.
enum Lost {
    /// Somebody has killed the process: the program may compile in another.
    FromOutside,
    Failed(Error),
}

impl Connection {
    /// An idle compiler says nothing: whatever there is to read is its end.
    fn is_alive(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut polled, Some(&now)), Ok(0))
    }
}

fn cancelled() -> Error {
    error(CANCELLED, "nobody waits for this program any more")
}

/// How a read with a time limit says that it is over.
fn is_late(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
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
    limit: Duration,
) -> std::io::Result<Result<StoredProgram, Error>> {
    connection.socket.set_read_timeout(Some(limit))?;
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
        let mut compilers = Compilers::new(supervisor, 1, START_DEADLINE);
        compilers.start_deadline = start_deadline;
        (compilers, supervisors)
    }

    #[test]
    fn no_compiler_is_a_service_that_is_not_there() {
        let (compilers, _supervisor) = compilers(Duration::ZERO);
        // The one that was asked for could not be started, and the supervisor says so.
        compilers.prepare();
        compilers.ended(1, "it could not be started".into());
        let error = compilers
            .compile("mlir", b"code", b"", &Cancel::default())
            .expect_err("none");
        assert_eq!(error.code, UNAVAILABLE);
        assert!(error.message.contains("within 0 s"), "{}", error.message);
    }

    #[test]
    fn a_compiler_that_dies_of_a_program_says_how() {
        let (compilers, _supervisor) = compilers(START_DEADLINE);
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        compilers.joined(1, ours);
        let error = std::thread::scope(|scope| {
            let compiling =
                scope.spawn(|| compilers.compile("mlir", b"code", b"", &Cancel::default()));
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
