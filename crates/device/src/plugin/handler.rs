//! The handler of JAX's custom calls for Python callbacks.
//!
//! JAX lowers its callbacks to custom calls of a few names, for which this process registers a
//! handler with the plugin. A launch carries its [`Callbacks`] as user data, so that programs stay
//! shared between sessions; the handler finds them there and waits for their result.
#![expect(unsafe_code, reason = "a handler of the plugin's, and its user data")]

use std::path::Path;
use std::sync::{Arc, OnceLock};

use salus_formats::callback::TARGETS;
use salus_formats::element::{from_xla, packed_bytes};
use salus_pjrt::sys::{XLA_FFI_CallFrame, XLA_FFI_Error};
use salus_pjrt::{Client, ExecuteContext, FfiBuffer, UserType, handle};

use crate::failure::{INTERNAL, INVALID_ARGUMENT, error, vendor};
use crate::{CallArray, Callbacks, Error, HostBytes, Style, linalg};

/// The platform under which the CPU plugin looks handlers up.
const PLATFORM: &str = "Host";

/// The user data of a launch.
pub(super) struct Launched {
    callbacks: Arc<dyn Callbacks>,
    /// Why the first of its calls failed; the plugin wraps it in words of its own.
    failed: OnceLock<Error>,
}

impl Launched {
    pub(super) fn new(callbacks: Arc<dyn Callbacks>) -> Self {
        Self {
            callbacks,
            failed: OnceLock::new(),
        }
    }

    /// What a launch carries so that the handler finds this.
    ///
    /// # Safety
    /// `self` stays where it is until the launch has ended.
    pub(super) unsafe fn context(&self, client: &Client) -> Result<ExecuteContext, Error> {
        let (Some(ffi), Some(Ok(user_type))) = (client.ffi(), USER_TYPE.get()) else {
            return Err(error(
                INTERNAL,
                "the plugin takes no handlers of custom calls",
            ));
        };
        // SAFETY: the caller's promise.
        let context = unsafe { ffi.context(*user_type, std::ptr::from_ref(self).cast()) };
        context.map_err(vendor)
    }

    /// Why the first of its calls failed, if one did.
    pub(super) fn failure(&self) -> Option<Error> {
        self.failed.get().cloned()
    }
}

static USER_TYPE: OnceLock<Result<UserType, Error>> = OnceLock::new();

/// Registers this handler and those of linear algebra, all at once and once in a process: the plugin's
/// table of handlers has no lock, so a later registration could meet a compilation that reads it.
/// `None` where the plugin takes no handlers.
pub(crate) fn register(client: &Client, lapack: Option<&Path>) -> Option<Result<(), Error>> {
    let ffi = client.ffi()?;
    let registered = USER_TYPE.get_or_init(|| {
        linalg::register(ffi, lapack);
        for (target, style) in TARGETS {
            let handler = match style {
                Style::Values => call_with_values,
                Style::Buffers => call_with_buffers,
            };
            ffi.register(target, PLATFORM, handler).map_err(vendor)?;
        }
        ffi.register_type("salus.Launched").map_err(vendor)
    });
    Some(registered.clone().map(|_| ()))
}

unsafe extern "C" fn call_with_values(frame: *mut XLA_FFI_CallFrame) -> *mut XLA_FFI_Error {
    // SAFETY: called by the plugin with a frame of its own.
    unsafe { call_back(frame, Style::Values) }
}

unsafe extern "C" fn call_with_buffers(frame: *mut XLA_FFI_CallFrame) -> *mut XLA_FFI_Error {
    // SAFETY: as above.
    unsafe { call_back(frame, Style::Buffers) }
}

/// # Safety
/// `frame` is what the plugin gave to a handler.
unsafe fn call_back(frame: *mut XLA_FFI_CallFrame, style: Style) -> *mut XLA_FFI_Error {
    let body = |call: &salus_pjrt::Call<'_>| {
        let failed = |error: Error| salus_pjrt::Error::new(error.code.number(), error.to_string());
        let launched = match USER_TYPE.get() {
            Some(Ok(user_type)) => call.user_data(*user_type),
            _ => None,
        };
        let Some(launched) = launched else {
            let message = "a program calls back, and its launch has no callbacks";
            return Err(failed(error(INVALID_ARGUMENT, message)));
        };
        // SAFETY: `Launched::context` gave this to the launch, which lasts until the call has returned.
        let launched = unsafe { launched.cast::<Launched>().as_ref() };
        let index = call.integer("index")? as u64;
        let (operands, results) = (call.operands()?, call.results()?);
        // SAFETY: the plugin's own buffers, while its call lasts.
        let (operands, results) = unsafe { (arrays(&operands), arrays(&results)) };
        let outcome = operands.and_then(|operands| {
            let results = results?;
            launched.callbacks.call(index, style, &operands, &results)
        });
        outcome.map_err(|error| {
            let _ = launched.failed.set(error.clone());
            failed(error)
        })
    };
    // SAFETY: the caller's promise.
    unsafe { handle(frame, body) }
}

/// # Safety
/// The plugin gave the buffers to a handler, which has not returned.
unsafe fn arrays<'a>(buffers: &[FfiBuffer<'a>]) -> Result<Vec<CallArray<'a>>, Error> {
    let array = |buffer: &FfiBuffer<'a>| {
        let element_type = from_xla(u64::from(buffer.element_type)).ok_or_else(|| {
            let number = buffer.element_type;
            error(
                INVALID_ARGUMENT,
                format!("XLA's type {number} is not known"),
            )
        })?;
        let len = packed_bytes(element_type, buffer.elements());
        Ok(CallArray {
            element_type,
            dims: buffer.dims,
            // SAFETY: the plugin lends the handler as many bytes until it returns, which is `'a`.
            bytes: unsafe { HostBytes::from_raw(buffer.data.cast(), len) },
        })
    };
    buffers.iter().map(array).collect()
}
