//! Arrays: on the device or paged out to host memory, and whom their bytes are charged to.
//!
//! Promise: what the engine reserved for an array is given back exactly once: when the last user of
//! the array lets go of it, unless the charge was passed on, to a launch's output that takes a
//! donated argument's place or to the array's page.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use salus_device::{Device, Shape};
use salus_engine::{Event, SessionId};
use salus_wire::Error;

use super::Host;
use super::leases::Lease;
use super::pages::Place;

/// What a session holds beyond what the ledger knows, for `salus ps`.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// The largest scratch of a program that it ran.
    pub(crate) scratch_bytes: AtomicU64,
    pub(crate) programs: AtomicU64,
}

/// What moving a session's arrays came to so far, for `salus ps`.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(crate) out_bytes: AtomicU64,
    /// Of those, bytes that had to be copied.
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) out_ns: AtomicU64,
    pub(crate) in_bytes: AtomicU64,
    pub(crate) in_ns: AtomicU64,
}

impl Moves {
    pub(super) fn out(&self, bytes: u64, copied: u64, took: Duration) {
        self.out_bytes.fetch_add(bytes, Relaxed);
        self.copied_bytes.fetch_add(copied, Relaxed);
        self.out_ns.fetch_add(nanoseconds(took), Relaxed);
    }

    pub(super) fn back(&self, bytes: u64, took: Duration) {
        self.in_bytes.fetch_add(bytes, Relaxed);
        self.in_ns.fetch_add(nanoseconds(took), Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Bytes that the engine reserved for a session.
pub(super) struct Charge<D: Device> {
    bytes: u64,
    owner: SessionId,
    paged: bool,
    passed_on: AtomicBool,
    host: Arc<Host<D>>,
}

impl<D: Device> Charge<D> {
    /// The engine has reserved them.
    pub(super) fn on_device(host: &Arc<Host<D>>, owner: SessionId, bytes: u64) -> Self {
        Self {
            bytes,
            owner,
            paged: false,
            passed_on: AtomicBool::new(false),
            host: Arc::clone(host),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The same bytes, charged to another array or in another place. The second time nothing is
    /// left to pass on.
    pub(super) fn pass_on(&self, paged: bool) -> Self {
        let gone = self.passed_on.swap(true, AcqRel);
        Self {
            bytes: if gone { 0 } else { self.bytes },
            owner: self.owner,
            paged,
            passed_on: AtomicBool::new(false),
            host: Arc::clone(&self.host),
        }
    }
}

impl<D: Device> Drop for Charge<D> {
    fn drop(&mut self) {
        if self.bytes > 0 && !self.passed_on.swap(true, AcqRel) {
            let (resident_bytes, paged_bytes) = match self.paged {
                false => (self.bytes, 0),
                true => (0, self.bytes),
            };
            let released = Event::Released {
                session: self.owner,
                resident_bytes,
                paged_bytes,
            };
            self.host.scheduling.tell(released, None);
        }
    }
}

/// One array on the device, shared by the session's table, launches that use it and reads under
/// way.
pub(crate) struct Entry<D: Device> {
    pub(crate) array: D::Array,
    pub(crate) kind: Kind<D>,
    /// Whose programs may use it.
    pub(super) lane: u32,
    bytes: u64,
    pub(super) charge: Charge<D>,
    /// Copies under way, and launches that wait for a callback: no other launch must overwrite what
    /// they read.
    pub(super) readers: AtomicU32,
    /// The page that it was brought back from, where it may still live.
    pub(super) home: Option<Place>,
}

/// Where an array's shape is written down; outputs share their program's.
pub(crate) enum Kind<D: Device> {
    Own {
        shape: Shape,
        /// Index into the description's memories.
        memory: u32,
    },
    Output {
        program: Arc<Lease<D>>,
        index: usize,
        /// The launch that makes it.
        operation: u64,
    },
}

impl<D: Device> Entry<D> {
    pub(super) fn new(
        array: D::Array,
        kind: Kind<D>,
        lane: u32,
        charge: Charge<D>,
        home: Option<Place>,
    ) -> Arc<Self> {
        Arc::new(Self {
            bytes: charge.host.device.array_bytes(&array),
            array,
            kind,
            lane,
            charge,
            readers: AtomicU32::new(0),
            home,
        })
    }

    pub(super) fn device(&self) -> &D {
        &self.charge.host.device
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn shape(&self) -> &Shape {
        match &self.kind {
            Kind::Own { shape, .. } => shape,
            Kind::Output { program, index, .. } => &program.signature.outputs[*index].shape,
        }
    }

    /// Index into the description's memories.
    pub(super) fn memory(&self) -> u32 {
        match &self.kind {
            Kind::Own { memory, .. } => *memory,
            Kind::Output { program, index, .. } => program.signature.outputs[*index].memory,
        }
    }
}

/// An array that is being read where the device does not see it, so that nobody overwrites it in
/// place.
pub(super) struct Reading<D: Device>(Arc<Entry<D>>);

impl<D: Device> Reading<D> {
    pub(super) fn of(entry: &Arc<Entry<D>>) -> Self {
        entry.readers.fetch_add(1, Acquire);
        Self(Arc::clone(entry))
    }
}

impl<D: Device> Drop for Reading<D> {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Release);
    }
}

/// One array in host memory.
pub(crate) struct Page<D: Device> {
    pub(super) shape: Shape,
    pub(super) place: Place,
    pub(super) charge: Charge<D>,
}

impl Usage {
    pub(super) fn ran(&self, scratch_bytes: u64) {
        self.scratch_bytes.fetch_max(scratch_bytes, Relaxed);
    }
}

/// What an array's id stands for.
#[derive(Clone)]
pub(super) enum Slot<D: Device> {
    Live(Arc<Entry<D>>),
    Paged(Arc<Page<D>>),
    Failed(Error),
}

/// An array as a waiting launch holds it.
pub(super) enum Held<D: Device> {
    Live(Arc<Entry<D>>),
    Paged(Arc<Page<D>>),
}

impl<D: Device> Held<D> {
    pub(super) fn shape(&self) -> &Shape {
        match self {
            Self::Live(entry) => entry.shape(),
            Self::Paged(page) => &page.shape,
        }
    }

    pub(super) fn charge_bytes(&self) -> u64 {
        match self {
            Self::Live(entry) => entry.charge.bytes(),
            Self::Paged(page) => page.charge.bytes(),
        }
    }

    pub(super) fn absent_bytes(&self) -> u64 {
        match self {
            Self::Live(_) => 0,
            Self::Paged(page) => page.charge.bytes(),
        }
    }
}
