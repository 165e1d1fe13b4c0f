//! The device that the settings name, opened: a vendor's plugin, or the scripted one for tests.
//!
//! Promise: whoever has one is in its box (`sandbox`).

use salus_device::{
    Clock, PjrtConfig, PjrtDevice, Purpose, ScriptedConfig, ScriptedDevice, preload,
};
use salus_wire::{Error, Value};

use crate::config::{HostSettings, VISIBLE_DEVICES};
use crate::log;
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
        preload_libraries(settings);
        let device = open_plugin(settings, Purpose::Run)?;
        return Ok((Opened::Pjrt(device), confine()));
    }
    if settings.device.name == "scripted" {
        let held = confine();
        let device = ScriptedDevice::open(&scripted(settings));
        return Ok((Opened::Scripted(device), held));
    }
    PjrtDevice::open_library(&settings.plugin)?;
    let held = confine();
    Ok((Opened::Pjrt(open_plugin(settings, Purpose::Run)?), held))
}

/// Opens the device for a compiler, beside the device host that has it.
pub(crate) fn open_beside(settings: &HostSettings) -> Result<PjrtDevice, Error> {
    let mut settings = settings.clone();
    // How the device host's memory is to be taken is not said of a compiler's.
    for own in ["preallocate", "memory_fraction"] {
        settings.device.options.remove(own);
    }
    let more = settings.compilers.options.clone();
    settings.device.options.extend(more);
    open_plugin(&settings, Purpose::Try)
}

pub(crate) fn preload_libraries(settings: &HostSettings) {
    for why in preload(&settings.plugin) {
        log::warn(format_args!("programs that need it will fail: {why}"));
    }
}

fn open_plugin(settings: &HostSettings, purpose: Purpose) -> Result<PjrtDevice, Error> {
    let options = settings.device.options.iter();
    let mut options: Vec<(String, Value)> = options
        .map(|(name, value)| (name.clone(), value.into()))
        .collect();
    if let Some(index) = settings.device_index {
        // Of all others it would take memory.
        options.retain(|(name, _)| name != VISIBLE_DEVICES);
        options.push((VISIBLE_DEVICES.into(), Value::Ints(vec![index.into()])));
    }
    let config = PjrtConfig {
        plugin: settings.plugin.clone(),
        options,
        capacity_bytes: settings.device.memory,
        lanes: match purpose {
            Purpose::Run => settings.device_lanes(),
            // It launches nothing.
            Purpose::Try => 1,
        },
        lapack: settings.device.lapack.clone(),
        purpose,
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
