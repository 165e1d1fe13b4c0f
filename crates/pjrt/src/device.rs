//! Devices and memories: owned by their client, which these handles keep alive.

use std::ptr::NonNull;

use crate::api::{Padded, list, text};
use crate::sys::*;
use crate::value::copy_named;
use crate::{Client, Error, Value};

#[derive(Clone)]
pub struct Device {
    client: Client,
    raw: NonNull<PJRT_Device>,
    description: NonNull<PJRT_DeviceDescription>,
}

// SAFETY: PJRT devices may be used by any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

#[derive(Clone)]
pub struct Memory {
    client: Client,
    raw: NonNull<PJRT_Memory>,
}

// SAFETY: PJRT memories may be used by any thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// What a device's allocator reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemoryStats {
    pub bytes_in_use: i64,
    pub peak_bytes_in_use: Option<i64>,
    pub bytes_limit: Option<i64>,
    /// What its pool has taken of the device so far.
    pub pool_bytes: Option<i64>,
    pub largest_free_block_bytes: Option<i64>,
}

impl Device {
    /// # Safety
    /// `raw` is a device of this client, or null.
    pub(crate) unsafe fn new(client: Client, raw: *mut PJRT_Device) -> Result<Device, Error> {
        let null = || Error::internal("the vendor's plugin returned a null device");
        let raw = NonNull::new(raw).ok_or_else(null)?;
        let mut args = Padded::<PJRT_Device_GetDescription_Args>::new();
        args.device = raw.as_ptr();
        // SAFETY: a device of a live client.
        unsafe { call!(client.api(), PJRT_Device_GetDescription, &mut args) }?;
        let description = NonNull::new(args.device_description).ok_or_else(null)?;
        Ok(Device {
            client,
            raw,
            description,
        })
    }

    pub(crate) fn raw(&self) -> *mut PJRT_Device {
        self.raw.as_ptr()
    }

    pub fn id(&self) -> Result<i32, Error> {
        let mut args = Padded::<PJRT_DeviceDescription_Id_Args>::new();
        args.device_description = self.description.as_ptr();
        // SAFETY: a description of a live client.
        unsafe { call!(self.client.api(), PJRT_DeviceDescription_Id, &mut args) }?;
        Ok(args.id)
    }

    pub fn local_hardware_id(&self) -> Result<i32, Error> {
        let mut args = Padded::<PJRT_Device_LocalHardwareId_Args>::new();
        args.device = self.raw();
        // SAFETY: a device of a live client.
        unsafe { call!(self.client.api(), PJRT_Device_LocalHardwareId, &mut args) }?;
        Ok(args.local_hardware_id)
    }

    pub fn kind(&self) -> Result<String, Error> {
        let mut args = Padded::<PJRT_DeviceDescription_Kind_Args>::new();
        args.device_description = self.description.as_ptr();
        // SAFETY: a description of a live client, which owns the text.
        unsafe {
            call!(self.client.api(), PJRT_DeviceDescription_Kind, &mut args)?;
            Ok(text(args.device_kind, args.device_kind_size))
        }
    }

    pub fn debug_string(&self) -> Result<String, Error> {
        let mut args = Padded::<PJRT_DeviceDescription_DebugString_Args>::new();
        args.device_description = self.description.as_ptr();
        // SAFETY: a description of a live client, which owns the text.
        unsafe {
            call!(
                self.client.api(),
                PJRT_DeviceDescription_DebugString,
                &mut args
            )?;
            Ok(text(args.debug_string, args.debug_string_size))
        }
    }

    pub fn display_string(&self) -> Result<String, Error> {
        let mut args = Padded::<PJRT_DeviceDescription_ToString_Args>::new();
        args.device_description = self.description.as_ptr();
        // SAFETY: a description of a live client, which owns the text.
        unsafe {
            call!(
                self.client.api(),
                PJRT_DeviceDescription_ToString,
                &mut args
            )?;
            Ok(text(args.to_string, args.to_string_size))
        }
    }

    pub fn attributes(&self) -> Result<Vec<(String, Value)>, Error> {
        let mut args = Padded::<PJRT_DeviceDescription_Attributes_Args>::new();
        args.device_description = self.description.as_ptr();
        // SAFETY: a description of a live client, which owns the list.
        unsafe {
            call!(
                self.client.api(),
                PJRT_DeviceDescription_Attributes,
                &mut args
            )?;
            Ok(copy_named(args.attributes, args.num_attributes))
        }
    }

    pub fn memories(&self) -> Result<Vec<Memory>, Error> {
        let mut args = Padded::<PJRT_Device_AddressableMemories_Args>::new();
        args.device = self.raw();
        // SAFETY: a device of a live client, which owns the list and the memories.
        let memories = unsafe {
            call!(
                self.client.api(),
                PJRT_Device_AddressableMemories,
                &mut args
            )?;
            list(args.memories, args.num_memories)
        };
        memories
            .iter()
            // SAFETY: the client's own.
            .map(|&memory| unsafe { Memory::new(self.client.clone(), memory) })
            .collect()
    }

    pub fn default_memory(&self) -> Result<Memory, Error> {
        let mut args = Padded::<PJRT_Device_DefaultMemory_Args>::new();
        args.device = self.raw();
        // SAFETY: a device of a live client, which owns the memory.
        unsafe {
            call!(self.client.api(), PJRT_Device_DefaultMemory, &mut args)?;
            Memory::new(self.client.clone(), args.memory)
        }
    }

    pub fn memory_stats(&self) -> Result<DeviceMemoryStats, Error> {
        let mut args = Padded::<PJRT_Device_MemoryStats_Args>::new();
        args.device = self.raw();
        // SAFETY: a device of a live client.
        unsafe { call!(self.client.api(), PJRT_Device_MemoryStats, &mut args) }?;
        Ok(DeviceMemoryStats {
            bytes_in_use: args.bytes_in_use,
            peak_bytes_in_use: args
                .peak_bytes_in_use_is_set
                .then_some(args.peak_bytes_in_use),
            bytes_limit: args.bytes_limit_is_set.then_some(args.bytes_limit),
            pool_bytes: args.pool_bytes_is_set.then_some(args.pool_bytes),
            largest_free_block_bytes: args
                .largest_free_block_bytes_is_set
                .then_some(args.largest_free_block_bytes),
        })
    }
}

impl PartialEq for Memory {
    /// Whether both are the same memory of the same client.
    fn eq(&self, other: &Memory) -> bool {
        self.raw == other.raw
    }
}

impl Memory {
    /// # Safety
    /// `raw` is a memory of this client, or null.
    unsafe fn new(client: Client, raw: *mut PJRT_Memory) -> Result<Memory, Error> {
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::internal("the vendor's plugin returned a null memory"))?;
        Ok(Memory { client, raw })
    }

    pub(crate) fn raw(&self) -> *mut PJRT_Memory {
        self.raw.as_ptr()
    }

    pub fn id(&self) -> Result<i32, Error> {
        let mut args = Padded::<PJRT_Memory_Id_Args>::new();
        args.memory = self.raw();
        // SAFETY: a memory of a live client.
        unsafe { call!(self.client.api(), PJRT_Memory_Id, &mut args) }?;
        Ok(args.id)
    }

    pub fn kind_id(&self) -> Result<i32, Error> {
        let mut args = Padded::<PJRT_Memory_Kind_Id_Args>::new();
        args.memory = self.raw();
        // SAFETY: a memory of a live client.
        unsafe { call!(self.client.api(), PJRT_Memory_Kind_Id, &mut args) }?;
        Ok(args.kind_id)
    }

    pub fn kind(&self) -> Result<String, Error> {
        let mut args = Padded::<PJRT_Memory_Kind_Args>::new();
        args.memory = self.raw();
        // SAFETY: a memory of a live client, which owns the text.
        unsafe {
            call!(self.client.api(), PJRT_Memory_Kind, &mut args)?;
            Ok(text(args.kind, args.kind_size))
        }
    }

    pub fn debug_string(&self) -> Result<String, Error> {
        let mut args = Padded::<PJRT_Memory_DebugString_Args>::new();
        args.memory = self.raw();
        // SAFETY: a memory of a live client, which owns the text.
        unsafe {
            call!(self.client.api(), PJRT_Memory_DebugString, &mut args)?;
            Ok(text(args.debug_string, args.debug_string_size))
        }
    }

    pub fn display_string(&self) -> Result<String, Error> {
        let mut args = Padded::<PJRT_Memory_ToString_Args>::new();
        args.memory = self.raw();
        // SAFETY: a memory of a live client, which owns the text.
        unsafe {
            call!(self.client.api(), PJRT_Memory_ToString, &mut args)?;
            Ok(text(args.to_string, args.to_string_size))
        }
    }
}
