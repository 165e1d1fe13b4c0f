//! `libpjrt_salus.so`: the part of Salus in the user's process.
//!
//! JAX loads it as a PJRT plugin. Calls become frames to the service, which owns the device; what
//! can be answered from what the service has sent already is answered here, about eighty calls per
//! training step.
//! A call's way: `c_api::api_table` → `c_api::c_args` → its module in `objects` or `calls` →
//! `connection::session`; a reply's: `connection::receive` → `objects::event` → the job's callback.
//!
//! Promise: nothing here prints, handles a signal or unwinds into C; the job's threads wait for
//! the service only where PJRT says that a call blocks; when the service is gone, every call
//! returns at once.
//! Not here: scheduling, memory decisions, a vendor's code.

mod c_api;
mod objects;

mod calls;
mod connection;

/// What JAX looks up when it finds the library, also in processes that never use it: it only
/// returns an address.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "a symbol that is exported")]
pub extern "C" fn GetPjrtApi() -> *const salus_pjrt::sys::PJRT_Api {
    &raw const c_api::api_table::API.value
}

/// Registers the function that runs Python functions which programs call; `python/salus/jax_plugin.py`
/// does, once. The runner is callable from any thread for the life of the process.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "a symbol that is exported")]
#[expect(private_interfaces, reason = "an opaque pointer to C")]
pub extern "C" fn salus_set_callback_runner(runner: Option<calls::callbacks::Runner>) {
    calls::callbacks::set_runner(runner);
}

/// Whether a service listens that a job may use though nobody named one, as a C `int`; it is asked no
/// longer than this many milliseconds. `python/salus/jax_plugin.py` asks, so that it has no rule of its
/// own for where sockets are and whose may be trusted.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "a symbol that is exported")]
pub extern "C" fn salus_service_listens(milliseconds: u32) -> std::ffi::c_int {
    let time = std::time::Duration::from_millis(milliseconds.into());
    let listens = std::panic::catch_unwind(|| {
        connection::connect::service_listens(std::time::Instant::now() + time)
    });
    listens.unwrap_or(false).into()
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
    channel: *mut calls::callbacks::Channel,
    failed: *const std::ffi::c_char,
    failed_size: usize,
) -> *const calls::callbacks::Request {
    // SAFETY: the caller's promise.
    unsafe { calls::callbacks::next_call(channel, failed, failed_size) }
}
