//! Arrays on the device: who holds how many bytes.
//!
//! Promise: what is charged is given back exactly once, when the last user of an array lets go of
//! it, or when a launch takes it over as a donated argument.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use salus_device::{Device, Shape};

use super::Host;
use super::programs::Program;

/// Bytes of the whole device.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    resident_bytes: AtomicU64,
    /// Scratch of what runs now.
    scratch_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

/// What a session holds, for `salus ps`.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub(crate) resident_bytes: AtomicU64,
    /// The largest scratch of a program that it ran.
    pub(crate) scratch_bytes: AtomicU64,
    pub(crate) arrays: AtomicU64,
    pub(crate) programs: AtomicU64,
}

impl Memory {
    pub(super) fn resident_bytes(&self) -> u64 {
        self.resident_bytes.load(Relaxed)
    }

    pub(super) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Relaxed)
    }

    pub(super) fn scratch_taken(&self, bytes: u64) {
        self.scratch_bytes.fetch_add(bytes, Relaxed);
        self.note_peak();
    }

    pub(super) fn scratch_given_back(&self, bytes: u64) {
        self.scratch_bytes.fetch_sub(bytes, Relaxed);
    }

    fn note_peak(&self) {
        let now = self.resident_bytes.load(Relaxed) + self.scratch_bytes.load(Relaxed);
        self.peak_bytes.fetch_max(now, Relaxed);
    }
}

/// One array, shared by the session's table, launches that use it and reads under way.
pub(crate) struct Entry<D: Device> {
    pub(crate) array: D::Array,
    pub(crate) kind: Kind<D>,
    bytes: u64,
    charged: AtomicBool,
    /// Copies to the host under way: a launch must not overwrite what they read.
    pub(super) readers: AtomicU32,
    usage: Arc<Usage>,
    host: Arc<Host<D>>,
}

/// Where an array's shape is written down; outputs share their program's.
pub(crate) enum Kind<D: Device> {
    Own(Shape),
    Output {
        program: Arc<Program<D>>,
        index: usize,
        /// The launch that makes it.
        operation: u64,
    },
}

impl<D: Device> Entry<D> {
    pub(super) fn new(
        host: &Arc<Host<D>>,
        usage: &Arc<Usage>,
        array: D::Array,
        kind: Kind<D>,
    ) -> Arc<Self> {
        let bytes = host.device.array_bytes(&array);
        usage.resident_bytes.fetch_add(bytes, Relaxed);
        usage.arrays.fetch_add(1, Relaxed);
        host.memory.resident_bytes.fetch_add(bytes, Relaxed);
        host.memory.note_peak();
        Arc::new(Self {
            array,
            kind,
            bytes,
            charged: AtomicBool::new(true),
            readers: AtomicU32::new(0),
            usage: Arc::clone(usage),
            host: Arc::clone(host),
        })
    }

    pub(super) fn device(&self) -> &D {
        &self.host.device
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn shape(&self) -> &Shape {
        match &self.kind {
            Kind::Own(shape) => shape,
            Kind::Output { program, index, .. } => &program.signature.outputs[*index].shape,
        }
    }

    /// Its memory now belongs to a launch's outputs, which are charged themselves.
    pub(super) fn donated(&self) {
        if self.charged.swap(false, AcqRel) {
            self.usage.resident_bytes.fetch_sub(self.bytes, Relaxed);
            self.usage.arrays.fetch_sub(1, Relaxed);
            self.host
                .memory
                .resident_bytes
                .fetch_sub(self.bytes, Relaxed);
        }
    }
}

impl<D: Device> Drop for Entry<D> {
    fn drop(&mut self) {
        self.donated();
    }
}
