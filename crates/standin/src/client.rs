//! Clients: which devices they see, with which options, and what they own.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use salus_pjrt::sys::*;

use crate::c_api::error::{Error, Outcome};
use crate::c_api::inner::{bytes, call};
use crate::c_api::named::{self, Named, Value};
use crate::c_api::slot::slots;
use crate::config::Config;
use crate::options::Options;
use crate::pool::Pool;
use crate::state::{State, word};
use crate::stream::{Compute, Stream};
use crate::topology::Topology;

/// A client of ours. Its handle is the CPU plugin's.
pub(crate) struct Client {
    pub(crate) raw: Raw<PJRT_Client>,
    pub(crate) config: Arc<Config>,
    pub(crate) state: Arc<State>,
    pub(crate) devices: Vec<Device>,
    pub(crate) topology: Topology,
    /// The error that everything fails with from then on.
    pub(crate) sticky: OnceLock<Error>,
    /// Mapped ranges: start and length.
    pub(crate) mapped: Mutex<BTreeMap<usize, usize>>,
    device_list: Vec<Raw<PJRT_Device>>,
    memory_list: Vec<Raw<PJRT_Memory>>,
}

/// A device of a client. Its handle is the CPU plugin's.
pub(crate) struct Device {
    pub(crate) raw: Raw<PJRT_Device>,
    pub(crate) description: Raw<PJRT_DeviceDescription>,
    /// Its number on the machine, as `nvidia-smi` counts.
    pub(crate) hardware: usize,
    /// Of kinds `device` and `pinned_host`.
    pub(crate) memories: [Raw<PJRT_Memory>; 2],
    pub(crate) attributes: Named,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) pool: Arc<Pool>,
    pub(crate) compute: Compute,
    pub(crate) uploads: Stream,
    pub(crate) reads: Stream,
}

/// Which of a device's memories.
pub(crate) const DEVICE: usize = 0;
pub(crate) const PINNED: usize = 1;

/// A handle of the CPU plugin.
#[repr(transparent)]
pub(crate) struct Raw<T>(pub(crate) *mut T);

impl<T> Clone for Raw<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Raw<T> {}
// SAFETY: PJRT's objects may be used by any thread.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}

/// What a handle of the CPU plugin belongs to.
#[derive(Default)]
struct Handles {
    clients: HashMap<usize, Arc<Client>>,
    devices: HashMap<usize, (Arc<Client>, usize)>,
    memories: HashMap<usize, (Arc<Client>, usize, usize)>,
    descriptions: HashMap<usize, (Arc<Client>, usize)>,
}

static HANDLES: RwLock<Option<Handles>> = RwLock::new(None);

fn look<T>(find: impl FnOnce(&Handles) -> Option<T>) -> Option<T> {
    let handles = HANDLES.read().unwrap_or_else(PoisonError::into_inner);
    find(handles.as_ref()?)
}

pub(crate) fn client(raw: *mut PJRT_Client) -> Result<Arc<Client>, Error> {
    look(|handles| handles.clients.get(&raw.addr()).cloned())
        .ok_or_else(|| Error::invalid("no client of the stand-in"))
}

/// The client of a device, and its number there.
pub(crate) fn device(raw: *mut PJRT_Device) -> Result<(Arc<Client>, usize), Error> {
    look(|handles| handles.devices.get(&raw.addr()).cloned())
        .ok_or_else(|| Error::invalid("no device of the stand-in"))
}

/// The client of a memory, its device's number and its own.
pub(crate) fn memory(raw: *mut PJRT_Memory) -> Result<(Arc<Client>, usize, usize), Error> {
    look(|handles| handles.memories.get(&raw.addr()).cloned())
        .ok_or_else(|| Error::invalid("no memory of the stand-in"))
}

/// `None` for descriptions that belong to a topology without a client.
pub(crate) fn described(raw: *mut PJRT_DeviceDescription) -> Option<(Arc<Client>, usize)> {
    look(|handles| handles.descriptions.get(&raw.addr()).cloned())
}

fn register(client: &Arc<Client>) {
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    let handles = handles.get_or_insert_default();
    let share = || Arc::clone(client);
    handles.clients.insert(client.raw.0.addr(), share());
    for (index, device) in client.devices.iter().enumerate() {
        handles
            .devices
            .insert(device.raw.0.addr(), (share(), index));
        let description = device.description.0.addr();
        handles.descriptions.insert(description, (share(), index));
        for (number, memory) in device.memories.iter().enumerate() {
            let entry = (share(), index, number);
            handles.memories.insert(memory.0.addr(), entry);
        }
    }
}

fn forget(client: &Arc<Client>) {
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    let Some(handles) = handles.as_mut() else {
        return;
    };
    let is_ours = |other: &Arc<Client>| Arc::ptr_eq(other, client);
    handles.clients.retain(|_, other| !is_ours(other));
    handles.devices.retain(|_, (other, _)| !is_ours(other));
    handles.descriptions.retain(|_, (other, _)| !is_ours(other));
    handles.memories.retain(|_, (other, ..)| !is_ours(other));
}

/// A client of the CPU plugin with this many devices.
pub(crate) fn create_inner(devices: usize) -> Result<Raw<PJRT_Client>, Error> {
    let options = vec![("cpu_device_count".to_owned(), Value::Int(devices as i64))];
    let options = Named::new(options);
    // SAFETY: the options live during the call.
    let made = unsafe {
        call!(PJRT_Client_Create(PJRT_Client_Create_Args {
            create_options: options.as_ptr(),
            num_options: options.len(),
        }))
    }?;
    Ok(Raw(made.client))
}

pub(crate) fn destroy_inner(client: Raw<PJRT_Client>) -> Outcome {
    // SAFETY: a live client, not used afterwards.
    unsafe {
        call!(PJRT_Client_Destroy(PJRT_Client_Destroy_Args {
            client: client.0
        }))
    }
    .map(drop)
}

/// The devices of a client of the CPU plugin.
pub(crate) fn inner_devices(client: Raw<PJRT_Client>) -> Result<Vec<Raw<PJRT_Device>>, Error> {
    // SAFETY: a live client, which owns the list.
    unsafe {
        let made = call!(PJRT_Client_AddressableDevices(
            PJRT_Client_AddressableDevices_Args { client: client.0 }
        ))?;
        let devices = bytes(made.addressable_devices, made.num_addressable_devices);
        Ok(devices.iter().map(|&device| Raw(device)).collect())
    }
}

impl Client {
    fn open(options: &Options) -> Result<Arc<Client>, Error> {
        let config = Arc::new(options.config.clone());
        let state = State::open(config.state.as_deref()).map_err(|error| {
            let state = config.state.as_ref().map(|path| path.display().to_string());
            Error::internal(format!("cannot map the state file {state:?}: {error}"))
        })?;
        let raw = create_inner(options.visible.len())?;
        let open = |(number, (device, &hardware)): (usize, (Raw<PJRT_Device>, &usize))| {
            Device::open(device, number, hardware, options, &state)
        };
        let devices = inner_devices(raw)?.into_iter().zip(&options.visible);
        let devices: Result<Vec<Device>, _> = devices.enumerate().map(open).collect();
        let devices = devices.inspect_err(|_| drop(destroy_inner(raw)))?;
        state.word(word::CLIENTS).fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(Client {
            topology: Topology::of_client(raw, &config)?,
            device_list: devices.iter().map(|device| device.raw).collect(),
            memory_list: devices.iter().flat_map(|device| device.memories).collect(),
            raw,
            config,
            state,
            devices,
            sticky: OnceLock::new(),
            mapped: Mutex::default(),
        });
        register(&client);
        Ok(client)
    }

    /// The error that everything fails with, if there is one.
    pub(crate) fn healthy(&self) -> Outcome {
        self.sticky.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn close(self: &Arc<Client>) -> Outcome {
        for device in &self.devices {
            device.compute.stream.drain();
            device.uploads.drain();
            device.reads.drain();
        }
        forget(self);
        destroy_inner(self.raw)
    }
}

slots! {
    fn PJRT_Client_Create(args: PJRT_Client_Create_Args) {
        let options = Options::read(&named::read(args.create_options, args.num_options))?;
        args.client = Client::open(&options)?.raw.0;
        Ok(())
    }

    fn PJRT_Client_Destroy(args: PJRT_Client_Destroy_Args) {
        client(args.client)?.close()
    }

    fn PJRT_Client_PlatformName(args: PJRT_Client_PlatformName_Args) {
        args.platform_name = PLATFORM.as_ptr().cast();
        args.platform_name_size = PLATFORM.len();
        Ok(())
    }

    fn PJRT_Client_PlatformVersion(args: PJRT_Client_PlatformVersion_Args) {
        args.platform_version = VERSION.as_ptr().cast();
        args.platform_version_size = VERSION.len();
        Ok(())
    }

    fn PJRT_Client_Devices(args: PJRT_Client_Devices_Args) {
        let client = client(args.client)?;
        args.devices = client.device_list.as_ptr().cast();
        args.num_devices = client.device_list.len();
        Ok(())
    }

    fn PJRT_Client_AddressableDevices(args: PJRT_Client_AddressableDevices_Args) {
        let client = client(args.client)?;
        args.addressable_devices = client.device_list.as_ptr().cast();
        args.num_addressable_devices = client.device_list.len();
        Ok(())
    }

    fn PJRT_Client_LookupAddressableDevice(args: PJRT_Client_LookupAddressableDevice_Args) {
        let client = client(args.client)?;
        let wanted = args.local_hardware_id;
        let found = client.devices.iter().find(|device| device.hardware as i32 == wanted);
        let found = found.ok_or_else(|| {
            Error::invalid(format!("No matching device found for local_device_id {wanted}"))
        })?;
        args.addressable_device = found.raw.0;
        Ok(())
    }

    fn PJRT_Client_AddressableMemories(args: PJRT_Client_AddressableMemories_Args) {
        let client = client(args.client)?;
        args.addressable_memories = client.memory_list.as_ptr().cast();
        args.num_addressable_memories = client.memory_list.len();
        Ok(())
    }

    fn PJRT_Client_TopologyDescription(args: PJRT_Client_TopologyDescription_Args) {
        args.topology = client(args.client)?.topology.as_raw();
        Ok(())
    }
}

/// xla/pjrt/pjrt_compiler.h: `CudaName`.
pub(crate) const PLATFORM: &str = "cuda";
/// xla/pjrt/gpu/se_gpu_pjrt_client.cc: platform and runtime's version.
pub(crate) const VERSION: &str = "cuda 12090";
