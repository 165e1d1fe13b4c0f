//! Sites: where programs run that call functions of their job.
//!
//! A device of the CPU plugin runs what it was given strictly in order, so a launch that waits for
//! its job would stop all others of its lane, and a callback that launches a program itself would
//! wait forever. Such launches therefore run on *sites*: devices of further clients of the plugin, each
//! used by one launch at a time. Arrays are wrapped on their way there and back, not
//! copied, where the device's memory is this process's.
//!
//! Cost: a client (4 to 10 ms, some threads that sleep) for each launch that calls back at the same time as
//! others, and one load of the program for each client that runs it; 1 to 2 µs an array.
//! Not here: how a call reaches the job, and what its lane does meanwhile.
#![expect(unsafe_code, reason = "hands launches to the vendor's plugin")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use salus_channel::lock;
use salus_pjrt::{Buffer, Client, Launch, LoadedExecutable, Plugin};

use super::carry::carry;
use super::handler::Launched;
use super::upload::Transfers;
use super::{Keeper, PjrtArray};
use crate::failure::{INTERNAL, RESOURCE_EXHAUSTED, error, vendor};
use crate::{Callbacks, Error, Lent, Shape};

/// Where launches that call back run.
pub(crate) struct Sites {
    plugin: Plugin,
    options: Vec<(String, salus_pjrt::Value)>,
    state: Mutex<State>,
    next_launch: AtomicI32,
}

#[derive(Default)]
struct State {
    clients: Vec<Arc<SiteClient>>,
    /// How many there are.
    sites: usize,
    free: Vec<Site>,
}

struct SiteClient {
    number: usize,
    client: Client,
    transfers: Transfers,
}

#[derive(Clone)]
struct Site {
    client: Arc<SiteClient>,
    device: salus_pjrt::Device,
    memory: salus_pjrt::Memory,
}

/// Launches that may wait for their jobs at once: twice as many as one job may have (see
/// `CALLBACK_CHANNELS` of the wire), so that none can use them up for all others.
const LAUNCHES_MAX: usize = 32;

/// A program that calls back: it is loaded where it is launched.
pub(crate) struct CallingProgram {
    executable: Vec<u8>,
    outputs: Vec<Arc<Shape>>,
    loaded: Mutex<HashMap<usize, Arc<LoadedExecutable>>>,
}

impl CallingProgram {
    pub(crate) fn new(executable: Vec<u8>, outputs: Vec<Arc<Shape>>) -> Self {
        Self {
            executable,
            outputs,
            loaded: Mutex::default(),
        }
    }

    fn on(&self, site: &SiteClient) -> Result<Arc<LoadedExecutable>, Error> {
        let mut loaded = lock(&self.loaded);
        if let Some(found) = loaded.get(&site.number) {
            return Ok(Arc::clone(found));
        }
        let made = site.client.deserialize_and_load(&self.executable, None);
        let made = Arc::new(made.map_err(vendor)?);
        // `Sites::run` relies on it: the vendor writes as many outputs as the program has.
        let count = made
            .executable()
            .and_then(|e| e.num_outputs())
            .map_err(vendor)?;
        if count != self.outputs.len() {
            let message = format!("{count} outputs of a program with {}", self.outputs.len());
            return Err(error(INTERNAL, message));
        }
        loaded.insert(site.number, Arc::clone(&made));
        Ok(made)
    }
}

/// Returns a site when its launch is over.
struct Taken<'a> {
    sites: &'a Sites,
    site: Site,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        lock(&self.sites.state).free.push(self.site.clone());
    }
}

/// Where a launch's arrays come from and go to.
pub(crate) struct Home<'a> {
    pub(crate) transfers: &'a Transfers,
    pub(crate) memory: &'a dyn Fn(usize) -> Result<&'a salus_pjrt::Memory, Error>,
}

impl Sites {
    /// `options` are those of the device's own client.
    pub(crate) fn new(plugin: Plugin, options: Vec<(String, salus_pjrt::Value)>) -> Self {
        Self {
            plugin,
            options,
            state: Mutex::default(),
            next_launch: AtomicI32::new(1),
        }
    }

    fn take(&self) -> Result<Taken<'_>, Error> {
        let mut state = lock(&self.state);
        if state.free.is_empty() {
            let open = state.clients.len();
            if state.sites >= LAUNCHES_MAX {
                return Err(error(
                    RESOURCE_EXHAUSTED,
                    format!(
                        "{} launches of all jobs wait for callbacks at the same time, the most that \
                         may; launch it again later, and let callbacks that launch programs which \
                         call back themselves not nest deeply",
                        state.sites
                    ),
                ));
            }
            let client = self.plugin.create_client(&self.options).map_err(vendor)?;
            let devices = client.addressable_devices().map_err(vendor)?;
            let client = Arc::new(SiteClient {
                number: open,
                transfers: Transfers::new(client.clone(), true),
                client,
            });
            state.sites += devices.len();
            for device in devices {
                state.free.push(Site {
                    memory: device.default_memory().map_err(vendor)?,
                    client: Arc::clone(&client),
                    device,
                });
            }
            state.clients.push(client);
        }
        // The first clients have the programs loaded already.
        let first = state.free.iter().enumerate();
        let first = first.min_by_key(|(_, site)| site.client.number);
        match first.map(|(at, _)| at) {
            Some(at) => Ok(Taken {
                site: state.free.swap_remove(at),
                sites: self,
            }),
            None => Err(error(
                INTERNAL,
                "the plugin opened a client without a device",
            )),
        }
    }

    /// Runs a program to its end and returns its outputs in the arrays' home.
    pub(crate) fn run(
        &self,
        program: &CallingProgram,
        home: &Home<'_>,
        arguments: Vec<Lent<'_, PjrtArray>>,
        keep: &[u32],
        callbacks: Arc<dyn Callbacks>,
    ) -> Result<Vec<PjrtArray>, Error> {
        let taken = self.take()?;
        let site = &taken.site;
        let loaded = program.on(&site.client)?;
        let mut lent = Vec::with_capacity(arguments.len());
        // Until the launch has ended, whatever becomes of the arrays' memory.
        let mut keeps = Vec::new();
        for argument in arguments {
            let array = argument.array;
            let ready = array.buffer.ready_event().map_err(vendor)?;
            ready.wait().map_err(vendor)?;
            let keeper = match &array.keeper {
                Some(keeper) => {
                    keeps.push(argument.keep);
                    Arc::clone(keeper)
                }
                None => Keeper::from(argument.keep),
            };
            let to = (&site.client.transfers, &site.memory);
            lent.push(carry(array, home.transfers, to, keeper)?);
        }
        let given = lent.iter().filter_map(|array| {
            let keeper = array.keeper.clone()?;
            Some((array.buffer.unsafe_pointer().ok()?, keeper))
        });
        let given: Vec<(usize, Keeper)> = given.collect();
        let outputs = self.launch(program, &loaded, site, &lent, keep, callbacks)?;
        // Before the outputs are wrapped, so that what was not donated is given back.
        drop((lent, keeps));
        let outputs = outputs.into_iter().zip(&program.outputs).enumerate();
        let carried = outputs.map(|(index, (buffer, shape))| {
            let address = buffer.unsafe_pointer().ok();
            let array = Arc::new(PjrtArray::new(buffer, Arc::clone(shape))?);
            // What took an argument's place is in that one's memory, and needs nothing else: if it
            // kept the array of this launch, one that is updated again and again would keep all.
            let replaced = given.iter().find(|(at, _)| Some(*at) == address);
            let keeper = match replaced {
                Some((_, keeper)) => Arc::clone(keeper),
                None => Arc::clone(&array) as Keeper,
            };
            let to = (home.transfers, (home.memory)(index)?);
            carry(&array, &site.client.transfers, to, keeper)
        });
        carried.collect()
    }

    fn launch(
        &self,
        program: &CallingProgram,
        loaded: &LoadedExecutable,
        site: &Site,
        arguments: &[PjrtArray],
        keep: &[u32],
        callbacks: Arc<dyn Callbacks>,
    ) -> Result<Vec<Buffer>, Error> {
        let launched = Launched::new(callbacks);
        // SAFETY: `launched` lives until this returns, which is after the launch has ended.
        let context = unsafe { launched.context(&site.client.client) }?;
        let buffers: Vec<&Buffer> = arguments.iter().map(|array| &array.buffer).collect();
        let keep: Vec<i64> = keep.iter().map(|&index| i64::from(index)).collect();
        let launch = Launch {
            device: &site.device,
            arguments: &buffers,
            num_outputs: program.outputs.len(),
            keep: &keep,
            launch_id: self.next_launch.fetch_add(1, Ordering::Relaxed),
            context: Some(&context),
        };
        // SAFETY: `CallingProgram::on` compared the number of outputs; the caller checked types and
        // shapes.
        let outcome = unsafe { loaded.execute(&launch) }.and_then(|(outputs, complete)| {
            complete.wait()?;
            Ok(outputs)
        });
        outcome.map_err(|failed| {
            let callback = launched.failure();
            callback.unwrap_or_else(|| vendor(failed))
        })
    }
}
