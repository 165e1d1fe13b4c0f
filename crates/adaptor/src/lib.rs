//! `libpjrt_salus.so`: the part of Salus in the user's process.
//!
//! JAX loads it as a PJRT plugin. Calls become frames to the service, which owns the device; what
//! can be answered from what the service said already is answered here, about eighty calls a step.
//! A call's way: [`table`] → [`fence`] → the module of its object → [`session`]; an answer's:
//! [`reader`] → [`event`] → the job's callback.
//!
//! Promise: nothing here prints, handles a signal or unwinds into C; the job's threads wait for
//! the service only where PJRT says that a call blocks; when the service is gone, every call
//! answers at once.
//! Not here: turns, memory decisions, a vendor's code.

mod table;

mod error;
mod fence;

mod client;
mod connect;
mod device;
mod topology;

mod compile;
mod executable;
mod execute;
mod layouts;
mod program;

mod buffer;
mod callbacks;
mod host_copy;
mod transfer_manager;
mod upload;

mod event;

mod profiler;
mod xspace;

mod dispatch;
mod fork;
mod reader;
mod riders;
mod segments;
mod session;

mod serialized;
mod shape;
mod strided;
mod values;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What JAX looks up when it finds the library, also in processes that never use it: it only
/// returns an address.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "a symbol that is exported")]
pub extern "C" fn GetPjrtApi() -> *const salus_pjrt::sys::PJRT_Api {
    &raw const table::API.value
}

/// Tells the library who runs Python functions that programs call; `python/salus/jax_plugin.py` does,
/// once. The runner is callable from any thread for the life of the process.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "a symbol that is exported")]
#[expect(private_interfaces, reason = "an opaque pointer to C")]
pub extern "C" fn salus_set_callback_runner(runner: Option<callbacks::Runner>) {
    callbacks::set_runner(runner);
}

/// The next call of a runner's channel, or null when there are no more. Answers the call before:
/// without results if `failed` is a text.
///
/// # Safety
/// `channel` is what the runner was called with, and the runner has not returned; `failed` is null or
/// has `failed_size` bytes.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "a symbol that is exported")]
#[expect(private_interfaces, reason = "C knows the request by its layout")]
pub unsafe extern "C" fn salus_next_callback(
    channel: *mut callbacks::Channel,
    failed: *const std::ffi::c_char,
    failed_size: usize,
) -> *const callbacks::Request {
    // SAFETY: the caller's promise.
    unsafe { callbacks::next_call(channel, failed, failed_size) }
}

/// A panic elsewhere has become an error already; what it left behind is still good to read.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
