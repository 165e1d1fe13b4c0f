//! Errors as PJRT knows them: a code and a text that says what happened, why and what to do.
//!
//! Promise: every error that leaves the library is owned by its receiver until
//! `PJRT_Error_Destroy`.
//! Not here: what happened; whoever noticed it writes the text.
#![expect(unsafe_code, reason = "C entry points")]
#![allow(non_snake_case, reason = "the header's names")]

use std::fmt::Display;

use salus_pjrt::sys;
pub(crate) use salus_wire::Error;

use crate::fence::{Args, Handle, entry, give};

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Handle for Error {
    type Raw = sys::PJRT_Error;
}

macro_rules! codes {
    ($($name:ident = $code:ident),* $(,)?) => {$(
        pub(crate) fn $name(message: impl Display) -> Error {
            Error { code: sys::$code, message: message.to_string() }
        }
    )*};
}
codes! {
    invalid = PJRT_Error_Code_INVALID_ARGUMENT,
    not_found = PJRT_Error_Code_NOT_FOUND,
    denied = PJRT_Error_Code_PERMISSION_DENIED,
    exhausted = PJRT_Error_Code_RESOURCE_EXHAUSTED,
    precondition = PJRT_Error_Code_FAILED_PRECONDITION,
    unimplemented = PJRT_Error_Code_UNIMPLEMENTED,
    internal = PJRT_Error_Code_INTERNAL,
    unavailable = PJRT_Error_Code_UNAVAILABLE,
}

/// Hands an error over to the C caller.
pub(crate) fn into_raw(error: Error) -> *mut sys::PJRT_Error {
    give(Box::new(error))
}

pub(crate) unsafe extern "C" fn PJRT_Error_Destroy(args: *mut sys::PJRT_Error_Destroy_Args) {
    let _ = std::panic::catch_unwind(|| {
        // SAFETY: the caller follows the header.
        if let Ok(args) = unsafe { Args::new(args) } {
            // JAX destroys the null error at every step.
            drop(args.own::<Error>(|a| &a.error));
        }
    });
}

pub(crate) unsafe extern "C" fn PJRT_Error_Message(args: *mut sys::PJRT_Error_Message_Args) {
    let _ = std::panic::catch_unwind(|| {
        // SAFETY: the caller follows the header.
        let Ok(args) = (unsafe { Args::new(args) }) else {
            return;
        };
        let message = match args.handle_const::<Error>(|a| &a.error) {
            Ok(error) => error.message.as_str(),
            Err(_) => "",
        };
        args.put_text(|a| &a.message, |a| &a.message_size, message);
    });
}

entry! {
    fn PJRT_Error_GetCode(args: PJRT_Error_GetCode_Args) {
        let code = match args.handle_const::<Error>(|a| &a.error) {
            Ok(error) => error.code,
            Err(_) => sys::PJRT_Error_Code_OK,
        };
        args.put(|a| &a.code, code)
    }
}
