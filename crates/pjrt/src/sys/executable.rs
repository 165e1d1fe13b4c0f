//! Executables, loaded ones and their launches.

use std::ffi::{c_char, c_int, c_void};

use super::{
    PJRT_Buffer, PJRT_Buffer_Type, PJRT_CallbackError, PJRT_Client, PJRT_Device, PJRT_Error,
    PJRT_Event, PJRT_Executable, PJRT_LoadedExecutable, PJRT_NamedValue, PJRT_Program,
};

opaque! {
    PJRT_ExecuteContext,
    PJRT_DeviceAssignmentSerialized,
    PJRT_CopyToDeviceStream,
    PJRT_SerializedExecutable,
}

args! { PJRT_ExecuteContext_Create_Args { context: *mut PJRT_ExecuteContext } }
args! { PJRT_ExecuteContext_Destroy_Args { context: *mut PJRT_ExecuteContext } }
args! { PJRT_Executable_Destroy_Args { executable: *mut PJRT_Executable } }
args! { PJRT_LoadedExecutable_Destroy_Args { executable: *mut PJRT_LoadedExecutable } }
args! { PJRT_LoadedExecutable_GetExecutable_Args {
    loaded_executable: *mut PJRT_LoadedExecutable,
    executable: *mut PJRT_Executable,
} }
args! { PJRT_LoadedExecutable_GetDeviceAssignment_Args {
    executable: *mut PJRT_LoadedExecutable,
    serialized_bytes: *const c_char,
    serialized_bytes_size: usize,
    serialized_device_assignment: *mut PJRT_DeviceAssignmentSerialized,
    serialized_device_assignment_deleter:
        Option<unsafe extern "C-unwind" fn(da: *mut PJRT_DeviceAssignmentSerialized)>,
} }
args! { PJRT_Executable_Name_Args {
    executable: *mut PJRT_Executable,
    executable_name: *const c_char,
    executable_name_size: usize,
} }
args! { PJRT_Executable_NumReplicas_Args { executable: *mut PJRT_Executable, num_replicas: usize } }
args! { PJRT_Executable_NumPartitions_Args {
    executable: *mut PJRT_Executable,
    num_partitions: usize,
} }
args! { PJRT_LoadedExecutable_AddressableDevices_Args {
    executable: *mut PJRT_LoadedExecutable,
    addressable_devices: *const *mut PJRT_Device,
    num_addressable_devices: usize,
} }
args! { PJRT_Executable_OptimizedProgram_Args {
    executable: *mut PJRT_Executable,
    program: *mut PJRT_Program,
} }
args! { PJRT_LoadedExecutable_Delete_Args { executable: *mut PJRT_LoadedExecutable } }
args! { PJRT_LoadedExecutable_IsDeleted_Args {
    executable: *mut PJRT_LoadedExecutable,
    is_deleted: bool,
} }
plain! { PJRT_Chunk {
    data: *mut c_void,
    size: usize,
    deleter:
        Option<unsafe extern "C-unwind" fn(data: *mut c_void, deleter_arg: *mut c_void)>,
    deleter_arg: *mut c_void,
} }
pub type PJRT_SendCallback = Option<
    unsafe extern "C-unwind" fn(
        chunk: *mut PJRT_Chunk,
        callback_error: *mut PJRT_CallbackError,
        total_size_in_bytes: usize,
        done: bool,
        user_arg: *mut c_void,
    ) -> *mut PJRT_Error,
>;

pub type PJRT_RecvCallback = Option<
    unsafe extern "C-unwind" fn(stream: *mut PJRT_CopyToDeviceStream, user_arg: *mut c_void),
>;

plain! { PJRT_SendCallbackInfo {
    channel_id: i64,
    user_arg: *mut c_void,
    send_callback: PJRT_SendCallback,
} }
plain! { PJRT_RecvCallbackInfo {
    channel_id: i64,
    user_arg: *mut c_void,
    recv_callback: PJRT_RecvCallback,
} }
args! { PJRT_ExecuteOptions {
    send_callbacks: *mut *mut PJRT_SendCallbackInfo,
    recv_callbacks: *mut *mut PJRT_RecvCallbackInfo,
    num_send_ops: usize,
    num_recv_ops: usize,
    launch_id: c_int,
    non_donatable_input_indices: *const i64,
    num_non_donatable_input_indices: usize,
    context: *mut PJRT_ExecuteContext,
    call_location: *const c_char,
    num_tasks: usize,
    task_ids: *mut c_int,
    incarnation_ids: *mut i64,
} }
args! { PJRT_LoadedExecutable_Execute_Args {
    executable: *mut PJRT_LoadedExecutable,
    options: *mut PJRT_ExecuteOptions,
    argument_lists: *const *const *mut PJRT_Buffer,
    num_devices: usize,
    num_args: usize,
    output_lists: *const *mut *mut PJRT_Buffer,
    device_complete_events: *mut *mut PJRT_Event,
    execute_device: *mut PJRT_Device,
} }
args! { PJRT_Executable_NumOutputs_Args { executable: *mut PJRT_Executable, num_outputs: usize } }
args! { PJRT_Executable_SizeOfGeneratedCodeInBytes_Args {
    executable: *mut PJRT_Executable,
    size_in_bytes: i64,
} }
args! { PJRT_Executable_Fingerprint_Args {
    executable: *mut PJRT_Executable,
    executable_fingerprint: *const c_char,
    executable_fingerprint_size: usize,
} }
args! { PJRT_Executable_GetCostAnalysis_Args {
    executable: *mut PJRT_Executable,
    num_properties: usize,
    properties: *const PJRT_NamedValue,
} }
args! { PJRT_Executable_GetCompiledMemoryStats_Args {
    executable: *mut PJRT_Executable,
    generated_code_size_in_bytes: i64,
    argument_size_in_bytes: i64,
    output_size_in_bytes: i64,
    alias_size_in_bytes: i64,
    temp_size_in_bytes: i64,
    host_generated_code_size_in_bytes: i64,
    host_argument_size_in_bytes: i64,
    host_output_size_in_bytes: i64,
    host_alias_size_in_bytes: i64,
    host_temp_size_in_bytes: i64,
    peak_memory_in_bytes: i64,
} }
args! { PJRT_Executable_OutputElementTypes_Args {
    executable: *mut PJRT_Executable,
    output_types: *mut PJRT_Buffer_Type,
    num_output_types: usize,
} }
args! { PJRT_Executable_OutputDimensions_Args {
    executable: *mut PJRT_Executable,
    num_outputs: usize,
    dims: *const i64,
    dim_sizes: *const usize,
} }
args! { PJRT_Executable_OutputMemoryKinds_Args {
    executable: *mut PJRT_Executable,
    num_outputs: usize,
    memory_kinds: *const *const c_char,
    memory_kind_sizes: *const usize,
} }
args! { PJRT_Executable_Serialize_Args {
    executable: *const PJRT_Executable,
    serialized_bytes: *const c_char,
    serialized_bytes_size: usize,
    serialized_executable: *mut PJRT_SerializedExecutable,
    serialized_executable_deleter:
        Option<unsafe extern "C-unwind" fn(exec: *mut PJRT_SerializedExecutable)>,
} }
args! { PJRT_Executable_DeserializeAndLoad_Args {
    client: *mut PJRT_Client,
    serialized_executable: *const c_char,
    serialized_executable_size: usize,
    loaded_executable: *mut PJRT_LoadedExecutable,
    overridden_serialized_compile_options: *const c_char,
    overridden_serialized_compile_options_size: usize,
} }
args! { PJRT_LoadedExecutable_Fingerprint_Args {
    executable: *mut PJRT_LoadedExecutable,
    executable_fingerprint: *const c_char,
    executable_fingerprint_size: usize,
} }
