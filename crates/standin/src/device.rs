//! Devices and their memories: what they are called, and how full they are.

use std::sync::Arc;

use salus_pjrt::sys::*;

use crate::c_api::error::Error;
use crate::c_api::inner::{bytes, call};
use crate::c_api::named::{Named, Value};
use crate::c_api::slot::slots;
use crate::client::{self, DEVICE, Device, Raw, described};
use crate::config::Config;
use crate::options::Options;
use crate::pool::{Pool, Settings};
use crate::state::State;
use crate::stream::{Compute, Stream};

impl Device {
    pub(crate) fn open(
        raw: Raw<PJRT_Device>,
        number: usize,
        hardware: usize,
        options: &Options,
        state: &Arc<State>,
    ) -> Result<Device, Error> {
        let config = &options.config;
        let place = state
            .enter(hardware, config.memory)
            .ok_or_else(|| Error::internal("the state file has no place left"))?;
        if !place.take(config.context) {
            return Err(Error::internal(format!(
                "failed to initialize StreamExecutor: CUDA_ERROR_OUT_OF_MEMORY: a context needs {} \
                 bytes",
                config.context
            )));
        }
        let settings = Settings {
            allocator: options.allocator,
            preallocate: options.preallocate,
            fraction: options.memory_fraction,
            fragments: config.fragments,
            wait: config.wait,
        };
        // SAFETY: a live device.
        let description = unsafe {
            call!(PJRT_Device_GetDescription(
                PJRT_Device_GetDescription_Args { device: raw.0 }
            ))
        }?;
        Ok(Device {
            raw,
            description: Raw(description.device_description),
            hardware,
            memories: memories(raw)?,
            attributes: attributes(config),
            kind: config.kind.clone(),
            name: format!("CudaDevice(id={number})"),
            pool: Pool::new(place, settings),
            compute: Compute::start(&format!("compute {hardware}"), config.in_flight),
            uploads: Stream::start(&format!("to device {hardware}")),
            reads: Stream::start(&format!("to host {hardware}")),
        })
    }
}

/// The CPU plugin's memories that stand for ours (GPUC:264-278: no `unpinned_host`).
fn memories(device: Raw<PJRT_Device>) -> Result<[Raw<PJRT_Memory>; 2], Error> {
    // SAFETY: a live device, which owns list and names.
    unsafe {
        let all = call!(PJRT_Device_AddressableMemories(
            PJRT_Device_AddressableMemories_Args { device: device.0 }
        ))?;
        let default = call!(PJRT_Device_DefaultMemory(PJRT_Device_DefaultMemory_Args {
            device: device.0
        }))?;
        for &memory in bytes(all.memories, all.num_memories) {
            let kind = call!(PJRT_Memory_Kind(PJRT_Memory_Kind_Args { memory }))?;
            if bytes(kind.kind.cast::<u8>(), kind.kind_size) == b"pinned_host" {
                return Ok([Raw(default.memory), Raw(memory)]);
            }
        }
    }
    Err(Error::internal(
        "the CPU plugin has no memory of kind pinned_host",
    ))
}

/// What GPUC gives its devices, as far as JAX reads it.
pub(crate) fn attributes(config: &Config) -> Named {
    let text = |name: &str, value: &str| (name.to_owned(), Value::Text(value.to_owned()));
    Named::new(vec![
        text("device_vendor", "NVIDIA Corporation"),
        text("compute_capability", &config.capability),
        ("core_count".to_owned(), Value::Int(108)),
        ("slice_index".to_owned(), Value::Int(0)),
    ])
}

const KINDS: [&str; 2] = ["device", "pinned_host"];
/// Any numbers that differ: XLA's are hashes of the names.
const KIND_IDS: [i32; 2] = [1_877_159_210, 1_093_014_563];

slots! {
    fn PJRT_DeviceDescription_Kind(args: PJRT_DeviceDescription_Kind_Args) {
        let kind = match described(args.device_description) {
            // SAFETY of the pointer: the client owns the text.
            Some((client, index)) => {
                let kind = &client.devices[index].kind;
                (kind.as_ptr(), kind.len())
            }
            None => crate::topology::kind_without_client(),
        };
        (args.device_kind, args.device_kind_size) = (kind.0.cast(), kind.1);
        Ok(())
    }

    fn PJRT_DeviceDescription_Attributes(args: PJRT_DeviceDescription_Attributes_Args) {
        let (attributes, len) = match described(args.device_description) {
            Some((client, index)) => {
                let attributes = &client.devices[index].attributes;
                (attributes.as_ptr(), attributes.len())
            }
            None => crate::topology::attributes_without_client(),
        };
        (args.attributes, args.num_attributes) = (attributes, len);
        Ok(())
    }

    fn PJRT_DeviceDescription_ToString(args: PJRT_DeviceDescription_ToString_Args) {
        const TEXT: &str = "CudaDevice(id=0)";
        (args.to_string, args.to_string_size) = (TEXT.as_ptr().cast(), TEXT.len());
        if let Some((client, index)) = described(args.device_description) {
            let text = &client.devices[index].name;
            (args.to_string, args.to_string_size) = (text.as_ptr().cast(), text.len());
        }
        Ok(())
    }

    fn PJRT_Device_LocalHardwareId(args: PJRT_Device_LocalHardwareId_Args) {
        let (client, index) = client::device(args.device)?;
        args.local_hardware_id = client.devices[index].hardware as i32;
        Ok(())
    }

    fn PJRT_Device_AddressableMemories(args: PJRT_Device_AddressableMemories_Args) {
        let (client, index) = client::device(args.device)?;
        let memories = &client.devices[index].memories;
        (args.memories, args.num_memories) = (memories.as_ptr().cast(), memories.len());
        Ok(())
    }

    fn PJRT_Device_DefaultMemory(args: PJRT_Device_DefaultMemory_Args) {
        let (client, index) = client::device(args.device)?;
        args.memory = client.devices[index].memories[DEVICE].0;
        Ok(())
    }

    fn PJRT_Memory_Kind(args: PJRT_Memory_Kind_Args) {
        let (_, _, memory) = client::memory(args.memory)?;
        (args.kind, args.kind_size) = (KINDS[memory].as_ptr().cast(), KINDS[memory].len());
        Ok(())
    }

    fn PJRT_Memory_Kind_Id(args: PJRT_Memory_Kind_Id_Args) {
        let (_, _, memory) = client::memory(args.memory)?;
        args.kind_id = KIND_IDS[memory];
        Ok(())
    }

    /// GPUC:1749: none with the allocators that keep no count.
    fn PJRT_Device_MemoryStats(args: PJRT_Device_MemoryStats_Args) {
        let (client, index) = client::device(args.device)?;
        let stats = client.devices[index].pool.stats().filter(|_| client.config.stats);
        let stats = stats.ok_or_else(|| {
            Error::unimplemented("GetAllocatorStats() is not supported by this allocator.")
        })?;
        args.bytes_in_use = stats.in_use as i64;
        (args.peak_bytes_in_use, args.peak_bytes_in_use_is_set) = (stats.peak as i64, true);
        (args.num_allocs, args.num_allocs_is_set) = (stats.allocations as i64, true);
        (args.largest_alloc_size, args.largest_alloc_size_is_set) = (stats.largest as i64, true);
        (args.bytes_limit, args.bytes_limit_is_set) = (stats.limit as i64, true);
        (args.bytes_reserved, args.bytes_reserved_is_set) = (0, true);
        (args.peak_bytes_reserved, args.peak_bytes_reserved_is_set) = (0, true);
        args.bytes_reservable_limit_is_set = false;
        args.largest_free_block_bytes = stats.largest_free as i64;
        args.largest_free_block_bytes_is_set = true;
        (args.pool_bytes, args.pool_bytes_is_set) = (stats.pool as i64, true);
        (args.peak_pool_bytes, args.peak_pool_bytes_is_set) = (stats.peak_pool as i64, true);
        Ok(())
    }
}
