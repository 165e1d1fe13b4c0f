//! A launch whose program calls functions of its job. It runs to its end in a thread of its own, and
//! beside the launches of its lane.

use std::any::Any;
use std::sync::Arc;

use salus_device::{Device, Lent};
use salus_engine::Calling;
use salus_wire::Error;

use super::{Charges, Launch};
use crate::board::{BESIDE, Taken};
use crate::device_host::errors::resource_exhausted;
use crate::device_host::memory::arrays::{Charge, Entry, Reading};
use crate::device_host::programs::leases::Lease;
use crate::device_host::session::SessionThread;
use crate::device_host::session::callbacks::Calls;

/// Known of a launch that calls back once it was checked.
#[derive(Clone, Copy)]
pub(super) struct CallsBack {
    pub(super) calling: Calling,
    /// It does not take turns with others in its lane, so its scratch is not the lane's: it is held
    /// like an array until the launch ends.
    pub(super) scratch_bytes: u64,
}

/// A launch that called back and has ended.
pub(crate) struct CalledBack<D: Device> {
    launch: Launch<D>,
    lane: u32,
    arguments: Vec<Arc<Entry<D>>>,
    charges: Charges<D>,
    outputs: Result<Vec<D::Array>, Error>,
}

impl<D: Device> CalledBack<D> {
    /// Puts its outputs into the array table.
    pub(crate) fn add_outputs(self, thread: &mut SessionThread<D>) {
        let Some(program) = self.launch.program.clone() else {
            return;
        };
        match self.outputs {
            Ok(outputs) => self.launch.add_outputs(
                thread,
                &program,
                self.lane,
                &self.arguments,
                outputs,
                self.charges,
            ),
            Err(error) => {
                drop(self.charges);
                self.launch.fail_outputs(thread, &error);
            }
        }
    }
}

impl<D: Device> Launch<D> {
    /// Runs the program in a thread of its own. The job waits for its end before it asks for
    /// anything that depends on it.
    pub(super) fn run_calling_back(
        mut self,
        thread: &mut SessionThread<D>,
        program: &Arc<Lease<D>>,
        lane: u32,
        charges: Charges<D>,
        calls_back: CallsBack,
    ) {
        let session = Arc::clone(&thread.shared);
        let host = Arc::clone(&thread.host);
        let operation = self.operation;
        let calling = calls_back.calling;
        let scratch = Charge::on_device(&host, session.id, calls_back.scratch_bytes);
        let arguments = match self.page_in(thread, lane) {
            Ok(arguments) => arguments,
            Err(error) => {
                drop((charges, scratch));
                self.fail_outputs(thread, &error);
                return thread.launch_failed(operation, Some(calling), error);
            }
        };
        // What is not donated must not be overwritten by others meanwhile: from now on, because the
        // session's next operation may be a launch that donates it.
        let keeps = arguments.iter().enumerate().map(|(index, entry)| {
            match self.is_donated(program, index as u32) {
                true => Box::new(Arc::clone(entry)) as Box<dyn Any + Send + Sync>,
                false => Box::new(Reading::of(entry, &session)),
            }
        });
        let keeps: Vec<_> = keeps.collect();
        self.remove_donated(thread, program);
        self.release_arguments();
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
            let on_board = runs.host.note_on_board(BESIDE, runs.id, &program);
            let call = on_board.as_ref().and_then(Taken::call);
            let outputs = device.run_calling_back(&program.loaded, lane, lent, keep, calls);
            let result = outputs.as_ref().map(|_| ()).map_err(Error::clone);
            drop((scratch, call, on_board));
            runs.leave_called_back(CalledBack {
                launch: self,
                lane,
                arguments,
                charges,
                outputs,
            });
            runs.launch_ended(operation, Some(calling), result);
        });
        if let Err(e) = host.launch_threads.run(task) {
            let error = resource_exhausted(format!(
                "no thread can be started for a launch that calls back: {e}"
            ));
            thread.launch_failed(operation, Some(calling), error);
        }
    }
}
