//! Lets go of what others have sent, without waiting for it.
//!
//! The last close of a descriptor may take as long as its owner likes: a socket that lingers, a file
//! in a file system that a user serves. Anybody can send such descriptors with the bytes of a
//! connection, and the process that closes the connection closes them, also those that were never looked at.
//! So the supervisor's own thread closes nothing that comes from outside: threads of a [`Closer`] do.
//! Kernels since 6.16 do not let such descriptors in to begin with ([`keep_descriptors_out`]).
//!
//! Promise: handing something over never waits. At most [`THREADS_MAX`] threads; none when nothing
//! has been closed for a while.
#![expect(unsafe_code, reason = "a socket option that no crate knows yet")]

use std::collections::VecDeque;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use salus_channel::{lock, wait_timeout};

/// As many closes may wait before others have to wait for them.
const THREADS_MAX: usize = 64;
/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(5);

/// Drops things in threads of its own.
#[derive(Debug, Clone, Default)]
pub(super) struct Closer(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<OwnedFd>,
    threads: usize,
    idle: usize,
}

impl Closer {
    pub(super) fn close(&self, descriptor: impl Into<OwnedFd>) {
        let mut state = lock(&self.0.state);
        state.waiting.push_back(descriptor.into());
        if state.idle >= state.waiting.len() {
            return self.0.work.notify_one();
        }
        if state.threads < THREADS_MAX {
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("closes".into());
            // Without a thread it stays open until the next one has its turn.
            if thread.spawn(move || shared.serve()).is_ok() {
                state.threads += 1;
            }
        }
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(descriptor) = state.waiting.pop_front() {
                drop(state);
                drop(descriptor);
                state = lock(&self.state);
                continue;
            }
            state.idle += 1;
            let waited;
            (state, waited) = wait_timeout(&self.work, state, IDLE);
            state.idle -= 1;
            if waited.timed_out() && state.waiting.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// A connection to somebody, which a [`Closer`] closes. The other side sees its end at once.
#[derive(Debug)]
pub(super) struct Link {
    /// Until it is closed or handed on.
    stream: Option<UnixStream>,
    closer: Closer,
}

impl Link {
    pub(super) fn new(stream: UnixStream, closer: &Closer) -> Self {
        Self {
            stream: Some(stream),
            closer: closer.clone(),
        }
    }

    pub(super) fn into_stream(mut self) -> UnixStream {
        self.stream
            .take()
            .expect("it is neither closed nor handed on")
    }
}

impl Deref for Link {
    type Target = UnixStream;

    fn deref(&self) -> &UnixStream {
        self.stream
            .as_ref()
            .expect("it is neither closed nor handed on")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            self.closer.close(stream);
        }
    }
}

/// The kernel's `SO_PASSRIGHTS`.
const SO_PASSRIGHTS: i32 = 83;

/// Has the kernel refuse descriptors on connections to this listener. An error on kernels that
/// cannot.
pub(super) fn keep_descriptors_out(listener: impl AsFd) -> io::Result<()> {
    pass_descriptors(listener, false)
}

/// The peer of this connection has been let in, and may send them.
pub(super) fn let_descriptors_in(connection: impl AsFd) {
    // Where it fails they were never kept out.
    let _ = pass_descriptors(connection, true);
}

fn pass_descriptors(socket: impl AsFd, pass: bool) -> io::Result<()> {
    let value = libc::c_int::from(pass);
    // SAFETY: an open socket, and a value that lives during the call.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{IoSlice, Write};
    use std::mem::MaybeUninit;
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use nix::sys::socket::{setsockopt, sockopt};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

    use super::*;

    /// A socket whose last close waits for a minute, or until the other one is gone.
    pub(crate) fn lingering() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut lingering = TcpStream::connect(address).expect("it listens");
        let (reader, _) = listener.accept().expect("it has connected");
        let minute = libc::linger {
            l_onoff: 1,
            l_linger: 60,
        };
        setsockopt(&lingering, sockopt::Linger, &minute).expect("it is a socket");
        lingering.set_nonblocking(true).expect("it is a socket");
        while lingering.write(&[0; 1 << 16]).is_ok() {}
        lingering.set_nonblocking(false).expect("it is a socket");
        (lingering, reader)
    }

    /// Sends bytes with a descriptor, which is the other side's only.
    pub(crate) fn send(
        to: &UnixStream,
        bytes: &[u8],
        descriptor: TcpStream,
    ) -> Result<(), rustix::io::Errno> {
        let descriptors = [descriptor.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let bytes = [IoSlice::new(bytes)];
        let sent = rustix::net::sendmsg(to, &bytes, &mut control, SendFlags::empty());
        // Where it is kept out, its close must not wait here.
        if sent.is_err() {
            let off = libc::linger {
                l_onoff: 0,
                l_linger: 0,
            };
            setsockopt(&descriptor, sockopt::Linger, &off).expect("it is a socket");
        }
        sent.map(drop)
    }

    const AT_ONCE: Duration = Duration::from_secs(20);

    #[test]
    fn what_waits_to_be_closed_holds_nobody_up() {
        let begin = Instant::now();
        let closer = Closer::default();
        // One that is held, and one that comes unread with its connection.
        let (held, reader) = lingering();
        closer.close(held);
        let (near, far) = UnixStream::pair().expect("a pair");
        let (unread, other_reader) = lingering();
        send(&near, b"x", unread).expect("a pair takes them");
        drop(Link::new(far, &closer));
        // The peer sees the end at once, and what comes later is closed meanwhile. Closed with the
        // peer's byte unread, a connection is reset; before that it is shut down.
        match io::Read::read(&mut &near, &mut [0; 1]) {
            Ok(read) => assert_eq!(read, 0),
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionReset),
        }
        let (watched, end) = UnixStream::pair().expect("a pair");
        closer.close(end);
        assert_eq!(
            io::Read::read(&mut &watched, &mut [0; 1]).expect("closed"),
            0
        );
        assert!(begin.elapsed() < AT_ONCE);
        drop((reader, other_reader));
    }

    #[test]
    fn descriptors_are_kept_out_until_their_sender_is_let_in() {
        let (near, far) = UnixStream::pair().expect("a pair");
        if keep_descriptors_out(&far).is_err() {
            // The kernel is older than 6.16.
            return;
        }
        let (first, reader) = lingering();
        assert_eq!(send(&near, b"x", first), Err(rustix::io::Errno::PERM));
        let_descriptors_in(&far);
        let (second, other_reader) = lingering();
        assert_eq!(send(&near, b"x", second), Ok(()));
        drop((reader, other_reader));
    }
}
