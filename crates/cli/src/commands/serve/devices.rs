//! Which devices of a plugin a service has.
//!
//! Only the plugin knows how many there are, and vendors' code does not run in the supervisor's process: a
//! process of its own opens the plugin, counts and ends (`doctor/probe.rs`). It is asked only where no
//! device is named by its number.

use std::path::Path;

use salus_daemon::config::{DeviceNames, HostSettings, PluginOption, Problem, VISIBLE_DEVICES};
use salus_daemon::supervisor;

use crate::commands::doctor::probe;
use crate::output;

/// Platforms whose plugins open one of several devices when they are told which.
const CHOOSE: [&str; 2] = ["cuda", "rocm"];
/// Devices that are one.
const SINGLE: [&str; 2] = ["cpu", "scripted"];

/// The device with this number, or the first: `cuda:0`.
pub(crate) fn one_device(settings: &HostSettings) -> String {
    let plugin = settings.device.name.clone();
    let first = CHOOSE.contains(&plugin.as_str()).then_some(0);
    let indices = settings.device_index.or(first).into_iter().collect();
    DeviceNames { plugin, indices }.to_string()
}

/// The numbers of the devices; `None` is the only one.
pub(super) fn indices(
    names: &DeviceNames,
    plugin: &Path,
    settings: &HostSettings,
    socket: &Path,
) -> Result<Vec<Option<u32>>, Problem> {
    if !names.indices.is_empty() {
        return Ok(names.indices.iter().copied().map(Some).collect());
    }
    if SINGLE.contains(&names.plugin.as_str()) {
        return Ok(vec![None]);
    }
    if let Some(visible) = settings.device.options.get(VISIBLE_DEVICES) {
        return configured(visible);
    }
    if supervisor::is_locked(socket) {
        // The start fails because a service runs already; its device need not be opened for that.
        return Ok(vec![None]);
    }
    let answer = probe::count(plugin, &settings.device.options);
    let count = answer["devices"].as_u64().unwrap_or(1);
    let count = u32::try_from(count).unwrap_or(1);
    let platform = answer["platform"].as_str().unwrap_or_default();
    // What cannot be opened is said by the device host, which then cannot, either.
    if count <= 1 {
        return Ok(vec![None]);
    }
    if !CHOOSE.contains(&platform) {
        output::note(&format!(
            "the first of {count} devices is served: the plugin of `{platform}` cannot open others alone"
        ));
        return Ok(vec![None]);
    }
    Ok((0..count).map(Some).collect())
}

/// Those that `[device.options]` says are visible.
fn configured(visible: &PluginOption) -> Result<Vec<Option<u32>>, Problem> {
    let numbers = match visible {
        PluginOption::Int(number) => vec![*number],
        PluginOption::Ints(numbers) => numbers.clone(),
        _ => Vec::new(),
    };
    let indices = numbers.into_iter().map(|number| u32::try_from(number).ok());
    let indices: Option<Vec<u32>> = indices.collect();
    match indices {
        Some(indices) if !indices.is_empty() => Ok(indices.into_iter().map(Some).collect()),
        _ => Err(Problem::new(format!(
            "`{VISIBLE_DEVICES}` in [device.options]: expected a list of devices' numbers"
        ))
        .hint("leave it out and write `device = \"cuda:0,cuda:1\"` in [device]")),
    }
}

#[cfg(test)]
mod tests {
    use salus_daemon::config::Config;
    use salus_daemon::paths::Places;

    use super::*;

    #[test]
    fn devices_that_are_named_or_configured_need_no_plugin() {
        let mut settings = Config::defaults(&Places::default()).host;
        let nowhere = Path::new("/nowhere");
        let of = |names: &str, settings: &HostSettings| {
            let names = DeviceNames::parse(names).expect("names");
            indices(&names, nowhere, settings, nowhere)
        };
        assert_eq!(of("cpu", &settings), Ok(vec![None]));
        assert_eq!(of("scripted", &settings), Ok(vec![None]));
        let two = Ok(vec![Some(1), Some(0)]);
        assert_eq!(of("cuda:1,cuda:0", &settings), two);
        let mut visible = |option| {
            settings
                .device
                .options
                .insert(VISIBLE_DEVICES.into(), option)
        };
        visible(PluginOption::Ints(vec![2, 3]));
        assert_eq!(of("cuda", &settings), Ok(vec![Some(2), Some(3)]));
        let mut visible = |option| {
            settings
                .device
                .options
                .insert(VISIBLE_DEVICES.into(), option)
        };
        visible(PluginOption::Ints(vec![-1]));
        assert!(of("cuda", &settings).is_err());
    }
}
