//! The operations of a session's window, and how each is done once it is admitted.
//!
//! Promise: types, shapes, deletion and ranges are checked here and in `launch`, before anything
//! reaches the plugin, which itself checks sizes only.

pub(crate) mod admission;
pub(crate) mod launch;
pub(crate) mod read;
pub(crate) mod refusals;
mod upload;

use std::sync::Arc;

use salus_device::{Device, Placement, Shape};
use salus_wire::{ArrayId, Error, Form, OperationId};

use crate::device_host::errors::invalid_argument;
use crate::device_host::memory::arrays::{Charge, Entry, Kind, Reading, Slot};
use crate::device_host::memory::shared_range::SharedRange;
use crate::device_host::session::SessionThread;
use crate::device_host::session::operations::launch::Launch;
use crate::device_host::session::operations::read::{Read, is_plain};

pub(crate) enum Operation<D: Device> {
    Upload {
        array: ArrayId,
        shape: Shape,
        memory: u32,
        data: SharedRange,
        /// Set if the device had no room for it before.
        again: Option<upload::Again>,
    },
    Launch(Launch<D>),
    Copy {
        operation: OperationId,
        array: ArrayId,
        copy: ArrayId,
        memory: u32,
    },
    Read {
        array: ArrayId,
        read: Read,
    },
    Drop(Vec<ArrayId>),
}

impl<D: Device> Operation<D> {
    /// How many ids it has, which is what it takes in the window.
    pub(crate) fn ids(&self) -> usize {
        match self {
            Self::Launch(launch) => launch.ids(),
            Self::Drop(arrays) => arrays.len(),
            Self::Upload { .. } | Self::Copy { .. } | Self::Read { .. } => 1,
        }
    }
}

impl<D: Device> SessionThread<D> {
    /// Whether a read needs the device to page the array in. Pages are read where they are, unless
    /// another layout is asked for.
    pub(super) fn must_page_in(&self, array: ArrayId, form: &Form) -> bool {
        match self.arrays.get(array) {
            Some(Slot::Paged(page)) => !is_plain(form, &page.shape),
            _ => false,
        }
    }

    /// Does an operation that needs neither memory nor a turn of the engine.
    pub(super) fn perform_at_once(&mut self, operation: Operation<D>) {
        match operation {
            Operation::Drop(arrays) => {
                for array in arrays {
                    self.arrays.remove(array);
                }
            }
            Operation::Read { array, read } => match self.arrays.get(array) {
                Some(Slot::Paged(page)) => read.answer_from(&self.shared, page),
                _ => read.begin(&self.shared, array, self.arrays.live(array)),
            },
            Operation::Upload { .. } | Operation::Launch(_) | Operation::Copy { .. } => {
                unreachable!("these always ask the engine")
            }
        }
    }

    /// Does an operation for which the engine has reserved memory, in the lane that it chose.
    pub(super) fn perform(&mut self, operation: Operation<D>, lane: u32) {
        match operation {
            Operation::Upload {
                array,
                shape,
                memory,
                data,
                again,
            } => self.upload(array, shape, Placement { lane, memory }, data, again),
            Operation::Launch(launch) => launch.start(self, lane),
            Operation::Copy {
                operation,
                array,
                copy,
                memory,
            } => self.copy(operation, array, copy, Placement { lane, memory }),
            Operation::Read { array, read } => {
                let entry = self.page_in(array, lane);
                read.begin(&self.shared, array, entry);
            }
            Operation::Drop(_) => unreachable!("this asks the engine for nothing"),
        }
    }

    /// The operation cannot be done: the arrays that it was to make hold the error.
    pub(super) fn refuse(&mut self, operation: Operation<D>, error: Error) {
        match operation {
            Operation::Upload {
                array, data, again, ..
            } => {
                // No array was made of it, so the job may use its memory again.
                self.shared.region_released(data.region());
                // What it needs by itself it had; the device has not.
                let error = again.map_or(error, |again| again.error);
                self.upload_failed(array, error);
            }
            Operation::Launch(launch) => launch.refuse(self, error),
            Operation::Copy {
                operation, copy, ..
            } => self.copy_failed(operation, copy, error),
            Operation::Read { array, read } => {
                read.begin(&self.shared, array, Err(error));
            }
            Operation::Drop(_) => {}
        }
    }

    pub(crate) fn check_memory(&self, memory: u32) -> Result<(), Error> {
        let memories = self.host.device.description().memories.len();
        if (memory as usize) < memories {
            return Ok(());
        }
        Err(invalid_argument(format!(
            "memory {memory} does not exist; the device has {memories}"
        )))
    }

    fn copy(
        &mut self,
        operation: OperationId,
        array: ArrayId,
        copy: ArrayId,
        placement: Placement,
    ) {
        let bytes = self
            .arrays
            .held(array)
            .map_or(0, |held| held.charge_bytes());
        let (id, memory) = (self.shared.id, placement.memory);
        let charge = Charge::in_memory(&self.host, id, bytes, memory);
        let from = self.page_in(array, placement.lane);
        let made = from.and_then(|from| {
            let made = self.host.device.copy_to_memory(&from.array, placement)?;
            self.note_used(std::slice::from_ref(&from), false);
            let shape = from.shape().clone();
            let entry = Entry::new(made, Kind::Own { shape }, placement, charge, None);
            Ok((entry, Reading::of(&from, &self.shared)))
        });
        match made {
            Ok((entry, reading)) => {
                let session = Arc::clone(&self.shared);
                let done = Box::new(move |result| {
                    drop(reading);
                    session.operation_ended(operation, result);
                });
                self.host.device.on_ready(&entry.array, done);
                self.arrays.put(copy, Slot::Live(entry));
            }
            Err(error) => self.copy_failed(operation, copy, error),
        }
    }

    fn copy_failed(&mut self, operation: OperationId, copy: ArrayId, error: Error) {
        self.arrays.put(copy, Slot::Failed(error.clone()));
        self.shared.operation_ended(operation, Err(error));
    }
}
