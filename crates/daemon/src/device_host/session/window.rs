//! A session's window: operations that its job has sent and that are not done yet, in order.
//!
//! Promise: bounded, by operations and by the ids in them, whatever a job sends. While the window is
//! full no frame is read: the backpressure is that the job waits in its own `send`.

use std::collections::VecDeque;

use salus_device::Device;
use salus_wire::limits;

use crate::device_host::session::operations::Operation;

/// Operations at the most: more than a job's window of launches with everything around them.
const OPERATIONS_MAX: usize = 4096;
/// Ids at the most: those of sixteen of the largest launches.
const IDS_MAX: usize = 16 * limits::ARGUMENTS;

pub(crate) struct Window<D: Device> {
    operations: VecDeque<Operation<D>>,
    /// Ids in the operations, which make up most of the window's size.
    ids: usize,
}

impl<D: Device> Window<D> {
    pub(crate) fn new() -> Self {
        Self {
            operations: VecDeque::new(),
            ids: 0,
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.operations.len() < OPERATIONS_MAX && self.ids < IDS_MAX
    }

    pub(crate) fn push_back(&mut self, operation: Operation<D>) {
        self.ids += operation.ids();
        self.operations.push_back(operation);
    }

    pub(crate) fn pop_front(&mut self) -> Option<Operation<D>> {
        let operation = self.operations.pop_front()?;
        self.ids -= operation.ids();
        Some(operation)
    }

    /// Puts back an operation that was not done after all.
    pub(crate) fn push_front(&mut self, operation: Operation<D>) {
        self.ids += operation.ids();
        self.operations.push_front(operation);
    }

    pub(crate) fn front(&self) -> Option<&Operation<D>> {
        self.operations.front()
    }

    /// The head may be changed, except for its ids.
    pub(crate) fn front_mut(&mut self) -> Option<&mut Operation<D>> {
        self.operations.front_mut()
    }

    pub(crate) fn clear(&mut self) {
        self.operations.clear();
        self.ids = 0;
    }
}
