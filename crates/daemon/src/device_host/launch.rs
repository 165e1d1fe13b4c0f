//! One launch: its arguments checked, its room and turn asked for, its outputs named, its end told.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use salus_device::{Device, Lent, Shape, is_taken_for};
use salus_engine::{Calling, Demand};
use salus_wire::{Error, Execute};

use super::arrays::{Charge, Entry, Held, Kind, Reading, Slot};
use super::callbacks::Calls;
use super::leases::Lease;
use super::operations::{INVALID_ARGUMENT, Operation, Operations, RESOURCE_EXHAUSTED};
use super::programs::Program;
use crate::board::{BESIDE, Taken};
use crate::log;

/// What a program is given beyond what was free when the device refused it, at least.
const LEAST_SURPRISE_BYTES: u64 = 1 << 20;

pub(super) struct Launch<D: Device> {
    execute: Execute,
    program: Option<Arc<Lease<D>>>,
    /// In the order of the program's parameters, once they were checked.
    held: Vec<Held<D>>,
    /// Donated parameters that the plugin must not overwrite: those that the job keeps, and those
    /// that are being read.
    keep: Vec<u32>,
    /// The device had no room for it, although the ledger thought so.
    tried: bool,
    /// What it needs on the device besides scratch.
    arrays_bytes: u64,
    /// If it calls back.
    calls_back: Option<CallsBack>,
}

/// What is known of a launch that calls back, once it was checked.
#[derive(Clone, Copy)]
struct CallsBack {
    calling: Calling,
    /// It does not take turns with others in its lane, so its scratch is not the lane's: it is held
    /// like an array until the launch ends.
    scratch_bytes: u64,
}

impl<D: Device> Launch<D> {
    pub(super) fn new(execute: Execute, program: Option<Arc<Lease<D>>>) -> Self {
        Self {
            keep: execute.keep.clone(),
            execute,
            program,
            held: Vec::new(),
            tried: false,
            arrays_bytes: 0,
            calls_back: None,
        }
    }

    pub(super) fn ids(&self) -> usize {
        self.execute.arguments.len() + self.execute.keep.len()
    }

    pub(super) fn arguments(&self) -> &[u64] {
        &self.execute.arguments
    }

    /// Lets go of the arguments, so that they can be moved.
    pub(super) fn let_go(&mut self) {
        self.held.clear();
    }

    /// Takes hold of the arguments again, which were checked before. Returns the bytes of those
    /// that are paged out.
    pub(super) fn look_up(&mut self, operations: &Operations<D>) -> u64 {
        let ids = self.execute.arguments.iter();
        self.held = ids.filter_map(|&id| operations.held(id).ok()).collect();
        self.sum(Held::absent_bytes)
    }

    /// Over the arguments, each array once.
    fn sum(&self, bytes: impl Fn(&Held<D>) -> u64) -> u64 {
        let mut seen: Vec<(u64, u64)> = self
            .execute
            .arguments
            .iter()
            .zip(&self.held)
            .map(|(&id, held)| (id, bytes(held)))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        seen.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Checks everything that the plugin would not, or only by size. Returns what the launch takes.
    pub(super) fn prepare(&mut self, operations: &Operations<D>) -> Result<Demand, Error> {
        let program = self.program.clone().ok_or_else(|| {
            invalid(format!(
                "program {} is not loaded in this session",
                self.execute.program
            ))
        })?;
        let signature = &program.signature;
        let given = self.execute.arguments.len();
        if given != signature.parameters.len() {
            return Err(invalid(format!(
                "`{}` takes {} arguments and was given {given}",
                signature.name,
                signature.parameters.len()
            )));
        }
        operations.room(signature.outputs.len())?;
        let mut arguments = Vec::with_capacity(given);
        for (index, (&id, wanted)) in self
            .execute
            .arguments
            .iter()
            .zip(&signature.parameters)
            .enumerate()
        {
            let held = operations.held(id)?;
            let shape = held.shape();
            if !is_taken_for(shape, wanted) {
                return Err(invalid(format!(
                    "argument {index} of `{}` is {} and should be {}",
                    signature.name,
                    show(shape),
                    show(wanted)
                )));
            }
            arguments.push(held);
        }
        self.check_donations(signature.donated.iter().copied(), &signature.name)?;
        // What is being read must not be overwritten in place: the plugin then copies it first.
        for &index in &signature.donated {
            if let Held::Live(entry) = &arguments[index as usize]
                && entry.readers.load(Acquire) > 0
            {
                self.keep.push(index);
            }
        }
        self.held = arguments;
        self.keep.sort_unstable();
        self.keep.dedup();
        let outputs = signature.outputs.iter().zip(&program.output_bytes);
        let new = outputs.filter(|(output, _)| !self.takes_over(output.aliases));
        let new_bytes: u64 = new.map(|(_, bytes)| bytes).sum();
        let scratch_bytes = program.scratch_bytes();
        self.calls_back = signature.calls_back.then(|| CallsBack {
            calling: operations.session.channels.next_calling(),
            scratch_bytes,
        });
        let kind = match self.calls_back {
            Some(CallsBack { calling, .. }) => salus_engine::Kind::CallsBack {
                program: program.number,
                calling,
            },
            None => salus_engine::Kind::Launch {
                scratch_bytes,
                program: program.number,
            },
        };
        let demand = Demand {
            kind,
            new_bytes: new_bytes + self.calls_back.map_or(0, |own| own.scratch_bytes),
            argument_bytes: self.sum(Held::charge_bytes),
            absent_bytes: self.sum(Held::absent_bytes),
        };
        self.arrays_bytes = demand.new_bytes + demand.argument_bytes;
        Ok(demand)
    }

    /// Whether an output with this alias takes the place of an argument.
    fn takes_over(&self, aliases: Option<u32>) -> bool {
        let donated = |index: &u32| {
            let signature = self.program.as_ref().map(|p| &p.signature);
            signature.is_some_and(|s| s.donated.contains(index)) && !self.keep.contains(index)
        };
        aliases.as_ref().is_some_and(donated)
    }

    /// An array that is donated may stand in the arguments only once.
    fn check_donations(&self, donated: impl Iterator<Item = u32>, name: &str) -> Result<(), Error> {
        let mut ids: Vec<(u64, usize)> = self
            .execute
            .arguments
            .iter()
            .copied()
            .enumerate()
            .map(|(i, id)| (id, i))
            .collect();
        ids.sort_unstable();
        let twice = |id: u64| {
            let from = ids.partition_point(|&(other, _)| other < id);
            ids.get(from + 1).is_some_and(|&(next, _)| next == id)
        };
        for index in donated.filter(|index| !self.execute.keep.contains(index)) {
            let id = self.execute.arguments.get(index as usize).copied();
            if id.is_some_and(twice) {
                return Err(invalid(format!(
                    "argument {index} of `{name}` is donated and is given twice"
                )));
            }
        }
        Ok(())
    }

    pub(super) fn start(mut self, operations: &mut Operations<D>, lane: u32) {
        let Some(program) = self.program.clone() else {
            return;
        };
        let session = Arc::clone(&operations.session);
        let host = Arc::clone(&operations.host);
        let operation = self.execute.operation;
        session.launch_started(operation);
        session.usage.ran(program.scratch_bytes());
        // The engine has reserved what is new: it belongs to the outputs, or goes back.
        let charges: Vec<Option<Charge<D>>> = program
            .signature
            .outputs
            .iter()
            .zip(&program.output_bytes)
            .map(|(output, &bytes)| {
                let new = !self.takes_over(output.aliases);
                new.then(|| Charge::on_device(&host, session.id, bytes))
            })
            .collect();
        if let Some(calls_back) = self.calls_back {
            return self.run_calling_back(operations, &program, lane, charges, calls_back);
        }
        let launched = self.bring_in(operations, lane).and_then(|arguments| {
            let arrays: Vec<&D::Array> = arguments.iter().map(|entry| &entry.array).collect();
            let (teller, ran) = (Arc::clone(&session), Arc::clone(&program));
            let runs = host.runs(u64::from(lane), session.id, &program);
            let call = runs.as_ref().and_then(Taken::call);
            let done = Box::new(move |result| {
                drop(runs);
                teller.host.learn(&ran);
                teller.launch_ended(operation, None, result);
            });
            let device = &host.device;
            let outputs = device.launch(&program.loaded, lane, &arrays, &self.keep, done);
            drop(call);
            Ok((arguments, outputs?))
        });
        match launched {
            Ok((arguments, outputs)) => {
                self.started(operations, lane, &arguments, outputs, charges);
            }
            Err(error) if error.code == RESOURCE_EXHAUSTED && self.try_again(operations) => {
                drop(charges);
                session.launch_put_off(operation);
                operations.again(Operation::Launch(self));
            }
            Err(error) => {
                drop(charges);
                self.poison(operations, &error);
                session.launch_failed(operation, None, error);
            }
        }
    }

    /// Runs the program in a thread of its own. The job waits for its end before it asks for
    /// anything that depends on it.
    fn run_calling_back(
        mut self,
        operations: &mut Operations<D>,
        program: &Arc<Lease<D>>,
        lane: u32,
        charges: Vec<Option<Charge<D>>>,
        calls_back: CallsBack,
    ) {
        let (session, host) = (
            Arc::clone(&operations.session),
            Arc::clone(&operations.host),
        );
        let operation = self.execute.operation;
        let calling = calls_back.calling;
        let scratch = Charge::on_device(&host, session.id, calls_back.scratch_bytes);
        let arguments = match self.bring_in(operations, lane) {
            Ok(arguments) => arguments,
            Err(error) => {
                drop((charges, scratch));
                self.poison(operations, &error);
                return session.launch_failed(operation, Some(calling), error);
            }
        };
        // What is not donated must not be overwritten by others meanwhile: from now on, because the
        // session's next operation may be a launch that donates it.
        let keeps = arguments.iter().enumerate().map(|(index, entry)| {
            match self.is_donated(program, index as u32) {
                true => Box::new(Arc::clone(entry)) as Box<dyn Any + Send + Sync>,
                false => Box::new(Reading::of(entry)),
            }
        });
        let keeps: Vec<_> = keeps.collect();
        self.take_donated(operations, program);
        self.let_go();
        let program = Arc::clone(program);
        let runs = Arc::clone(&session);
        let task = Box::new(move || {
            let lent = arguments.iter().zip(keeps).map(|(entry, keep)| Lent {
                array: &entry.array,
                keep,
            });
            let calls = Arc::new(Calls::new(&runs, operation, calling));
            let (lent, keep) = (lent.collect(), &self.keep);
            let device = &runs.host.device;
            let on_board = runs.host.runs(BESIDE, runs.id, &program);
            let call = on_board.as_ref().and_then(Taken::call);
            let outputs = device.run_calling_back(&program.loaded, lane, lent, keep, calls);
            let result = outputs.as_ref().map(|_| ()).map_err(Error::clone);
            drop((scratch, call, on_board));
            runs.leave_ran(Ran {
                launch: self,
                lane,
                arguments,
                charges,
                outputs,
            });
            runs.launch_ended(operation, Some(calling), result);
        });
        if let Err(e) = host.launchers.run(task) {
            let message = format!("no thread can be started for a launch that calls back: {e}");
            let error = Error {
                code: RESOURCE_EXHAUSTED,
                message,
            };
            session.launch_failed(operation, Some(calling), error);
        }
    }

    fn is_donated(&self, program: &Program<D>, index: u32) -> bool {
        program.signature.donated.contains(&index) && !self.execute.keep.contains(&index)
    }

    /// The job no longer has what it donates.
    fn take_donated(&self, operations: &mut Operations<D>, program: &Program<D>) {
        for &index in &program.signature.donated {
            if self.is_donated(program, index) {
                operations.take(self.execute.arguments[index as usize]);
            }
        }
    }

    /// The device has no room, although the ledger thought so: the launch may ask once more, for so
    /// much that others have to leave. Later ones of the program ask for it at once.
    fn try_again(&mut self, operations: &Operations<D>) -> bool {
        let Some(program) = self.program.as_ref().filter(|_| !self.tried) else {
            return false;
        };
        let (free, room) = operations.host.scheduling.look(|engine, _| {
            let ledger = engine.ledger();
            (ledger.free_bytes(), ledger.room().device_bytes)
        });
        let scratch = program.scratch_bytes();
        let arrays = self.arrays_bytes;
        // What was free was not enough, and the arrays must find their place beside it.
        let more = free + (scratch / 8).max(LEAST_SURPRISE_BYTES);
        let more = more.min(room.saturating_sub(scratch + arrays));
        if more > 0 {
            log::warn(format_args!(
                "the device has no room for `{}`, although the ledger has {free} bytes free; it is \
                 given {more} bytes more",
                program.signature.name
            ));
            program.learn(more);
            self.tried = true;
        }
        self.tried
    }

    /// The arguments on the device, those that were paged out among them.
    fn bring_in(
        &mut self,
        operations: &mut Operations<D>,
        lane: u32,
    ) -> Result<Vec<Arc<Entry<D>>>, Error> {
        let held = std::mem::take(&mut self.held);
        let ids = self.execute.arguments.iter();
        operations.noting_returns(|operations| {
            held.into_iter()
                .zip(ids)
                .map(|(held, &id)| match held {
                    Held::Live(entry) if entry.lane == lane => Ok(entry),
                    // The same argument twice: it was carried over with the first.
                    Held::Live(_) if operations.slot(id).is_ok_and(|e| e.lane == lane) => {
                        operations.slot(id)
                    }
                    Held::Live(entry) => operations.carry_over(id, &entry, lane),
                    Held::Paged(_) => operations.bring_in(id, lane),
                })
                .collect()
        })
    }

    /// Names the outputs and takes the donated arguments from the job.
    fn started(
        self,
        operations: &mut Operations<D>,
        lane: u32,
        arguments: &[Arc<Entry<D>>],
        outputs: Vec<D::Array>,
        charges: Vec<Option<Charge<D>>>,
    ) {
        let Some(program) = self.program.clone() else {
            return;
        };
        let donated = program.signature.donated.iter();
        let donated = donated.filter(|index| self.is_donated(&program, **index));
        let donated = donated.map(|index| Arc::clone(&arguments[*index as usize]));
        let donated = donated.collect();
        operations.graveyard.insert(self.execute.operation, donated);
        self.take_donated(operations, &program);
        self.name_outputs(operations, &program, lane, arguments, outputs, charges);
    }

    fn name_outputs(
        &self,
        operations: &mut Operations<D>,
        program: &Arc<Lease<D>>,
        lane: u32,
        arguments: &[Arc<Entry<D>>],
        outputs: Vec<D::Array>,
        charges: Vec<Option<Charge<D>>>,
    ) {
        for (index, (array, charge)) in outputs.into_iter().zip(charges).enumerate() {
            let kind = Kind::Output {
                program: Arc::clone(program),
                index,
                operation: self.execute.operation,
            };
            let aliased = program.signature.outputs[index].aliases;
            let replaced = aliased.map(|parameter| &arguments[parameter as usize]);
            let (charge, home) = match (charge, replaced) {
                (Some(charge), _) => (charge, None),
                (None, Some(argument)) => (argument.charge.pass_on(false), argument.home.clone()),
                (None, None) => (
                    Charge::on_device(&operations.host, operations.session.id, 0),
                    None,
                ),
            };
            let entry = Entry::new(array, kind, lane, charge, home);
            operations.put(self.execute.first_output + index as u64, Slot::Live(entry));
        }
    }

    /// The launch never had a turn.
    pub(super) fn fail(self, operations: &mut Operations<D>, error: Error) {
        self.poison(operations, &error);
        operations
            .session
            .operation_ended(self.execute.operation, Err(error));
    }

    /// Its outputs stand for the error.
    fn poison(&self, operations: &mut Operations<D>, error: &Error) {
        let outputs = self
            .program
            .as_ref()
            .map_or(0, |program| program.signature.outputs.len());
        if operations.room(outputs).is_err() {
            return;
        }
        for index in 0..outputs as u64 {
            operations.put(
                self.execute.first_output + index,
                Slot::Failed(error.clone()),
            );
        }
    }
}

/// A launch that called back and has ended.
pub(super) struct Ran<D: Device> {
    launch: Launch<D>,
    lane: u32,
    arguments: Vec<Arc<Entry<D>>>,
    charges: Vec<Option<Charge<D>>>,
    outputs: Result<Vec<D::Array>, Error>,
}

impl<D: Device> Ran<D> {
    pub(super) fn name_outputs(self, operations: &mut Operations<D>) {
        let Some(program) = self.launch.program.clone() else {
            return;
        };
        match self.outputs {
            Ok(outputs) => self.launch.name_outputs(
                operations,
                &program,
                self.lane,
                &self.arguments,
                outputs,
                self.charges,
            ),
            Err(error) => {
                drop(self.charges);
                self.launch.poison(operations, &error);
            }
        }
    }
}

fn invalid(message: String) -> Error {
    Error {
        code: INVALID_ARGUMENT,
        message,
    }
}

/// `f32[4,8]`, and the layout where it is not the default.
fn show(shape: &Shape) -> String {
    let name = ELEMENTS
        .get(shape.element_type as usize)
        .copied()
        .unwrap_or("unknown");
    match &shape.minor_to_major {
        None => format!("{name}{:?}", shape.dims),
        Some(order) => format!("{name}{:?} laid out {order:?}", shape.dims),
    }
}

/// By `PJRT_Buffer_Type`.
const ELEMENTS: [&str; 30] = [
    "invalid",
    "pred",
    "s8",
    "s16",
    "s32",
    "s64",
    "u8",
    "u16",
    "u32",
    "u64",
    "f16",
    "f32",
    "f64",
    "bf16",
    "c64",
    "c128",
    "f8e5m2",
    "f8e4m3fn",
    "f8e4m3b11fnuz",
    "f8e5m2fnuz",
    "f8e4m3fnuz",
    "s4",
    "u4",
    "token",
    "s2",
    "u2",
    "f8e4m3",
    "f8e3m4",
    "f8e8m0fnu",
    "f4e2m1fn",
];
