//! Opens a vendor's plugin, and a client of it with the lanes that are wanted.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI32;

use salus_pjrt::{Client, Plugin};

use super::sites::Sites;
use super::upload::Transfers;
use super::{PjrtDevice, describe, handler};
use crate::failure::{NOT_FOUND, error, vendor, vendor_values};
use crate::{Error, Value, linalg};

/// Which plugin, and how to open it.
#[derive(Debug, Clone)]
pub struct PjrtConfig {
    pub plugin: PathBuf,
    /// Options for the vendor's client, by the vendor's names.
    pub options: Vec<(String, Value)>,
    /// Overrides what the plugin or the machine says.
    pub capacity_bytes: Option<u64>,
    /// The number wanted; only the CPU plugin has more than one.
    pub lanes: u32,
    /// LAPACK's library, for linear algebra on the CPU plugin.
    pub lapack: Option<PathBuf>,
}

type Options = Vec<(String, salus_pjrt::Value)>;

/// The option by which the CPU plugin takes its number of virtual devices.
const CPU_LANES: &str = "cpu_device_count";

fn open_plugin(path: &Path) -> Result<Plugin, Error> {
    if !path.is_file() {
        return Err(error(
            NOT_FOUND,
            format!(
                "there is no plugin at {}; name another file or install it",
                path.display()
            ),
        ));
    }
    Plugin::open(path).map_err(vendor)
}

impl PjrtDevice {
    /// Opens the plugin's library ahead of [`PjrtDevice::open`], which then needs no file any more.
    pub fn open_library(path: &Path) -> Result<(), Error> {
        open_plugin(path).map(drop)
    }

    pub fn open(config: &PjrtConfig) -> Result<PjrtDevice, Error> {
        let plugin = open_plugin(&config.plugin)?;
        let (client, options) = open_client(&plugin, config)?;
        if let Some(registered) = handler::register(&client) {
            registered?;
        }
        let mut lanes = client.addressable_devices().map_err(vendor)?;
        if client.platform_name().map_err(vendor)? != "cpu" {
            // Devices of other plugins are devices, not lanes: the first is ours.
            lanes.truncate(1);
        } else if let Some(ffi) = client.ffi() {
            linalg::register(ffi, config.lapack.as_deref());
        }
        let description = describe::describe(&plugin, &client, &lanes, config.capacity_bytes)?;
        let mut memories = Vec::new();
        for lane in &lanes {
            memories.extend(lane.memories().map_err(vendor)?);
        }
        Ok(PjrtDevice {
            transfers: Transfers::new(client.clone(), description.on_host),
            sites: Sites::new(plugin, options),
            client,
            lanes,
            memories,
            description,
            next_launch: AtomicI32::new(1),
        })
    }
}

/// Opens a client with `config.lanes` virtual devices if it is the CPU plugin's.
fn open_client(plugin: &Plugin, config: &PjrtConfig) -> Result<(Client, Options), Error> {
    let create = |lanes: Option<u32>| {
        let mut options = vendor_values(&config.options);
        if let Some(lanes) = lanes {
            // `config.lanes` is the only source of the number of lanes.
            options.retain(|(name, _)| name != CPU_LANES);
            options.push((
                CPU_LANES.to_owned(),
                salus_pjrt::Value::Int(i64::from(lanes)),
            ));
        }
        let client = plugin.create_client(&options).map_err(|vendor| {
            let (path, (major, minor)) = (plugin.path().display(), plugin.api_version());
            error(
                salus_wire::ErrorCode::from_number(vendor.code),
                format!(
                    "the plugin {path} (PJRT API {major}.{minor}) cannot open its device: {}",
                    vendor.message
                ),
            )
            .hint(
                "is the device there, and visible to this user? `salus doctor` shows what the plugin \
                 says",
            )
        })?;
        Ok((client, options))
    };
    let lanes = config.lanes.max(1);
    // Which platform it is, only a client can say, and other plugins refuse the option. The file's
    // name is a guess that saves opening twice.
    let name = config
        .plugin
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let looks_like_cpu = name.is_some_and(|name| name.contains("cpu"));
    let (client, options) = create(looks_like_cpu.then_some(lanes))?;
    let devices = client.addressable_devices().map_err(vendor)?.len();
    let is_cpu = client.platform_name().map_err(vendor)? == "cpu";
    if is_cpu && devices != lanes as usize && !looks_like_cpu {
        drop(client);
        return create(Some(lanes));
    }
    Ok((client, options))
}
