//! Errors as PJRT knows them: a code and a text that says what happened, why and what to do.
//!
//! Promise: every error that leaves the library is owned by its receiver until
//! `PJRT_Error_Destroy`.
//! Not here: the texts, which are written where the error is noticed.
#![expect(unsafe_code, reason = "C entry points")]
#![allow(non_snake_case, reason = "the header's names")]

use std::fmt::Display;

use salus_pjrt::sys;
pub(crate) use salus_wire::{Error, ErrorCode};

use crate::c_api::c_args::{Args, Handle, entry, field, give, sure, with_args};

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Handle for Error {
    type Raw = sys::PJRT_Error;
}

macro_rules! codes {
    ($($name:ident = $code:ident),* $(,)?) => {$(
        pub(crate) fn $name(message: impl Display) -> Error {
            Error::new(ErrorCode::$code, message.to_string())
        }
    )*};
}
codes! {
    invalid = InvalidArgument,
    not_found = NotFound,
    denied = PermissionDenied,
    exhausted = ResourceExhausted,
    precondition = FailedPrecondition,
    unimplemented = Unimplemented,
    internal = Internal,
    unavailable = Unavailable,
}

/// Hands an error over to the C caller, who gets one text: the hint becomes a part of the message.
pub(crate) fn into_raw(error: Error) -> *mut sys::PJRT_Error {
    give(Box::new(Error::new(error.code, error.to_string())))
}

// These two return nothing, so they cannot be `entry!`.

pub(crate) unsafe extern "C" fn PJRT_Error_Destroy(args: *mut sys::PJRT_Error_Destroy_Args) {
    type Call = sys::PJRT_Error_Destroy_Args;
    let body = |args: Args<'_, Call>| {
        // JAX destroys the null error at every step.
        drop(args.own::<Error>(field!(Call.error)));
        Ok(())
    };
    // SAFETY: the caller follows the header.
    sure("PJRT_Error_Destroy", || unsafe { with_args(args, body) });
}

pub(crate) unsafe extern "C" fn PJRT_Error_Message(args: *mut sys::PJRT_Error_Message_Args) {
    type Call = sys::PJRT_Error_Message_Args;
    let body = |args: Args<'_, Call>| {
        let message = match args.handle_const::<Error>(field!(Call.error)) {
            Ok(error) => error.message.as_str(),
            Err(_) => "",
        };
        args.put_text(field!(Call.message), field!(Call.message_size), message);
        Ok(())
    };
    // SAFETY: the caller follows the header.
    sure("PJRT_Error_Message", || unsafe { with_args(args, body) });
}

entry! {
    fn PJRT_Error_GetCode(args: PJRT_Error_GetCode_Args) {
        let code = match args.handle_const::<Error>(field!(Call.error)) {
            Ok(error) => error.code.number(),
            Err(_) => sys::PJRT_Error_Code_OK,
        };
        args.put(field!(Call.code), code)
    }
}
