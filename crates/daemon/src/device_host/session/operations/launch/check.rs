//! Whether a launch may run, and what it needs of the device.
//!
//! Promise: arguments are checked by number, element type, dimensions and layout; the plugin itself
//! checks sizes only.

use std::sync::atomic::Ordering::Acquire;

use salus_device::{Device, Shape, is_taken_for};
use salus_engine::{Demand, Kind};
use salus_wire::{ArrayId, ElementType, Error};

use super::Launch;
use super::calls_back::CallsBack;
use crate::device_host::errors::invalid_argument;
use crate::device_host::memory::arrays::Held;
use crate::device_host::programs::Program;
use crate::device_host::session::SessionThread;

impl<D: Device> Launch<D> {
    /// Checks everything that the plugin does not check, or checks by size only. Returns what the
    /// launch needs.
    pub(crate) fn prepare(&mut self, thread: &SessionThread<D>) -> Result<Demand, Error> {
        let program = self.program.clone().ok_or_else(|| {
            invalid_argument(format!(
                "program {} is not loaded in this session",
                self.program_id
            ))
        })?;
        self.arguments = self.check_arguments(thread, &program)?;
        self.keep_what_is_read(&program);
        self.calls_back = program.signature.calls_back.then(|| CallsBack {
            calling: thread.shared.channels.next_calling(),
            scratch_bytes: program.scratch_bytes(),
        });
        let demand = self.demand(&program);
        self.arrays_bytes = demand.new_bytes + demand.argument_bytes;
        Ok(demand)
    }

    fn check_arguments(
        &self,
        thread: &SessionThread<D>,
        program: &Program<D>,
    ) -> Result<Vec<Held<D>>, Error> {
        let signature = &program.signature;
        let given = self.argument_ids.len();
        if given != signature.parameters.len() {
            return Err(invalid_argument(format!(
                "`{}` takes {} arguments and was given {given}",
                signature.name,
                signature.parameters.len()
            )));
        }
        thread.arrays.check_room(signature.outputs.len())?;
        let mut arguments = Vec::with_capacity(given);
        for (index, (&id, wanted)) in self
            .argument_ids
            .iter()
            .zip(&signature.parameters)
            .enumerate()
        {
            let held = thread.arrays.held(id)?;
            let shape = held.shape();
            if !is_taken_for(shape, wanted) {
                return Err(invalid_argument(format!(
                    "argument {index} of `{}` is {} and should be {}",
                    signature.name,
                    show(shape),
                    show(wanted)
                )));
            }
            arguments.push(held);
        }
        self.check_donations(signature.donated.iter().copied(), &signature.name)?;
        Ok(arguments)
    }

    /// A donated array that is being read must not be overwritten in place: the plugin copies it.
    fn keep_what_is_read(&mut self, program: &Program<D>) {
        for &index in &program.signature.donated {
            if let Held::Live(entry) = &self.arguments[index as usize]
                && entry.readers.load(Acquire) > 0
            {
                self.keep.push(index);
            }
        }
        self.keep.sort_unstable();
        self.keep.dedup();
    }

    fn demand(&self, program: &Program<D>) -> Demand {
        let outputs = program.signature.outputs.iter().zip(&program.output_bytes);
        let new = outputs.filter(|(output, _)| !self.takes_over(output.aliases));
        let new_bytes: u64 = new.map(|(_, bytes)| bytes).sum();
        let (kind, held_scratch_bytes) = match self.calls_back {
            Some(CallsBack {
                calling,
                scratch_bytes,
            }) => {
                let program = program.number;
                (Kind::CallsBack { program, calling }, scratch_bytes)
            }
            None => {
                let kind = Kind::Launch {
                    scratch_bytes: program.scratch_bytes(),
                    program: program.number,
                };
                (kind, 0)
            }
        };
        Demand {
            kind,
            new_bytes: new_bytes + held_scratch_bytes,
            argument_bytes: self.sum(Held::charge_bytes),
            paged_bytes: self.sum(Held::paged_bytes),
        }
    }

    /// A donated array may be among the arguments only once.
    fn check_donations(&self, donated: impl Iterator<Item = u32>, name: &str) -> Result<(), Error> {
        let mut ids: Vec<(ArrayId, usize)> = self
            .argument_ids
            .iter()
            .copied()
            .enumerate()
            .map(|(i, id)| (id, i))
            .collect();
        ids.sort_unstable();
        let twice = |id: ArrayId| {
            let from = ids.partition_point(|&(other, _)| other < id);
            ids.get(from + 1).is_some_and(|&(next, _)| next == id)
        };
        for index in donated.filter(|index| !self.kept_by_job.contains(index)) {
            let id = self.argument_ids.get(index as usize).copied();
            if id.is_some_and(twice) {
                return Err(invalid_argument(format!(
                    "argument {index} of `{name}` is donated and is given twice"
                )));
            }
        }
        Ok(())
    }
}

/// `f32[4,8]`, and the layout where it is not the default.
fn show(shape: &Shape) -> String {
    let name = ElementType::from_pjrt(shape.element_type).map_or("unknown", |element| element.name);
    match &shape.minor_to_major {
        None => format!("{name}{:?}", shape.dims),
        Some(order) => format!("{name}{:?} laid out {order:?}", shape.dims),
    }
}
