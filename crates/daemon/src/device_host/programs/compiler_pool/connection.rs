//! The connection to one compiler process: one request and its answer at a time.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use salus_channel::{Inbox, blob, open_blob, send_all};
use salus_wire::{CompileRequest, Error, FromCompiler, Reader, StoredProgram, ToCompiler, Wire};

pub(crate) struct Connection {
    pub(super) id: u64,
    pub(super) socket: UnixStream,
}

/// What is compiled.
pub(crate) struct Source<'a> {
    pub(crate) format: &'a str,
    pub(crate) code: &'a [u8],
    pub(crate) options: &'a [u8],
}

impl Connection {
    /// An idle compiler says nothing: whatever there is to read is its end.
    pub(super) fn is_alive(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        let now = Timespec::default();
        matches!(poll(&mut polled, Some(&now)), Ok(0))
    }

    /// One request and its answer. An outer error means that the process is gone, sent what is not an
    /// answer, or did not answer in time ([`is_late`]).
    pub(super) fn compile(
        &self,
        source: &Source<'_>,
        limit: Duration,
    ) -> io::Result<Result<StoredProgram, Error>> {
        self.socket.set_read_timeout(Some(limit))?;
        let request = CompileRequest {
            format: source.format.to_owned(),
            code_bytes: source.code.len() as u64,
            options: source.options.to_vec(),
        };
        let code = blob(source.code)?;
        send_all(&self.socket, &ToCompiler::from(request), Some(code))?;
        let mut inbox = Inbox::default();
        let received = loop {
            match inbox.take::<FromCompiler>().map_err(io::Error::other)? {
                Some(received) => break received,
                None if inbox.fill(&self.socket, true)? == 0 => {
                    return Err(io::Error::other("it closed the connection"));
                }
                None => {}
            }
        };
        match (received.message, received.descriptor) {
            (FromCompiler::CompileResult(result), Some(descriptor)) => {
                let bytes = open_blob(descriptor, result.bytes)?;
                let program = StoredProgram::take(&mut Reader::new(&bytes), 0);
                program.map(Ok).map_err(io::Error::other)
            }
            (FromCompiler::CompileError(failure), _) => Ok(Err(failure.error)),
            _ => Err(io::Error::other("it sent no program")),
        }
    }
}

/// How a read with a time limit says that the limit has passed.
pub(super) fn is_late(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
