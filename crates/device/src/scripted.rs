//! A device that computes nothing but keeps its promises: order, donation, faults, memory.
//!
//! Programs are one-line scripts (see [`script`]) that say which arrays go in and come out, how
//! long a run takes and where it fails. Arrays hold real bytes; outputs are a hash of the inputs,
//! so whatever arrives in the wrong order, or was overwritten too early, shows. Each lane is a
//! queue of its own, in real time or in time that a test moves.
//!
//! Like the real device, it refuses arrays of another lane, arrays that were donated and more
//! bytes than it has, wraps aligned host memory instead of copying it, and makes whoever drops a
//! donated array early wait for the run to end.
#![expect(unsafe_code, reason = "copies from and to host memory")]

mod cell;
mod lane;
mod script;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cell::{Cell, Charge, Storage, deleted};
pub use lane::Clock;
use lane::{Ended, Lane, Run};
use script::{Fail, Script};

use crate::element::{host_bytes, upload_bytes};
use crate::failure::{INTERNAL, INVALID_ARGUMENT, error};
use crate::layout;
use crate::{
    CallArray, Callbacks, Compiled, Description, Device, Done, Error, HostMemory, HostTarget, Lent,
    Memory, MemoryUse, ReadForm, Shape, Source, Style,
};

#[derive(Debug, Clone, Copy)]
pub struct ScriptedConfig {
    pub lanes: u32,
    pub capacity_bytes: u64,
    pub clock: Clock,
}

pub struct ScriptedDevice {
    description: Description,
    lanes: Vec<Lane>,
    used: Arc<AtomicU64>,
    /// The most that `used` ever was.
    peak: AtomicU64,
    /// What a callback returned last.
    returned: Mutex<Vec<Vec<u8>>>,
}

pub struct ScriptedProgram {
    script: Arc<Script>,
}

pub struct ScriptedArray {
    cell: Arc<Cell>,
    shape: Shape,
    lane: u32,
    bytes: u64,
    /// Moves to the output that takes the array's place.
    charge: Mutex<Option<Charge>>,
    given: AtomicBool,
    /// The run that it was donated to.
    donated_to: Mutex<Option<Arc<Ended>>>,
}

impl Drop for ScriptedArray {
    fn drop(&mut self) {
        let run = self
            .donated_to
            .get_mut()
            .unwrap_or_else(|poison| poison.into_inner());
        if let Some(run) = run.take() {
            run.wait();
        }
    }
}

const ALIGNMENT: usize = 64;

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

fn call_arrays<'a>(script: &'a Script, arrays: &'a mut [Vec<u8>]) -> Vec<CallArray<'a>> {
    let arrays = script.parameters.iter().zip(arrays);
    let array = |(shape, bytes): (&'a Shape, &'a mut Vec<u8>)| CallArray {
        element_type: shape.element_type,
        dims: &shape.dims,
        data: bytes.as_mut_ptr(),
        bytes: bytes.len(),
    };
    arrays.map(array).collect()
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
                platform_name: "cpu".to_owned(),
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
                on_host: true,
                plugin_path: "scripted".to_owned(),
                api_version: (0, 0),
                serialized_topology: None,
            },
            lanes: (0..lanes).map(|_| Lane::open(config.clock)).collect(),
            used: Arc::default(),
            peak: AtomicU64::new(0),
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

    /// Bytes that arrays and running programs hold.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    fn charge(&self, bytes: u64) -> Result<Charge, Error> {
        let charge = Charge::take(&self.used, bytes, self.description.capacity_bytes)?;
        self.peak.fetch_max(self.used_bytes(), Ordering::SeqCst);
        Ok(charge)
    }

    /// The lane of a memory's number, and whether it is that lane's default memory.
    fn place(&self, memory: u32) -> Result<(u32, bool), Error> {
        let each = self.description.memories.len() as u32;
        let (lane, kind) = (memory / each, memory % each);
        if lane >= self.description.lanes {
            return Err(error(
                INVALID_ARGUMENT,
                format!("there is no memory {memory}"),
            ));
        }
        Ok((lane, kind == self.description.default_memory))
    }
}

impl ScriptedArray {
    fn new(cell: Arc<Cell>, shape: Shape, lane: u32, charge: Charge) -> ScriptedArray {
        ScriptedArray {
            cell,
            shape,
            lane,
            bytes: charge.bytes,
            charge: Mutex::new(Some(charge)),
            given: AtomicBool::new(false),
            donated_to: Mutex::default(),
        }
    }

    fn take_charge(&self) -> Option<Charge> {
        lock(&self.charge).take()
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

    fn upload(&self, host: HostMemory, shape: &Shape, memory: u32) -> Result<ScriptedArray, Error> {
        let (lane, is_default) = self.place(memory)?;
        let wanted = upload_bytes(shape)?;
        if host.len != wanted {
            return Err(error(
                INVALID_ARGUMENT,
                format!("{} bytes for {shape:?}, which has {wanted}", host.len),
            ));
        }
        let charge = self.charge(wanted as u64)?;
        let order = layout::of(shape);
        let aligned = (host.address as usize).is_multiple_of(ALIGNMENT);
        let storage = if is_default && layout::is_default(&order) && aligned && wanted > 0 {
            Storage::Wrapped(host)
        } else {
            let mut bytes = vec![0; wanted];
            if wanted > 0 {
                // SAFETY: the host's bytes are readable until `release` is dropped, below.
                let source = unsafe { std::slice::from_raw_parts(host.address, wanted) };
                let rows = layout::default(shape.dims.len());
                layout::copy(source, &mut bytes, shape, &rows, &order)?;
            }
            Storage::Own(bytes)
        };
        Ok(ScriptedArray::new(
            Cell::ready(storage),
            shape.clone(),
            lane,
            charge,
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
        let script = &program.script;
        let queue = self
            .lanes
            .get(lane as usize)
            .ok_or_else(|| error(INVALID_ARGUMENT, format!("there is no lane {lane}")))?;
        let donated = self.check_launch(script, lane, arguments, keep)?;
        let scratch = self.charge(script.scratch_bytes + script.hidden_bytes)?;
        let mut charges = Vec::new();
        for (shape, alias) in &script.outputs {
            let in_place = alias.is_some_and(|alias| donated[alias as usize]);
            let bytes = host_bytes(shape)? as u64;
            charges.push(if in_place {
                None
            } else {
                Some(self.charge(bytes)?)
            });
        }
        // Nothing fails from here on, so nothing that was donated has to be given back.
        let ended = Arc::<Ended>::default();
        for (argument, _) in arguments
            .iter()
            .zip(&donated)
            .filter(|(_, donated)| **donated)
        {
            argument.given.store(true, Ordering::SeqCst);
            *lock(&argument.donated_to) = Some(ended.clone());
        }
        let mut outputs = Vec::new();
        for ((shape, alias), charge) in script.outputs.iter().zip(charges) {
            let inherited = || arguments[alias.unwrap_or(0) as usize].take_charge();
            let charge = charge.or_else(inherited).ok_or_else(deleted)?;
            outputs.push(ScriptedArray::new(
                Cell::pending(),
                shape.clone(),
                lane,
                charge,
            ));
        }
        queue.push(Run {
            script: script.clone(),
            arguments: arguments.iter().map(|array| array.cell.clone()).collect(),
            donated,
            outputs: outputs.iter().map(|array| array.cell.clone()).collect(),
            done,
            ended,
            scratch,
            enqueued: queue.now(),
        });
        Ok(outputs)
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
        let (calls, together) = (program.script.callbacks, program.script.together);
        let operands = arguments.iter().map(|lent| bytes_of(lent.array));
        let operands = operands.collect::<Result<Vec<_>, _>>()?;
        let call = |callback| self.call(&*callbacks, callback, &program.script, &operands);
        if together {
            std::thread::scope(|scope| {
                let call = &call;
                let calls: Vec<_> = (0..calls).map(|n| scope.spawn(move || call(n))).collect();
                let mut outcomes = calls.into_iter().map(std::thread::ScopedJoinHandle::join);
                let failed = || Err(error(INTERNAL, "a callback panicked"));
                outcomes.try_for_each(|outcome| outcome.unwrap_or_else(|_| failed()))
            })?;
        } else {
            (0..calls).try_for_each(call)?;
        }
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

    fn read(&self, array: &ScriptedArray, target: HostTarget, form: &ReadForm, done: Done) {
        let order = match form {
            ReadForm::Raw => layout::of(&array.shape),
            ReadForm::Host { minor_to_major } => minor_to_major.clone(),
        };
        let result = array.cell.with_bytes(|bytes| {
            if target.len != bytes.len() {
                let (have, wanted) = (target.len, bytes.len());
                return Err(error(
                    INVALID_ARGUMENT,
                    format!("a target of {have} bytes for {wanted} bytes"),
                ));
            }
            if bytes.is_empty() {
                return Ok(());
            }
            // SAFETY: the target is writable for its length until `done` is called.
            let target = unsafe { std::slice::from_raw_parts_mut(target.address, target.len) };
            layout::copy(
                bytes,
                target,
                &array.shape,
                &layout::of(&array.shape),
                &order,
            )
        });
        drop(target);
        done(result.and_then(|copied| copied));
    }

    fn array_bytes(&self, array: &ScriptedArray) -> u64 {
        array.bytes
    }

    fn memory_use(&self) -> Option<MemoryUse> {
        Some(MemoryUse {
            bytes: self.used_bytes(),
            peak_bytes: self.peak.load(Ordering::SeqCst),
        })
    }

    fn host_address(&self, _array: &ScriptedArray) -> Option<usize> {
        None
    }

    fn copy_to_memory(&self, array: &ScriptedArray, memory: u32) -> Result<ScriptedArray, Error> {
        if array.given.load(Ordering::SeqCst) {
            return Err(deleted());
        }
        let (lane, _) = self.place(memory)?;
        let charge = self.charge(array.bytes)?;
        let copy = ScriptedArray::new(Cell::pending(), array.shape.clone(), lane, charge);
        let (from, to) = (array.cell.clone(), copy.cell.clone());
        array.cell.on_ready(Box::new(move |ready| {
            let bytes = ready.and_then(|()| from.with_bytes(<[u8]>::to_vec));
            to.settle(bytes.map(Storage::Own));
        }));
        Ok(copy)
    }
}

/// Once the array is there.
fn bytes_of(array: &ScriptedArray) -> Result<Vec<u8>, Error> {
    let (sender, ready) = std::sync::mpsc::channel();
    let done = Box::new(move |result| drop(sender.send(result)));
    array.cell.on_ready(done);
    let ready = ready.recv();
    ready.unwrap_or_else(|_| Err(error(INTERNAL, "an array was forgotten")))?;
    array.cell.with_bytes(<[u8]>::to_vec)
}

impl ScriptedDevice {
    /// One call, with operands of the program's parameters and as many results.
    fn call(
        &self,
        callbacks: &dyn Callbacks,
        callback: u64,
        script: &Script,
        operands: &[Vec<u8>],
    ) -> Result<(), Error> {
        let mut operands = operands.to_vec();
        let empty = operands.iter().map(|operand| vec![0; operand.len()]);
        let mut results: Vec<Vec<u8>> = empty.collect();
        let outcome = callbacks.call(
            callback,
            Style::Values,
            &call_arrays(script, &mut operands),
            &call_arrays(script, &mut results),
        );
        *lock(&self.returned) = results;
        outcome
    }

    /// Which arguments are donated, if the launch is well formed and not scripted to fail.
    fn check_launch(
        &self,
        script: &Script,
        lane: u32,
        arguments: &[&ScriptedArray],
        keep: &[u32],
    ) -> Result<Vec<bool>, Error> {
        if script.fail == Fail::Launch {
            let name = &script.name;
            return Err(error(
                INTERNAL,
                format!("`{name}` does not launch, as scripted"),
            ));
        }
        if arguments.len() != script.parameters.len() {
            let (have, wanted) = (arguments.len(), script.parameters.len());
            return Err(error(
                INVALID_ARGUMENT,
                format!("{have} arguments for a program with {wanted} parameters"),
            ));
        }
        let mut donated = vec![false; arguments.len()];
        for alias in script.outputs.iter().filter_map(|output| output.1) {
            donated[alias as usize] = !keep.contains(&alias);
        }
        for (index, (argument, shape)) in arguments.iter().zip(&script.parameters).enumerate() {
            if argument.given.load(Ordering::SeqCst) {
                return Err(deleted());
            }
            if argument.lane != lane {
                let other = argument.lane;
                return Err(error(
                    INVALID_ARGUMENT,
                    format!("argument {index} is in lane {other}, the launch in lane {lane}"),
                ));
            }
            if argument.bytes != host_bytes(shape)? as u64 {
                let bytes = argument.bytes;
                return Err(error(
                    INVALID_ARGUMENT,
                    format!("argument {index} has {bytes} bytes, the parameter is {shape:?}"),
                ));
            }
            let same = |other: &&&ScriptedArray| Arc::ptr_eq(&other.cell, &argument.cell);
            if donated[index] && arguments.iter().filter(same).count() > 1 {
                return Err(error(
                    INVALID_ARGUMENT,
                    format!("argument {index} is donated and used twice"),
                ));
            }
        }
        Ok(donated)
    }
}
