//! Shared libraries: three functions of the C library, declared by hand.
//!
//! Not here: closing. Libraries start threads that outlive every use of them, so unmapping their
//! code would crash them.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use crate::Error;
use crate::sys::{PJRT_Error_Code_INVALID_ARGUMENT, PJRT_Error_Code_NOT_FOUND};

unsafe extern "C" {
    fn dlopen(filename: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn dlerror() -> *mut c_char;
}

/// Resolve functions when they are first called: plugins are hundreds of megabytes.
const RTLD_LAZY: c_int = 1;
/// Two plugins carry two copies of LLVM and protobuf, whose symbols must not meet.
const RTLD_LOCAL: c_int = 0;

/// An open library. It is never closed, so copies of the handle stay valid.
#[derive(Clone, Copy)]
pub struct Library(NonNull<c_void>);

// SAFETY: the loader may be asked by any thread, and the handle is never closed.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// `what` is what messages call it: `the plugin`.
    pub fn open(path: &Path, what: &str) -> Result<Library, Error> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| {
            Error::new(
                PJRT_Error_Code_INVALID_ARGUMENT,
                format!("the path of {what}, {path:?}, contains a zero byte"),
            )
        })?;
        // SAFETY: `name` is a C string. The library's initializers run; which library is opened
        // is the operator's choice.
        let handle = unsafe { dlopen(name.as_ptr(), RTLD_LAZY | RTLD_LOCAL) };
        NonNull::new(handle).map(Library).ok_or_else(|| {
            Error::new(
                PJRT_Error_Code_NOT_FOUND,
                format!("cannot open {what} {}: {}", path.display(), last_error()),
            )
        })
    }

    /// The address of an exported symbol.
    pub fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle came from `dlopen` and was never closed; `name` is a C string.
        NonNull::new(unsafe { dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

fn last_error() -> String {
    // SAFETY: the result is null or a C string of this thread, valid until its next call here.
    let text = unsafe { dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: not null, and nothing between here and the copy calls the loader.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
