//! One call of the device's `launch` at a time in a lane, on devices that enqueue.
//!
//! An accelerator allocates a launch's scratch and outputs while the call enqueues it, and gives the
//! scratch back, to whatever is enqueued next, when the call returns; the iteration itself runs later. So
//! the ledger, which counts the largest scratch of those handed to a lane, is right only if no two calls
//! of a lane overlap. The follower is still enqueued while the first runs on the device.
//!
//! Uploads, copies and page-ins allocate beside such a call. Their bytes are arrays', which the ledger has
//! reserved before, as it has the call's outputs, so they need not wait. An allocator that divides memory
//! badly may have none left for them as long as the scratch is taken; then they are retried after the call.
//!
//! Not here: a device whose memory is the host's. It takes scratch while an iteration runs, and its lanes
//! run one at a time by themselves, so nothing is locked.

use std::sync::{Mutex, MutexGuard};

use salus_channel::lock;
use salus_wire::{Description, Error, ErrorCode};

pub(crate) struct LaunchCalls {
    /// One for each lane; none where calls may overlap.
    lanes: Vec<Mutex<()>>,
}

impl LaunchCalls {
    pub(crate) fn new(description: &Description) -> Self {
        let lanes = match description.on_host {
            true => 0,
            false => description.lanes,
        };
        Self {
            lanes: (0..lanes).map(|_| Mutex::default()).collect(),
        }
    }

    /// Waits until no other call is in the lane.
    pub(super) fn enter(&self, lane: u32) -> Option<MutexGuard<'_, ()>> {
        self.lanes.get(lane as usize).map(lock)
    }

    /// Does what allocates; once more while no call is in the lane if there was no memory for it.
    pub(crate) fn or_after_call<T>(
        &self,
        lane: u32,
        allocate: impl Fn() -> Result<T, Error>,
    ) -> Result<T, Error> {
        match allocate() {
            Err(error) if error.code == ErrorCode::ResourceExhausted => match self.enter(lane) {
                Some(_alone) => allocate(),
                None => Err(error),
            },
            done => done,
        }
    }
}
