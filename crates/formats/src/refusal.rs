//! Errors that a job is shown: PJRT's code, what is wrong, what to do.

use salus_wire::{Error, ErrorCode};

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidArgument, message)
}

pub(crate) fn unimplemented(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::Unimplemented, message)
}

pub(crate) fn internal(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::Internal, message)
}
