//! The table of functions: one slot each, in the header's order.

use std::ffi::c_int;

use super::*;

/// Declares [`PJRT_Api`] with a slot a line, and the list of slot names in the same order.
macro_rules! slots {
    (@ret $args:ident) => { unsafe extern "C" fn(*mut $args) -> *mut PJRT_Error };
    (@ret $args:ident void) => { unsafe extern "C" fn(*mut $args) };
    ($($slot:ident($args:ident) $(-> $void:ident)?,)*) => {
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct PJRT_Api {
            pub struct_size: usize,
            pub extension_start: *mut PJRT_Extension_Base,
            pub pjrt_api_version: PJRT_Api_Version,
            $(pub $slot: Option<slots!(@ret $args $($void)?)>,)*
        }

        // SAFETY: sizes, a pointer and optional functions.
        unsafe impl CStruct for PJRT_Api {
            const NAME: &'static str = "PJRT_Api";
            const FIELDS: &'static [Field] = &[
                Field { name: "struct_size", offset: 0, size: 8 },
                Field { name: "extension_start", offset: 8, size: 8 },
                Field { name: "pjrt_api_version", offset: 16, size: 24 },
                $(Field {
                    name: stringify!($slot),
                    offset: std::mem::offset_of!(PJRT_Api, $slot),
                    size: 8,
                },)*
            ];
        }
    };
}

pub const PJRT_API_MAJOR: c_int = 0;
pub const PJRT_API_MINOR: c_int = 81;

slots! {
    PJRT_Error_Destroy(PJRT_Error_Destroy_Args) -> void,
    PJRT_Error_Message(PJRT_Error_Message_Args) -> void,
    PJRT_Error_GetCode(PJRT_Error_GetCode_Args),
    PJRT_Plugin_Initialize(PJRT_Plugin_Initialize_Args),
    PJRT_Plugin_Attributes(PJRT_Plugin_Attributes_Args),
    PJRT_Event_Destroy(PJRT_Event_Destroy_Args),
    PJRT_Event_IsReady(PJRT_Event_IsReady_Args),
    PJRT_Event_Error(PJRT_Event_Error_Args),
    PJRT_Event_Await(PJRT_Event_Await_Args),
    PJRT_Event_OnReady(PJRT_Event_OnReady_Args),
    PJRT_Client_Create(PJRT_Client_Create_Args),
    PJRT_Client_Destroy(PJRT_Client_Destroy_Args),
    PJRT_Client_PlatformName(PJRT_Client_PlatformName_Args),
    PJRT_Client_ProcessIndex(PJRT_Client_ProcessIndex_Args),
    PJRT_Client_PlatformVersion(PJRT_Client_PlatformVersion_Args),
    PJRT_Client_Devices(PJRT_Client_Devices_Args),
    PJRT_Client_AddressableDevices(PJRT_Client_AddressableDevices_Args),
    PJRT_Client_LookupDevice(PJRT_Client_LookupDevice_Args),
    PJRT_Client_LookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args),
    PJRT_Client_AddressableMemories(PJRT_Client_AddressableMemories_Args),
    PJRT_Client_Compile(PJRT_Client_Compile_Args),
    PJRT_Client_DefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args),
    PJRT_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args),
    PJRT_DeviceDescription_Id(PJRT_DeviceDescription_Id_Args),
    PJRT_DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args),
    PJRT_DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args),
    PJRT_DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args),
    PJRT_DeviceDescription_DebugString(PJRT_DeviceDescription_DebugString_Args),
    PJRT_DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args),
    PJRT_Device_GetDescription(PJRT_Device_GetDescription_Args),
    PJRT_Device_IsAddressable(PJRT_Device_IsAddressable_Args),
    PJRT_Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args),
    PJRT_Device_AddressableMemories(PJRT_Device_AddressableMemories_Args),
    PJRT_Device_DefaultMemory(PJRT_Device_DefaultMemory_Args),
    PJRT_Device_MemoryStats(PJRT_Device_MemoryStats_Args),
    PJRT_Memory_Id(PJRT_Memory_Id_Args),
    PJRT_Memory_Kind(PJRT_Memory_Kind_Args),
    PJRT_Memory_DebugString(PJRT_Memory_DebugString_Args),
    PJRT_Memory_ToString(PJRT_Memory_ToString_Args),
    PJRT_Memory_AddressableByDevices(PJRT_Memory_AddressableByDevices_Args),
    PJRT_Executable_Destroy(PJRT_Executable_Destroy_Args),
    PJRT_Executable_Name(PJRT_Executable_Name_Args),
    PJRT_Executable_NumReplicas(PJRT_Executable_NumReplicas_Args),
    PJRT_Executable_NumPartitions(PJRT_Executable_NumPartitions_Args),
    PJRT_Executable_NumOutputs(PJRT_Executable_NumOutputs_Args),
    PJRT_Executable_SizeOfGeneratedCodeInBytes(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args),
    PJRT_Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args),
    PJRT_Executable_OutputMemoryKinds(PJRT_Executable_OutputMemoryKinds_Args),
    PJRT_Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args),
    PJRT_Executable_Serialize(PJRT_Executable_Serialize_Args),
    PJRT_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args),
    PJRT_LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args),
    PJRT_LoadedExecutable_AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args),
    PJRT_LoadedExecutable_Delete(PJRT_LoadedExecutable_Delete_Args),
    PJRT_LoadedExecutable_IsDeleted(PJRT_LoadedExecutable_IsDeleted_Args),
    PJRT_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args),
    PJRT_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args),
    PJRT_LoadedExecutable_Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args),
    PJRT_Buffer_Destroy(PJRT_Buffer_Destroy_Args),
    PJRT_Buffer_ElementType(PJRT_Buffer_ElementType_Args),
    PJRT_Buffer_Dimensions(PJRT_Buffer_Dimensions_Args),
    PJRT_Buffer_UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args),
    PJRT_Buffer_DynamicDimensionIndices(PJRT_Buffer_DynamicDimensionIndices_Args),
    PJRT_Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args),
    PJRT_Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args),
    PJRT_Buffer_Device(PJRT_Buffer_Device_Args),
    PJRT_Buffer_Memory(PJRT_Buffer_Memory_Args),
    PJRT_Buffer_Delete(PJRT_Buffer_Delete_Args),
    PJRT_Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args),
    PJRT_Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args),
    PJRT_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args),
    PJRT_Buffer_IsOnCpu(PJRT_Buffer_IsOnCpu_Args),
    PJRT_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args),
    PJRT_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args),
    PJRT_Buffer_IncreaseExternalReferenceCount(PJRT_Buffer_IncreaseExternalReferenceCount_Args),
    PJRT_Buffer_DecreaseExternalReferenceCount(PJRT_Buffer_DecreaseExternalReferenceCount_Args),
    PJRT_Buffer_OpaqueDeviceMemoryDataPointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args),
    PJRT_CopyToDeviceStream_Destroy(PJRT_CopyToDeviceStream_Destroy_Args),
    PJRT_CopyToDeviceStream_AddChunk(PJRT_CopyToDeviceStream_AddChunk_Args),
    PJRT_CopyToDeviceStream_TotalBytes(PJRT_CopyToDeviceStream_TotalBytes_Args),
    PJRT_CopyToDeviceStream_GranuleSize(PJRT_CopyToDeviceStream_GranuleSize_Args),
    PJRT_CopyToDeviceStream_CurrentBytes(PJRT_CopyToDeviceStream_CurrentBytes_Args),
    PJRT_TopologyDescription_Create(PJRT_TopologyDescription_Create_Args),
    PJRT_TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args),
    PJRT_TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args),
    PJRT_TopologyDescription_PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args),
    PJRT_TopologyDescription_GetDeviceDescriptions(
        PJRT_TopologyDescription_GetDeviceDescriptions_Args
    ),
    PJRT_TopologyDescription_Serialize(PJRT_TopologyDescription_Serialize_Args),
    PJRT_TopologyDescription_Attributes(PJRT_TopologyDescription_Attributes_Args),
    PJRT_Compile(PJRT_Compile_Args),
    PJRT_Executable_OutputElementTypes(PJRT_Executable_OutputElementTypes_Args),
    PJRT_Executable_OutputDimensions(PJRT_Executable_OutputDimensions_Args),
    PJRT_Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args),
    PJRT_Client_CreateViewOfDeviceBuffer(PJRT_Client_CreateViewOfDeviceBuffer_Args),
    PJRT_Executable_Fingerprint(PJRT_Executable_Fingerprint_Args),
    PJRT_Client_TopologyDescription(PJRT_Client_TopologyDescription_Args),
    PJRT_Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args),
    PJRT_Memory_Kind_Id(PJRT_Memory_Kind_Id_Args),
    PJRT_ExecuteContext_Create(PJRT_ExecuteContext_Create_Args),
    PJRT_ExecuteContext_Destroy(PJRT_ExecuteContext_Destroy_Args),
    PJRT_Buffer_CopyRawToHost(PJRT_Buffer_CopyRawToHost_Args),
    PJRT_AsyncHostToDeviceTransferManager_Destroy(
        PJRT_AsyncHostToDeviceTransferManager_Destroy_Args
    ),
    PJRT_AsyncHostToDeviceTransferManager_TransferData(
        PJRT_AsyncHostToDeviceTransferManager_TransferData_Args
    ),
    PJRT_Client_CreateBuffersForAsyncHostToDevice(
        PJRT_Client_CreateBuffersForAsyncHostToDevice_Args
    ),
    PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(
        PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args
    ),
    PJRT_AsyncHostToDeviceTransferManager_Device(PJRT_AsyncHostToDeviceTransferManager_Device_Args),
    PJRT_AsyncHostToDeviceTransferManager_BufferCount(
        PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args
    ),
    PJRT_AsyncHostToDeviceTransferManager_BufferSize(
        PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args
    ),
    PJRT_AsyncHostToDeviceTransferManager_SetBufferError(
        PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args
    ),
    PJRT_AsyncHostToDeviceTransferManager_AddMetadata(
        PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args
    ),
    PJRT_Client_DmaMap(PJRT_Client_DmaMap_Args),
    PJRT_Client_DmaUnmap(PJRT_Client_DmaUnmap_Args),
    PJRT_Client_CreateUninitializedBuffer(PJRT_Client_CreateUninitializedBuffer_Args),
    PJRT_Client_UpdateGlobalProcessInfo(PJRT_Client_UpdateGlobalProcessInfo_Args),
    PJRT_TopologyDescription_Deserialize(PJRT_TopologyDescription_Deserialize_Args),
    PJRT_Client_CreateAliasBuffer(PJRT_Client_CreateAliasBuffer_Args),
    PJRT_Client_FulfillAliasBuffer(PJRT_Client_FulfillAliasBuffer_Args),
    PJRT_LoadedExecutable_GetDeviceAssignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args),
}
