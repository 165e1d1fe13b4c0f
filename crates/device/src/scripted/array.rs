//! An array of the scripted device.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use salus_channel::lock;

use super::cell::{Cell, Charge};
use super::lane::Ended;
use crate::{Placement, Shape};

pub struct ScriptedArray {
    pub(super) cell: Arc<Cell>,
    pub(super) shape: Shape,
    pub(super) placement: Placement,
    pub(super) bytes: u64,
    /// Moves to the output that takes the array's place.
    charge: Mutex<Option<Charge>>,
    pub(super) given: AtomicBool,
    /// The run that it was donated to.
    pub(super) donated_to: Mutex<Option<Arc<Ended>>>,
}

impl Drop for ScriptedArray {
    fn drop(&mut self) {
        let run = self
            .donated_to
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = run.take() {
            run.wait();
        }
    }
}

impl ScriptedArray {
    /// `charge` is `None` for an array that there was no memory for.
    pub(super) fn new(
        cell: Arc<Cell>,
        shape: Shape,
        placement: Placement,
        bytes: u64,
        charge: Option<Charge>,
    ) -> ScriptedArray {
        ScriptedArray {
            cell,
            shape,
            placement,
            bytes,
            charge: Mutex::new(charge),
            given: AtomicBool::new(false),
            donated_to: Mutex::default(),
        }
    }

    pub(super) fn take_charge(&self) -> Option<Charge> {
        lock(&self.charge).take()
    }
}
