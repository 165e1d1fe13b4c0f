//! What can wait for the next frame: small uploads, and what the job no longer has.
//!
//! A training step uploads its batch and destroys as many arrays as it made; a write of its own for
//! each would wake the service as often. They ride with the next frame, which in a training step is
//! its launch, or leave with the dispatcher when the job is quiet, or at once when they are many or
//! large.
//!
//! Promise: all leave in the order in which the job did them, and before every later frame.

use std::sync::MutexGuard;

use salus_channel::Outbox;
use salus_wire::{DropArrays, DropProgram, SegmentGone, ToService, Upload, limits};

use crate::error::Result;
use crate::lock;
use crate::session::Session;

/// What the service has not been told yet.
#[derive(Default)]
pub(crate) struct Riders {
    /// Uploads, and what the job dropped before them: it makes room for them.
    frames: Vec<ToService>,
    uploads: usize,
    upload_bytes: u64,
    /// What the job no longer has.
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

impl Riders {
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
            && self.arrays.is_empty()
            && self.programs.is_empty()
            && self.segments.is_empty()
    }

    /// What was dropped so far goes before whatever comes next.
    fn frame_drops(&mut self) {
        let room = self.arrays.len().min(DROPS_WAITING_MAX);
        let mut arrays = std::mem::replace(&mut self.arrays, Vec::with_capacity(room));
        while arrays.len() > limits::BATCH {
            let rest = arrays.split_off(limits::BATCH);
            self.frames.push(DropArrays { arrays }.into());
            arrays = rest;
        }
        if !arrays.is_empty() {
            self.frames.push(DropArrays { arrays }.into());
        }
        let programs = self.programs.drain(..);
        let programs = programs.map(|program| DropProgram { program }.into());
        self.frames.extend(programs);
        let segments = self.segments.drain(..);
        self.frames
            .extend(segments.map(|id| SegmentGone { id }.into()));
    }
}

/// Dropped arrays that may wait for a frame to ride with. More of them, or more bytes, are worth a
/// write of their own: other jobs may wait for the memory.
const DROPS_WAITING_MAX: usize = 256;
const DROPS_WAITING_BYTES_MAX: u64 = 16 << 20;
/// Uploads that may wait likewise. With more bytes, the device had better begin to take them in.
const UPLOADS_WAITING_MAX: usize = 16;
const UPLOADS_WAITING_BYTES_MAX: u64 = 64 << 10;

impl Session {
    /// Sends an upload, now or with the next frame.
    pub(crate) fn send_upload(&self, upload: Upload) -> Result<()> {
        self.usable()?;
        let mut riders = lock(&self.riders);
        riders.frame_drops();
        riders.uploads += 1;
        riders.upload_bytes += upload.data.length;
        riders.frames.push(upload.into());
        if riders.uploads > UPLOADS_WAITING_MAX || riders.upload_bytes > UPLOADS_WAITING_BYTES_MAX {
            drop(riders);
            return self.transmit(|_| ());
        }
        self.added(riders);
        Ok(())
    }

    /// Notes an array that the job no longer has; `bytes` is what that frees.
    pub(crate) fn drop_array(&self, array: u64, bytes: u64) {
        self.forget_failure(array);
        self.add_drop(|riders| {
            riders.arrays.push(array);
            riders.bytes += bytes;
        });
    }

    pub(crate) fn drop_program(&self, program: u64) {
        self.add_drop(|riders| riders.programs.push(program));
    }

    pub(crate) fn drop_segment(&self, segment: u32) {
        self.add_drop(|riders| riders.segments.push(segment));
    }

    fn add_drop(&self, add: impl FnOnce(&mut Riders)) {
        if self.usable().is_err() {
            return;
        }
        let mut riders = lock(&self.riders);
        add(&mut riders);
        if riders.arrays.len() > DROPS_WAITING_MAX || riders.bytes > DROPS_WAITING_BYTES_MAX {
            drop(riders);
            let _ = self.transmit(|_| ());
        } else {
            self.added(riders);
        }
    }

    /// The dispatcher sees to what is left waiting.
    fn added(&self, mut riders: MutexGuard<'_, Riders>) {
        riders.changes += 1;
        if std::mem::take(&mut riders.asleep) {
            drop(riders);
            self.wake_dispatcher();
        }
    }

    /// Puts what waits before the next frame.
    pub(crate) fn carry_riders(&self, outbox: &mut Outbox) {
        let mut riders = lock(&self.riders);
        if riders.is_empty() {
            return;
        }
        riders.frame_drops();
        for frame in riders.frames.drain(..) {
            outbox.push(&frame, None);
        }
        riders.uploads = 0;
        riders.upload_bytes = 0;
        riders.bytes = 0;
        riders.changes += 1;
    }
}
