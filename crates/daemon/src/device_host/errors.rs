//! Errors that jobs see, of the two most frequent kinds.

use salus_wire::{Error, ErrorCode};

pub(crate) fn invalid_argument(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidArgument, message)
}

pub(crate) fn resource_exhausted(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::ResourceExhausted, message)
}
