//! Bytes that the caller holds until it runs the deleter that came with them.
#![expect(unsafe_code, reason = "gives bytes to C and takes them back")]

use std::ffi::c_char;

/// In one piece on the heap, so that C can hold it by one pointer.
pub(crate) struct Serialized(Box<Bytes>);

struct Bytes(Vec<u8>);

impl Serialized {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(Box::new(Bytes(bytes)))
    }

    pub(crate) fn start(&self) -> *const c_char {
        self.0.0.as_ptr().cast()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.0.len()
    }

    /// The handle that the deleter gets.
    pub(crate) fn give<T>(self) -> *mut T {
        Box::into_raw(self.0).cast()
    }
}

/// What the caller runs, once, when it needs the bytes no longer.
pub(crate) fn deleter<T>() -> Option<unsafe extern "C-unwind" fn(*mut T)> {
    unsafe extern "C-unwind" fn delete<T>(handle: *mut T) {
        if !handle.is_null() {
            // SAFETY: handed out by `give` with this deleter, which runs once.
            drop(unsafe { Box::from_raw(handle.cast::<Bytes>()) });
        }
    }
    Some(delete::<T>)
}
