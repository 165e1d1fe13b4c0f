//! Launches that the device has, and what is kept of them until they have ended.

use std::sync::Arc;

use salus_device::Device;
use salus_engine::Event;
use salus_wire::{Error, ErrorCode, OperationId};

use super::Launch;
use crate::device_host::memory::arrays::{Entry, Kind, Slot};
use crate::device_host::programs::Program;
use crate::device_host::session::mailbox::Failure;
use crate::device_host::session::operations::Operation;
use crate::device_host::session::{SessionThread, SharedSession};

pub(crate) struct InFlight<D: Device> {
    /// Donated arguments: dropping one would block until the launch ends.
    pub(super) _donated: Vec<Arc<Entry<D>>>,
    /// How to run it again, as long as that would change nothing else.
    pub(super) again: Option<Again<D>>,
}

/// What happens when a launch has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtEnd {
    /// It has donated nothing to a device that enqueues: if memory was short it may run again, which its
    /// session's thread decides before the job is told.
    pub(super) runs_again: bool,
    /// Its session's thread waits for it.
    pub(super) is_awaited: bool,
}

/// A launch that has donated nothing to the device.
pub(crate) struct Again<D: Device> {
    pub(super) launch: Launch<D>,
    pub(super) arguments: Vec<Arc<Entry<D>>>,
}

impl<D: Device> SessionThread<D> {
    /// Something that uses these arrays was handed to the device: launches that make them cannot be run
    /// again from now on, and if it was donated some, neither can those that read them.
    pub(crate) fn note_used(&mut self, arrays: &[Arc<Entry<D>>], are_donated: bool) {
        if self.host.device.description().on_host {
            return;
        }
        for array in arrays {
            if let Kind::Output { operation, .. } = array.kind
                && let Some(maker) = self.in_flight.get_mut(&operation)
            {
                maker.again = None;
            }
        }
        if are_donated {
            for other in self.in_flight.values_mut() {
                other.again = None;
            }
        }
    }

    /// Deals with launches that failed on the device: they are run again, or their outputs hold the
    /// error from now on.
    pub(crate) fn handle_failures(&mut self) {
        for failure in std::mem::take(&mut self.failures) {
            if failure.is_told {
                self.fail_outputs_of(failure.operation, &failure.error);
            } else {
                self.run_again_or_tell(failure);
            }
        }
    }

    /// Whatever uses an output of the launch gets its error.
    fn fail_outputs_of(&mut self, failed: OperationId, error: &Error) {
        let made = |slot: &Slot<D>| match slot {
            Slot::Live(entry) => {
                matches!(entry.kind, Kind::Output { operation, .. } if operation == failed)
            }
            Slot::Paged(_) | Slot::Failed(_) => false,
        };
        let outputs = self.arrays.iter().filter(|(_, slot)| made(slot));
        let outputs: Vec<_> = outputs.map(|(id, _)| id).collect();
        for id in outputs {
            self.arrays.put(id, Slot::Failed(error.clone()));
        }
    }

    fn run_again_or_tell(&mut self, failure: Failure) {
        let operation = failure.operation;
        let again = self.in_flight.remove(&operation).and_then(|one| one.again);
        let again = again.filter(|_| !self.shared.is_ending());
        let again = again.and_then(|mut again| again.launch.may_retry(self).then_some(again));
        match again {
            Some(again) => self.run_again(again),
            None => {
                self.fail_outputs_of(operation, &failure.error);
                let failed = Err(failure.error);
                self.shared.launch_ended(operation, None, failed);
            }
        }
    }

    /// Puts everything back to where it was before the launch, as far as the job knows of it: nothing
    /// that was done since has used the launch's outputs, and its arguments are still there.
    fn run_again(&mut self, again: Again<D>) {
        let Again { launch, arguments } = again;
        self.take_back_request();
        let mut gone = Vec::new();
        for id in launch.output_ids() {
            match self.arrays.get(id) {
                Some(_) => self.arrays.remove(id),
                None => gone.push(id),
            }
        }
        for (index, (&id, entry)) in launch.argument_ids.iter().zip(arguments).enumerate() {
            if self.arrays.get(id).is_some() {
                continue;
            }
            self.arrays.put(id, Slot::Live(entry));
            // What the job has donated leaves again with the launch.
            if !launch.gives(index as u32) {
                gone.push(id);
            }
        }
        let operation = launch.operation;
        let reads = self.shared.mailbox.launch_put_back(operation);
        if self.awaits == Some(operation) {
            self.awaits = None;
        }
        self.tell(Event::Ran {
            session: self.shared.id,
            calling: None,
        });
        // The job has dropped these meanwhile.
        if !gone.is_empty() {
            self.window.push_front(Operation::Drop(gone));
        }
        for read in reads.into_iter().rev() {
            self.window.push_front(read.take_back());
        }
        self.window.push_front(Operation::Launch(launch));
    }
}

impl<D: Device> SharedSession<D> {
    /// A launch has ended on the device, which calls this from a thread of its own.
    pub(super) fn ended_on_device(
        &self,
        operation: OperationId,
        program: &Program<D>,
        then: AtEnd,
        result: Result<(), Error>,
    ) {
        self.host.learn(program);
        match &result {
            Ok(()) => {
                self.host.device_worked();
                program.had_memory();
            }
            Err(error) => self.host.device_failed(self.id, Some(program), error),
        }
        match result {
            Err(error) if error.code == ErrorCode::ResourceExhausted => {
                program.was_short_of_memory();
                match then.runs_again {
                    true => self.leave_failed(operation, error),
                    false => self.launch_ended(operation, None, Err(error)),
                }
            }
            result => self.launch_ended(operation, None, result),
        }
        if then.is_awaited {
            self.wake();
        }
    }
}
