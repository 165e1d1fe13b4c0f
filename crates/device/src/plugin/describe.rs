//! Asks a vendor's client who it is: the [`Description`] that every session starts from.

use salus_pjrt::{Client, Device, Plugin};

use crate::failure::{INTERNAL, error, optional, values, vendor};
use crate::{Description, Error, Memory, machine};

/// Describes the device whose lanes are `lanes`, virtual devices of one client.
pub(crate) fn describe(
    plugin: &Plugin,
    client: &Client,
    lanes: &[Device],
    capacity_bytes: Option<u64>,
) -> Result<Description, Error> {
    let device = lanes.first().ok_or_else(|| {
        error(
            INTERNAL,
            format!("the plugin {} has no device", plugin.path().display()),
        )
    })?;
    let platform_name = client.platform_name().map_err(vendor)?;
    let on_host = platform_name == "cpu";
    let default = device.default_memory().map_err(vendor)?;
    let memories = device.memories().map_err(vendor)?;
    let default_memory = memories.iter().position(|memory| *memory == default);
    Ok(Description {
        on_host,
        platform_name,
        platform_version: client.platform_version().map_err(vendor)?,
        kind: device.kind().map_err(vendor)?,
        debug_string: device.debug_string().map_err(vendor)?,
        display_string: device.display_string().map_err(vendor)?,
        local_hardware_id: device.local_hardware_id().map_err(vendor)?,
        plugin_attributes: values(optional(plugin.attributes())?.unwrap_or_default()),
        device_attributes: values(optional(device.attributes())?.unwrap_or_default()),
        memories: memories.iter().map(memory).collect::<Result<_, _>>()?,
        default_memory: default_memory
            .ok_or_else(|| error(INTERNAL, "the default memory is none of the device's"))?
            as u32,
        lanes: lanes.len() as u32,
        capacity_bytes: capacity(device, capacity_bytes)?,
        plugin_path: plugin.path().display().to_string(),
        api_version: plugin.api_version(),
        serialized_topology: optional(client.serialized_topology())?,
    })
}

fn memory(memory: &salus_pjrt::Memory) -> Result<Memory, Error> {
    Ok(Memory {
        id: memory.id().map_err(vendor)?,
        kind: memory.kind().map_err(vendor)?,
        kind_id: memory.kind_id().map_err(vendor)?,
        debug_string: memory.debug_string().map_err(vendor)?,
        display_string: memory.display_string().map_err(vendor)?,
    })
}

/// What the operator says, else what the plugin says, else a part of what the machine has left: the
/// CPU plugin says nothing.
fn capacity(device: &Device, configured: Option<u64>) -> Result<u64, Error> {
    if let Some(bytes) = configured {
        return Ok(bytes);
    }
    let stats = optional(device.memory_stats())?;
    let limit = stats.and_then(|stats| stats.bytes_limit);
    if let Some(bytes) = limit.and_then(|bytes| u64::try_from(bytes).ok()) {
        return Ok(bytes);
    }
    let available = machine::available_bytes().ok_or_else(|| {
        error(
            INTERNAL,
            "neither the plugin nor /proc/meminfo says how much memory the device has; \
             set the capacity in the configuration",
        )
    })?;
    Ok(machine::device_bytes(available))
}
