//! A stand-in for CUDA's PJRT plugin, for tests on machines without a GPU.
//!
//! It is a plugin over the CPU plugin: programs are compiled and run by that one, and everything in
//! which a GPU differs is done here. `salus serve --device …/libsalus_standin.so` serves it. Each trait
//! is a switch, in the variable `SALUS_STANDIN` (or in a client's create option `standin`), and is as
//! CUDA has it unless it is set.
//!
//! | key | default | trait |
//! |---|---|---|
//! | `plugin` | found by `SALUS_SITE_PACKAGES`, `SALUS_TEST_SITE_PACKAGES` | the CPU plugin underneath |
//! | `state` | this process's own | the file that holds the devices' memory and counts, for all processes |
//! | `devices` | 1 | devices of the machine |
//! | `memory` | 1GiB | physical memory of each, shared by all processes |
//! | `kind`, `capability` | Stand-in A100, 8.0 | what it is called, and compiled for |
//! | `on_cpu` | 0 | whether memory of the device is the host's: `IsOnCpu`, addresses |
//! | `stats` | 1 | `memory_stats` answers |
//! | `fragments` | 1 | a free block must be large enough (`pool.rs`) |
//! | `options` | 1 | unknown create options are refused |
//! | `topology` | 1 | topologies are made without a client |
//! | `stream` | 1 | launches of a device run one after another |
//! | `enqueue_us` | 0 | time that a launch call takes |
//! | `scratch` | 1 | a launch call allocates scratch while it enqueues |
//! | `in_flight` | 32 | launches that may be in flight before a launch call waits |
//! | `oom` | event | where a launch says that it is out of memory: `event`, or `call` as on a CPU |
//! | `sticky` | 1 | a program with `illegal_address` in its name breaks its client |
//! | `sticky_at` | 0 | so does the launch of this number, counted from 1 on each device |
//! | `upload_waits` | 1 | copies to the device wait for all work enqueued before |
//! | `bandwidth` | 0 | bytes a second of each direction; 0 is as fast as the host |
//! | `dma` | 1 | `DmaMap` is there |
//! | `dma_factor` | 3 | how much faster copies of mapped ranges are |
//! | `autotune` | 1MiB | what compiling with a client allocates on the device |
//! | `context` | 0 | physical memory that a client takes beside its pool |
//! | `wait_ms` | 0 | how long an allocation waits for memory; 10000 on CUDA, but tests have no time |
//!
//! Short names of files of XLA, as of its commit 5a9e73cb: SEC is xla/pjrt/pjrt_stream_executor_client.cc,
//! GPUC is xla/pjrt/gpu/se_gpu_pjrt_client.cc, API is xla/pjrt/c/pjrt_c_api_gpu_internal.cc. T1 is what the
//! released CUDA plugin was seen to do without a GPU (`make test-cuda`).
//!
//! Handles of clients, devices, memories and executables are the CPU plugin's, looked up here; buffers,
//! events, topologies and errors are ours.
#![expect(unsafe_code, reason = "a plugin is C on both sides")]
#![allow(non_snake_case, non_upper_case_globals, reason = "names of the header")]

mod arrays;
mod c_api;
mod client;
mod config;
mod context;
mod device;
mod dma;
mod launch;
mod options;
mod pool;
mod program;
pub mod state;
mod stream;
mod topology;

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use salus_pjrt::sys::*;

use arrays::{buffer, transfer};
use c_api::error::Error;
use c_api::named::{Named, Value};
use c_api::{error, event, extension, inner, named, slot};
use config::Config;
pub use config::VARIABLE;
pub use state::State;

/// A table with zeros behind it, which callers of newer versions read.
#[repr(C)]
struct Table {
    api: PJRT_Api,
    _zeros: [u64; 64],
}

/// The plugin's table, as every PJRT plugin exports it.
#[unsafe(no_mangle)]
pub extern "C" fn GetPjrtApi() -> *mut PJRT_Api {
    static TABLE: OnceLock<usize> = OnceLock::new();
    let address = TABLE.get_or_init(|| {
        let api = match open() {
            Ok(table) => filled(table),
            Err(_) => empty(),
        };
        let table = Box::new(Table {
            api,
            _zeros: [0; 64],
        });
        Box::into_raw(table).expose_provenance()
    });
    std::ptr::with_exposed_provenance_mut(*address)
}

fn open() -> Result<&'static PJRT_Api, String> {
    let config = Config::read("")?;
    let table = inner::open(config.plugin.as_deref())?;
    let state = State::open(config.state.as_deref()).map_err(|error| error.to_string())?;
    state
        .word(state::word::OPENED)
        .fetch_add(1, Ordering::Relaxed);
    Ok(table)
}

/// A table that can only say why there is no other.
fn empty() -> PJRT_Api {
    // SAFETY: a size, a pointer, a version and optional functions.
    let mut api: PJRT_Api = unsafe { std::mem::zeroed() };
    set_head(&mut api);
    api.PJRT_Error_Destroy = Some(error::PJRT_Error_Destroy);
    api.PJRT_Error_Message = Some(error::PJRT_Error_Message);
    api.PJRT_Error_GetCode = Some(error::PJRT_Error_GetCode);
    api.PJRT_Plugin_Initialize = Some(PJRT_Plugin_Initialize);
    api
}

fn set_head(api: &mut PJRT_Api) {
    api.struct_size = PJRT_Api::END;
    api.pjrt_api_version.struct_size = PJRT_Api_Version::END;
    api.pjrt_api_version.major_version = PJRT_API_MAJOR;
    api.pjrt_api_version.minor_version = PJRT_API_MINOR;
}

macro_rules! replace {
    ($api:ident; $($module:ident { $($slot:ident),* $(,)? })*) => {
        $($($api.$slot = Some($module::$slot);)*)*
    };
}

/// The CPU plugin's table with our slots.
fn filled(inner: &PJRT_Api) -> PJRT_Api {
    let mut api = *inner;
    set_head(&mut api);
    api.extension_start = extension::chain();
    api.PJRT_Plugin_Initialize = Some(PJRT_Plugin_Initialize);
    api.PJRT_Plugin_Attributes = Some(PJRT_Plugin_Attributes);
    replace! { api;
        error { PJRT_Error_Destroy, PJRT_Error_Message, PJRT_Error_GetCode }
        event {
            PJRT_Event_Destroy, PJRT_Event_IsReady, PJRT_Event_Error, PJRT_Event_Await,
            PJRT_Event_OnReady,
        }
        client {
            PJRT_Client_Create, PJRT_Client_Destroy, PJRT_Client_PlatformName,
            PJRT_Client_PlatformVersion, PJRT_Client_Devices, PJRT_Client_AddressableDevices,
            PJRT_Client_LookupAddressableDevice, PJRT_Client_AddressableMemories,
            PJRT_Client_TopologyDescription,
        }
        device {
            PJRT_DeviceDescription_Kind, PJRT_DeviceDescription_Attributes,
            PJRT_DeviceDescription_ToString, PJRT_Device_LocalHardwareId,
            PJRT_Device_AddressableMemories, PJRT_Device_DefaultMemory, PJRT_Device_MemoryStats,
            PJRT_Memory_Kind, PJRT_Memory_Kind_Id,
        }
        topology {
            PJRT_TopologyDescription_Create, PJRT_TopologyDescription_Destroy,
            PJRT_TopologyDescription_PlatformName, PJRT_TopologyDescription_PlatformVersion,
            PJRT_TopologyDescription_GetDeviceDescriptions, PJRT_TopologyDescription_Serialize,
            PJRT_TopologyDescription_Attributes, PJRT_TopologyDescription_Deserialize, PJRT_Compile,
        }
        program {
            PJRT_Client_Compile, PJRT_LoadedExecutable_Destroy, PJRT_LoadedExecutable_GetExecutable,
            PJRT_Executable_Destroy, PJRT_Executable_OutputMemoryKinds,
            PJRT_Executable_GetCostAnalysis, PJRT_Executable_Serialize,
            PJRT_Executable_DeserializeAndLoad,
        }
        context { PJRT_ExecuteContext_Create, PJRT_ExecuteContext_Destroy }
        launch { PJRT_LoadedExecutable_Execute }
        transfer {
            PJRT_Client_BufferFromHostBuffer, PJRT_Buffer_ToHostBuffer, PJRT_Buffer_CopyRawToHost,
            PJRT_Buffer_CopyToMemory, PJRT_Buffer_CopyToDevice,
        }
        buffer {
            PJRT_Buffer_Destroy, PJRT_Buffer_Delete, PJRT_Buffer_IsDeleted, PJRT_Buffer_ElementType,
            PJRT_Buffer_Dimensions, PJRT_Buffer_UnpaddedDimensions,
            PJRT_Buffer_DynamicDimensionIndices, PJRT_Buffer_GetMemoryLayout,
            PJRT_Buffer_OnDeviceSizeInBytes, PJRT_Buffer_Device, PJRT_Buffer_Memory,
            PJRT_Buffer_IsOnCpu, PJRT_Buffer_ReadyEvent, PJRT_Buffer_UnsafePointer,
            PJRT_Buffer_OpaqueDeviceMemoryDataPointer, PJRT_Buffer_IncreaseExternalReferenceCount,
            PJRT_Buffer_DecreaseExternalReferenceCount,
        }
        dma { PJRT_Client_DmaMap, PJRT_Client_DmaUnmap }
    }
    // These make or take buffers and events of the CPU plugin, which nothing here understands.
    api.PJRT_Client_CreateViewOfDeviceBuffer = None;
    api.PJRT_Client_CreateUninitializedBuffer = None;
    api.PJRT_Client_CreateAliasBuffer = None;
    api.PJRT_Client_FulfillAliasBuffer = None;
    api.PJRT_Client_CreateBuffersForAsyncHostToDevice = None;
    api
}

slot::slots! {
    fn PJRT_Plugin_Initialize(args: PJRT_Plugin_Initialize_Args) {
        let table = open().map_err(|why| Error::new(PJRT_Error_Code_FAILED_PRECONDITION, why))?;
        match table.PJRT_Plugin_Initialize {
            Some(initialize) => {
                let error = initialize(args);
                if error.is_null() { Ok(()) } else { Err(inner::take(error)) }
            }
            None => Ok(()),
        }
    }

    fn PJRT_Plugin_Attributes(args: PJRT_Plugin_Attributes_Args) {
        static ATTRIBUTES: OnceLock<Named> = OnceLock::new();
        let theirs = inner::call!(PJRT_Plugin_Attributes(PJRT_Plugin_Attributes_Args {}))?;
        let attributes = ATTRIBUTES.get_or_init(|| {
            let mut values = named::read(theirs.attributes, theirs.num_attributes);
            values.push(("cuda_version".to_owned(), Value::Int(12090)));
            Named::new(values)
        });
        (args.attributes, args.num_attributes) = (attributes.as_ptr(), attributes.len());
        Ok(())
    }
}
