//! A device that computes nothing but keeps its promises: order, donation, faults, memory.
//!
//! Programs are one-line scripts (see [`script`]) that say which arrays go in and come out, how
//! long a run takes and where it fails. Arrays hold real bytes; outputs are a hash of the inputs,
//! so whatever arrives in the wrong order, or was overwritten too early, shows. Each lane is a
//! queue of its own, in real time or in time that a test moves.
//!
//! Like the real device, it refuses arrays of another lane, arrays that were donated and more
//! bytes than it has, wraps aligned host memory instead of copying it, and blocks a thread that
//! drops a donated array until the run has ended. With memory of its own it is like an accelerator
//! ([`accelerator`]): it copies what is uploaded, its memory `pinned_host` takes nothing of the device,
//! an array there that is donated cannot be kept, and host memory may be registered with it.

mod accelerator;
mod array;
mod calls;
mod cell;
mod lane;
mod launch;
mod registered;
mod script;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use salus_channel::{HOST_ALIGNMENT, lock};

use accelerator::Accelerator;
pub use accelerator::{LaunchCalls, Pieces};
pub use array::ScriptedArray;
use cell::{Cell, Charge, Storage, deleted};
pub use lane::Clock;
use lane::Lane;
pub use registered::Registered;
use script::{Fail, Script};

use crate::element::upload_bytes;
use crate::failure::{INTERNAL, INVALID_ARGUMENT, error};
use crate::layout;
use crate::{
    Callbacks, Compiled, Description, Device, Done, Error, HostBytes, HostMemory, Lent, Memory,
    MemoryUse, Placement, ReadForm, Registration, Shape, Source, is_host_memory,
};

#[derive(Debug, Clone, Copy)]
pub struct ScriptedConfig {
    pub lanes: u32,
    pub capacity_bytes: u64,
    pub clock: Clock,
    /// Its memory is the host's, as a CPU's is.
    pub on_host: bool,
}

pub struct ScriptedDevice {
    description: Description,
    lanes: Vec<Lane>,
    used: Arc<AtomicU64>,
    /// The largest value of `used` so far.
    peak: AtomicU64,
    /// How often there was no memory.
    refusals: AtomicU64,
    /// Bytes of arrays in host memory, where the device has its own.
    host_used: Arc<AtomicU64>,
    registered: Arc<Mutex<Registered>>,
    /// What sets it apart from a CPU; unused where it is one.
    accelerator: Arc<Accelerator>,
    /// What a callback returned last.
    returned: Mutex<Vec<Vec<u8>>>,
}

pub struct ScriptedProgram {
    script: Arc<Script>,
}

impl ScriptedDevice {
    pub fn open(config: &ScriptedConfig) -> ScriptedDevice {
        let memory = |id: i32, kind: &str| Memory {
            id,
            kind: kind.to_owned(),
            kind_id: id,
            debug_string: format!("ScriptedMemory({kind})"),
            display_string: kind.to_owned(),
        };
        let lanes = config.lanes.max(1);
        ScriptedDevice {
            description: Description {
                platform_name: if config.on_host { "cpu" } else { "cuda" }.to_owned(),
                platform_version: "scripted".to_owned(),
                kind: "scripted".to_owned(),
                debug_string: "ScriptedDevice(0)".to_owned(),
                display_string: "ScriptedDevice(0)".to_owned(),
                local_hardware_id: 0,
                plugin_attributes: Vec::new(),
                device_attributes: Vec::new(),
                memories: vec![memory(0, "device"), memory(1, "pinned_host")],
                default_memory: 0,
                lanes,
                capacity_bytes: config.capacity_bytes,
                on_host: config.on_host,
                plugin_path: "scripted".to_owned(),
                api_version: (0, 0),
                serialized_topology: None,
                topology_attributes: Vec::new(),
            },
            lanes: (0..lanes).map(|_| Lane::open(config.clock)).collect(),
            used: Arc::default(),
            peak: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            host_used: Arc::default(),
            registered: Arc::default(),
            accelerator: Arc::default(),
            returned: Mutex::default(),
        }
    }

    /// The results of the callback that returned last.
    pub fn returned(&self) -> Vec<Vec<u8>> {
        lock(&self.returned).clone()
    }

    /// Moves a manual clock; runs that end within `by` end now.
    pub fn advance(&self, by: Duration) {
        for lane in &self.lanes {
            lane.advance(by);
        }
    }

    /// On an accelerator: whether calls of `launch` wait before they return.
    pub fn hold_calls(&self, hold: bool) {
        self.accelerator.hold_calls(hold);
    }

    /// On an accelerator.
    pub fn launch_calls(&self) -> LaunchCalls {
        self.accelerator.calls()
    }

    /// On an accelerator: divides its free memory.
    pub fn break_up(&self, pieces: Pieces) {
        self.accelerator.break_up(pieces);
    }

    /// On an accelerator: everything fails from now on, through no fault of a program.
    pub fn stick(&self, message: &str) {
        self.accelerator.stick(message.to_owned());
    }

    /// Launches that the lanes were ever given.
    pub fn launches(&self) -> u64 {
        self.lanes.iter().map(Lane::pushed).sum()
    }

    /// Bytes that arrays and running programs hold.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    /// How often there was no memory for an array or a launch.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::SeqCst)
    }

    /// Bytes of arrays in host memory that are no memory of the device.
    pub fn host_used_bytes(&self) -> u64 {
        self.host_used.load(Ordering::SeqCst)
    }

    pub fn registered(&self) -> Registered {
        lock(&self.registered).clone()
    }

    /// Takes memory for an array: of the device, or of the host.
    fn charge_in(&self, memory: u32, bytes: u64) -> Result<Charge, Error> {
        match is_host_memory(&self.description, memory) {
            true => Charge::take(&self.host_used, bytes, u64::MAX),
            false => self.charge(bytes),
        }
    }

    fn charge(&self, bytes: u64) -> Result<Charge, Error> {
        let piece = self.accelerator.check_piece(bytes, self.used_bytes());
        let take = |()| Charge::take(&self.used, bytes, self.description.capacity_bytes);
        let charge = piece.and_then(take).inspect_err(|_| {
            self.refusals.fetch_add(1, Ordering::SeqCst);
        })?;
        self.peak.fetch_max(self.used_bytes(), Ordering::SeqCst);
        Ok(charge)
    }
}

impl Device for ScriptedDevice {
    type Program = ScriptedProgram;
    type Array = ScriptedArray;

    fn description(&self) -> &Description {
        &self.description
    }

    fn compile(&self, source: &Source<'_>) -> Result<Compiled, Error> {
        let script = Script::parse(source.code)?;
        if script.fail == Fail::Compile {
            let name = &script.name;
            return Err(error(
                INVALID_ARGUMENT,
                format!("`{name}` does not compile, as scripted"),
            ));
        }
        Ok(Compiled {
            executable: source.code.to_vec(),
            signature: script.signature()?,
        })
    }

    fn load(&self, compiled: &Compiled) -> Result<ScriptedProgram, Error> {
        let script = Script::parse(&compiled.executable)?;
        Ok(ScriptedProgram {
            script: Arc::new(script),
        })
    }

    fn upload(
        &self,
        host: Box<dyn HostMemory>,
        shape: &Shape,
        placement: Placement,
    ) -> Result<ScriptedArray, Error> {
        placement.check(&self.description)?;
        let is_default = placement.is_default(&self.description);
        let wanted = upload_bytes(shape)?;
        let given = HostBytes::of(&*host);
        if given.len() != wanted {
            return Err(error(
                INVALID_ARGUMENT,
                format!("{} bytes for {shape:?}, which has {wanted}", given.len()),
            ));
        }
        self.accelerator.check()?;
        let charge = self.charge_in(placement.memory, wanted as u64)?;
        let order = layout::of(shape);
        let aligned = given.is_aligned(HOST_ALIGNMENT);
        let wraps = is_default && self.description.on_host;
        let storage = if wraps && layout::is_default(&order) && aligned && wanted > 0 {
            Storage::Wrapped(host)
        } else {
            let mut bytes = vec![0; wanted];
            if wanted > 0 {
                let rows = layout::default(shape.dims.len());
                let given = given.to_vec();
                layout::permute(wanted, shape, &rows, &order, |from, to, len| {
                    bytes[to..to + len].copy_from_slice(&given[from..from + len]);
                })?;
            }
            Storage::Own(bytes)
        };
        Ok(ScriptedArray::new(
            Cell::ready(storage),
            shape.clone(),
            placement,
            wanted as u64,
            Some(charge),
        ))
    }

    fn launch(
        &self,
        program: &ScriptedProgram,
        lane: u32,
        arguments: &[&ScriptedArray],
        keep: &[u32],
        done: Done,
    ) -> Result<Vec<ScriptedArray>, Error> {
        self.start(program, lane, arguments, keep, done)
    }

    /// Calls first, with the arguments; then runs.
    fn run_calling_back(
        &self,
        program: &ScriptedProgram,
        lane: u32,
        arguments: Vec<Lent<'_, ScriptedArray>>,
        keep: &[u32],
        callbacks: Arc<dyn Callbacks>,
    ) -> Result<Vec<ScriptedArray>, Error> {
        self.call_back(&program.script, &arguments, &*callbacks)?;
        let (sender, ended) = std::sync::mpsc::channel();
        let done = Box::new(move |result| drop(sender.send(result)));
        let arrays: Vec<&ScriptedArray> = arguments.iter().map(|lent| lent.array).collect();
        let outputs = self.launch(program, lane, &arrays, keep, done)?;
        let ended = ended.recv();
        ended.unwrap_or_else(|_| Err(error(INTERNAL, "a run was forgotten")))?;
        Ok(outputs)
    }

    fn on_ready(&self, array: &ScriptedArray, done: Done) {
        if array.given.load(Ordering::SeqCst) {
            return done(Err(deleted()));
        }
        array.cell.on_ready(done);
    }

    fn read(
        &self,
        array: &ScriptedArray,
        target: Box<dyn HostMemory>,
        form: &ReadForm,
        done: Done,
    ) {
        let order = match form {
            ReadForm::Raw => layout::of(&array.shape),
            ReadForm::Host { minor_to_major } => minor_to_major.clone(),
        };
        let result = self.accelerator.check().and_then(|()| {
            array.cell.with_bytes(|bytes| {
                let to = HostBytes::of(&*target);
                if to.len() != bytes.len() {
                    let (have, wanted) = (to.len(), bytes.len());
                    return Err(error(
                        INVALID_ARGUMENT,
                        format!("a target of {have} bytes for {wanted} bytes"),
                    ));
                }
                if bytes.is_empty() {
                    return Ok(());
                }
                let (shape, held) = (&array.shape, layout::of(&array.shape));
                let mut permuted = vec![0; bytes.len()];
                layout::permute(bytes.len(), shape, &held, &order, |from, to, len| {
                    permuted[to..to + len].copy_from_slice(&bytes[from..from + len]);
                })?;
                to.write(&permuted);
                Ok(())
            })
        });
        drop(target);
        done(result.and_then(|copied| copied));
    }

    fn array_bytes(&self, array: &ScriptedArray) -> u64 {
        array.bytes
    }

    fn memory_use(&self) -> Option<MemoryUse> {
        let (bytes, capacity) = (self.used_bytes(), self.description.capacity_bytes);
        let free = capacity - bytes;
        let piece = self.accelerator.largest_piece(bytes);
        let block = || piece.map_or(free, |piece| piece.min(free));
        Some(MemoryUse {
            bytes,
            peak_bytes: self.peak.load(Ordering::SeqCst),
            limit_bytes: Some(capacity),
            pool_bytes: Some(capacity),
            largest_free_block: (!self.description.on_host).then(block),
        })
    }

    fn register(&self, memory: Arc<dyn HostMemory>) -> Result<Option<Registration>, Error> {
        match self.description.on_host {
            true => Ok(None),
            false => registered::register(&self.registered, memory).map(Some),
        }
    }

    fn host_address(&self, _array: &ScriptedArray) -> Option<usize> {
        None
    }

    fn copy_to_memory(
        &self,
        array: &ScriptedArray,
        placement: Placement,
    ) -> Result<ScriptedArray, Error> {
        if array.given.load(Ordering::SeqCst) {
            return Err(deleted());
        }
        placement.check(&self.description)?;
        let charge = self.charge_in(placement.memory, array.bytes)?;
        let (shape, bytes) = (array.shape.clone(), array.bytes);
        let copy = ScriptedArray::new(Cell::pending(), shape, placement, bytes, Some(charge));
        let (from, to) = (array.cell.clone(), copy.cell.clone());
        array.cell.on_ready(Box::new(move |ready| {
            let bytes = ready.and_then(|()| from.with_bytes(<[u8]>::to_vec));
            to.settle(bytes.map(Storage::Own));
        }));
        Ok(copy)
    }
}
