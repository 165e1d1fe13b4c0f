//! The dispatcher: one thread a session that hears the service and tells the job.
//!
//! It reads frames ([`crate::reader`]) and ends what they name; callbacks run here. It also sends
//! off what waits for a frame to ride with ([`crate::riders`]) when the job is quiet: while more of it
//! comes it looks every few milliseconds instead of being poked for each, and sleeps without a timeout
//! after a while without any.
//!
//! Promise: no signal of the process is handled on this thread; it never waits for the service to
//! read; it ends when the connection does.
#![expect(unsafe_code, reason = "pthread_sigmask has no safe wrapper here")]

use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::lock;
use crate::session::Session;

/// Riders wait no longer than this for a frame, when the job is quiet.
const QUIET: Duration = Duration::from_millis(2);
/// How often the dispatcher looks while riders keep coming: rarely enough to cost a steady training
/// loop nothing that can be measured.
const LOOK: Duration = Duration::from_millis(5);
/// Without any for so long, it sleeps until it is poked.
const DOZE_AFTER: Duration = Duration::from_millis(50);

/// How long it leaves the socket to a job's thread that reads, before it looks again: at first, and
/// when that thread waits for long.
const PATIENCE_MIN: Duration = Duration::from_millis(5);
const PATIENCE_MAX: Duration = Duration::from_millis(20);

/// Callbacks run here that were written for a C thread, whose stack is as large as that.
const STACK_BYTES: usize = 8 << 20;

thread_local! {
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread handles frames, so that its caller runs inside a completion callback. Such a
/// thread must not wait for the service: nobody else would read the answer.
pub(crate) fn is_telling() -> bool {
    TELLING.with(Cell::get)
}

/// Marks the thread while it handles frames.
pub(crate) struct Telling {
    before: bool,
}

impl Telling {
    pub(crate) fn begin() -> Self {
        Self {
            before: TELLING.replace(true),
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        TELLING.set(self.before);
    }
}

/// Starts the thread; `ended` is dropped when it ends.
pub(crate) fn start(session: Arc<Session>, ended: Sender<()>) -> io::Result<JoinHandle<()>> {
    // A new thread inherits the mask: signals of the process stay with the user's threads.
    let old = SignalMask::ALL.set();
    let _ = USERS_MASK.set(old);
    let thread = std::thread::Builder::new()
        .name("salus-dispatch".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let _ended = ended;
            let dispatcher = Dispatcher {
                session: Arc::clone(&session),
                changes: 0,
                last_rider: None,
                patience: PATIENCE_MIN,
            };
            if catch_unwind(AssertUnwindSafe(|| dispatcher.run())).is_err() {
                // A job must not hang because we have a bug.
                session.lose("Salus has a bug: the thread that listens to it panicked");
            }
        });
    old.set();
    thread
}

/// A thread that runs functions of Python, detached. When the process ends, Python unwinds such a thread
/// to its start; the standard library's threads would catch that, and the C library then aborts the
/// process. It blocks the signals that the job's threads block and no more: a process that a function
/// starts inherits that, and could not be stopped if all were blocked.
pub(crate) fn spawn_for_python(
    start: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> io::Result<()> {
    let old = USERS_MASK.get().map(SignalMask::set);
    // SAFETY: the attributes are made, used and destroyed here; both kinds of function are called
    // alike, and the C library lets a thread unwind out of its start.
    let failed = unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK_BYTES);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let start: extern "C" fn(*mut c_void) -> *mut c_void = std::mem::transmute(start);
        let mut thread = std::mem::zeroed();
        let failed = libc::pthread_create(&raw mut thread, &attributes, start, argument);
        libc::pthread_attr_destroy(&raw mut attributes);
        failed
    };
    if let Some(old) = old {
        old.set();
    }
    match failed {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

/// A `sigset_t`, which is 1024 bits in the C libraries of Linux.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct SignalMask([u64; 16]);

/// Of the thread that made the first client.
static USERS_MASK: OnceLock<SignalMask> = OnceLock::new();

unsafe extern "C" {
    fn pthread_sigmask(how: i32, set: *const SignalMask, old: *mut SignalMask) -> i32;
}

const SIG_SETMASK: i32 = 2;

impl SignalMask {
    const ALL: Self = Self([u64::MAX; 16]);

    /// Makes it that of this thread, and returns the one before.
    fn set(&self) -> Self {
        let mut old = SignalMask([0; 16]);
        // SAFETY: both sets are as long as the C library's.
        unsafe { pthread_sigmask(SIG_SETMASK, self, &mut old) };
        old
    }
}

struct Dispatcher {
    session: Arc<Session>,
    /// `Riders::changes` when the dispatcher last looked.
    changes: u64,
    /// When riders were last seen to come; `None` while it sleeps without a timeout.
    last_rider: Option<Instant>,
    /// How long it leaves the socket alone at a time while a job's thread reads: longer each time.
    patience: Duration,
}

impl Dispatcher {
    fn run(mut self) {
        // The service may have sent more than `Welcome`.
        let mut over = lock(&self.session.reader).take_frames(&self.session);
        while over.is_ok() {
            over = self.turn();
        }
        if let Err(why) = over {
            let _telling = Telling::begin();
            self.session.lose(&why);
        }
    }

    /// Sleeps until there is something to do, and does it. The error says why the session is over.
    fn turn(&mut self) -> Result<(), String> {
        let for_riders = self.send_riders();
        let for_readers = self.leave_to_readers();
        let timeout = match (for_riders, for_readers) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let socket = self.sleep(timeout, for_readers.is_none())?;
        if socket.contains(PollFlags::OUT) {
            self.write_rest();
        }
        if (socket - PollFlags::OUT).is_empty() {
            return Ok(());
        }
        let mut reader = lock(&self.session.reader);
        // Its thread was woken by the same bytes.
        if reader.is_attended() {
            return Ok(());
        }
        reader.read(&self.session)
    }

    /// How long to leave the socket alone because job threads read it; `None` to listen.
    fn leave_to_readers(&mut self) -> Option<Duration> {
        let session = &self.session;
        // First away, then the questions; who wants us asks the other way round, so one of us sees
        // the other.
        session.away.store(true, Ordering::SeqCst);
        let reader = lock(&session.reader);
        let (attended, lease) = (reader.is_attended(), reader.lease());
        drop(reader);
        if attended {
            // That thread calls us when it stops, if somebody wants us.
            self.patience = (self.patience * 2).min(PATIENCE_MAX);
            return Some(self.patience);
        }
        self.patience = PATIENCE_MIN;
        let wanted = session.wanted.swap(false, Ordering::SeqCst);
        let lease = lease.filter(|_| !wanted);
        if lease.is_none() {
            session.away.store(false, Ordering::SeqCst);
        }
        lease
    }

    /// Sleeps until there is something to read, a poke, or the timeout.
    fn sleep(&self, timeout: Option<Duration>, listens: bool) -> Result<PollFlags, String> {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.as_secs() as _,
            tv_nsec: t.subsec_nanos() as _,
        });
        let mut interest = PollFlags::empty();
        if listens {
            interest |= PollFlags::IN;
        }
        if self.has_unsent() {
            interest |= PollFlags::OUT;
        }
        let session = &self.session;
        let mut fds = [
            PollFd::from_borrowed_fd(session.poke.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(session.socket.as_fd(), interest),
        ];
        // Without interest in the socket, its end would still wake us, again and again.
        let count = if interest.is_empty() { 1 } else { 2 };
        match poll(&mut fds[..count], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("poll: {e}")),
        }
        if !fds[0].revents().is_empty() {
            let mut pokes = [0; 8];
            let _ = rustix::io::read(&session.poke, &mut pokes);
        }
        Ok(fds[1].revents())
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

    /// Sends what waits if nothing came since the last look. Returns how long to sleep.
    fn send_riders(&mut self) -> Option<Duration> {
        let mut riders = lock(&self.session.riders);
        let changed = std::mem::replace(&mut self.changes, riders.changes) != riders.changes;
        if riders.is_empty() {
            let now = Instant::now();
            if changed {
                self.last_rider = Some(now);
            }
            return match self.last_rider {
                Some(last) if now.duration_since(last) < DOZE_AFTER => Some(LOOK),
                _ => {
                    self.last_rider = None;
                    riders.asleep = true;
                    None
                }
            };
        }
        drop(riders);
        if changed {
            // Just poked: the first of a while. Else more may come before a frame does.
            let first = self.last_rider.replace(Instant::now()).is_none();
            return Some(if first { QUIET } else { LOOK });
        }
        match self.session.outgoing.try_lock() {
            Ok(mut outgoing) => {
                self.session.carry_riders(&mut outgoing.outbox);
                let _ = outgoing.outbox.flush(self.session.socket.as_fd(), false);
            }
            // Somebody writes: they ride with that or the next look finds them.
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Poisoned(_)) => {}
        }
        Some(LOOK)
    }
}
