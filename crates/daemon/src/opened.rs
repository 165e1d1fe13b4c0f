//! The device that the settings name, opened: a vendor's plugin, or the scripted one for tests.

use salus_device::{Clock, PjrtConfig, PjrtDevice, ScriptedConfig, ScriptedDevice};
use salus_wire::Error;

use crate::config::HostSettings;

pub(crate) enum Opened {
    Pjrt(PjrtDevice),
    Scripted(ScriptedDevice),
}

pub(crate) fn open(settings: &HostSettings) -> Result<Opened, Error> {
    if settings.device == "scripted" {
        return Ok(Opened::Scripted(ScriptedDevice::open(&scripted(settings))));
    }
    let config = PjrtConfig {
        plugin: settings.plugin.clone(),
        options: settings
            .plugin_options
            .iter()
            .map(|(name, value)| (name.clone(), value.into()))
            .collect(),
        capacity_bytes: settings.capacity_bytes,
        lanes: settings.device_lanes(),
        lapack: settings.lapack.clone(),
    };
    PjrtDevice::open(&config).map(Opened::Pjrt)
}

fn scripted(settings: &HostSettings) -> ScriptedConfig {
    ScriptedConfig {
        lanes: settings.device_lanes(),
        capacity_bytes: settings.capacity_bytes.unwrap_or(1 << 30),
        clock: Clock::Real,
    }
}
