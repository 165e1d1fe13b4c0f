//! Opens a vendor's plugin, and a client of it with the lanes and the memory that are wanted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI32;

use salus_pjrt::{Client, Plugin};

use super::lanes::Lane;
use super::lanes::cores::{self, Cores};
use super::sites::Sites;
use super::{PjrtDevice, describe, handler, pool};
use crate::failure::{NOT_FOUND, error, vendor, vendor_values};
use crate::{Error, Value};

/// Which plugin, and how to open it.
#[derive(Debug, Clone)]
pub struct PjrtConfig {
    pub plugin: PathBuf,
    /// Options for the vendor's client, by the vendor's names.
    pub options: Vec<(String, Value)>,
    /// Overrides what the machine says of a device in its memory; elsewhere the most that is taken.
    pub capacity_bytes: Option<u64>,
    /// The number wanted; only the CPU plugin has more than one.
    pub lanes: u32,
    /// LAPACK's library, for linear algebra on the CPU plugin.
    pub lapack: Option<PathBuf>,
    pub purpose: Purpose,
}

impl Default for PjrtConfig {
    fn default() -> Self {
        Self {
            plugin: PathBuf::new(),
            options: Vec::new(),
            capacity_bytes: None,
            lanes: 1,
            lapack: None,
            purpose: Purpose::Run,
        }
    }
}

/// What a client is for. It decides how much a client takes of a device that has memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It has the arrays: its memory is taken when it is opened, so that nobody else can have it.
    Run,
    /// It tries things out: no more than it needs, and little of that.
    Try,
}

pub(super) type Options = Vec<(String, salus_pjrt::Value)>;

/// The option by which the CPU plugin takes its number of virtual devices: four unless it is told.
const CPU_DEVICES: &str = "cpu_device_count";

pub(super) fn open_plugin(path: &Path) -> Result<Plugin, Error> {
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

    /// The plugin's platform, and how many devices it shows with these options. All of them are opened
    /// for that, so a process that does nothing else should ask.
    pub fn count(path: &Path, options: &[(String, Value)]) -> Result<(String, usize), Error> {
        let client = open_plugin(path)?.create_client(&vendor_values(options));
        let client = client.map_err(vendor)?;
        let devices = client.addressable_devices().map_err(vendor)?.len();
        Ok((client.platform_name().map_err(vendor)?, devices))
    }

    pub fn open(config: &PjrtConfig) -> Result<PjrtDevice, Error> {
        let plugin = open_plugin(&config.plugin)?;
        let (opened, threads) = cores::started_by(|| open_client(&plugin, config));
        let (client, options) = opened?;
        let mut threads = vec![threads];
        if let Some(registered) = handler::register(&client, config.lapack.as_deref()) {
            registered?;
        }
        let on_host = client.platform_name().map_err(vendor)? == "cpu";
        let first = Lane::new(client, on_host)?;
        let capacity_bytes = match on_host {
            true => config.capacity_bytes,
            false => Some(pool::take(
                &first.device,
                &first.transfers,
                config,
                &options,
            )?),
        };
        let mut lanes = vec![first];
        if on_host {
            for _ in 1..config.lanes.max(1) {
                let (client, its) = cores::started_by(|| create_client(&plugin, &options));
                lanes.push(Lane::new(client?, on_host)?);
                threads.push(its);
            }
        }
        let description = describe::describe(&plugin, &lanes, capacity_bytes)?;
        Ok(PjrtDevice {
            sites: Sites::new(plugin, pool::beside(options)),
            lanes,
            cores: Arc::new(Cores::new(threads)),
            description,
            next_launch: AtomicI32::new(1),
        })
    }
}

/// Opens a client with one device if it is the CPU plugin's, and with a pool of the right size if it is a
/// GPU's.
fn open_client(plugin: &Plugin, config: &PjrtConfig) -> Result<(Client, Options), Error> {
    let options = vendor_values(&config.options);
    if plugin.is_of_a_gpu() {
        return pool::open(plugin, config, options);
    }
    let mut of_cpu = options.clone();
    // A lane is a client, so each has one device, whatever the options say.
    of_cpu.retain(|(name, _)| name != CPU_DEVICES);
    of_cpu.push((CPU_DEVICES.to_owned(), salus_pjrt::Value::Int(1)));
    // Only a client can say which platform it is. Most are the CPU's; others refuse an option that
    // they do not know before they look for a device.
    if let Ok(client) = create_client(plugin, &of_cpu) {
        return Ok((client, of_cpu));
    }
    let client = create_client(plugin, &options)?;
    if pool::PLATFORMS.contains(&&*client.platform_name().map_err(vendor)?) {
        drop(client);
        return pool::open(plugin, config, options);
    }
    Ok((client, options))
}

pub(super) fn create_client(plugin: &Plugin, options: &Options) -> Result<Client, Error> {
    plugin.create_client(options).map_err(|vendor| {
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
    })
}
