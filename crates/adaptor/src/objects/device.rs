//! The one device of a session, its description and its memories.
//!
//! Everything is known from `Welcome` and stays for the life of the process: a few kB per client,
//! and no pointer that JAX keeps can ever dangle.
//!
//! Promise: nothing here asks the service or fails.
#![expect(unsafe_code, reason = "C entry points")]
#![allow(non_snake_case, reason = "the header's names")]

use std::sync::{Arc, OnceLock, Weak};

use salus_pjrt::sys;
use salus_wire::{Description, Value};

use crate::c_api::c_args::{Args, Field, Handle, entry, field, lend};
use crate::c_api::error::{Result, invalid};
use crate::c_api::named_values::Attributes;
use crate::connection::session::Session;

/// A device and its memories, as C points to them.
pub(crate) struct Hardware {
    pub(crate) device: Device,
    pub(crate) memories: Vec<Memory>,
}

pub(crate) struct Device {
    pub(crate) description: DeviceDescription,
    pub(crate) local_hardware_id: i32,
    default_memory: usize,
    /// Set once, at its final address.
    memories: OnceLock<Vec<&'static Memory>>,
    /// Whose device it is; set once the session is open.
    session: OnceLock<Weak<Session>>,
}

pub(crate) struct DeviceDescription {
    kind: String,
    debug_string: String,
    display_string: String,
    attributes: Attributes,
}

pub(crate) struct Memory {
    /// Position in `Description::memories`.
    pub(crate) index: u32,
    id: i32,
    kind: String,
    kind_id: i32,
    debug_string: String,
    display_string: String,
    devices: OnceLock<[&'static Device; 1]>,
}

impl Handle for Device {
    type Raw = sys::PJRT_Device;
}
impl Handle for DeviceDescription {
    type Raw = sys::PJRT_DeviceDescription;
}
impl Handle for Memory {
    type Raw = sys::PJRT_Memory;
}

impl Hardware {
    pub(crate) fn new(description: &Description) -> Result<&'static Self> {
        let default_memory = description.default_memory as usize;
        if default_memory >= description.memories.len() {
            return Err(invalid(format!(
                "the service describes a device whose default memory is number {default_memory} of \
                 {}",
                description.memories.len()
            )));
        }
        let hardware: &'static Self = Box::leak(Box::new(Self {
            device: Device {
                description: DeviceDescription {
                    kind: description.kind.clone(),
                    // As the vendor names its first device: scripts and JAX's own tests look at it.
                    debug_string: description.debug_string.clone(),
                    display_string: description.display_string.clone(),
                    attributes: Attributes::new(bearable(&description.device_attributes)),
                },
                local_hardware_id: description.local_hardware_id,
                default_memory,
                memories: OnceLock::new(),
                session: OnceLock::new(),
            },
            memories: description
                .memories
                .iter()
                .enumerate()
                .map(|(index, memory)| Memory {
                    index: index as u32,
                    id: memory.id,
                    kind: memory.kind.clone(),
                    kind_id: memory.kind_id,
                    debug_string: memory.debug_string.clone(),
                    display_string: memory.display_string.clone(),
                    devices: OnceLock::new(),
                })
                .collect(),
        }));
        let _ = hardware
            .device
            .memories
            .set(hardware.memories.iter().collect());
        for memory in &hardware.memories {
            let _ = memory.devices.set([&hardware.device]);
        }
        Ok(hardware)
    }

    fn default_memory(&self) -> &Memory {
        &self.memories[self.device.default_memory]
    }

    /// A memory by its position; the default if the service named one that it did not describe.
    pub(crate) fn memory(&self, index: u32) -> &Memory {
        let found = self.memories.get(index as usize);
        found.unwrap_or_else(|| self.default_memory())
    }

    /// The memory that a caller names by itself or by the device; the default if by neither.
    pub(crate) fn memory_for(
        &self,
        memory: Option<&Memory>,
        device: Option<&Device>,
    ) -> Result<u32> {
        if let Some(memory) = memory {
            return match self.memories.get(memory.index as usize) {
                Some(ours) if std::ptr::eq(ours, memory) => Ok(memory.index),
                _ => Err(invalid("the memory belongs to another client")),
            };
        }
        self.check_device(device)?;
        Ok(self.default_memory().index)
    }

    /// An error if `device` is another client's.
    pub(crate) fn check_device(&self, device: Option<&Device>) -> Result<()> {
        match device {
            Some(device) if !std::ptr::eq(device, &self.device) => {
                Err(invalid("the device belongs to another client"))
            }
            _ => Ok(()),
        }
    }

    /// The list of this one device as C reads it.
    pub(crate) fn devices(&self) -> *const *mut sys::PJRT_Device {
        let memory = self.memories[0].devices.get();
        memory.map_or(std::ptr::null(), |devices| devices.as_ptr().cast())
    }

    /// The list of all memories as C reads it, and its length.
    pub(crate) fn memory_list(&self) -> (*const *mut sys::PJRT_Memory, usize) {
        self.device.memory_list()
    }
}

impl Memory {
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }
}

impl Device {
    fn memory_list(&self) -> (*const *mut sys::PJRT_Memory, usize) {
        match self.memories.get() {
            // A reference is a pointer to C.
            Some(list) => (list.as_ptr().cast(), list.len()),
            None => (std::ptr::null(), 0),
        }
    }
}

/// Attributes of a device that XLA's client bears: it aborts the process at any other type.
pub(crate) fn bearable(attributes: &[(String, Value)]) -> Vec<(String, Value)> {
    let known = |value: &Value| matches!(value, Value::Text(_) | Value::Int(_) | Value::Ints(_));
    let attributes = attributes.iter().filter(|(_, value)| known(value));
    attributes.cloned().collect()
}

/// What `Plugin_Attributes` says: the vendor's, once a client exists.
static PLUGIN_ATTRIBUTES: OnceLock<Attributes> = OnceLock::new();

/// Of the CPU plugin that Salus is developed with. Nobody compiles before there is a client, so
/// these are read by tools only.
fn default_plugin_attributes() -> &'static Attributes {
    static DEFAULT: OnceLock<Attributes> = OnceLock::new();
    DEFAULT.get_or_init(|| {
        Attributes::new(vec![
            ("xla_version".into(), Value::Int(2)),
            (
                "stablehlo_current_version".into(),
                Value::Ints(vec![1, 13, 3]),
            ),
            (
                "stablehlo_minimum_version".into(),
                Value::Ints(vec![0, 9, 0]),
            ),
        ])
    })
}

pub(crate) fn remember_plugin_attributes(attributes: Vec<(String, Value)>) {
    PLUGIN_ATTRIBUTES.get_or_init(|| Attributes::new(attributes));
}

fn description<'a, T: sys::CStruct>(
    args: &Args<'a, T>,
    field: Field<T, *mut sys::PJRT_DeviceDescription>,
) -> Result<&'a DeviceDescription> {
    args.handle::<DeviceDescription>(field)
}

entry! { sure
    fn PJRT_Plugin_Attributes(args: PJRT_Plugin_Attributes_Args) {
        let attributes = PLUGIN_ATTRIBUTES
            .get()
            .unwrap_or_else(|| default_plugin_attributes());
        args.put(field!(Call.attributes), attributes.as_ptr())?;
        // JAX 0.6 says 24 bytes and reads the number behind them: its header computed the size from
        // the field before the last.
        let count = field!(Call.num_attributes);
        // SAFETY: the field has been in the struct since the function exists.
        unsafe { args.put_always(count, attributes.len()) };
        Ok(())
    }

    fn PJRT_DeviceDescription_Id(args: PJRT_DeviceDescription_Id_Args) {
        args.put(field!(Call.id), 0)
    }

    fn PJRT_DeviceDescription_ProcessIndex(args: PJRT_DeviceDescription_ProcessIndex_Args) {
        args.put(field!(Call.process_index), 0)
    }

    fn PJRT_DeviceDescription_Attributes(args: PJRT_DeviceDescription_Attributes_Args) {
        let attributes = &description(&args, field!(Call.device_description))?.attributes;
        args.put(field!(Call.num_attributes), attributes.len())?;
        args.put(field!(Call.attributes), attributes.as_ptr())
    }

    fn PJRT_DeviceDescription_Kind(args: PJRT_DeviceDescription_Kind_Args) {
        let kind = &description(&args, field!(Call.device_description))?.kind;
        args.put_text(field!(Call.device_kind), field!(Call.device_kind_size), kind);
        Ok(())
    }

    fn PJRT_DeviceDescription_DebugString(args: PJRT_DeviceDescription_DebugString_Args) {
        let text = &description(&args, field!(Call.device_description))?.debug_string;
        args.put_text(field!(Call.debug_string), field!(Call.debug_string_size), text);
        Ok(())
    }

    fn PJRT_DeviceDescription_ToString(args: PJRT_DeviceDescription_ToString_Args) {
        let text = &description(&args, field!(Call.device_description))?.display_string;
        args.put_text(field!(Call.to_string), field!(Call.to_string_size), text);
        Ok(())
    }

    fn PJRT_Device_GetDescription(args: PJRT_Device_GetDescription_Args) {
        let device = args.handle::<Device>(field!(Call.device))?;
        args.put(field!(Call.device_description), lend(&device.description))
    }

    fn PJRT_Device_IsAddressable(args: PJRT_Device_IsAddressable_Args) {
        args.put(field!(Call.is_addressable), true)
    }

    fn PJRT_Device_LocalHardwareId(args: PJRT_Device_LocalHardwareId_Args) {
        let device = args.handle::<Device>(field!(Call.device))?;
        args.put(field!(Call.local_hardware_id), device.local_hardware_id)
    }

    fn PJRT_Device_AddressableMemories(args: PJRT_Device_AddressableMemories_Args) {
        let (list, count) = args.handle::<Device>(field!(Call.device))?.memory_list();
        args.put(field!(Call.memories), list)?;
        args.put(field!(Call.num_memories), count)
    }

    fn PJRT_Device_DefaultMemory(args: PJRT_Device_DefaultMemory_Args) {
        let device = args.handle::<Device>(field!(Call.device))?;
        let memories = device.memories.get().ok_or_else(|| invalid("a device without memories"))?;
        args.put(field!(Call.memory), lend(memories[device.default_memory]))
    }

    fn PJRT_Memory_Id(args: PJRT_Memory_Id_Args) {
        let memory = args.handle::<Memory>(field!(Call.memory))?;
        args.put(field!(Call.id), memory.id)
    }

    fn PJRT_Memory_Kind(args: PJRT_Memory_Kind_Args) {
        let memory = args.handle::<Memory>(field!(Call.memory))?;
        args.put_text(field!(Call.kind), field!(Call.kind_size), &memory.kind);
        Ok(())
    }

    fn PJRT_Memory_Kind_Id(args: PJRT_Memory_Kind_Id_Args) {
        let memory = args.handle::<Memory>(field!(Call.memory))?;
        args.put(field!(Call.kind_id), memory.kind_id)
    }

    fn PJRT_Memory_DebugString(args: PJRT_Memory_DebugString_Args) {
        let memory = args.handle::<Memory>(field!(Call.memory))?;
        args.put_text(field!(Call.debug_string), field!(Call.debug_string_size), &memory.debug_string);
        Ok(())
    }

    fn PJRT_Memory_ToString(args: PJRT_Memory_ToString_Args) {
        let memory = args.handle::<Memory>(field!(Call.memory))?;
        args.put_text(field!(Call.to_string), field!(Call.to_string_size), &memory.display_string);
        Ok(())
    }

    fn PJRT_Memory_AddressableByDevices(args: PJRT_Memory_AddressableByDevices_Args) {
        let memory = args.handle::<Memory>(field!(Call.memory))?;
        let devices = memory.devices.get().ok_or_else(|| invalid("a memory without a device"))?;
        args.put(field!(Call.devices), devices.as_ptr().cast())?;
        args.put(field!(Call.num_devices), devices.len())
    }
}

impl Device {
    pub(crate) fn belongs_to(&self, session: &Arc<Session>) {
        let _ = self.session.set(Arc::downgrade(session));
    }
}

entry! {
    /// The session's view: what it holds, wherever that is now, and what it may hold.
    fn PJRT_Device_MemoryStats(args: PJRT_Device_MemoryStats_Args) {
        let device = args.handle::<Device>(field!(Call.device))?;
        let session = device.session.get().and_then(Weak::upgrade);
        let session = session.ok_or_else(|| invalid("the device's client has been destroyed"))?;
        let usage = session.usage()?;
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        args.put(field!(Call.bytes_in_use), number(usage.bytes))?;
        args.put_optional(field!(Call.peak_bytes_in_use), number(usage.peak_bytes));
        args.put_optional(field!(Call.peak_bytes_in_use_is_set), true);
        args.put_optional(field!(Call.bytes_limit), number(usage.limit_bytes));
        args.put_optional(field!(Call.bytes_limit_is_set), true);
        args.put_optional(field!(Call.num_allocs_is_set), false);
        args.put_optional(field!(Call.largest_alloc_size_is_set), false);
        args.put_optional(field!(Call.bytes_reserved_is_set), false);
        args.put_optional(field!(Call.peak_bytes_reserved_is_set), false);
        args.put_optional(field!(Call.bytes_reservable_limit_is_set), false);
        args.put_optional(field!(Call.largest_free_block_bytes_is_set), false);
        args.put_optional(field!(Call.pool_bytes_is_set), false);
        args.put_optional(field!(Call.peak_pool_bytes_is_set), false);
        Ok(())
    }
}
