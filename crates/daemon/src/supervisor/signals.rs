//! Signals as readable sockets, so that the loop waits for them as for everything else.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::SigId;
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

/// Some signals whose arrival makes a socket readable.
#[derive(Debug)]
pub(super) struct Signals {
    reader: UnixStream,
    registrations: Vec<SigId>,
}

impl Signals {
    /// A child's state changed.
    pub(super) fn of_children() -> io::Result<Self> {
        Self::new(&[SIGCHLD])
    }

    /// Somebody wants the service to end.
    pub(super) fn to_end() -> io::Result<Self> {
        Self::new(&[SIGTERM, SIGINT])
    }

    fn new(signals: &[i32]) -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        let mut registrations = Vec::new();
        for &signal in signals {
            registrations.push(pipe::register(signal, writer.try_clone()?)?);
        }
        Ok(Self {
            reader,
            registrations,
        })
    }

    /// Whether any came since the last call.
    pub(super) fn take(&self) -> bool {
        let mut bytes = [0; 64];
        let mut came = false;
        while matches!((&self.reader).read(&mut bytes), Ok(n) if n > 0) {
            came = true;
        }
        came
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registrations.drain(..) {
            unregister(id);
        }
    }
}
