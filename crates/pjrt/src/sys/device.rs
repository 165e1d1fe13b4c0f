//! Devices and their memories.

use std::ffi::{c_char, c_int};

use super::{PJRT_Device, PJRT_DeviceDescription, PJRT_Memory, PJRT_NamedValue};

args! { PJRT_DeviceDescription_Id_Args {
    device_description: *mut PJRT_DeviceDescription,
    id: c_int,
} }
args! { PJRT_DeviceDescription_ProcessIndex_Args {
    device_description: *mut PJRT_DeviceDescription,
    process_index: c_int,
} }
args! { PJRT_DeviceDescription_Attributes_Args {
    device_description: *mut PJRT_DeviceDescription,
    num_attributes: usize,
    attributes: *const PJRT_NamedValue,
} }
args! { PJRT_DeviceDescription_Kind_Args {
    device_description: *mut PJRT_DeviceDescription,
    device_kind: *const c_char,
    device_kind_size: usize,
} }
args! { PJRT_DeviceDescription_DebugString_Args {
    device_description: *mut PJRT_DeviceDescription,
    debug_string: *const c_char,
    debug_string_size: usize,
} }
args! { PJRT_DeviceDescription_ToString_Args {
    device_description: *mut PJRT_DeviceDescription,
    to_string: *const c_char,
    to_string_size: usize,
} }
args! { PJRT_Device_GetDescription_Args {
    device: *mut PJRT_Device,
    device_description: *mut PJRT_DeviceDescription,
} }
args! { PJRT_Device_IsAddressable_Args { device: *mut PJRT_Device, is_addressable: bool } }
args! { PJRT_Device_LocalHardwareId_Args { device: *mut PJRT_Device, local_hardware_id: c_int } }
args! { PJRT_Device_AddressableMemories_Args {
    device: *mut PJRT_Device,
    memories: *const *mut PJRT_Memory,
    num_memories: usize,
} }
args! { PJRT_Device_DefaultMemory_Args { device: *mut PJRT_Device, memory: *mut PJRT_Memory } }
args! { PJRT_Device_MemoryStats_Args {
    device: *mut PJRT_Device,
    bytes_in_use: i64,
    peak_bytes_in_use: i64,
    peak_bytes_in_use_is_set: bool,
    num_allocs: i64,
    num_allocs_is_set: bool,
    largest_alloc_size: i64,
    largest_alloc_size_is_set: bool,
    bytes_limit: i64,
    bytes_limit_is_set: bool,
    bytes_reserved: i64,
    bytes_reserved_is_set: bool,
    peak_bytes_reserved: i64,
    peak_bytes_reserved_is_set: bool,
    bytes_reservable_limit: i64,
    bytes_reservable_limit_is_set: bool,
    largest_free_block_bytes: i64,
    largest_free_block_bytes_is_set: bool,
    pool_bytes: i64,
    pool_bytes_is_set: bool,
    peak_pool_bytes: i64,
    peak_pool_bytes_is_set: bool,
} }
args! { PJRT_Memory_Id_Args { memory: *mut PJRT_Memory, id: c_int } }
args! { PJRT_Memory_Kind_Args { memory: *mut PJRT_Memory, kind: *const c_char, kind_size: usize } }
args! { PJRT_Memory_Kind_Id_Args { memory: *mut PJRT_Memory, kind_id: c_int } }
args! { PJRT_Memory_DebugString_Args {
    memory: *mut PJRT_Memory,
    debug_string: *const c_char,
    debug_string_size: usize,
} }
args! { PJRT_Memory_ToString_Args {
    memory: *mut PJRT_Memory,
    to_string: *const c_char,
    to_string_size: usize,
} }
args! { PJRT_Memory_AddressableByDevices_Args {
    memory: *mut PJRT_Memory,
    devices: *const *mut PJRT_Device,
    num_devices: usize,
} }
