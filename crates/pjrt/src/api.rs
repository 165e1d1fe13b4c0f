//! The one door to the vendor: its table of functions, the arguments, and its errors.
//!
//! A table may be of any version. A slot exists if it ends within the table's `struct_size` and is
//! not null; nothing behind that is read, and the table is never copied. Arguments are zero-filled
//! and followed by zeros, with a `struct_size` that covers them: newer plugins refuse structs
//! shorter than their own and accept longer ones.

use std::ffi::c_char;
use std::ptr::NonNull;

use crate::Error;
use crate::sys::*;

/// A vendor's table. Plugins are never unloaded, so a copy stays valid.
#[derive(Clone, Copy)]
pub(crate) struct Api(NonNull<PJRT_Api>);

// SAFETY: the table is read-only after `GetPjrtApi` and its functions may be called by any thread.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

/// Arguments of one call.
///
/// 64 words are more than any struct has grown by since API 0.29.
#[repr(C)]
pub(crate) struct Padded<T> {
    args: T,
    zeros: [u64; 64],
}

impl<T: CStruct> Padded<T> {
    pub(crate) fn new() -> Padded<T> {
        // SAFETY: zero bytes are a valid `T`, as `CStruct` demands, and valid words.
        let mut padded: Padded<T> = unsafe { std::mem::zeroed() };
        // Every struct that reaches a vendor starts with its own size.
        assert!(T::FIELDS[0].name == "struct_size");
        let size: *mut usize = (&raw mut padded.args).cast();
        // SAFETY: the first field of `T` is a `usize` called `struct_size`.
        unsafe { size.write(size_of::<Padded<T>>()) };
        padded
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut T {
        // From the whole struct, so that the zeros may be read through the pointer.
        (&raw mut *self).cast()
    }
}

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.args
    }
}

impl<T> std::ops::DerefMut for Padded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.args
    }
}

type Function<T> = unsafe extern "C" fn(*mut T) -> *mut PJRT_Error;

/// Calls a slot of the vendor's table: `call!(api, PJRT_Client_Create, args)?`.
///
/// It expands to an unsafe call: whatever `args` points to must be what the header asks for.
macro_rules! call {
    ($api:expr, $slot:ident, $args:expr) => {{
        let api: $crate::api::Api = $api;
        let offset = ::std::mem::offset_of!($crate::sys::PJRT_Api, $slot);
        let function = if api.reaches(offset) {
            (&raw const (*api.table()).$slot).read()
        } else {
            None
        };
        api.call(stringify!($slot), function, $args)
    }};
}

impl Api {
    /// # Safety
    /// `table` is what a plugin's `GetPjrtApi` returned, and the plugin stays loaded.
    pub(crate) unsafe fn new(table: NonNull<PJRT_Api>) -> Api {
        Api(table)
    }

    pub(crate) fn table(self) -> *const PJRT_Api {
        self.0.as_ptr()
    }

    fn struct_size(self) -> usize {
        // SAFETY: every version of the table starts with its size.
        unsafe { (&raw const (*self.table()).struct_size).read() }
    }

    /// Whether a slot at `offset` is within the vendor's table.
    pub(crate) fn reaches(self, offset: usize) -> bool {
        offset + size_of::<usize>() <= self.struct_size()
    }

    /// Major and minor version; `None` if the table is too short to say.
    pub(crate) fn version(self) -> Option<(i32, i32)> {
        let end = std::mem::offset_of!(PJRT_Api, pjrt_api_version) + PJRT_Api_Version::END;
        if self.struct_size() < end {
            return None;
        }
        // SAFETY: the table reaches to the end of the version's last field. Field by field, since
        // the struct's padding need not exist.
        unsafe {
            let version = &raw const (*self.table()).pjrt_api_version;
            Some((
                (&raw const (*version).major_version).read(),
                (&raw const (*version).minor_version).read(),
            ))
        }
    }

    /// The first extension of type `wanted` in the table's chain.
    pub(crate) fn extension(self, wanted: PJRT_Extension_Type) -> Option<NonNull<u8>> {
        if !self.reaches(std::mem::offset_of!(PJRT_Api, extension_start)) {
            return None;
        }
        // SAFETY: within the table.
        let mut next = unsafe { (&raw const (*self.table()).extension_start).read() };
        while let Some(extension) = NonNull::new(next) {
            let base = extension.as_ptr();
            // SAFETY: a chain's links are extension structs, which start with the base, and live
            // as long as the table.
            unsafe {
                if (&raw const (*base).r#type).read() == wanted {
                    return Some(extension.cast());
                }
                next = (&raw const (*base).next).read();
            }
        }
        None
    }

    /// Calls `function` and takes its error.
    ///
    /// # Safety
    /// `function` is the vendor's under the name `name`, and `args` is as the header asks.
    pub(crate) unsafe fn call<T: CStruct>(
        self,
        name: &str,
        function: Option<Function<T>>,
        args: &mut Padded<T>,
    ) -> Result<(), Error> {
        let Some(function) = function else {
            return Err(self.lacks(name));
        };
        // SAFETY: the caller's promise.
        let error = unsafe { function(args.as_mut_ptr()) };
        match NonNull::new(error) {
            None => Ok(()),
            // SAFETY: the vendor gives the error to its caller.
            Some(error) => Err(unsafe { self.take_error(error) }),
        }
    }

    pub(crate) fn lacks(self, name: &str) -> Error {
        let (major, minor) = self.version().unwrap_or((0, 0));
        Error::new(
            PJRT_Error_Code_UNIMPLEMENTED,
            format!("the vendor's plugin (PJRT API {major}.{minor}) has no {name}"),
        )
    }

    /// Copies code and message out of a vendor's error and frees it.
    ///
    /// # Safety
    /// The error is this plugin's, is owned by the caller, and is not used afterwards.
    pub(crate) unsafe fn take_error(self, error: NonNull<PJRT_Error>) -> Error {
        // SAFETY: the three error functions are among the first slots of every version; each is
        // read only if the table reaches it. The message lives until the error is destroyed.
        unsafe {
            let mut code = Padded::<PJRT_Error_GetCode_Args>::new();
            code.error = error.as_ptr();
            let known = self.reaches(std::mem::offset_of!(PJRT_Api, PJRT_Error_GetCode));
            let function = known.then(|| (&raw const (*self.table()).PJRT_Error_GetCode).read());
            // Its own failure would be an error about an error: the code stays "unknown".
            let failed = match function.flatten() {
                Some(function) => !function(code.as_mut_ptr()).is_null(),
                None => true,
            };
            let code = if failed {
                PJRT_Error_Code_UNKNOWN
            } else {
                code.code
            };

            let mut message = Padded::<PJRT_Error_Message_Args>::new();
            message.error = error.as_ptr();
            if let Some(function) = (&raw const (*self.table()).PJRT_Error_Message).read() {
                function(message.as_mut_ptr());
            }
            let text = text(message.message, message.message_size);

            let mut destroy = Padded::<PJRT_Error_Destroy_Args>::new();
            destroy.error = error.as_ptr();
            if let Some(function) = (&raw const (*self.table()).PJRT_Error_Destroy).read() {
                function(destroy.as_mut_ptr());
            }
            Error::new(code, text)
        }
    }
}

/// Copies bytes that a vendor lent.
///
/// # Safety
/// `size` bytes at `start` are readable, or `start` is null.
pub(crate) unsafe fn bytes(start: *const c_char, size: usize) -> Vec<u8> {
    if start.is_null() || size == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start.cast::<u8>(), size) }.to_vec()
}

/// Copies a text that a vendor lent.
///
/// # Safety
/// As for [`bytes`].
pub(crate) unsafe fn text(start: *const c_char, size: usize) -> String {
    // SAFETY: the caller's promise.
    String::from_utf8_lossy(&unsafe { bytes(start, size) }).into_owned()
}

/// A list that a vendor lent.
///
/// # Safety
/// `len` elements at `start` are readable for `'a`, or `start` is null.
pub(crate) unsafe fn list<'a, T>(start: *const T, len: usize) -> &'a [T] {
    if start.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, len) }
}
