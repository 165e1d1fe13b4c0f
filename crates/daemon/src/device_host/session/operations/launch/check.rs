//! Whether a launch may run, and what it needs of the device.
//!
//! Promise: arguments are checked by number, element type, dimensions and layout; the plugin itself
//! checks sizes only.

use std::sync::atomic::Ordering::SeqCst;

use salus_device::{Description, Device, Shape, is_host_memory, is_taken_for};
use salus_engine::{Demand, Kind};
use salus_wire::{ArrayId, ElementType, Error};

use super::Launch;
use super::calls_back::CallsBack;
use crate::device_host::errors::invalid_argument;
use crate::device_host::memory::arrays::{Held, Slot};
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
        let may_fail = self.must_keep || program.is_short_of_memory();
        if may_fail && !self.gives_at_last {
            self.keep_for_retry(thread, &program);
        }
        self.calls_back = program.signature.calls_back.then(|| CallsBack {
            calling: thread.shared.channels.next_calling(),
            scratch_bytes: program.scratch_bytes(),
        });
        let mut demand = self.demand(&program, thread.host.device.description());
        self.arrays_bytes = demand.new_bytes + demand.argument_bytes;
        if let Kind::Launch { scratch_bytes, .. } = &mut demand.kind
            && self.extra_bytes > 0
        {
            let (_, room) = thread.free_and_room();
            let most = room.saturating_sub(*scratch_bytes + self.arrays_bytes);
            *scratch_bytes += self.extra_bytes.min(most);
        }
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

    /// Whether it must wait until arrays are read that it donates. They must not be overwritten until
    /// then, and plugins keep no array of host memory; the session's thread is woken when one was read.
    pub(crate) fn must_wait_for_reads(&self, thread: &SessionThread<D>) -> bool {
        let description = thread.host.device.description();
        let Some(program) = self.program.as_ref().filter(|_| !description.on_host) else {
            return false;
        };
        let is_read = || {
            let donated = program.signature.donated.iter();
            let mut donated = donated.filter_map(|&index| {
                let given_up = !self.kept_by_job.contains(&index);
                self.argument_ids.get(index as usize).filter(|_| given_up)
            });
            donated.any(|id| match thread.arrays.get(*id) {
                Some(Slot::Live(entry)) => {
                    entry.placement.is_host(description) && entry.readers.load(SeqCst) > 0
                }
                _ => false,
            })
        };
        // It may have been read before anybody knew that this waits for it.
        is_read() && thread.shared.await_reads() && is_read()
    }

    /// A donated array that is being read must not be overwritten in place: the plugin copies it.
    fn keep_what_is_read(&mut self, program: &Program<D>) {
        for &index in &program.signature.donated {
            if let Held::Live(entry) = &self.arguments[index as usize]
                && entry.readers.load(SeqCst) > 0
            {
                self.keep.push(index);
            }
        }
        self.keep.sort_unstable();
        self.keep.dedup();
    }

    /// A program that was short of memory on a device that says so too late is not given arguments to
    /// overwrite, so that it can run again; unless there is no room for its outputs beside them.
    fn keep_for_retry(&mut self, thread: &SessionThread<D>, program: &Program<D>) {
        let description = thread.host.device.description();
        if description.on_host {
            return;
        }
        let given = program.signature.donated.iter().copied();
        let given = given.filter(|index| !self.keep.contains(index));
        let movable = |index: &u32| match &self.arguments[*index as usize] {
            Held::Live(entry) => entry.placement.is_default(description),
            Held::Paged(_) => true,
        };
        let given: Vec<u32> = given.collect();
        if given.is_empty() || !given.iter().all(movable) {
            return;
        }
        let before = self.keep.clone();
        self.keep.extend(given);
        self.keep.sort_unstable();
        self.keeps_for_retry = true;
        if self.demand(program, description).total() > thread.free_and_room().1 {
            self.keep = before;
            self.keeps_for_retry = false;
        }
    }

    fn demand(&self, program: &Program<D>, description: &Description) -> Demand {
        let outputs = program.signature.outputs.iter().zip(&program.output_bytes);
        let new = outputs.filter(|(output, _)| !self.takes_over(output.aliases));
        let (mut new_bytes, mut new_host_bytes) = (0, 0);
        for (output, bytes) in new {
            match is_host_memory(description, output.memory) {
                true => new_host_bytes += bytes,
                false => new_bytes += bytes,
            }
        }
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
            new_host_bytes,
            argument_bytes: self.sum(Held::device_bytes),
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
