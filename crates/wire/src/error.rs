//! Errors that cross a process boundary: a code that PJRT knows, what happened, and what to do.

use std::fmt;

use crate::codec::{DecodeError, Reader, Wire, wire_struct};
use crate::limits;

/// PJRT's codes (`PJRT_Error_Code`), which are absl's. JAX turns each into an exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    /// Trying again may help.
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl ErrorCode {
    const ALL: [Self; 16] = [
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// As the C interface has it.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The code of a vendor's error; a number that PJRT does not name is `Unknown`.
    pub fn from_number(number: u32) -> Self {
        Self::named(number).unwrap_or(Self::Unknown)
    }

    fn named(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }
}

impl Wire for ErrorCode {
    const MIN_BYTES: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        self.number().put(out);
    }

    fn take(reader: &mut Reader<'_>, _limit: usize) -> Result<Self, DecodeError> {
        let number = u32::take(reader, 0)?;
        Self::named(number).ok_or_else(|| {
            DecodeError(format!(
                "expected an error code from 1 to 16, found {number}"
            ))
        })
    }
}

wire_struct! {
    #[derive(Eq)]
    Error {
        code: ErrorCode,
        /// What happened, and why.
        message: String = limits::ERROR_BYTES,
        /// What to do about it.
        hint: Option<String> = limits::ERROR_BYTES,
    }
}

impl Error {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// As a person reads it: the message, and the hint after an empty line.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
