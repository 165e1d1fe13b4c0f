//! Deferred messages: small uploads, and what the job no longer has. They are sent with the next frame.
//!
//! A training step uploads its batch and destroys as many arrays as it made; a write of its own for
//! each would wake the service as often. So they wait for the next frame, which in a training step is
//! its launch. When the job is quiet, the dispatcher sends them; when they are many or large, they are
//! sent at once.
//!
//! Promise: all are sent in the order in which the job made them, and before every later frame.
//! Not here: when the dispatcher sends them ([`super::turns`]).

use std::sync::MutexGuard;

use salus_channel::{Outbox, lock};
use salus_wire::{
    ArrayId, DropArrays, DropProgram, ProgramId, SegmentGone, SegmentId, ToService, Upload, limits,
};

use super::session::Session;
use super::turns::DeferredState;
use crate::c_api::error::Result;

/// Dropped arrays that may wait for a frame. More of them, or more bytes, are worth a write of their
/// own: other jobs may wait for the memory.
const DROPS_MAX: usize = 256;
const DROPPED_BYTES_MAX: u64 = 16 << 20;
/// Uploads that may wait for a frame. With more bytes, the device had better begin to take them in.
const UPLOADS_MAX: usize = 16;
const UPLOADED_BYTES_MAX: u64 = 64 << 10;

/// What was not sent yet.
#[derive(Default)]
pub(super) struct Deferred {
    /// Uploads, and what the job dropped before them: it makes room for them.
    frames: Vec<ToService>,
    uploads: usize,
    uploaded_bytes: u64,
    /// What the job no longer has.
    arrays: Vec<ArrayId>,
    programs: Vec<ProgramId>,
    /// Segments that were unmapped.
    segments: Vec<SegmentId>,
    /// Bytes that the arrays occupy.
    dropped_bytes: u64,
    /// Changes with every addition and every flush, so that the dispatcher sees a quiet moment.
    changes: u64,
}

impl Deferred {
    pub(super) fn state(&self) -> DeferredState {
        DeferredState {
            changes: self.changes,
            is_empty: self.is_empty(),
        }
    }

    fn is_empty(&self) -> bool {
        self.frames.is_empty()
            && self.arrays.is_empty()
            && self.programs.is_empty()
            && self.segments.is_empty()
    }

    /// Moves everything into the outbox, before the next frame.
    pub(super) fn flush_into(&mut self, outbox: &mut Outbox) {
        if self.is_empty() {
            return;
        }
        self.frame_drops();
        for frame in self.frames.drain(..) {
            outbox.push(&frame, None);
        }
        self.uploads = 0;
        self.uploaded_bytes = 0;
        self.dropped_bytes = 0;
        self.changes += 1;
    }

    /// What was dropped so far goes before whatever comes next.
    fn frame_drops(&mut self) {
        let room = self.arrays.len().min(DROPS_MAX);
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

    /// Whether it is worth a write of its own.
    fn is_much(&self) -> bool {
        self.uploads > UPLOADS_MAX
            || self.uploaded_bytes > UPLOADED_BYTES_MAX
            || self.arrays.len() > DROPS_MAX
            || self.dropped_bytes > DROPPED_BYTES_MAX
    }
}

impl Session {
    /// Sends an upload, now or with the next frame.
    pub(crate) fn send_upload(&self, upload: Upload) -> Result<()> {
        self.usable()?;
        let mut deferred = lock(&self.deferred);
        deferred.frame_drops();
        deferred.uploads += 1;
        deferred.uploaded_bytes += upload.data.length;
        deferred.frames.push(upload.into());
        self.added(deferred)
    }

    /// Notes an array that the job no longer has; `bytes` is what that frees.
    pub(crate) fn drop_array(&self, array: ArrayId, bytes: u64) {
        self.forget_failure(array);
        self.add_drop(|deferred| {
            deferred.arrays.push(array);
            deferred.dropped_bytes += bytes;
        });
    }

    pub(crate) fn drop_program(&self, program: ProgramId) {
        self.add_drop(|deferred| deferred.programs.push(program));
    }

    pub(super) fn drop_segment(&self, segment: SegmentId) {
        self.add_drop(|deferred| deferred.segments.push(segment));
    }

    fn add_drop(&self, add: impl FnOnce(&mut Deferred)) {
        if self.usable().is_ok() {
            let mut deferred = lock(&self.deferred);
            add(&mut deferred);
            // If it cannot be sent, the session is lost and all its arrays with it.
            let _ = self.added(deferred);
        }
    }

    /// Sends what waits if it is much; else the next frame or the dispatcher does.
    fn added(&self, mut deferred: MutexGuard<'_, Deferred>) -> Result<()> {
        deferred.changes += 1;
        let is_much = deferred.is_much();
        drop(deferred);
        if is_much {
            return self.flush_deferred_now();
        }
        self.turns.deferred(self);
        Ok(())
    }
}
