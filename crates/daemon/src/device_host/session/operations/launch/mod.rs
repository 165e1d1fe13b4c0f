//! One launch: its arguments checked, its memory and turn asked for, its outputs put into the array
//! table, its end told to the job.
//!
//! `check` decides whether it may run and what it needs; `outputs` has what becomes of its arguments
//! and outputs; `calls` hands it over, one at a time; `fit` asks the device for room before, `in_flight`
//! keeps what is needed until it has ended, and `retry` says what happens when the device is out of
//! memory; `calls_back` runs programs that call functions of their job.

mod calls;
mod calls_back;
mod check;
mod fit;
mod in_flight;
mod outputs;
mod retry;

use std::sync::Arc;

use salus_device::Device;
use salus_engine::{Calling, Event};
use salus_wire::{ArrayId, Error, ErrorCode, OperationId, ProgramId};

pub(crate) use calls::LaunchCalls;
pub(crate) use calls_back::CalledBack;
pub(crate) use in_flight::InFlight;

use crate::board::Taken;
use crate::device_host::memory::arrays::{Charge, Entry, Held};
use crate::device_host::programs::leases::Lease;
use crate::device_host::session::SessionThread;
use crate::device_host::session::operations::Operation;
use calls_back::CallsBack;
use fit::Fit;
use in_flight::AtEnd;

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
    /// How often it was tried, and the device was out of memory although the ledger had room.
    tries: u32,
    /// How often it asked for more because the device said beforehand that it had too little.
    asks: u32,
    /// What it asks for beyond what its program needs.
    extra_bytes: u64,
    /// There was no way to get that much.
    is_unfulfillable: bool,
    /// Its session's arrays were moved, so that they do not divide memory.
    has_moved_arrays: bool,
    /// It keeps its donated arguments, so that it can run again.
    keeps_for_retry: bool,
    /// It is to, because it may not fit.
    must_keep: bool,
    /// The last time it gives them away.
    gives_at_last: bool,
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
            tries: 0,
            asks: 0,
            extra_bytes: 0,
            is_unfulfillable: false,
            has_moved_arrays: false,
            keeps_for_retry: false,
            must_keep: false,
            gives_at_last: false,
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
        let arguments = match self.page_in(thread, lane) {
            Ok(arguments) => arguments,
            Err(error) => {
                host.device_failed(session.id, None, &error);
                return self.not_started(thread, charges, error);
            }
        };
        let one_at_a_time = host.launch_calls.enter(lane);
        let fit = self.fits(thread, &program);
        if self.wants_more(thread, &program, fit) {
            drop((one_at_a_time, arguments, charges));
            return thread.put_back(self);
        }
        if let Fit::No { .. } = fit
            && let Err(error) = self.check_fit(thread, &program)
        {
            drop((one_at_a_time, arguments));
            if self.moves_arrays_aside(thread) {
                drop(charges);
                return thread.put_back(self);
            }
            return self.not_started(thread, charges, error);
        }
        let then = AtEnd {
            runs_again: one_at_a_time.is_some() && !self.gives_to_device(&program),
            is_awaited: one_at_a_time.is_some()
                && (fit != Fit::Yes || program.is_short_of_memory()),
        };
        let arrays: Vec<&D::Array> = arguments.iter().map(|entry| &entry.array).collect();
        let (ended, ran) = (Arc::clone(&session), Arc::clone(&program));
        let on_board = host.note_on_board(u64::from(lane), session.id, &program);
        let call = on_board.as_ref().and_then(Taken::call);
        let done = Box::new(move |result| {
            drop(on_board);
            ended.ended_on_device(operation, &ran, then, result);
        });
        let device = &host.device;
        let outputs = device.launch(&program.loaded, lane, &arrays, &self.keep, done);
        drop((call, arrays, one_at_a_time));
        match outputs {
            Ok(outputs) => self.started(thread, lane, arguments, outputs, charges, then),
            Err(error) => {
                host.device_failed(session.id, Some(&program), &error);
                self.not_started(thread, charges, error);
            }
        }
    }

    /// The device has not taken the launch.
    fn not_started(mut self, thread: &mut SessionThread<D>, charges: Charges<D>, error: Error) {
        if error.code == ErrorCode::ResourceExhausted && self.may_retry(thread) {
            drop(charges);
            return thread.put_back(self);
        }
        drop(charges);
        self.fail_outputs(thread, &error);
        thread.launch_failed(self.operation, None, error);
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
    pub(crate) fn refuse(mut self, thread: &mut SessionThread<D>, error: Error) {
        if self.extra_bytes > 0 {
            // What it needs by itself it can have: the device is to decide.
            self.extra_bytes = 0;
            self.is_unfulfillable = true;
            return thread.window.push_front(Operation::Launch(self));
        }
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
        // None waits for it: its outputs do not exist yet.
        let _ = self.shared.mailbox.launch_put_back(launch.operation);
        self.window.push_front(Operation::Launch(launch));
    }
}

/// Memory that the engine has reserved for each output; `None` where an output takes over that of
/// an argument.
type Charges<D> = Vec<Option<Charge<D>>>;
