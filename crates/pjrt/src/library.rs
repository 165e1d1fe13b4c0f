//! Shared libraries that stay open: a vendor's plugin, LAPACK.
//!
//! Not here: closing. Libraries start threads that outlive every use of them, so unmapping their
//! code would crash them.

use std::ffi::{CStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use libloading::os::unix::{RTLD_LAZY, RTLD_LOCAL};

use crate::Error;
use crate::sys::{PJRT_Error_Code_INVALID_ARGUMENT, PJRT_Error_Code_NOT_FOUND};

/// An open library. It is never closed, so copies of the handle stay valid.
#[derive(Clone, Copy)]
pub struct Library(&'static libloading::os::unix::Library);

impl Library {
    /// `what` is what messages call it: `the plugin`.
    pub fn open(path: &Path, what: &str) -> Result<Library, Error> {
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(Error::new(
                PJRT_Error_Code_INVALID_ARGUMENT,
                format!("the path of {what}, {path:?}, contains a zero byte"),
            ));
        }
        // Functions are resolved when they are first called, because plugins are hundreds of
        // megabytes; and two plugins carry two copies of LLVM and protobuf, whose symbols must not
        // meet.
        let flags = RTLD_LAZY | RTLD_LOCAL;
        // SAFETY: the library's initializers run; which library is opened is the operator's choice.
        let opened = unsafe { libloading::os::unix::Library::open(Some(path), flags) };
        let library = opened.map_err(|error| {
            // The loader's own words are the source of it.
            let why =
                std::error::Error::source(&error).map_or(error.to_string(), |e| e.to_string());
            Error::new(
                PJRT_Error_Code_NOT_FOUND,
                format!("cannot open {what} {}: {why}", path.display()),
            )
        })?;
        Ok(Library(Box::leak(Box::new(library))))
    }

    /// The address of an exported symbol.
    pub fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the symbol is only taken as an address; its user says what is there.
        let symbol = unsafe { self.0.get::<*mut c_void>(name) };
        NonNull::new(symbol.ok()?.as_raw_ptr())
    }
}
