//! A session's arrays by the ids that its job has given them.
//!
//! Promise: bounded, whatever a job sends.

use std::collections::HashMap;
use std::sync::Arc;

use salus_device::Device;
use salus_wire::{ArrayId, Error, ErrorCode, limits};

use crate::device_host::errors::{invalid_argument, resource_exhausted};
use crate::device_host::memory::arrays::{Entry, Held, Slot};

pub(crate) struct ArrayTable<D: Device> {
    slots: HashMap<ArrayId, Slot<D>>,
}

impl<D: Device> ArrayTable<D> {
    pub(crate) fn new() -> Self {
        Self {
            slots: HashMap::new(),
        }
    }

    pub(crate) fn get(&self, array: ArrayId) -> Option<&Slot<D>> {
        self.slots.get(&array)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ArrayId, &Slot<D>)> {
        self.slots.iter().map(|(id, slot)| (*id, slot))
    }

    /// An array, on the device or paged out.
    pub(crate) fn held(&self, array: ArrayId) -> Result<Held<D>, Error> {
        match self.slots.get(&array) {
            Some(Slot::Live(entry)) => Ok(Held::Live(Arc::clone(entry))),
            Some(Slot::Paged(page)) => Ok(Held::Paged(Arc::clone(page))),
            Some(Slot::Failed(error)) => Err(error.clone()),
            None => Err(invalid_argument(format!(
                "array {array} has been deleted or donated"
            ))),
        }
    }

    /// An array that is on the device.
    pub(crate) fn live(&self, array: ArrayId) -> Result<Arc<Entry<D>>, Error> {
        match self.held(array)? {
            Held::Live(entry) => Ok(entry),
            Held::Paged(_) => Err(Error::new(
                ErrorCode::Internal,
                format!("array {array} was not paged in; this is a bug of Salus"),
            )),
        }
    }

    pub(crate) fn put(&mut self, array: ArrayId, slot: Slot<D>) {
        self.slots.insert(array, slot);
    }

    pub(crate) fn remove(&mut self, array: ArrayId) {
        self.slots.remove(&array);
    }

    /// Whether `more` arrays fit.
    pub(crate) fn check_room(&self, more: usize) -> Result<(), Error> {
        if self.slots.len() + more <= limits::ARRAYS {
            return Ok(());
        }
        Err(resource_exhausted(format!(
            "this session has {} arrays, and {} is the limit; delete some",
            self.slots.len(),
            limits::ARRAYS
        )))
    }
}
