//! The FFI extension: handlers of our own for custom calls, and user data that they find again.
//!
//! A program that calls out names a target; the plugin looks it up among the handlers registered in
//! its process. A handler sees the operands and results of the call in place ([`Call`]), its
//! attributes, and the user data of the launch ([`ExecuteContext`]).
//!
//! Promise: no panic of a handler reaches the plugin; a handler that is asked for its version answers
//! without running.
//! Not here: what the handlers do.

#![allow(non_upper_case_globals, reason = "patterns with the header's names")]

use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::api::{Api, Padded};
use crate::sys::*;
use crate::{Client, Error};

/// The version of XLA's FFI that our handlers say they were written for: plugins refuse newer ones
/// than their own without a word and take older ones, so it is the oldest that has what we use.
const FFI_VERSION: (i32, i32) = (0, 1);

/// The extension of a plugin.
#[derive(Clone, Copy)]
pub struct Ffi {
    api: Api,
    table: NonNull<PJRT_FFI_Extension>,
}

// SAFETY: the extension is read-only and its functions may be called by any thread.
unsafe impl Send for Ffi {}
// SAFETY: as above.
unsafe impl Sync for Ffi {}

/// A type of user data that the plugin knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserType(i64);

macro_rules! call_ffi {
    ($ffi:expr, $entry:ident, $args:expr) => {{
        let ffi: Ffi = $ffi;
        let function = if ffi.reaches(offset_of!(PJRT_FFI_Extension, $entry)) {
            (&raw const (*ffi.table.as_ptr()).$entry).read()
        } else {
            None
        };
        ffi.api
            .call(concat!("PJRT_FFI ", stringify!($entry)), function, $args)
    }};
}

impl Client {
    /// The plugin's FFI extension, if it has one.
    pub fn ffi(&self) -> Option<Ffi> {
        let api = self.api();
        let table = api.extension(PJRT_Extension_Type_FFI)?.cast();
        Some(Ffi { api, table })
    }
}

impl Ffi {
    fn reaches(self, offset: usize) -> bool {
        // SAFETY: every extension starts with the base, whose first field is its size.
        let size = unsafe { (&raw const (*self.table.as_ptr()).base.struct_size).read() };
        offset + size_of::<usize>() <= size
    }

    /// Registers `handler` for the custom call `target`, for the life of the process.
    ///
    /// A plugin that refuses a handler may say nothing: only compiling a program shows it.
    pub fn register(
        self,
        target: &str,
        platform: &str,
        handler: XLA_FFI_Handler,
    ) -> Result<(), Error> {
        let mut args = Padded::<PJRT_FFI_Register_Handler_Args>::new();
        args.target_name = target.as_ptr().cast();
        args.target_name_size = target.len();
        args.platform_name = platform.as_ptr().cast();
        args.platform_name_size = platform.len();
        args.handler = handler as *mut c_void;
        // SAFETY: the names live during the call, the handler forever.
        unsafe { call_ffi!(self, register_handler, &mut args) }
    }

    /// Makes a type of user data known to the plugin, once in the life of the process.
    pub fn register_type(self, name: &str) -> Result<UserType, Error> {
        let mut info = PJRT_FFI_Type_Info {
            deleter: None,
            serialize: None,
            deserialize: None,
        };
        let mut args = Padded::<PJRT_FFI_Type_Register_Args>::new();
        args.type_name = name.as_ptr().cast();
        args.type_name_size = name.len();
        args.type_info = &raw mut info;
        // SAFETY: name and info live during the call.
        unsafe { call_ffi!(self, type_register, &mut args) }?;
        Ok(UserType(args.type_id))
    }

    /// What handlers of one launch find as user data.
    ///
    /// # Safety
    /// `data` stays valid until the launch that gets the context has ended.
    pub unsafe fn context(
        self,
        user_type: UserType,
        data: *const c_void,
    ) -> Result<ExecuteContext, Error> {
        let mut args = Padded::<PJRT_ExecuteContext_Create_Args>::new();
        // SAFETY: nothing but an out-field; what comes back is owned by the caller.
        unsafe { call!(self.api, PJRT_ExecuteContext_Create, &mut args) }?;
        let raw = NonNull::new(args.context)
            .ok_or_else(|| Error::internal("the vendor's plugin returned a null context"))?;
        let context = ExecuteContext { api: self.api, raw };
        let mut args = Padded::<PJRT_FFI_UserData_Add_Args>::new();
        args.context = raw.as_ptr();
        args.user_data = PJRT_FFI_UserData {
            type_id: user_type.0,
            data: data.cast_mut(),
        };
        // SAFETY: a live context; the data's life is the caller's promise.
        unsafe { call_ffi!(self, user_data_add, &mut args) }?;
        Ok(context)
    }
}

/// What a launch carries for the handlers of its program. It must outlive the launch.
pub struct ExecuteContext {
    api: Api,
    raw: NonNull<PJRT_ExecuteContext>,
}

// SAFETY: PJRT contexts may be used by any thread.
unsafe impl Send for ExecuteContext {}
// SAFETY: as above.
unsafe impl Sync for ExecuteContext {}

impl ExecuteContext {
    pub(crate) fn raw(&self) -> *mut PJRT_ExecuteContext {
        self.raw.as_ptr()
    }
}

impl Drop for ExecuteContext {
    fn drop(&mut self) {
        let mut args = Padded::<PJRT_ExecuteContext_Destroy_Args>::new();
        args.context = self.raw.as_ptr();
        // SAFETY: owned, and the launch has ended. No caller could act on an error.
        let _ = unsafe { call!(self.api, PJRT_ExecuteContext_Destroy, &mut args) };
    }
}

/// One custom call as its handler sees it.
pub struct Call<'a> {
    frame: *mut XLA_FFI_CallFrame,
    _frame: PhantomData<&'a XLA_FFI_CallFrame>,
}

/// An operand or a result, in place.
#[derive(Debug, Clone, Copy)]
pub struct FfiBuffer<'a> {
    /// In the numbers of XLA's FFI.
    pub element_type: XLA_FFI_DataType,
    pub dims: &'a [i64],
    pub data: *mut c_void,
}

impl FfiBuffer<'_> {
    pub fn elements(&self) -> usize {
        self.dims.iter().map(|&dim| dim as usize).product()
    }
}

/// What a handler is: it answers for a frame of the plugin by running `body`.
///
/// # Safety
/// `frame` is what the plugin gave to a handler.
pub unsafe fn handle(
    frame: *mut XLA_FFI_CallFrame,
    body: impl FnOnce(&Call<'_>) -> Result<(), Error>,
) -> *mut XLA_FFI_Error {
    // SAFETY: the caller's promise; the frame and what it points to live during the call.
    unsafe {
        if describe(frame) {
            return std::ptr::null_mut();
        }
        let call = Call {
            frame,
            _frame: PhantomData,
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| body(&call)));
        let outcome = outcome.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(Error::internal(format!(
                "Salus has a bug in a handler of a custom call: {}",
                text.unwrap_or("it panicked")
            )))
        });
        match outcome {
            Ok(()) => std::ptr::null_mut(),
            Err(error) => call.error(&error),
        }
    }
}

/// Fills in what the plugin asks of a handler when it is registered. False if it asks nothing.
///
/// # Safety
/// As for [`handle`].
unsafe fn describe(frame: *mut XLA_FFI_CallFrame) -> bool {
    // SAFETY: a frame's extensions are a chain of structs that start with the base.
    unsafe {
        let mut next = (&raw const (*frame).extension_start).read();
        while let Some(extension) = NonNull::new(next) {
            let base = extension.as_ptr();
            if (&raw const (*base).r#type).read() == XLA_FFI_Extension_Metadata {
                let extension: *mut XLA_FFI_Metadata_Extension = base.cast();
                let metadata = (&raw const (*extension).metadata).read();
                let version = &raw mut (*metadata).api_version;
                (&raw mut (*version).major_version).write(FFI_VERSION.0);
                (&raw mut (*version).minor_version).write(FFI_VERSION.1);
                (&raw mut (*metadata).traits).write(0);
                return true;
            }
            next = (&raw const (*base).next).read();
        }
        false
    }
}

impl<'a> Call<'a> {
    pub fn operands(&self) -> Result<Vec<FfiBuffer<'a>>, Error> {
        // SAFETY: within the frame; the lists are as long as they say.
        unsafe {
            let args = &raw const (*self.frame).args;
            buffers(
                (&raw const (*args).size).read(),
                (&raw const (*args).types).read(),
                (&raw const (*args).args).read(),
            )
        }
    }

    pub fn results(&self) -> Result<Vec<FfiBuffer<'a>>, Error> {
        // SAFETY: as above.
        unsafe {
            let rets = &raw const (*self.frame).rets;
            buffers(
                (&raw const (*rets).size).read(),
                (&raw const (*rets).types).read(),
                (&raw const (*rets).rets).read(),
            )
        }
    }

    /// The scalar attribute `name` and its type.
    fn scalar(&self, name: &str) -> Result<XLA_FFI_Scalar, Error> {
        // SAFETY: as above; a scalar attribute is an `XLA_FFI_Scalar`.
        unsafe {
            let attrs = &raw const (*self.frame).attrs;
            let size = (&raw const (*attrs).size).read();
            for index in 0..usize::try_from(size).unwrap_or(0) {
                let span = (*attrs).names.add(index).read().read();
                if std::slice::from_raw_parts(span.ptr.cast::<u8>(), span.len) != name.as_bytes() {
                    continue;
                }
                if (*attrs).types.add(index).read() != XLA_FFI_AttrType_SCALAR {
                    let message = format!("the attribute `{name}` of a custom call is no scalar");
                    return Err(Error::internal(message));
                }
                return Ok((*attrs)
                    .attrs
                    .add(index)
                    .read()
                    .cast::<XLA_FFI_Scalar>()
                    .read());
            }
        }
        Err(Error::internal(format!(
            "a custom call lacks its attribute `{name}`"
        )))
    }

    /// The integer or boolean attribute `name`.
    pub fn integer(&self, name: &str) -> Result<i64, Error> {
        let scalar = self.scalar(name)?;
        // SAFETY: the value has the type that the attribute says.
        let value = unsafe {
            match scalar.dtype {
                XLA_FFI_DataType_PRED | XLA_FFI_DataType_U8 => {
                    i64::from(scalar.value.cast::<u8>().read())
                }
                XLA_FFI_DataType_S8 => i64::from(scalar.value.cast::<i8>().read()),
                XLA_FFI_DataType_S16 => i64::from(scalar.value.cast::<i16>().read()),
                XLA_FFI_DataType_U16 => i64::from(scalar.value.cast::<u16>().read()),
                XLA_FFI_DataType_S32 => i64::from(scalar.value.cast::<i32>().read()),
                XLA_FFI_DataType_U32 => i64::from(scalar.value.cast::<u32>().read()),
                XLA_FFI_DataType_S64 => scalar.value.cast::<i64>().read(),
                XLA_FFI_DataType_U64 => scalar.value.cast::<u64>().read() as i64,
                other => {
                    return Err(Error::internal(format!(
                        "the attribute `{name}` of a custom call has type {other}, which is no integer"
                    )));
                }
            }
        };
        Ok(value)
    }

    /// The user data of this launch; `None` if it has none of this type.
    pub fn user_data(&self, user_type: UserType) -> Option<NonNull<c_void>> {
        let mut type_id = XLA_FFI_TypeId {
            type_id: user_type.0,
        };
        // SAFETY: the frame's context and table are the plugin's; the arguments live during the call.
        unsafe {
            let api = (&raw const (*self.frame).api).read();
            let mut args = XLA_FFI_ExecutionContext_Get_Args {
                struct_size: XLA_FFI_ExecutionContext_Get_Args::END,
                extension_start: std::ptr::null_mut(),
                ctx: (&raw const (*self.frame).ctx).read(),
                type_id: &raw mut type_id,
                data: std::ptr::null_mut(),
            };
            let get = (&raw const (*api).XLA_FFI_ExecutionContext_Get).read()?;
            // An error leaks here: it means a bug of ours, and freeing it is not worth a path.
            if !get(&raw mut args).is_null() {
                return None;
            }
            NonNull::new(args.data)
        }
    }

    fn error(&self, error: &Error) -> *mut XLA_FFI_Error {
        let text = error.message.replace('\0', "\\0");
        let text = CString::new(text).unwrap_or_default();
        let mut args = XLA_FFI_Error_Create_Args {
            struct_size: XLA_FFI_Error_Create_Args::END,
            extension_start: std::ptr::null_mut(),
            message: text.as_ptr(),
            errc: error.code,
        };
        // SAFETY: the plugin's table; the message lives during the call, which copies it.
        unsafe {
            let api = (&raw const (*self.frame).api).read();
            let create = (&raw const (*api).XLA_FFI_Error_Create).read();
            create.map_or(std::ptr::null_mut(), |create| create(&raw mut args))
        }
    }
}

/// # Safety
/// The lists have `size` entries, which live for `'a`.
unsafe fn buffers<'a>(
    size: i64,
    types: *mut u32,
    list: *mut *mut c_void,
) -> Result<Vec<FfiBuffer<'a>>, Error> {
    let size = usize::try_from(size).unwrap_or(0);
    let mut buffers = Vec::with_capacity(size);
    for index in 0..size {
        // SAFETY: the caller's promise; arguments and results share the number for buffers.
        unsafe {
            if types.add(index).read() != XLA_FFI_ArgType_BUFFER {
                return Err(Error::internal(
                    "a custom call has an operand that is no buffer",
                ));
            }
            let buffer = list.add(index).read().cast::<XLA_FFI_Buffer>().read();
            let rank = usize::try_from(buffer.rank).unwrap_or(0);
            let dims = match rank {
                0 => &[],
                _ => std::slice::from_raw_parts(buffer.dims.cast_const(), rank),
            };
            buffers.push(FfiBuffer {
                element_type: buffer.dtype,
                dims,
                data: buffer.data,
            });
        }
    }
    Ok(buffers)
}
