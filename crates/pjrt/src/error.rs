//! Errors: the vendor's, and this crate's own in the same form.

use crate::sys;

/// PJRT's code (absl's numbers) and the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub code: u32,
    pub message: String,
}

impl Error {
    pub fn new(code: u32, message: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
        }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Error {
        Error::new(sys::PJRT_Error_Code_INTERNAL, message)
    }

    pub fn is_unimplemented(&self) -> bool {
        self.code == sys::PJRT_Error_Code_UNIMPLEMENTED
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
