//! Knows whether this process is a fork of the one that made a client.
//!
//! A forked child has our memory but not our threads, and shares the socket with its parent: if it
//! spoke there it would spoil the parent's session, and by holding the socket open it would keep
//! the session alive after the parent's death. So a handler in the child counts generations and
//! closes the sockets; every entry point then sees that its client is of an earlier generation.
//!
//! Promise: in the child nothing of the parent's is sent, freed or waited for.
//! Cost: one relaxed load per call.
#![expect(unsafe_code, reason = "pthread_atfork has no safe wrapper")]

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Counts forks between the first client's process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Sockets to close in a child. A process has one client as a rule; one that finds no place here is
/// merely not closed.
static SOCKETS: [AtomicI32; 32] = [const { AtomicI32::new(-1) }; 32];

/// Runs in a forked child, where only async-signal-safe functions may be called.
unsafe extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for socket in &SOCKETS {
        let descriptor = socket.swap(-1, Ordering::Relaxed);
        if descriptor >= 0 {
            // SAFETY: the child's copy of a session's socket, which no code of the child uses: its
            // client is of an earlier generation, and its owner is never dropped there.
            unsafe { rustix::io::close(descriptor) };
        }
    }
}

/// The generation that a new client belongs to.
pub(crate) fn generation() -> u32 {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the handler is async-signal-safe and lives as long as this library, which
        // unregisters it when it is unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}

pub(crate) fn is_current(generation: u32) -> bool {
    GENERATION.load(Ordering::Relaxed) == generation
}

/// Has `socket` closed in forked children.
pub(crate) fn close_in_children(socket: BorrowedFd<'_>) {
    let descriptor = socket.as_raw_fd();
    for place in &SOCKETS {
        let free = place.compare_exchange(-1, descriptor, Ordering::Relaxed, Ordering::Relaxed);
        if free.is_ok() {
            return;
        }
    }
}

/// Takes back [`close_in_children`], before the socket is closed here.
pub(crate) fn forget(descriptor: RawFd) {
    for place in &SOCKETS {
        let _ = place.compare_exchange(descriptor, -1, Ordering::Relaxed, Ordering::Relaxed);
    }
}
