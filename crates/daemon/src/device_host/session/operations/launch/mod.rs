//! One launch: its arguments checked, its memory and turn asked for, its outputs put into the array
//! table, its end told to the job.
//!
//! `check` decides whether it may run and what it needs; `outputs` has what becomes of its arguments
//! and outputs; `retry` what happens when the device is out of memory; `calls_back` runs programs
//! that call functions of their job.

mod calls_back;
mod check;
mod outputs;
mod retry;

use std::sync::Arc;

use salus_device::Device;
use salus_engine::{Calling, Event};
use salus_wire::{ArrayId, Error, ErrorCode, OperationId, ProgramId};

pub(crate) use calls_back::CalledBack;

use crate::board::Taken;
use crate::device_host::memory::arrays::{Charge, Entry, Held};
use crate::device_host::programs::leases::Lease;
use crate::device_host::session::SessionThread;
use crate::device_host::session::operations::Operation;
use calls_back::CallsBack;

pub(crate) struct Launch<D: Device> {
    operation: OperationId,
    program_id: ProgramId,
    argument_ids: Vec<ArrayId>,
    /// The others have the numbers after it.
    first_output: ArrayId,
    /// Donated parameters that the job keeps.
    kept_by_job: Vec<u32>,
    /// `None` if the session has no such program.
    program: Option<Arc<Lease<D>>>,
    /// In the order of the program's parameters, once they were checked.
    arguments: Vec<Held<D>>,
    /// Donated parameters that the plugin must not overwrite: those that the job keeps, and those
    /// that are being read.
    keep: Vec<u32>,
    /// It was tried before, and the device was out of memory although the ledger had room.
    is_retry: bool,
    /// What it needs on the device besides scratch.
    arrays_bytes: u64,
    /// Set if its program calls back.
    calls_back: Option<CallsBack>,
}

impl<D: Device> Launch<D> {
    pub(crate) fn new(frame: salus_wire::Launch, program: Option<Arc<Lease<D>>>) -> Self {
        Self {
            operation: frame.operation,
            program_id: frame.program,
            argument_ids: frame.arguments,
            first_output: frame.first_output,
            keep: frame.keep.clone(),
            kept_by_job: frame.keep,
            program,
            arguments: Vec::new(),
            is_retry: false,
            arrays_bytes: 0,
            calls_back: None,
        }
    }

    pub(crate) fn ids(&self) -> usize {
        self.argument_ids.len() + self.kept_by_job.len()
    }

    pub(crate) fn argument_ids(&self) -> &[ArrayId] {
        &self.argument_ids
    }

    /// Lets go of the arguments, so that they can be paged out.
    pub(crate) fn release_arguments(&mut self) {
        self.arguments.clear();
    }

    /// Holds the arguments again, which were checked before. Returns the bytes of those that are
    /// paged out.
    pub(crate) fn hold_arguments(&mut self, arguments: Vec<Held<D>>) -> u64 {
        self.arguments = arguments;
        self.sum(Held::paged_bytes)
    }

    /// The sum over the arguments, each array once.
    fn sum(&self, bytes: impl Fn(&Held<D>) -> u64) -> u64 {
        let arguments = self.argument_ids.iter().zip(&self.arguments);
        let mut each: Vec<(ArrayId, u64)> =
            arguments.map(|(&id, held)| (id, bytes(held))).collect();
        each.sort_unstable();
        each.dedup();
        each.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Hands the launch to the device; the engine has reserved its memory and granted its turn.
    pub(crate) fn start(mut self, thread: &mut SessionThread<D>, lane: u32) {
        let Some(program) = self.program.clone() else {
            return;
        };
        let session = Arc::clone(&thread.shared);
        let host = Arc::clone(&thread.host);
        let operation = self.operation;
        session.mailbox.launch_started(operation);
        session.usage.ran(program.scratch_bytes());
        let charges = self.charges(thread, &program);
        if let Some(calls_back) = self.calls_back {
            return self.run_calling_back(thread, &program, lane, charges, calls_back);
        }
        let launched = self.page_in(thread, lane).and_then(|arguments| {
            let arrays: Vec<&D::Array> = arguments.iter().map(|entry| &entry.array).collect();
            let (ended, ran) = (Arc::clone(&session), Arc::clone(&program));
            let on_board = host.note_on_board(u64::from(lane), session.id, &program);
            let call = on_board.as_ref().and_then(Taken::call);
            let done = Box::new(move |result| {
                drop(on_board);
                ended.host.learn(&ran);
                ended.launch_ended(operation, None, result);
            });
            let device = &host.device;
            let outputs = device.launch(&program.loaded, lane, &arrays, &self.keep, done);
            drop(call);
            Ok((arguments, outputs?))
        });
        match launched {
            Ok((arguments, outputs)) => {
                self.started(thread, lane, &arguments, outputs, charges);
            }
            Err(error) if error.code == ErrorCode::ResourceExhausted && self.may_retry(thread) => {
                drop(charges);
                thread.put_back(self);
            }
            Err(error) => {
                drop(charges);
                self.fail_outputs(thread, &error);
                thread.launch_failed(operation, None, error);
            }
        }
    }

    /// The arguments on the device; those that were paged out are paged in.
    fn page_in(
        &mut self,
        thread: &mut SessionThread<D>,
        lane: u32,
    ) -> Result<Vec<Arc<Entry<D>>>, Error> {
        let arguments = std::mem::take(&mut self.arguments);
        let ids = self.argument_ids.iter().copied();
        thread.page_in_all(ids.zip(arguments), lane)
    }

    /// The launch cannot be done, and never had a turn.
    pub(crate) fn refuse(self, thread: &mut SessionThread<D>, error: Error) {
        self.fail_outputs(thread, &error);
        let operation = self.operation;
        thread.shared.operation_ended(operation, Err(error));
    }
}

impl<D: Device> SessionThread<D> {
    /// A launch that was granted a turn could not be started.
    fn launch_failed(&mut self, operation: OperationId, calling: Option<Calling>, error: Error) {
        let session = Arc::clone(&self.shared);
        let event = Event::DidNotRun {
            session: session.id,
            calling,
        };
        session.end_launch(operation, Err(error), || self.tell(event));
    }

    /// A launch that was granted a turn did not start: it goes back to the head of the window and
    /// asks for another.
    fn put_back(&mut self, launch: Launch<D>) {
        self.tell(Event::DidNotRun {
            session: self.shared.id,
            calling: None,
        });
        self.shared.mailbox.launch_put_back(launch.operation);
        self.window.push_front(Operation::Launch(launch));
    }
}

/// Memory that the engine has reserved for each output; `None` where an output takes over that of
/// an argument.
type Charges<D> = Vec<Option<Charge<D>>>;
