//! The real device: any vendor's PJRT plugin.
//!
//! A lane is a client of the plugin: on the CPU plugin there are several, elsewhere there is one. Lane 0 is
//! what the description shows.
//!
//! `done` closures of one lane's launches may be called out of order by some microseconds: the
//! plugin runs launches in order, but each completion is reported by the thread that ran it.
//!
//! Cost (CPU plugin): an upload 1 µs at any size when wrapped, a launch 3 µs and 1 µs more per
//! argument, a small read 0.4 µs, loading 10 to 70 ms.
//! Not here: the environment. `PJRT_NPROC`, set before the process starts, sizes the thread pools.
#![expect(unsafe_code, reason = "hands launches to the vendor's plugin")]

mod carry;
mod compile;
mod describe;
mod handler;
mod lanes;
mod open;
mod pool;
mod preload;
mod read;
mod register;
mod signature;
mod sites;
mod target_compiler;
pub(crate) mod targets;
mod upload;

use std::any::Any;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use salus_pjrt::{Buffer, Launch};

use compile::{Compilation, With};

use lanes::cores::Cores;
use lanes::{Lane, LoadedProgram};
pub use open::{PjrtConfig, Purpose};
pub use preload::preload;
use sites::{CallingProgram, Home, Sites};
pub use target_compiler::TargetCompiler;

use crate::element::is_token;
use crate::failure::{INTERNAL, INVALID_ARGUMENT, error, vendor};
use crate::{
    Callbacks, Compiled, Description, Device, Done, Error, HostMemory, Lent, MemoryUse, Placement,
    ReadForm, Registration, Shape, Source,
};

pub struct PjrtDevice {
    /// At least one.
    lanes: Vec<Lane>,
    cores: Arc<Cores>,
    description: Description,
    sites: Sites,
    /// Never sent twice, so that launches of two sessions cannot be taken for one.
    next_launch: AtomicI32,
}

pub struct PjrtProgram {
    kind: ProgramKind,
    num_parameters: usize,
    outputs: Vec<Arc<Shape>>,
    /// Index into the description's memories.
    output_memories: Vec<u32>,
    /// Sizes of the outputs on the device: asked at the first launch, the same at all others.
    output_bytes: OnceLock<Vec<u64>>,
}

enum ProgramKind {
    Loaded(LoadedProgram),
    CallsBack(CallingProgram),
}

pub struct PjrtArray {
    pub(crate) buffer: Buffer,
    pub(crate) shape: Arc<Shape>,
    /// Its size on the device.
    pub(crate) bytes: u64,
    /// Keeps its memory alive, where that is not the buffer's own.
    pub(crate) keeper: Option<Keeper>,
}

pub(crate) type Keeper = Arc<dyn Any + Send + Sync>;

/// `launch` is not for such programs.
const CALLS_BACK: &str = "the program calls back, so it must be run to its end";

/// Allocators of accelerators give out multiples of this: XLA's for GPUs, and CUDA's own.
const BLOCK_BYTES: u64 = 256;

impl PjrtDevice {
    fn lane(&self, number: u32) -> Result<&Lane, Error> {
        self.lanes.get(number as usize).ok_or_else(|| {
            let have = self.lanes.len();
            error(
                INVALID_ARGUMENT,
                format!("lane {number} of a device with {have} lanes"),
            )
        })
    }

    /// The lane and memory of a placement.
    fn place(&self, placement: Placement) -> Result<(&Lane, &salus_pjrt::Memory), Error> {
        placement.check(&self.description)?;
        let lane = self.lane(placement.lane)?;
        let memory = lane.memories.get(placement.memory as usize);
        let memory =
            memory.ok_or_else(|| error(INTERNAL, "the vendor's lanes differ in their memories"))?;
        Ok((lane, memory))
    }
}

impl PjrtArray {
    pub(crate) fn new(buffer: Buffer, shape: Arc<Shape>) -> Result<PjrtArray, Error> {
        let bytes = buffer.on_device_bytes().map_err(vendor)?;
        Ok(PjrtArray {
            buffer,
            shape,
            bytes,
            keeper: None,
        })
    }
}

impl Device for PjrtDevice {
    type Program = PjrtProgram;
    type Array = PjrtArray;

    fn description(&self) -> &Description {
        &self.description
    }

    fn compile(&self, source: &Source<'_>) -> Result<Compiled, Error> {
        let compilation = Compilation {
            with: With::Client(&self.lanes[0].client),
            description: &self.description,
        };
        compilation.run(source)
    }

    fn load(&self, compiled: &Compiled) -> Result<PjrtProgram, Error> {
        let signature = &compiled.signature;
        let outputs = signature.outputs.iter();
        let outputs: Vec<Arc<Shape>> = outputs
            .map(|output| Arc::new(output.shape.clone()))
            .collect();
        let program = |kind, outputs| PjrtProgram {
            kind,
            num_parameters: signature.parameters.len(),
            outputs,
            output_memories: signature.outputs.iter().map(|o| o.memory).collect(),
            output_bytes: OnceLock::new(),
        };
        if signature.calls_back {
            let calling = CallingProgram::new(compiled.executable.clone(), outputs.clone());
            return Ok(program(ProgramKind::CallsBack(calling), outputs));
        }
        let loaded = LoadedProgram::new(compiled, &self.lanes)?;
        Ok(program(ProgramKind::Loaded(loaded), outputs))
    }

    fn upload(
        &self,
        host: Box<dyn HostMemory>,
        shape: &Shape,
        placement: Placement,
    ) -> Result<PjrtArray, Error> {
        let (lane, memory) = self.place(placement)?;
        let is_default = placement.is_default(&self.description);
        lane.transfers.upload(host, shape, memory, is_default)
    }

    fn launch(
        &self,
        program: &PjrtProgram,
        lane: u32,
        arguments: &[&PjrtArray],
        keep: &[u32],
        done: Done,
    ) -> Result<Vec<PjrtArray>, Error> {
        let runs_in = self.lane(lane)?;
        if arguments.len() != program.num_parameters {
            let (have, wanted) = (arguments.len(), program.num_parameters);
            return Err(error(
                INVALID_ARGUMENT,
                format!("{have} arguments for a program with {wanted} parameters"),
            ));
        }
        let arguments: Vec<&Buffer> = arguments.iter().map(|array| &array.buffer).collect();
        let keep: Vec<i64> = keep.iter().map(|&index| i64::from(index)).collect();
        let launch = Launch {
            device: &runs_in.device,
            arguments: &arguments,
            num_outputs: program.outputs.len(),
            keep: &keep,
            launch_id: self.next_launch.fetch_add(1, Ordering::Relaxed),
            context: None,
        };
        let ProgramKind::Loaded(loaded) = &program.kind else {
            return Err(error(INVALID_ARGUMENT, CALLS_BACK));
        };
        let loaded = loaded.on(lane as usize, runs_in)?;
        let on_cores = self.cores.begin(lane as usize);
        // SAFETY: `load` compared the number of outputs; the caller checked types and shapes.
        let (outputs, complete) = unsafe { loaded.execute(&launch) }.map_err(vendor)?;
        let bytes = program.output_bytes.get_or_init(|| {
            // The vendor answers this from the shape, without waiting; none means unknown: 0.
            outputs
                .iter()
                .map(|output| output.on_device_bytes().unwrap_or(0))
                .collect()
        });
        complete.on_ready(move |result| {
            // First: what is started because of this end does not run beside it.
            drop(on_cores);
            done(result.map_err(vendor));
        });
        let outputs = outputs.into_iter().zip(&program.outputs).zip(bytes);
        let array = |((buffer, shape), &bytes): ((Buffer, &Arc<Shape>), &u64)| PjrtArray {
            buffer,
            shape: shape.clone(),
            bytes,
            keeper: None,
        };
        Ok(outputs.map(array).collect())
    }

    fn run_calling_back(
        &self,
        program: &PjrtProgram,
        lane: u32,
        arguments: Vec<Lent<'_, PjrtArray>>,
        keep: &[u32],
        callbacks: Arc<dyn Callbacks>,
    ) -> Result<Vec<PjrtArray>, Error> {
        let ProgramKind::CallsBack(calling) = &program.kind else {
            return Err(error(INVALID_ARGUMENT, "the program does not call back"));
        };
        let memory = |output: usize| {
            let memory = program.output_memories[output];
            let (_, memory) = self.place(Placement { lane, memory })?;
            Ok(memory)
        };
        let home = Home {
            transfers: &self.lane(lane)?.transfers,
            memory: &memory,
        };
        self.sites.run(calling, &home, arguments, keep, callbacks)
    }

    fn on_ready(&self, array: &PjrtArray, done: Done) {
        match array.buffer.ready_event() {
            Ok(event) => event.on_ready(move |result| done(result.map_err(vendor))),
            Err(failed) => done(Err(vendor(failed))),
        }
    }

    fn read(&self, array: &PjrtArray, target: Box<dyn HostMemory>, form: &ReadForm, done: Done) {
        // Whichever lane it is in.
        self.lanes[0].transfers.read(array, target, form, done);
    }

    fn array_bytes(&self, array: &PjrtArray) -> u64 {
        array.bytes
    }

    fn allocated_bytes(&self, bytes: u64) -> u64 {
        match self.description.on_host {
            true => bytes,
            false => bytes.next_multiple_of(BLOCK_BYTES),
        }
    }

    fn memory_use(&self) -> Option<MemoryUse> {
        let stats = self.lanes.first()?.device.memory_stats().ok()?;
        let bytes = u64::try_from(stats.bytes_in_use).ok()?;
        let told = |bytes: Option<i64>| bytes.and_then(|bytes| u64::try_from(bytes).ok());
        // Allocators that do not know it say 0.
        let block = told(stats.largest_free_block_bytes).filter(|block| *block > 0);
        Some(MemoryUse {
            bytes,
            peak_bytes: told(stats.peak_bytes_in_use).unwrap_or(bytes),
            limit_bytes: told(stats.bytes_limit).filter(|limit| *limit > 0),
            pool_bytes: told(stats.pool_bytes).filter(|pool| *pool > 0),
            largest_free_block: block,
        })
    }

    fn register(&self, memory: Arc<dyn HostMemory>) -> Result<Option<Registration>, Error> {
        // Where memory is shared, transfers copy nothing that registering would save.
        match self.description.on_host {
            true => Ok(None),
            false => register::register(&self.lanes[0].client, memory),
        }
    }

    fn host_address(&self, array: &PjrtArray) -> Option<usize> {
        let on_host = self.description.on_host;
        on_host.then(|| array.buffer.unsafe_pointer().ok())?
    }

    fn copy_to_memory(&self, array: &PjrtArray, placement: Placement) -> Result<PjrtArray, Error> {
        let (lane, target) = self.place(placement)?;
        if is_token(&array.shape) {
            return lane.transfers.another_token(target);
        }
        let buffer = array.buffer.copy_to_memory(target).map_err(vendor)?;
        PjrtArray::new(buffer, array.shape.clone())
    }
}
