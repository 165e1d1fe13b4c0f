//! Threads that this library starts in the job's process, and which of them runs a callback.
//!
//! Promise: no signal of the process is handled on the dispatcher's thread.
#![expect(
    unsafe_code,
    reason = "signal masks and threads of the C library have no safe wrapper here"
)]

use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::sync::OnceLock;
use std::thread::JoinHandle;

/// Callbacks run here that were written for a C thread, whose stack has this size.
const STACK_BYTES: usize = 8 << 20;

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread handles frames, so that its caller runs inside a completion callback. Such a
/// thread must not wait for the service: nobody else would read the reply.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.with(Cell::get)
}

/// Marks the thread while it handles frames.
pub(super) struct InCallback {
    before: bool,
}

impl InCallback {
    pub(super) fn begin() -> Self {
        Self {
            before: IN_CALLBACK.replace(true),
        }
    }
}

impl Drop for InCallback {
    fn drop(&mut self) {
        IN_CALLBACK.set(self.before);
    }
}

/// Starts a session's dispatcher.
pub(super) fn spawn_dispatcher(run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // A new thread inherits the mask: signals of the process stay with the user's threads.
    let old = set_mask(&all_signals());
    let _ = USERS_MASK.set(old);
    let thread = std::thread::Builder::new()
        .name("salus-dispatch".into())
        .stack_size(STACK_BYTES)
        .spawn(run);
    set_mask(&old);
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
    let old = USERS_MASK.get().map(set_mask);
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
        set_mask(&old);
    }
    match failed {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

/// The mask of the thread that made the first client.
static USERS_MASK: OnceLock<libc::sigset_t> = OnceLock::new();

fn all_signals() -> libc::sigset_t {
    // SAFETY: zeros are a valid set, which is filled.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        all
    }
}

/// Makes it the mask of this thread, and returns the one before.
fn set_mask(mask: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: zeros are a valid set; both live during the call.
    unsafe {
        let mut old = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut old);
        old
    }
}
