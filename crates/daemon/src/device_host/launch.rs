//! One launch: its arguments checked, its turn awaited, its outputs named, its end told.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use salus_device::{Device, Shape};
use salus_engine::Lane;
use salus_wire::{Error, Execute};

use super::arrays::{Entry, Kind};
use super::operations::{INVALID_ARGUMENT, Operations, Slot};
use super::programs::Program;

pub(super) struct Launch<D: Device> {
    execute: Execute,
    program: Option<Arc<Program<D>>>,
    /// In the order of the program's parameters, once they were checked.
    arguments: Vec<Arc<Entry<D>>>,
}

impl<D: Device> Launch<D> {
    pub(super) fn new(execute: Execute, program: Option<Arc<Program<D>>>) -> Self {
        Self {
            execute,
            program,
            arguments: Vec::new(),
        }
    }

    pub(super) fn ids(&self) -> usize {
        self.execute.arguments.len() + self.execute.keep.len()
    }

    /// Checks everything that the plugin would not, or only by size.
    pub(super) fn prepare(&mut self, operations: &Operations<D>) -> Result<(), Error> {
        let program = self.program.as_ref().ok_or_else(|| {
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
            let entry = operations.slot(id)?;
            let shape = entry.shape();
            if shape != wanted {
                return Err(invalid(format!(
                    "argument {index} of `{}` is {} and should be {}",
                    signature.name,
                    show(shape),
                    show(wanted)
                )));
            }
            arguments.push(entry);
        }
        self.check_donations(signature.donated.iter().copied(), &signature.name)?;
        self.arguments = arguments;
        Ok(())
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

    pub(super) fn start(self, operations: &mut Operations<D>, lane: Lane) {
        let Some(program) = &self.program else { return };
        let session = Arc::clone(&operations.session);
        let host = Arc::clone(&operations.host);
        let temp_bytes = program.temp_bytes();
        let operation = self.execute.operation;
        session.launch_started(operation);
        host.memory.scratch_taken(temp_bytes);
        session.usage.scratch_bytes.fetch_max(temp_bytes, Relaxed);
        // What is being read must not be overwritten in place: the plugin then copies it first.
        let mut keep = self.execute.keep.clone();
        for &index in &program.signature.donated {
            if self.arguments[index as usize].readers.load(Acquire) > 0 {
                keep.push(index);
            }
        }
        let arguments: Vec<&D::Array> = self.arguments.iter().map(|entry| &entry.array).collect();
        let done = {
            let (session, host) = (Arc::clone(&session), Arc::clone(&host));
            Box::new(move |result| {
                host.memory.scratch_given_back(temp_bytes);
                session.launch_ended(operation, result, false);
            })
        };
        match host
            .device
            .launch(&program.loaded, lane.0, &arguments, &keep, done)
        {
            Ok(outputs) => self.started(operations, outputs),
            Err(error) => {
                host.memory.scratch_given_back(temp_bytes);
                self.poison(operations, &error);
                session.launch_ended(operation, Err(error), true);
            }
        }
    }

    /// Names the outputs and takes the donated arguments from the job.
    fn started(self, operations: &mut Operations<D>, outputs: Vec<D::Array>) {
        let Some(program) = self.program else { return };
        let mut donated = Vec::new();
        for &index in &program.signature.donated {
            if !self.execute.keep.contains(&index) {
                let index = index as usize;
                self.arguments[index].donated();
                operations.take(self.execute.arguments[index]);
                donated.push(Arc::clone(&self.arguments[index]));
            }
        }
        operations.graveyard.insert(self.execute.operation, donated);
        let usage = Arc::clone(&operations.session.usage);
        for (index, array) in outputs.into_iter().enumerate() {
            let kind = Kind::Output {
                program: Arc::clone(&program),
                index,
                operation: self.execute.operation,
            };
            let entry = Entry::new(&operations.host, &usage, array, kind);
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
