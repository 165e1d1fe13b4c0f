//! Plugin and client: creation, compilation, host buffers, asynchronous transfers.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::{PJRT_CallbackError, PJRT_Error, PJRT_Error_Code, PJRT_Event, PJRT_NamedValue};

opaque! {
    PJRT_Client,
    PJRT_Device,
    PJRT_Memory,
    PJRT_DeviceDescription,
    PJRT_TopologyDescription,
    PJRT_Executable,
    PJRT_LoadedExecutable,
    PJRT_Buffer,
    PJRT_FulfillAliasBufferCallback,
    PJRT_AsyncHostToDeviceTransferManager,
    PJRT_PhaseCompiler,
}

args! { PJRT_Plugin_Initialize_Args {} }
args! { PJRT_Plugin_Attributes_Args { attributes: *const PJRT_NamedValue, num_attributes: usize } }
pub type PJRT_KeyValueGetCallback_ValueDeleter =
    Option<unsafe extern "C-unwind" fn(value: *mut c_char)>;

args! { PJRT_KeyValueGetCallback_Args {
    key: *const c_char,
    key_size: usize,
    timeout_in_ms: c_int,
    callback_error: *mut PJRT_CallbackError,
    user_arg: *mut c_void,
    value: *mut c_char,
    value_size: usize,
    value_deleter_callback: PJRT_KeyValueGetCallback_ValueDeleter,
} }
pub type PJRT_KeyValueGetCallback = Option<
    unsafe extern "C-unwind" fn(args: *mut PJRT_KeyValueGetCallback_Args) -> *mut PJRT_Error,
>;

pub type PJRT_KeyValueTryGetCallback_ValueDeleter =
    Option<unsafe extern "C-unwind" fn(value: *mut c_char)>;

args! { PJRT_KeyValueTryGetCallback_Args {
    key: *const c_char,
    key_size: usize,
    callback_error: *mut PJRT_CallbackError,
    user_arg: *mut c_void,
    value: *mut c_char,
    value_size: usize,
    value_deleter_callback: PJRT_KeyValueTryGetCallback_ValueDeleter,
} }
pub type PJRT_KeyValueTryGetCallback = Option<
    unsafe extern "C-unwind" fn(args: *mut PJRT_KeyValueTryGetCallback_Args) -> *mut PJRT_Error,
>;

args! { PJRT_KeyValuePutCallback_Args {
    key: *const c_char,
    key_size: usize,
    value: *const c_char,
    value_size: usize,
    callback_error: *mut PJRT_CallbackError,
    user_arg: *mut c_void,
} }
pub type PJRT_KeyValuePutCallback = Option<
    unsafe extern "C-unwind" fn(args: *mut PJRT_KeyValuePutCallback_Args) -> *mut PJRT_Error,
>;

args! { PJRT_Client_Create_Args {
    create_options: *const PJRT_NamedValue,
    num_options: usize,
    kv_get_callback: PJRT_KeyValueGetCallback,
    kv_get_user_arg: *mut c_void,
    kv_put_callback: PJRT_KeyValuePutCallback,
    kv_put_user_arg: *mut c_void,
    client: *mut PJRT_Client,
    kv_try_get_callback: PJRT_KeyValueTryGetCallback,
    kv_try_get_user_arg: *mut c_void,
} }
args! { PJRT_Client_Destroy_Args { client: *mut PJRT_Client } }
args! { PJRT_Client_PlatformName_Args {
    client: *mut PJRT_Client,
    platform_name: *const c_char,
    platform_name_size: usize,
} }
args! { PJRT_Client_ProcessIndex_Args { client: *mut PJRT_Client, process_index: c_int } }
args! { PJRT_Client_PlatformVersion_Args {
    client: *mut PJRT_Client,
    platform_version: *const c_char,
    platform_version_size: usize,
} }
args! { PJRT_Client_TopologyDescription_Args {
    client: *mut PJRT_Client,
    topology: *mut PJRT_TopologyDescription,
} }
args! { PJRT_Client_Devices_Args {
    client: *mut PJRT_Client,
    devices: *const *mut PJRT_Device,
    num_devices: usize,
} }
args! { PJRT_Client_AddressableDevices_Args {
    client: *mut PJRT_Client,
    addressable_devices: *const *mut PJRT_Device,
    num_addressable_devices: usize,
} }
args! { PJRT_Client_LookupDevice_Args {
    client: *mut PJRT_Client,
    id: c_int,
    device: *mut PJRT_Device,
} }
args! { PJRT_Client_LookupAddressableDevice_Args {
    client: *mut PJRT_Client,
    local_hardware_id: c_int,
    addressable_device: *mut PJRT_Device,
} }
pub type PJRT_ProcessState = c_uint;
pub const PJRT_ProcessState_kUnspecified: PJRT_ProcessState = 0;
pub const PJRT_ProcessState_kUninitialized: PJRT_ProcessState = 1;
pub const PJRT_ProcessState_kDisconnected: PJRT_ProcessState = 2;
pub const PJRT_ProcessState_kConnected: PJRT_ProcessState = 3;
pub const PJRT_ProcessState_kError: PJRT_ProcessState = 4;

plain! { PJRT_ProcessInfo {
    struct_size: usize,
    task_id: c_int,
    incarnation_id: u64,
    state: PJRT_ProcessState,
    error_code: c_int,
    error_message: *const c_char,
    error_message_size: usize,
} }
args! { PJRT_Client_UpdateGlobalProcessInfo_Args {
    client: *mut PJRT_Client,
    process_infos: *mut PJRT_ProcessInfo,
    num_process_infos: usize,
} }
args! { PJRT_Client_AddressableMemories_Args {
    client: *mut PJRT_Client,
    addressable_memories: *const *mut PJRT_Memory,
    num_addressable_memories: usize,
} }
args! { PJRT_Program {
    code: *mut c_char,
    code_size: usize,
    format: *const c_char,
    format_size: usize,
} }
args! { PJRT_Client_Compile_Args {
    client: *mut PJRT_Client,
    program: *const PJRT_Program,
    compile_options: *const c_char,
    compile_options_size: usize,
    executable: *mut PJRT_LoadedExecutable,
} }
args! { PJRT_Client_DefaultDeviceAssignment_Args {
    client: *mut PJRT_Client,
    num_replicas: c_int,
    num_partitions: c_int,
    default_assignment_size: usize,
    default_assignment: *mut c_int,
} }
args! { PJRT_Client_DmaMap_Args { client: *mut PJRT_Client, data: *mut c_void, size: usize } }
args! { PJRT_Client_DmaUnmap_Args { client: *mut PJRT_Client, data: *mut c_void } }
args! { PJRT_AsyncHostToDeviceTransferManager_Destroy_Args {
    transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
} }
args! { PJRT_AsyncHostToDeviceTransferManager_TransferData_Args {
    transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
    buffer_index: c_int,
    data: *const c_void,
    offset: i64,
    transfer_size: i64,
    is_last_transfer: bool,
    done_with_h2d_transfer: *mut PJRT_Event,
} }
args! { PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args {
    transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
    buffer_index: c_int,
    buffer_out: *mut PJRT_Buffer,
} }
args! { PJRT_AsyncHostToDeviceTransferManager_Device_Args {
    transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
    device_out: *mut PJRT_Device,
} }
args! { PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args {
    transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
    buffer_count: usize,
} }
args! { PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args {
    transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
    buffer_index: c_int,
    buffer_size: usize,
} }
args! { PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args {
    transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
    buffer_index: c_int,
    error_code: PJRT_Error_Code,
    error_message: *const c_char,
    error_message_size: usize,
} }
args! { PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args {
    transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
    transfer_metadata: *const PJRT_NamedValue,
    num_metadata: usize,
} }
pub type PJRT_Buffer_Type = c_uint;
pub const PJRT_Buffer_Type_INVALID: PJRT_Buffer_Type = 0;
pub const PJRT_Buffer_Type_PRED: PJRT_Buffer_Type = 1;
pub const PJRT_Buffer_Type_S8: PJRT_Buffer_Type = 2;
pub const PJRT_Buffer_Type_S16: PJRT_Buffer_Type = 3;
pub const PJRT_Buffer_Type_S32: PJRT_Buffer_Type = 4;
pub const PJRT_Buffer_Type_S64: PJRT_Buffer_Type = 5;
pub const PJRT_Buffer_Type_U8: PJRT_Buffer_Type = 6;
pub const PJRT_Buffer_Type_U16: PJRT_Buffer_Type = 7;
pub const PJRT_Buffer_Type_U32: PJRT_Buffer_Type = 8;
pub const PJRT_Buffer_Type_U64: PJRT_Buffer_Type = 9;
pub const PJRT_Buffer_Type_F16: PJRT_Buffer_Type = 10;
pub const PJRT_Buffer_Type_F32: PJRT_Buffer_Type = 11;
pub const PJRT_Buffer_Type_F64: PJRT_Buffer_Type = 12;
pub const PJRT_Buffer_Type_BF16: PJRT_Buffer_Type = 13;
pub const PJRT_Buffer_Type_C64: PJRT_Buffer_Type = 14;
pub const PJRT_Buffer_Type_C128: PJRT_Buffer_Type = 15;
pub const PJRT_Buffer_Type_F8E5M2: PJRT_Buffer_Type = 16;
pub const PJRT_Buffer_Type_F8E4M3FN: PJRT_Buffer_Type = 17;
pub const PJRT_Buffer_Type_F8E4M3B11FNUZ: PJRT_Buffer_Type = 18;
pub const PJRT_Buffer_Type_F8E5M2FNUZ: PJRT_Buffer_Type = 19;
pub const PJRT_Buffer_Type_F8E4M3FNUZ: PJRT_Buffer_Type = 20;
pub const PJRT_Buffer_Type_S4: PJRT_Buffer_Type = 21;
pub const PJRT_Buffer_Type_U4: PJRT_Buffer_Type = 22;
pub const PJRT_Buffer_Type_TOKEN: PJRT_Buffer_Type = 23;
pub const PJRT_Buffer_Type_S2: PJRT_Buffer_Type = 24;
pub const PJRT_Buffer_Type_U2: PJRT_Buffer_Type = 25;
pub const PJRT_Buffer_Type_F8E4M3: PJRT_Buffer_Type = 26;
pub const PJRT_Buffer_Type_F8E3M4: PJRT_Buffer_Type = 27;
pub const PJRT_Buffer_Type_F8E8M0FNU: PJRT_Buffer_Type = 28;
pub const PJRT_Buffer_Type_F4E2M1FN: PJRT_Buffer_Type = 29;

pub type PJRT_HostBufferSemantics = c_uint;
pub const PJRT_HostBufferSemantics_kImmutableOnlyDuringCall: PJRT_HostBufferSemantics = 0;
pub const PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes: PJRT_HostBufferSemantics = 1;
pub const PJRT_HostBufferSemantics_kImmutableZeroCopy: PJRT_HostBufferSemantics = 2;
pub const PJRT_HostBufferSemantics_kMutableZeroCopy: PJRT_HostBufferSemantics = 3;

pub type PJRT_Buffer_MemoryLayout_Type = c_uint;
pub const PJRT_Buffer_MemoryLayout_Type_Tiled: PJRT_Buffer_MemoryLayout_Type = 0;
pub const PJRT_Buffer_MemoryLayout_Type_Strides: PJRT_Buffer_MemoryLayout_Type = 1;

args! { PJRT_Buffer_MemoryLayout_Tiled {
    minor_to_major: *const i64,
    minor_to_major_size: usize,
    tile_dims: *const i64,
    tile_dim_sizes: *const usize,
    num_tiles: usize,
} }
args! { PJRT_Buffer_MemoryLayout_Strides { byte_strides: *const i64, num_byte_strides: usize } }
#[repr(C)]
#[derive(Clone, Copy)]
pub union PJRT_Buffer_MemoryLayout_Value {
    pub tiled: PJRT_Buffer_MemoryLayout_Tiled,
    pub strides: PJRT_Buffer_MemoryLayout_Strides,
}

args! { PJRT_Buffer_MemoryLayout {
    value: PJRT_Buffer_MemoryLayout_Value,
    r#type: PJRT_Buffer_MemoryLayout_Type,
} }
args! { PJRT_Client_CreateUninitializedBuffer_Args {
    client: *mut PJRT_Client,
    shape_dims: *const i64,
    shape_num_dims: usize,
    shape_element_type: PJRT_Buffer_Type,
    shape_layout: *mut PJRT_Buffer_MemoryLayout,
    device: *mut PJRT_Device,
    memory: *mut PJRT_Memory,
    buffer: *mut PJRT_Buffer,
} }
args! { PJRT_Client_CreateAliasBuffer_Args {
    client: *mut PJRT_Client,
    memory: *mut PJRT_Memory,
    shape_dims: *const i64,
    shape_num_dims: usize,
    shape_element_type: PJRT_Buffer_Type,
    shape_layout: *mut PJRT_Buffer_MemoryLayout,
    alias_buffer: *mut PJRT_Buffer,
    fulfill_alias_buffer_cb: *mut PJRT_FulfillAliasBufferCallback,
} }
args! { PJRT_Client_FulfillAliasBuffer_Args {
    client: *mut PJRT_Client,
    buffer: *mut PJRT_Buffer,
    status_code: PJRT_Error_Code,
    error_message: *const c_char,
    error_message_size: usize,
    fulfill_alias_buffer_cb: *mut PJRT_FulfillAliasBufferCallback,
} }
args! { PJRT_Client_BufferFromHostBuffer_Args {
    client: *mut PJRT_Client,
    data: *const c_void,
    r#type: PJRT_Buffer_Type,
    dims: *const i64,
    num_dims: usize,
    byte_strides: *const i64,
    num_byte_strides: usize,
    host_buffer_semantics: PJRT_HostBufferSemantics,
    device: *mut PJRT_Device,
    memory: *mut PJRT_Memory,
    device_layout: *mut PJRT_Buffer_MemoryLayout,
    done_with_host_buffer: *mut PJRT_Event,
    buffer: *mut PJRT_Buffer,
} }
args! { PJRT_Client_CreateViewOfDeviceBuffer_Args {
    client: *mut PJRT_Client,
    device_buffer_ptr: *mut c_void,
    dims: *const i64,
    num_dims: usize,
    element_type: PJRT_Buffer_Type,
    layout: *mut PJRT_Buffer_MemoryLayout,
    device: *mut PJRT_Device,
    on_delete_callback:
        Option<unsafe extern "C-unwind" fn(device_buffer_ptr: *mut c_void, user_arg: *mut c_void)>,
    on_delete_callback_arg: *mut c_void,
    stream: isize,
    buffer: *mut PJRT_Buffer,
    memory: *mut PJRT_Memory,
} }
args! { PJRT_ShapeSpec { dims: *const i64, num_dims: usize, element_type: PJRT_Buffer_Type } }
args! { PJRT_Client_CreateBuffersForAsyncHostToDevice_Args {
    client: *mut PJRT_Client,
    shape_specs: *mut PJRT_ShapeSpec,
    num_shape_specs: usize,
    device_layouts: *mut *mut PJRT_Buffer_MemoryLayout,
    num_device_layouts: usize,
    memory: *mut PJRT_Memory,
    transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
} }
