//! A lane of a vendor's device: a client of the plugin, and the first of its devices.
//!
//! On the CPU plugin each lane has a client of its own, and with it a thread pool of its own. A pool that two
//! lanes shared would spread the work of both over all cores, and with it their data over all caches; two
//! pools keep apart what runs side by side (`cores.rs`).

pub(super) mod cores;

use std::sync::{Mutex, OnceLock};

use salus_channel::lock;
use salus_pjrt::{Client, Device, LoadedExecutable, Memory};

use super::upload::Transfers;
use crate::failure::{INTERNAL, INVALID_ARGUMENT, error, vendor};
use crate::{Compiled, Error};

pub(crate) struct Lane {
    pub(super) client: Client,
    pub(super) device: Device,
    pub(super) transfers: Transfers,
    /// In the order of the description's.
    pub(super) memories: Vec<Memory>,
}

impl Lane {
    pub(super) fn new(client: Client, on_host: bool) -> Result<Self, Error> {
        let devices = client.addressable_devices().map_err(vendor)?;
        let first = devices.into_iter().next();
        // Others of the client are devices of their own: not ours.
        let device = first.ok_or_else(|| error(INTERNAL, "the plugin has no device"))?;
        Ok(Self {
            transfers: Transfers::new(client.clone(), on_host),
            memories: device.memories().map_err(vendor)?,
            client,
            device,
        })
    }

    fn load(&self, executable: &[u8], wanted: &Wanted) -> Result<LoadedExecutable, Error> {
        let loaded = self.client.deserialize_and_load(executable, None);
        let loaded = loaded.map_err(vendor)?;
        // Launches rely on it: the vendor writes as many outputs as the program has.
        let count = loaded
            .executable()
            .and_then(|executable| executable.num_outputs())
            .map_err(vendor)?;
        if count != wanted.outputs {
            let Wanted { name, outputs } = wanted;
            return Err(error(
                INVALID_ARGUMENT,
                format!("the program `{name}` has {count} outputs, its signature {outputs}"),
            ));
        }
        Ok(loaded)
    }
}

/// A program in the lanes that run it. In the first it is loaded at once, so that one that cannot be loaded
/// is an error of its load; in others by their first launch of it.
pub(crate) struct LoadedProgram {
    lanes: Vec<OnceLock<LoadedExecutable>>,
    wanted: Wanted,
    /// What it is loaded from, held while it is; gone where there is one lane.
    executable: Mutex<Vec<u8>>,
}

/// What its signature says of it.
struct Wanted {
    name: String,
    outputs: usize,
}

impl LoadedProgram {
    pub(super) fn new(compiled: &Compiled, lanes: &[Lane]) -> Result<Self, Error> {
        let wanted = Wanted {
            name: compiled.signature.name.clone(),
            outputs: compiled.signature.outputs.len(),
        };
        let first = lanes.first();
        let first = first.ok_or_else(|| error(INTERNAL, "the device has no lane"))?;
        let loaded = first.load(&compiled.executable, &wanted)?;
        let executable = match lanes.len() {
            1 => Vec::new(),
            _ => compiled.executable.clone(),
        };
        let others = lanes[1..].iter().map(|_| OnceLock::new());
        Ok(Self {
            lanes: [OnceLock::from(loaded)].into_iter().chain(others).collect(),
            wanted,
            executable: Mutex::new(executable),
        })
    }

    /// The program in a lane, which has this number.
    pub(super) fn on(&self, number: usize, lane: &Lane) -> Result<&LoadedExecutable, Error> {
        if let Some(loaded) = self.lanes[number].get() {
            return Ok(loaded);
        }
        // Once, whichever session comes first.
        let executable = lock(&self.executable);
        if let Some(loaded) = self.lanes[number].get() {
            return Ok(loaded);
        }
        let loaded = lane.load(&executable, &self.wanted)?;
        Ok(self.lanes[number].get_or_init(|| loaded))
    }
}
