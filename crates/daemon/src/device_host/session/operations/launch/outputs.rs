//! A launch's arguments and outputs: donated arguments are removed from the array table, outputs are
//! added to it, and outputs take over the memory of donated arguments.

use std::sync::Arc;

use salus_device::{Device, Placement};
use salus_wire::{ArrayId, Error};

use super::in_flight::{Again, AtEnd, InFlight};
use super::{Charges, Launch};
use crate::device_host::memory::arrays::{Charge, Entry, Home, Kind, Slot};
use crate::device_host::programs::Program;
use crate::device_host::programs::leases::Lease;
use crate::device_host::session::SessionThread;

impl<D: Device> Launch<D> {
    /// The memory that the engine has reserved for the outputs. Dropping it gives it back.
    pub(super) fn charges(&self, thread: &SessionThread<D>, program: &Program<D>) -> Charges<D> {
        let outputs = program.signature.outputs.iter().zip(&program.output_bytes);
        let charges = outputs.map(|(output, &bytes)| {
            let new = !self.takes_over(output.aliases);
            let (host, id) = (&thread.host, thread.shared.id);
            new.then(|| Charge::in_memory(host, id, bytes, output.memory))
        });
        charges.collect()
    }

    /// Whether an output with this alias takes the place of an argument.
    pub(super) fn takes_over(&self, aliases: Option<u32>) -> bool {
        let donated = |index: &u32| {
            let signature = self.program.as_ref().map(|p| &p.signature);
            signature.is_some_and(|s| s.donated.contains(index)) && !self.keep.contains(index)
        };
        aliases.as_ref().is_some_and(donated)
    }

    /// Whether the job no longer has this argument once the launch has run.
    pub(super) fn gives(&self, index: u32) -> bool {
        let program = self.program.as_ref();
        program.is_some_and(|program| self.is_donated(program, index))
    }

    /// Whether the device may overwrite an argument.
    pub(super) fn gives_to_device(&self, program: &Program<D>) -> bool {
        let mut donated = program.signature.donated.iter();
        donated.any(|index| !self.keep.contains(index))
    }

    pub(super) fn output_ids(&self) -> impl Iterator<Item = ArrayId> {
        let program = self.program.as_ref();
        let outputs = program.map_or(0, |program| program.signature.outputs.len());
        let first = self.first_output;
        (0..outputs as u64).map(move |index| first.plus(index))
    }

    pub(super) fn is_donated(&self, program: &Program<D>, index: u32) -> bool {
        program.signature.donated.contains(&index) && !self.kept_by_job.contains(&index)
    }

    /// Removes the donated arguments from the array table: the job no longer has them.
    pub(super) fn remove_donated(&self, thread: &mut SessionThread<D>, program: &Program<D>) {
        for &index in &program.signature.donated {
            if self.is_donated(program, index) {
                let id = self.argument_ids[index as usize];
                if let Some(Slot::Live(entry)) = thread.arrays.get(id) {
                    entry.overwritten();
                }
                thread.arrays.remove(id);
            }
        }
    }

    /// The device has taken the launch: removes the donated arguments and adds the outputs.
    pub(super) fn started(
        self,
        thread: &mut SessionThread<D>,
        lane: u32,
        arguments: Vec<Arc<Entry<D>>>,
        outputs: Vec<D::Array>,
        charges: Charges<D>,
        then: AtEnd,
    ) {
        let Some(program) = self.program.clone() else {
            return;
        };
        thread.note_used(&arguments, self.gives_to_device(&program));
        if then.is_awaited {
            thread.awaits = Some(self.operation);
        }
        let donated = program.signature.donated.iter();
        let donated = donated.filter(|index| self.is_donated(&program, **index));
        let donated = donated.map(|index| Arc::clone(&arguments[*index as usize]));
        let donated = donated.collect();
        self.remove_donated(thread, &program);
        self.add_outputs(thread, &program, lane, &arguments, outputs, charges);
        let operation = self.operation;
        let again = then.runs_again.then_some(Again {
            launch: self,
            arguments,
        });
        let in_flight = InFlight {
            _donated: donated,
            again,
        };
        thread.in_flight.insert(operation, in_flight);
    }

    pub(super) fn add_outputs(
        &self,
        thread: &mut SessionThread<D>,
        program: &Arc<Lease<D>>,
        lane: u32,
        arguments: &[Arc<Entry<D>>],
        outputs: Vec<D::Array>,
        charges: Charges<D>,
    ) {
        for (index, (array, charge)) in outputs.into_iter().zip(charges).enumerate() {
            let kind = Kind::Output {
                program: Arc::clone(program),
                index,
                operation: self.operation,
            };
            let aliased = program.signature.outputs[index].aliases;
            let replaced = aliased.map(|parameter| &arguments[parameter as usize]);
            let (charge, home) = match (charge, replaced) {
                (Some(charge), _) => (charge, None),
                (None, Some(argument)) => {
                    let home = argument.home.as_ref().and_then(Home::of_output);
                    (argument.charge.pass_on(), home)
                }
                (None, None) => (Charge::on_device(&thread.host, thread.shared.id, 0), None),
            };
            let memory = program.signature.outputs[index].memory;
            let placement = Placement { lane, memory };
            let entry = Entry::new(array, kind, placement, charge, home);
            let id = self.first_output.plus(index as u64);
            thread.arrays.put(id, Slot::Live(entry));
        }
    }

    /// The outputs hold the error, so that whatever uses them gets it.
    pub(super) fn fail_outputs(&self, thread: &mut SessionThread<D>, error: &Error) {
        if thread.arrays.check_room(self.output_ids().count()).is_err() {
            return;
        }
        for id in self.output_ids() {
            thread.arrays.put(id, Slot::Failed(error.clone()));
        }
    }
}
