//! What the job no longer has: told to the service in batches.
//!
//! A training step destroys as many arrays as it made. They ride with the next frame, or leave with
//! the dispatcher when the job is quiet, or at once when they are many or large.
//!
//! Promise: a drop is sent after every frame that was sent before the array's destruction.

use salus_channel::Outbox;
use salus_wire::{DropArrays, DropProgram, SegmentGone, ToService, limits};

use crate::lock;
use crate::session::Session;

/// What the job no longer has and the service has not been told yet.
#[derive(Default)]
pub(crate) struct Drops {
    arrays: Vec<u64>,
    programs: Vec<u64>,
    /// Segments that were unmapped.
    segments: Vec<u32>,
    /// Bytes that the arrays occupy.
    bytes: u64,
    /// Changes with every addition, so that the dispatcher sees a quiet moment.
    pub(crate) changes: u64,
    /// The dispatcher sleeps without a timeout and must be poked.
    pub(crate) asleep: bool,
}

impl Drops {
    pub(crate) fn is_empty(&self) -> bool {
        self.arrays.is_empty() && self.programs.is_empty() && self.segments.is_empty()
    }
}

/// Dropped arrays that may wait for a frame to ride with. More of them, or more bytes, are worth a
/// write of their own: other jobs may wait for the memory.
const DROPS_WAITING_MAX: usize = 256;
const DROPS_WAITING_BYTES_MAX: u64 = 16 << 20;

impl Session {
    /// Notes an array that the job no longer has; `bytes` is what that frees.
    pub(crate) fn drop_array(&self, array: u64, bytes: u64) {
        self.forget_failure(array);
        self.add_drop(|drops| {
            drops.arrays.push(array);
            drops.bytes += bytes;
        });
    }

    pub(crate) fn drop_program(&self, program: u64) {
        self.add_drop(|drops| drops.programs.push(program));
    }

    pub(crate) fn drop_segment(&self, segment: u32) {
        self.add_drop(|drops| drops.segments.push(segment));
    }

    fn add_drop(&self, add: impl FnOnce(&mut Drops)) {
        if self.usable().is_err() {
            return;
        }
        let mut drops = lock(&self.drops);
        add(&mut drops);
        drops.changes += 1;
        if drops.arrays.len() > DROPS_WAITING_MAX || drops.bytes > DROPS_WAITING_BYTES_MAX {
            drop(drops);
            let _ = self.transmit(|_| ());
        } else if std::mem::take(&mut drops.asleep) {
            drop(drops);
            self.wake_dispatcher();
        }
    }

    /// Puts what was dropped before the next frame.
    pub(crate) fn carry_drops(&self, outbox: &mut Outbox) {
        let mut drops = lock(&self.drops);
        if drops.is_empty() {
            return;
        }
        let room = drops.arrays.len().min(DROPS_WAITING_MAX);
        let mut arrays = std::mem::replace(&mut drops.arrays, Vec::with_capacity(room));
        let programs = std::mem::take(&mut drops.programs);
        let segments = std::mem::take(&mut drops.segments);
        drops.bytes = 0;
        drops.changes += 1;
        drop(drops);
        while arrays.len() > limits::BATCH {
            let rest = arrays.split_off(limits::BATCH);
            outbox.push(&ToService::from(DropArrays { arrays }), None);
            arrays = rest;
        }
        if !arrays.is_empty() {
            outbox.push(&ToService::from(DropArrays { arrays }), None);
        }
        for program in programs {
            outbox.push(&ToService::from(DropProgram { program }), None);
        }
        for id in segments {
            outbox.push(&ToService::from(SegmentGone { id }), None);
        }
    }
}
