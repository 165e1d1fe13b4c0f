//! Errors: ours and the CPU plugin's, which share the three slots.
//!
//! Ours are tagged in the lowest bit of the pointer, because most slots are the CPU plugin's and give
//! their caller an error of its own.

use std::ptr::null_mut;

use salus_pjrt::sys::*;

use crate::inner;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Error {
    pub(crate) code: PJRT_Error_Code,
    pub(crate) message: String,
}

pub(crate) type Outcome = Result<(), Error>;

impl Error {
    pub(crate) fn new(code: PJRT_Error_Code, message: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(PJRT_Error_Code_INVALID_ARGUMENT, message)
    }

    pub(crate) fn unimplemented(message: impl Into<String>) -> Error {
        Error::new(PJRT_Error_Code_UNIMPLEMENTED, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Error {
        Error::new(PJRT_Error_Code_INTERNAL, message)
    }

    /// For a caller, who destroys it.
    pub(crate) fn into_raw(self) -> *mut PJRT_Error {
        Box::into_raw(Box::new(self))
            .map_addr(|address| address | OURS)
            .cast()
    }
}

/// What a slot returns.
pub(crate) fn raw(outcome: Outcome) -> *mut PJRT_Error {
    outcome.map_or_else(Error::into_raw, |()| null_mut())
}

const OURS: usize = 1;

fn ours(error: *const PJRT_Error) -> Option<*mut Error> {
    let error = error.cast_mut().cast::<Error>();
    (error.addr() & OURS != 0).then(|| error.map_addr(|address| address & !OURS))
}

pub(crate) unsafe extern "C" fn PJRT_Error_Destroy(args: *mut PJRT_Error_Destroy_Args) {
    // SAFETY: the caller owns the error, or gives null. Ours came from `into_raw`.
    unsafe {
        match ours((*args).error) {
            Some(error) => drop(Box::from_raw(error)),
            None => {
                if let Some(destroy) = inner::api().PJRT_Error_Destroy {
                    destroy(args);
                }
            }
        }
    }
}

pub(crate) unsafe extern "C" fn PJRT_Error_Message(args: *mut PJRT_Error_Message_Args) {
    // SAFETY: the error is live, and owns the text.
    unsafe {
        match ours((*args).error) {
            Some(error) => {
                let message = &(*error).message;
                (*args).message = message.as_ptr().cast();
                (*args).message_size = message.len();
            }
            None => {
                if let Some(message) = inner::api().PJRT_Error_Message {
                    message(args);
                }
            }
        }
    }
}

pub(crate) unsafe extern "C" fn PJRT_Error_GetCode(
    args: *mut PJRT_Error_GetCode_Args,
) -> *mut PJRT_Error {
    // SAFETY: the error is live.
    unsafe {
        match (ours((*args).error), inner::api().PJRT_Error_GetCode) {
            (Some(error), _) => (*args).code = (*error).code,
            (None, Some(get_code)) => return get_code(args),
            (None, None) => (*args).code = PJRT_Error_Code_UNKNOWN,
        }
    }
    null_mut()
}
