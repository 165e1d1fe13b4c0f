//! Arrays: on the device or paged out to host memory, and which session their bytes are charged to.
//!
//! Promise: what the engine reserved for an array is given back exactly once: when the last user of
//! the array drops it, unless the charge was passed on, to a launch's output that takes a donated
//! argument's place or to the array's page.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use salus_device::{Device, Placement, Shape, is_host_memory};
use salus_engine::{Event, SessionId};
use salus_wire::{Error, OperationId};

use crate::device_host::Host;
use crate::device_host::memory::page_pool::{KeptPage, PageMemory};
use crate::device_host::programs::leases::Lease;
use crate::device_host::session::SharedSession;

/// What a session uses beyond what the ledger knows, for `salus ps`.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// The largest scratch of the programs that it ran.
    pub(crate) scratch_bytes: AtomicU64,
    pub(crate) programs: AtomicU64,
}

impl Usage {
    pub(crate) fn ran(&self, scratch_bytes: u64) {
        self.scratch_bytes.fetch_max(scratch_bytes, Relaxed);
    }
}

/// What paging a session out and in has moved so far, for `salus ps`.
#[derive(Debug, Default)]
pub(crate) struct PagingTotals {
    pub(crate) out_bytes: AtomicU64,
    /// The part of `out_bytes` that had to be copied.
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) out_ns: AtomicU64,
    pub(crate) in_bytes: AtomicU64,
    pub(crate) in_ns: AtomicU64,
}

impl PagingTotals {
    pub(crate) fn paged_out(&self, bytes: u64, copied_bytes: u64, took: Duration) {
        self.out_bytes.fetch_add(bytes, Relaxed);
        self.copied_bytes.fetch_add(copied_bytes, Relaxed);
        self.out_ns.fetch_add(nanoseconds(took), Relaxed);
    }

    pub(crate) fn paged_in(&self, bytes: u64, took: Duration) {
        self.in_bytes.fetch_add(bytes, Relaxed);
        self.in_ns.fetch_add(nanoseconds(took), Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Where bytes are that a session is charged for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Site {
    Device,
    Page,
    /// In host memory that the device reads and writes itself.
    Host,
}

/// Bytes that the engine reserved for a session.
pub(crate) struct Charge<D: Device> {
    bytes: u64,
    owner: SessionId,
    site: Site,
    passed_on: AtomicBool,
    host: Arc<Host<D>>,
}

impl<D: Device> Charge<D> {
    /// Bytes that the engine has reserved.
    pub(crate) fn on_device(host: &Arc<Host<D>>, owner: SessionId, bytes: u64) -> Self {
        Self {
            bytes,
            owner,
            site: Site::Device,
            passed_on: AtomicBool::new(false),
            host: Arc::clone(host),
        }
    }

    /// Bytes that the engine has reserved for an array in this memory of the device.
    pub(crate) fn in_memory(
        host: &Arc<Host<D>>,
        owner: SessionId,
        bytes: u64,
        memory: u32,
    ) -> Self {
        let mut charge = Self::on_device(host, owner, bytes);
        if is_host_memory(host.device.description(), memory) {
            charge.site = Site::Host;
            host.pages.array_made(bytes);
        }
        charge
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_at(&self, site: Site) -> bool {
        self.site == site
    }

    /// The same bytes where they are, for another array. The second time nothing is left to pass on.
    pub(crate) fn pass_on(&self) -> Self {
        self.move_to(self.site)
    }

    /// The same bytes, which are now on the device or in the array's page.
    pub(crate) fn move_to(&self, site: Site) -> Self {
        let gone = self.passed_on.swap(true, AcqRel);
        Self {
            bytes: if gone { 0 } else { self.bytes },
            owner: self.owner,
            site,
            passed_on: AtomicBool::new(false),
            host: Arc::clone(&self.host),
        }
    }
}

impl<D: Device> Drop for Charge<D> {
    fn drop(&mut self) {
        if self.bytes > 0 && !self.passed_on.swap(true, AcqRel) {
            if self.site == Site::Host {
                self.host.pages.array_gone(self.bytes);
            }
            let at = |site| if self.site == site { self.bytes } else { 0 };
            let released = Event::Released {
                session: self.owner,
                resident_bytes: at(Site::Device),
                paged_bytes: at(Site::Page),
                host_bytes: at(Site::Host),
            };
            self.host.engine.tell(released);
        }
    }
}

/// One array on the device, shared by the session's table, the launches that use it and the reads
/// under way.
pub(crate) struct Entry<D: Device> {
    pub(crate) array: D::Array,
    pub(crate) kind: Kind<D>,
    /// Programs of this lane may use it.
    pub(crate) placement: Placement,
    bytes: u64,
    pub(crate) charge: Charge<D>,
    /// Copies under way, and launches that wait for a callback: no launch may overwrite in place what
    /// they read.
    pub(crate) readers: AtomicU32,
    pub(crate) home: Option<Home>,
}

/// The page that an array was paged in from.
pub(crate) enum Home {
    /// The array may still be in it, because the device's memory is the host's.
    Wrapped(PageMemory),
    /// The array was copied from it, and is the same as long as nothing has overwritten it.
    Copied(KeptPage),
}

impl Home {
    /// What an output has that takes the array's place.
    pub(crate) fn of_output(&self) -> Option<Self> {
        match self {
            Self::Wrapped(page) => Some(Self::Wrapped(page.clone())),
            Self::Copied(_) => None,
        }
    }
}

/// What made an array, and its shape; outputs share their program's.
pub(crate) enum Kind<D: Device> {
    Own {
        shape: Shape,
    },
    Output {
        program: Arc<Lease<D>>,
        index: usize,
        /// The launch that makes it.
        operation: OperationId,
    },
}

impl<D: Device> Entry<D> {
    pub(crate) fn new(
        array: D::Array,
        kind: Kind<D>,
        placement: Placement,
        charge: Charge<D>,
        home: Option<Home>,
    ) -> Arc<Self> {
        Arc::new(Self {
            bytes: charge.host.device.array_bytes(&array),
            array,
            kind,
            placement,
            charge,
            readers: AtomicU32::new(0),
            home,
        })
    }

    pub(crate) fn device(&self) -> &D {
        &self.charge.host.device
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A launch is about to overwrite the array, so its page is no copy of it any more.
    pub(crate) fn overwritten(&self) {
        if let Some(Home::Copied(page)) = &self.home {
            drop(page.take());
        }
    }

    pub(crate) fn shape(&self) -> &Shape {
        match &self.kind {
            Kind::Own { shape } => shape,
            Kind::Output { program, index, .. } => &program.signature.outputs[*index].shape,
        }
    }
}

/// An array that something reads without the device's knowledge, so that no launch overwrites it in
/// place.
pub(crate) struct Reading<D: Device> {
    entry: Arc<Entry<D>>,
    session: Arc<SharedSession<D>>,
}

impl<D: Device> Reading<D> {
    pub(crate) fn of(entry: &Arc<Entry<D>>, session: &Arc<SharedSession<D>>) -> Self {
        entry.readers.fetch_add(1, SeqCst);
        Self {
            entry: Arc::clone(entry),
            session: Arc::clone(session),
        }
    }
}

impl<D: Device> Drop for Reading<D> {
    fn drop(&mut self) {
        self.entry.readers.fetch_sub(1, SeqCst);
        self.session.read_let_go();
    }
}

/// One array that is paged out.
pub(crate) struct Page<D: Device> {
    pub(crate) shape: Shape,
    pub(crate) memory: PageMemory,
    pub(crate) charge: Charge<D>,
}

/// What is behind an array's id.
#[derive(Clone)]
pub(crate) enum Slot<D: Device> {
    Live(Arc<Entry<D>>),
    Paged(Arc<Page<D>>),
    Failed(Error),
}

/// An array as a waiting launch holds it.
pub(crate) enum Held<D: Device> {
    Live(Arc<Entry<D>>),
    Paged(Arc<Page<D>>),
}

impl<D: Device> Held<D> {
    pub(crate) fn shape(&self) -> &Shape {
        match self {
            Self::Live(entry) => entry.shape(),
            Self::Paged(page) => &page.shape,
        }
    }

    pub(crate) fn charge_bytes(&self) -> u64 {
        match self {
            Self::Live(entry) => entry.charge.bytes(),
            Self::Paged(page) => page.charge.bytes(),
        }
    }

    /// What it takes of the device, or will when it is paged in.
    pub(crate) fn device_bytes(&self) -> u64 {
        match self {
            Self::Live(entry) if entry.charge.site == Site::Host => 0,
            _ => self.charge_bytes(),
        }
    }

    /// Its bytes if the engine counts it as paged out: it does not if paging it in has failed.
    pub(crate) fn paged_bytes(&self) -> u64 {
        match self {
            Self::Paged(page) if page.charge.site == Site::Page => page.charge.bytes(),
            Self::Live(_) | Self::Paged(_) => 0,
        }
    }
}
