//! The FFI extension (type 5), and the part of XLA's FFI that a handler of a custom call sees.
//!
//! `tests/header.rs` compares the second with the header in the jaxlib wheel. The first is in no
//! wheel: the ends of its structs are constants there. A plugin's table may end before ours does.

use std::ffi::{c_char, c_int, c_void};

use super::{PJRT_Error, PJRT_ExecuteContext, PJRT_Extension_Base};

// ---------------------------------------------------------------- the extension

plain! { PJRT_FFI_Type_Info {
    deleter: Option<unsafe extern "C" fn(object: *mut c_void)>,
    serialize: Option<unsafe extern "C" fn()>,
    deserialize: Option<unsafe extern "C" fn()>,
} }
args! { PJRT_FFI_Type_Register_Args {
    type_name: *const c_char,
    type_name_size: usize,
    type_id: i64,
    type_info: *mut PJRT_FFI_Type_Info,
} }
plain! { PJRT_FFI_UserData {
    type_id: i64,
    data: *mut c_void,
} }
args! { PJRT_FFI_UserData_Add_Args {
    context: *mut PJRT_ExecuteContext,
    user_data: PJRT_FFI_UserData,
} }
plain! { PJRT_FFI_Register_Handler_Args {
    struct_size: usize,
    target_name: *const c_char,
    target_name_size: usize,
    handler: *mut c_void,
    platform_name: *const c_char,
    platform_name_size: usize,
    traits: c_int,
} }

/// The extension as it is chained to the table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PJRT_FFI_Extension {
    pub base: PJRT_Extension_Base,
    pub type_register:
        Option<unsafe extern "C" fn(args: *mut PJRT_FFI_Type_Register_Args) -> *mut PJRT_Error>,
    pub user_data_add:
        Option<unsafe extern "C" fn(args: *mut PJRT_FFI_UserData_Add_Args) -> *mut PJRT_Error>,
    pub register_handler:
        Option<unsafe extern "C" fn(args: *mut PJRT_FFI_Register_Handler_Args) -> *mut PJRT_Error>,
}

// ---------------------------------------------------------------- what a handler sees

opaque! { XLA_FFI_Error, XLA_FFI_ExecutionContext, XLA_FFI_InternalApi }

pub type XLA_FFI_DataType = u32;
pub type XLA_FFI_Handler = unsafe extern "C" fn(*mut XLA_FFI_CallFrame) -> *mut XLA_FFI_Error;

pub const XLA_FFI_Extension_Metadata: u32 = 1;
pub const XLA_FFI_ExecutionStage_EXECUTE: u32 = 3;
pub const XLA_FFI_ArgType_BUFFER: u32 = 1;
pub const XLA_FFI_RetType_BUFFER: u32 = 1;
pub const XLA_FFI_AttrType_SCALAR: u32 = 3;

plain! { XLA_FFI_Extension_Base {
    struct_size: usize,
    r#type: u32,
    next: *mut XLA_FFI_Extension_Base,
} }
plain! { XLA_FFI_Api_Version {
    struct_size: usize,
    extension_start: *mut XLA_FFI_Extension_Base,
    major_version: c_int,
    minor_version: c_int,
} }
plain! { XLA_FFI_Error_Create_Args {
    struct_size: usize,
    extension_start: *mut XLA_FFI_Extension_Base,
    message: *const c_char,
    errc: u32,
} }
plain! { XLA_FFI_Buffer {
    struct_size: usize,
    extension_start: *mut XLA_FFI_Extension_Base,
    dtype: XLA_FFI_DataType,
    data: *mut c_void,
    rank: i64,
    dims: *mut i64,
} }
plain! { XLA_FFI_ByteSpan { ptr: *const c_char, len: usize } }
plain! { XLA_FFI_Scalar { dtype: XLA_FFI_DataType, value: *mut c_void } }
plain! { XLA_FFI_TypeId { type_id: i64 } }
plain! { XLA_FFI_Args {
    struct_size: usize,
    extension_start: *mut XLA_FFI_Extension_Base,
    size: i64,
    types: *mut u32,
    args: *mut *mut c_void,
} }
plain! { XLA_FFI_Rets {
    struct_size: usize,
    extension_start: *mut XLA_FFI_Extension_Base,
    size: i64,
    types: *mut u32,
    rets: *mut *mut c_void,
} }
plain! { XLA_FFI_Attrs {
    struct_size: usize,
    extension_start: *mut XLA_FFI_Extension_Base,
    size: i64,
    types: *mut u32,
    names: *mut *mut XLA_FFI_ByteSpan,
    attrs: *mut *mut c_void,
} }
plain! { XLA_FFI_CallFrame {
    struct_size: usize,
    extension_start: *mut XLA_FFI_Extension_Base,
    api: *const XLA_FFI_Api,
    ctx: *mut XLA_FFI_ExecutionContext,
    stage: u32,
    args: XLA_FFI_Args,
    rets: XLA_FFI_Rets,
    attrs: XLA_FFI_Attrs,
} }
plain! { XLA_FFI_ExecutionContext_Get_Args {
    struct_size: usize,
    extension_start: *mut XLA_FFI_Extension_Base,
    ctx: *mut XLA_FFI_ExecutionContext,
    type_id: *mut XLA_FFI_TypeId,
    data: *mut c_void,
} }
plain! { XLA_FFI_Metadata {
    struct_size: usize,
    api_version: XLA_FFI_Api_Version,
    traits: u32,
} }
plain! { XLA_FFI_Metadata_Extension {
    extension_base: XLA_FFI_Extension_Base,
    metadata: *mut XLA_FFI_Metadata,
} }

type Unused = Option<unsafe extern "C" fn()>;

plain! { XLA_FFI_Api {
    struct_size: usize,
    extension_start: *mut XLA_FFI_Extension_Base,
    api_version: XLA_FFI_Api_Version,
    internal_api: *const XLA_FFI_InternalApi,
    XLA_FFI_Error_Create:
        Option<unsafe extern "C" fn(*mut XLA_FFI_Error_Create_Args) -> *mut XLA_FFI_Error>,
    XLA_FFI_Error_GetMessage: Unused,
    XLA_FFI_Error_Destroy: Unused,
    XLA_FFI_Handler_Register: Unused,
    XLA_FFI_Stream_Get: Unused,
    XLA_FFI_Type_Register: Unused,
    XLA_FFI_ExecutionContext_Get:
        Option<unsafe extern "C" fn(*mut XLA_FFI_ExecutionContext_Get_Args) -> *mut XLA_FFI_Error>,
    XLA_FFI_State_Set: Unused,
    XLA_FFI_State_Get: Unused,
    XLA_FFI_DeviceMemory_Allocate: Unused,
    XLA_FFI_DeviceMemory_Free: Unused,
    XLA_FFI_ThreadPool_Schedule: Unused,
    XLA_FFI_ThreadPool_NumThreads: Unused,
    XLA_FFI_Future_Create: Unused,
    XLA_FFI_Future_SetAvailable: Unused,
    XLA_FFI_Future_SetError: Unused,
    XLA_FFI_RunId_Get: Unused,
    XLA_FFI_DeviceOrdinal_Get: Unused,
} }

/// What XLA's FFI calls element types, which are not the numbers of `PJRT_Buffer_Type`.
pub const XLA_FFI_DataType_PRED: XLA_FFI_DataType = 1;
pub const XLA_FFI_DataType_S8: XLA_FFI_DataType = 2;
pub const XLA_FFI_DataType_S16: XLA_FFI_DataType = 3;
pub const XLA_FFI_DataType_S32: XLA_FFI_DataType = 4;
pub const XLA_FFI_DataType_S64: XLA_FFI_DataType = 5;
pub const XLA_FFI_DataType_U8: XLA_FFI_DataType = 6;
pub const XLA_FFI_DataType_U16: XLA_FFI_DataType = 7;
pub const XLA_FFI_DataType_U32: XLA_FFI_DataType = 8;
pub const XLA_FFI_DataType_U64: XLA_FFI_DataType = 9;
pub const XLA_FFI_DataType_F16: XLA_FFI_DataType = 10;
pub const XLA_FFI_DataType_F32: XLA_FFI_DataType = 11;
pub const XLA_FFI_DataType_F64: XLA_FFI_DataType = 12;
pub const XLA_FFI_DataType_C64: XLA_FFI_DataType = 15;
pub const XLA_FFI_DataType_BF16: XLA_FFI_DataType = 16;
pub const XLA_FFI_DataType_TOKEN: XLA_FFI_DataType = 17;
pub const XLA_FFI_DataType_C128: XLA_FFI_DataType = 18;
pub const XLA_FFI_DataType_F8E5M2: XLA_FFI_DataType = 19;
pub const XLA_FFI_DataType_F8E4M3FN: XLA_FFI_DataType = 20;
pub const XLA_FFI_DataType_S4: XLA_FFI_DataType = 21;
pub const XLA_FFI_DataType_U4: XLA_FFI_DataType = 22;
pub const XLA_FFI_DataType_F8E4M3B11FNUZ: XLA_FFI_DataType = 23;
pub const XLA_FFI_DataType_F8E5M2FNUZ: XLA_FFI_DataType = 24;
pub const XLA_FFI_DataType_F8E4M3FNUZ: XLA_FFI_DataType = 25;
pub const XLA_FFI_DataType_S2: XLA_FFI_DataType = 26;
pub const XLA_FFI_DataType_U2: XLA_FFI_DataType = 27;
pub const XLA_FFI_DataType_F8E4M3: XLA_FFI_DataType = 28;
pub const XLA_FFI_DataType_F8E3M4: XLA_FFI_DataType = 29;
pub const XLA_FFI_DataType_F4E2M1FN: XLA_FFI_DataType = 32;
pub const XLA_FFI_DataType_F8E8M0FNU: XLA_FFI_DataType = 33;
