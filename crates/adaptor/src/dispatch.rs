//! The dispatcher: one thread a session that hears the service and tells the job.
//!
//! It reads frames and ends what they name; callbacks run here, with no lock held. It also sends
//! dropped arrays off when the job is quiet: while drops keep coming it looks every few
//! milliseconds instead of being poked for each, and sleeps without a timeout after a while without
//! any.
//!
//! Promise: no signal of the process is handled on this thread; it never waits for the service to
//! read; it ends when the connection does.
#![expect(unsafe_code, reason = "pthread_sigmask has no safe wrapper here")]

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use salus_channel::{Inbox, Received};
use salus_wire::FromService;

use crate::error::Error;
use crate::event::Completion;
use crate::lock;
use crate::session::Session;

/// Drops wait no longer than this for a frame to ride with, when the job is quiet.
const QUIET: Duration = Duration::from_millis(2);
/// How often the dispatcher looks while drops keep coming: rarely enough to cost a steady training
/// loop nothing that can be measured.
const LOOK: Duration = Duration::from_millis(5);
/// Without drops for so long, it sleeps until it is poked.
const DOZE_AFTER: Duration = Duration::from_millis(50);

thread_local! {
    static IS_DISPATCHER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller runs inside a completion callback.
pub(crate) fn is_this_thread() -> bool {
    IS_DISPATCHER.with(Cell::get)
}

pub(crate) fn start(session: Arc<Session>, inbox: Inbox) -> io::Result<JoinHandle<()>> {
    // A new thread inherits the mask: signals of the process stay with the user's threads.
    let old = SignalMask::block_all();
    let thread = std::thread::Builder::new()
        .name("salus-dispatch".into())
        .spawn(move || {
            IS_DISPATCHER.set(true);
            Dispatcher {
                session,
                inbox,
                changes: 0,
                last_drop: None,
            }
            .run();
        });
    old.restore();
    thread
}

/// A `sigset_t`, which is 1024 bits in the C libraries of Linux.
#[repr(C)]
struct SignalMask([u64; 16]);

unsafe extern "C" {
    fn pthread_sigmask(how: i32, set: *const SignalMask, old: *mut SignalMask) -> i32;
}

const SIG_SETMASK: i32 = 2;

impl SignalMask {
    fn block_all() -> Self {
        let mut old = SignalMask([0; 16]);
        // SAFETY: both sets are as long as the C library's.
        unsafe { pthread_sigmask(SIG_SETMASK, &SignalMask([u64::MAX; 16]), &mut old) };
        old
    }

    fn restore(&self) {
        // SAFETY: as above.
        unsafe { pthread_sigmask(SIG_SETMASK, self, std::ptr::null_mut()) };
    }
}

struct Dispatcher {
    session: Arc<Session>,
    inbox: Inbox,
    /// `Drops::changes` when the dispatcher last looked.
    changes: u64,
    /// When drops were last seen to come; `None` while it sleeps without a timeout.
    last_drop: Option<Instant>,
}

impl Dispatcher {
    fn run(mut self) {
        let why = loop {
            if let Err(why) = self.take_frames() {
                break why;
            }
            let timeout = self.send_quiet_drops();
            if let Err(why) = self.wait(timeout) {
                break why;
            }
        };
        self.session.lose(&why);
        let _ = self.session.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Sleeps until there is something to read, a poke, or the timeout; then reads.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), String> {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.as_secs() as _,
            tv_nsec: t.subsec_nanos() as _,
        });
        let mut interest = PollFlags::IN;
        if self.has_unsent() {
            interest |= PollFlags::OUT;
        }
        let session = &self.session;
        let mut fds = [
            PollFd::from_borrowed_fd(session.socket.as_fd(), interest),
            PollFd::from_borrowed_fd(session.poke.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("poll: {e}")),
        }
        let (socket, poke) = (fds[0].revents(), fds[1].revents());
        if !poke.is_empty() {
            let mut count = [0; 8];
            let _ = rustix::io::read(&session.poke, &mut count);
        }
        if socket.contains(PollFlags::OUT) {
            self.write_rest();
        }
        if !(socket - PollFlags::OUT).is_empty() {
            return match self.inbox.fill(self.session.socket.as_fd(), false) {
                Ok(0) => Err("it closed the connection".into()),
                Ok(_) => Ok(()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
                Err(e) => Err(e.to_string()),
            };
        }
        Ok(())
    }

    /// Whether a write of this thread left something; job threads write all or wait.
    fn has_unsent(&self) -> bool {
        match self.session.outgoing.try_lock() {
            Ok(outgoing) => !outgoing.outbox.is_empty(),
            Err(_) => false,
        }
    }

    fn write_rest(&self) {
        if let Ok(mut outgoing) = self.session.outgoing.try_lock() {
            // An error shows as the end of the stream.
            let _ = outgoing.outbox.flush(self.session.socket.as_fd(), false);
        }
    }

    /// Sends drops if none came since the last look. Returns how long to sleep.
    fn send_quiet_drops(&mut self) -> Option<Duration> {
        let mut drops = lock(&self.session.drops);
        let changed = std::mem::replace(&mut self.changes, drops.changes) != drops.changes;
        if drops.is_empty() {
            let now = Instant::now();
            if changed {
                self.last_drop = Some(now);
            }
            return match self.last_drop {
                Some(last) if now.duration_since(last) < DOZE_AFTER => Some(LOOK),
                _ => {
                    self.last_drop = None;
                    drops.asleep = true;
                    None
                }
            };
        }
        drop(drops);
        if changed {
            // Just poked: the first drops of a while. Else more may come before a frame does.
            let first = self.last_drop.replace(Instant::now()).is_none();
            return Some(if first { QUIET } else { LOOK });
        }
        match self.session.outgoing.try_lock() {
            Ok(mut outgoing) => {
                self.session.carry_drops(&mut outgoing.outbox);
                let _ = outgoing.outbox.flush(self.session.socket.as_fd(), false);
            }
            // Somebody writes: the drops ride with that or the next look finds them.
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Poisoned(_)) => {}
        }
        Some(LOOK)
    }

    fn take_frames(&mut self) -> Result<(), String> {
        loop {
            match self.inbox.take::<FromService>() {
                Ok(Some(frame)) => self.handle(frame)?,
                Ok(None) => return Ok(()),
                Err(e) => return Err(format!("it sent what is not a frame: {e}")),
            }
        }
    }

    fn handle(&self, frame: Received<FromService>) -> Result<(), String> {
        let session = &self.session;
        match frame.message {
            FromService::Completed(completed) => self.completed(completed.done, completed.failed),
            FromService::Fetched(fetched) => {
                let mut pending = lock(&session.pending);
                let fetch = pending.fetches.remove(&fetched.request);
                session.made_room(pending);
                if let Some(fetch) = fetch {
                    fetch.end(fetched.error);
                }
            }
            FromService::Compiled(compiled) => {
                let answer = lock(&session.pending)
                    .compilations
                    .remove(&compiled.program);
                let descriptor = frame
                    .descriptor
                    .ok_or("it compiled and sent no signature")?;
                if let Some(answer) = answer {
                    answer.give(Ok((descriptor, compiled.bytes)));
                }
            }
            FromService::CompileFailed(failed) => {
                let answer = lock(&session.pending).compilations.remove(&failed.program);
                if let Some(answer) = answer {
                    answer.give(Err(failed.error));
                }
            }
            FromService::Released(released) => {
                for region in &released.regions {
                    session.segments.released(session, region);
                }
            }
            FromService::ArrayFailed(failed) => session.array_failed(failed.array, failed.error),
            // The last word of a service that ends the session by itself.
            FromService::Refused(refused) => return Err(refused.error.message),
            FromService::Welcome(_) | FromService::Answer(_) => {
                return Err("it sent a frame that has no place in a session".into());
            }
        }
        Ok(())
    }

    fn completed(&self, done: Vec<u64>, failed: Vec<(u64, Error)>) {
        let mut ended: Vec<(Arc<Completion>, Result<(), Error>)> =
            Vec::with_capacity(done.len() + failed.len());
        let outcomes = done
            .into_iter()
            .map(|operation| (operation, Ok(())))
            .chain(failed.into_iter().map(|(operation, e)| (operation, Err(e))));
        let mut pending = lock(&self.session.pending);
        for (operation, outcome) in outcomes {
            let found = pending
                .operations
                .binary_search_by_key(&operation, |(operation, _)| *operation);
            if let Some((_, completion)) = found.ok().and_then(|i| pending.operations.remove(i)) {
                pending.in_flight = pending.in_flight.saturating_sub(1);
                ended.push((completion, outcome));
            }
        }
        self.session.made_room(pending);
        for (completion, outcome) in ended {
            completion.end(outcome);
        }
    }
}
