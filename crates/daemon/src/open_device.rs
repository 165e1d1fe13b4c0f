//! The device that the settings name, opened: a vendor's plugin, or the scripted one for tests.
//!
//! Promise: whoever has one is in its box (`sandbox`).

use salus_device::{Clock, PjrtConfig, PjrtDevice, ScriptedConfig, ScriptedDevice};
use salus_wire::Error;

use crate::config::HostSettings;
use crate::sandbox::{self, Held, Process, Strength};

pub(crate) enum Opened {
    Pjrt(PjrtDevice),
    Scripted(ScriptedDevice),
}

/// Opens the device and puts this process into its box, on the way or at the end.
pub(crate) fn open(process: Process, settings: &HostSettings) -> Result<(Opened, Held), Error> {
    let strength = Strength::of(&settings.device.name);
    let confine = || sandbox::confine(process, strength, settings);
    if strength == Strength::Light {
        return Ok((Opened::Pjrt(open_plugin(settings)?), confine()));
    }
    if settings.device.name == "scripted" {
        let held = confine();
        let device = ScriptedDevice::open(&scripted(settings));
        return Ok((Opened::Scripted(device), held));
    }
    PjrtDevice::open_library(&settings.plugin)?;
    let held = confine();
    Ok((Opened::Pjrt(open_plugin(settings)?), held))
}

fn open_plugin(settings: &HostSettings) -> Result<PjrtDevice, Error> {
    let config = PjrtConfig {
        plugin: settings.plugin.clone(),
        options: settings
            .device
            .options
            .iter()
            .map(|(name, value)| (name.clone(), value.into()))
            .collect(),
        capacity_bytes: settings.device.memory,
        lanes: settings.device_lanes(),
        lapack: settings.device.lapack.clone(),
    };
    PjrtDevice::open(&config)
}

fn scripted(settings: &HostSettings) -> ScriptedConfig {
    ScriptedConfig {
        lanes: settings.device_lanes(),
        capacity_bytes: settings.device.memory.unwrap_or(1 << 30),
        clock: Clock::Real,
        on_host: true,
    }
}
