//! Asks a vendor's client who it is: the [`Description`] that every session starts from.

use salus_pjrt::Plugin;

use super::lanes::Lane;
use crate::failure::{INTERNAL, error, optional, values, vendor};
use crate::{Description, Error, Memory, machine};

/// Describes the device whose lanes are `lanes`, by the first of them: all are alike. Without a capacity it
/// is a part of the machine's memory.
pub(crate) fn describe(
    plugin: &Plugin,
    lanes: &[Lane],
    capacity_bytes: Option<u64>,
) -> Result<Description, Error> {
    let first = lanes.first().ok_or_else(|| {
        error(
            INTERNAL,
            format!("the plugin {} has no device", plugin.path().display()),
        )
    })?;
    let (client, device) = (&first.client, &first.device);
    let platform_name = client.platform_name().map_err(vendor)?;
    let on_host = platform_name == "cpu";
    let default = device.default_memory().map_err(vendor)?;
    let memories = &first.memories;
    let default_memory = memories.iter().position(|memory| *memory == default);
    let topology = optional(client.topology())?;
    let attributes = topology
        .as_ref()
        .map(|topology| optional(topology.attributes()));
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
        capacity_bytes: match capacity_bytes {
            Some(bytes) => bytes,
            None => of_the_machine()?,
        },
        plugin_path: plugin.path().display().to_string(),
        api_version: plugin.api_version(),
        topology_attributes: values(attributes.transpose()?.flatten().unwrap_or_default()),
        serialized_topology: match topology {
            Some(topology) => optional(topology.serialize())?,
            None => None,
        },
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

/// A part of what the machine has left, for a device in its memory: the CPU plugin says nothing.
fn of_the_machine() -> Result<u64, Error> {
    let available = machine::available_bytes().ok_or_else(|| {
        error(
            INTERNAL,
            "neither the plugin nor /proc/meminfo says how much memory the device has; \
             set the capacity in the configuration",
        )
    })?;
    Ok(machine::device_bytes(available))
}
