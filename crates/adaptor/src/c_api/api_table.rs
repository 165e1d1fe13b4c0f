//! The table that JAX reads: a function in every slot.
//!
//! Promise: no slot is NULL (the struct literal below names each); the table and each extension are
//! followed by kilobytes of zeros, because some callers read past the version that the table states.
#![expect(unsafe_code, reason = "C entry points, and statics that C reads")]
#![allow(non_snake_case, reason = "the header's names")]

use std::ptr::{from_ref, null_mut};

use salus_pjrt::sys::{self, CStruct};

use crate::c_api::c_args;
use crate::c_api::error::{self, unimplemented};
use crate::calls::{callbacks, compile, launch, profiler, read, transfer_manager, upload};
use crate::objects::{buffer, client, device, event, executable, layouts, topology};

/// Slots that have no meaning here; each says its name.
macro_rules! missing {
    ($($slot:ident($args:ident),)*) => {
        mod missing {
            use super::*;
            $(pub(super) unsafe extern "C" fn $slot(_args: *mut sys::$args) -> *mut sys::PJRT_Error {
                c_args::fenced(stringify!($slot), || {
                    Err(unimplemented(concat!(stringify!($slot), " is not supported by Salus")))
                })
            })*
        }
    };
}

missing! {
    PJRT_Client_DmaMap(PJRT_Client_DmaMap_Args),
    PJRT_Client_DmaUnmap(PJRT_Client_DmaUnmap_Args),
    PJRT_Client_CreateAliasBuffer(PJRT_Client_CreateAliasBuffer_Args),
    PJRT_Client_FulfillAliasBuffer(PJRT_Client_FulfillAliasBuffer_Args),
    PJRT_CopyToDeviceStream_Destroy(PJRT_CopyToDeviceStream_Destroy_Args),
    PJRT_CopyToDeviceStream_AddChunk(PJRT_CopyToDeviceStream_AddChunk_Args),
    PJRT_CopyToDeviceStream_TotalBytes(PJRT_CopyToDeviceStream_TotalBytes_Args),
    PJRT_CopyToDeviceStream_GranuleSize(PJRT_CopyToDeviceStream_GranuleSize_Args),
    PJRT_CopyToDeviceStream_CurrentBytes(PJRT_CopyToDeviceStream_CurrentBytes_Args),
}

macro_rules! api {
    ($($module:ident { $($slot:ident),* $(,)? })*) => {
        sys::PJRT_Api {
            struct_size: sys::PJRT_Api::END,
            extension_start: from_ref(&LAYOUTS.value).cast_mut().cast(),
            pjrt_api_version: sys::PJRT_Api_Version {
                struct_size: sys::PJRT_Api_Version::END,
                extension_start: null_mut(),
                major_version: sys::PJRT_API_MAJOR,
                minor_version: sys::PJRT_API_MINOR,
            },
            $($($slot: Some($module::$slot),)*)*
        }
    };
}

/// What C reads, with zeros behind it.
#[repr(C, align(64))]
pub(crate) struct Padded<T: Copy> {
    pub(crate) value: T,
    _zeros: [u64; 512],
}

impl<T: Copy> Padded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            value,
            _zeros: [0; 512],
        }
    }
}

// SAFETY: nothing that is `Copy` can change behind a shared reference; following its pointers is its
// reader's affair.
unsafe impl<T: Copy> Sync for Padded<T> {}

/// What an extension begins with, and which one follows it. The chain: layouts, FFI, profiler.
const fn base<T: Copy, N: Copy>(
    r#type: u32,
    next: Option<&'static Padded<N>>,
) -> sys::PJRT_Extension_Base {
    sys::PJRT_Extension_Base {
        struct_size: size_of::<T>(),
        r#type,
        next: match next {
            Some(next) => from_ref(&next.value).cast_mut().cast(),
            None => null_mut(),
        },
    }
}

/// What XLA's client takes for none where it looks for one here instead of in arguments.
const NO_CONTEXT: i64 = -1;

static PROFILER: Padded<sys::PJRT_Profiler_Extension> = Padded::new(sys::PJRT_Profiler_Extension {
    base: base::<sys::PJRT_Profiler_Extension, ()>(sys::PJRT_Extension_Type_Profiler, None),
    profiler_api: &raw const profiler::API.value,
    traceme_context_id: NO_CONTEXT,
});

static FFI: Padded<sys::PJRT_FFI_Extension> = Padded {
    value: sys::PJRT_FFI_Extension {
        base: base::<sys::PJRT_FFI_Extension, _>(sys::PJRT_Extension_Type_FFI, Some(&PROFILER)),
        type_register: Some(callbacks::PJRT_FFI_Type_Register),
        user_data_add: Some(callbacks::PJRT_FFI_UserData_Add),
        register_handler: Some(callbacks::PJRT_FFI_Register_Handler),
    },
    _zeros: [0; 512],
};

static LAYOUTS: Padded<sys::PJRT_Layouts_Extension> = Padded {
    value: sys::PJRT_Layouts_Extension {
        base: base::<sys::PJRT_Layouts_Extension, _>(sys::PJRT_Extension_Type_Layouts, Some(&FFI)),
        PJRT_Layouts_MemoryLayout_Destroy: Some(layouts::PJRT_Layouts_MemoryLayout_Destroy),
        PJRT_Layouts_MemoryLayout_Serialize: Some(layouts::PJRT_Layouts_MemoryLayout_Serialize),
        PJRT_Layouts_PJRT_Client_GetDefaultLayout: Some(
            layouts::PJRT_Layouts_PJRT_Client_GetDefaultLayout,
        ),
        PJRT_Layouts_PJRT_Buffer_MemoryLayout: Some(layouts::PJRT_Layouts_PJRT_Buffer_MemoryLayout),
        PJRT_Layouts_PJRT_Topology_GetDefaultLayout: Some(
            layouts::PJRT_Layouts_PJRT_Topology_GetDefaultLayout,
        ),
        PJRT_Layouts_PJRT_Executable_GetOutputLayouts: Some(
            layouts::PJRT_Layouts_PJRT_Executable_GetOutputLayouts,
        ),
    },
    _zeros: [0; 512],
};

pub(crate) static API: Padded<sys::PJRT_Api> = Padded {
    value: api! {
        error { PJRT_Error_Destroy, PJRT_Error_Message, PJRT_Error_GetCode }
        event {
            PJRT_Event_Destroy, PJRT_Event_IsReady, PJRT_Event_Error, PJRT_Event_Await,
            PJRT_Event_OnReady,
        }
        client {
            PJRT_Plugin_Initialize, PJRT_Client_Create, PJRT_Client_Destroy,
            PJRT_Client_PlatformName, PJRT_Client_ProcessIndex, PJRT_Client_PlatformVersion,
            PJRT_Client_Devices, PJRT_Client_AddressableDevices, PJRT_Client_LookupDevice,
            PJRT_Client_LookupAddressableDevice, PJRT_Client_AddressableMemories,
            PJRT_Client_DefaultDeviceAssignment, PJRT_Client_TopologyDescription,
            PJRT_Client_UpdateGlobalProcessInfo,
        }
        device {
            PJRT_Plugin_Attributes, PJRT_DeviceDescription_Id, PJRT_DeviceDescription_ProcessIndex,
            PJRT_DeviceDescription_Attributes, PJRT_DeviceDescription_Kind,
            PJRT_DeviceDescription_DebugString, PJRT_DeviceDescription_ToString,
            PJRT_Device_GetDescription, PJRT_Device_IsAddressable, PJRT_Device_LocalHardwareId,
            PJRT_Device_AddressableMemories, PJRT_Device_DefaultMemory, PJRT_Device_MemoryStats,
            PJRT_Memory_Id, PJRT_Memory_Kind, PJRT_Memory_Kind_Id, PJRT_Memory_DebugString,
            PJRT_Memory_ToString, PJRT_Memory_AddressableByDevices,
        }
        topology {
            PJRT_TopologyDescription_Create, PJRT_TopologyDescription_Destroy,
            PJRT_TopologyDescription_PlatformName, PJRT_TopologyDescription_PlatformVersion,
            PJRT_TopologyDescription_GetDeviceDescriptions, PJRT_TopologyDescription_Serialize,
            PJRT_TopologyDescription_Attributes, PJRT_TopologyDescription_Deserialize,
        }
        compile { PJRT_Client_Compile, PJRT_Compile, PJRT_Executable_DeserializeAndLoad }
        executable {
            PJRT_Executable_Destroy, PJRT_Executable_Name, PJRT_Executable_NumReplicas,
            PJRT_Executable_NumPartitions, PJRT_Executable_NumOutputs,
            PJRT_Executable_SizeOfGeneratedCodeInBytes, PJRT_Executable_GetCostAnalysis,
            PJRT_Executable_OutputMemoryKinds, PJRT_Executable_OptimizedProgram,
            PJRT_Executable_Serialize, PJRT_Executable_OutputElementTypes,
            PJRT_Executable_OutputDimensions, PJRT_Executable_Fingerprint,
            PJRT_Executable_GetCompiledMemoryStats, PJRT_LoadedExecutable_Destroy,
            PJRT_LoadedExecutable_GetExecutable, PJRT_LoadedExecutable_AddressableDevices,
            PJRT_LoadedExecutable_Delete, PJRT_LoadedExecutable_IsDeleted,
            PJRT_LoadedExecutable_Fingerprint, PJRT_LoadedExecutable_GetDeviceAssignment,
        }
        launch {
            PJRT_LoadedExecutable_Execute, PJRT_ExecuteContext_Create, PJRT_ExecuteContext_Destroy,
        }
        upload {
            PJRT_Client_BufferFromHostBuffer, PJRT_Client_CreateViewOfDeviceBuffer,
            PJRT_Client_CreateUninitializedBuffer,
        }
        buffer {
            PJRT_Buffer_Destroy, PJRT_Buffer_ElementType, PJRT_Buffer_Dimensions,
            PJRT_Buffer_UnpaddedDimensions, PJRT_Buffer_DynamicDimensionIndices,
            PJRT_Buffer_GetMemoryLayout, PJRT_Buffer_OnDeviceSizeInBytes, PJRT_Buffer_Device,
            PJRT_Buffer_Memory, PJRT_Buffer_Delete, PJRT_Buffer_IsDeleted, PJRT_Buffer_CopyToDevice,
            PJRT_Buffer_CopyToMemory, PJRT_Buffer_IsOnCpu, PJRT_Buffer_ReadyEvent,
        }
        read {
            PJRT_Buffer_ToHostBuffer, PJRT_Buffer_CopyRawToHost, PJRT_Buffer_UnsafePointer,
            PJRT_Buffer_IncreaseExternalReferenceCount, PJRT_Buffer_DecreaseExternalReferenceCount,
            PJRT_Buffer_OpaqueDeviceMemoryDataPointer,
        }
        transfer_manager {
            PJRT_Client_CreateBuffersForAsyncHostToDevice,
            PJRT_AsyncHostToDeviceTransferManager_Destroy,
            PJRT_AsyncHostToDeviceTransferManager_TransferData,
            PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer,
            PJRT_AsyncHostToDeviceTransferManager_Device,
            PJRT_AsyncHostToDeviceTransferManager_BufferCount,
            PJRT_AsyncHostToDeviceTransferManager_BufferSize,
            PJRT_AsyncHostToDeviceTransferManager_SetBufferError,
            PJRT_AsyncHostToDeviceTransferManager_AddMetadata,
        }
        missing {
            PJRT_Client_DmaMap, PJRT_Client_DmaUnmap, PJRT_Client_CreateAliasBuffer, PJRT_Client_FulfillAliasBuffer,
            PJRT_CopyToDeviceStream_Destroy, PJRT_CopyToDeviceStream_AddChunk,
            PJRT_CopyToDeviceStream_TotalBytes, PJRT_CopyToDeviceStream_GranuleSize,
            PJRT_CopyToDeviceStream_CurrentBytes,
        }
    },
    _zeros: [0; 512],
};
