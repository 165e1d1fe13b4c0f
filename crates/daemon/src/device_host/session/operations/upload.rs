//! Uploads: an array of the job's own memory, wrapped or copied.
//!
//! On a device whose memory is the host's, an uploaded array *is* the job's shared memory, and nothing is
//! copied. The job can still write to it, also while a program sorts it in place or indexes by it, and
//! what the program then does it does in the process that all jobs share. Where all jobs belong to one
//! user, that user can avoid it. Where a service admits several users ([`HostSettings::copies_uploads`]),
//! the array is a copy in memory of the service, made before anything reads it, and the job may reuse its
//! region at once.
//!
//! [`HostSettings::copies_uploads`]: crate::config::HostSettings::copies_uploads

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use salus_device::{Device, HeapMemory, HostMemory, Placement, Shape, host_bytes};
use salus_wire::{ArrayFailed, ArrayId, Error, ErrorCode, FromService, Region};

use crate::device_host::errors::resource_exhausted;
use crate::device_host::memory::arrays::{Charge, Entry, Home, Kind, Slot};
use crate::device_host::memory::page_pool::{PageMemory, Pool};
use crate::device_host::memory::shared_range::SharedRange;
use crate::device_host::programs::normalize;
use crate::device_host::session::operations::Operation;
use crate::device_host::session::{SessionThread, SharedSession};

/// Copies of at least this size are made in pages, which are kept warm and can be paged out without
/// another copy. Smaller ones are made in the heap, because a mapping for each would be slow and a
/// process may not have many.
const PAGE_BYTES_MIN: u64 = 1 << 20;

/// How often an upload asks for more memory on a device that has none although the ledger had.
const ASKS_MAX: u32 = 3;
/// The least that it asks for beyond what was free then.
const MORE_BYTES: u64 = 1 << 20;

/// An upload that the device had no room for.
pub(crate) struct Again {
    asks: u32,
    /// What it asks for beyond what it needs, so that others are paged out for it.
    pub(super) extra_bytes: u64,
    pub(super) error: Error,
}

impl<D: Device> SessionThread<D> {
    pub(crate) fn upload(
        &mut self,
        array: ArrayId,
        mut shape: Shape,
        placement: Placement,
        data: SharedRange,
        again: Option<Again>,
    ) {
        let bytes = host_bytes(&shape).unwrap_or(0) as u64;
        let bytes = self.host.charged_bytes(placement.memory, bytes);
        let (host, id) = (&self.host, self.shared.id);
        let charge = Charge::in_memory(host, id, bytes, placement.memory);
        let extra_bytes = again.as_ref().map_or(0, |again| again.extra_bytes);
        let _extra = Charge::on_device(host, id, extra_bytes);
        normalize(&mut shape);
        let region = LentRegion::of(&self.shared, &data);
        match self.upload_where_there_is_room(&data, &region, &shape, placement) {
            Ok((made, home)) => {
                let home = home.map(Home::Wrapped);
                let entry = Entry::new(made, Kind::Own { shape }, placement, charge, home);
                self.arrays.put(array, Slot::Live(entry));
            }
            Err(error) => {
                self.host.device_failed(self.shared.id, None, &error);
                let again = self.ask_for_more(placement, bytes, again, &error);
                match again.filter(|_| region.take_back()) {
                    Some(again) => self.window.push_front(Operation::Upload {
                        array,
                        shape,
                        memory: placement.memory,
                        data,
                        again: Some(again),
                    }),
                    None => self.upload_failed(array, error),
                }
            }
        }
    }

    /// Uploads. Where a launch is being enqueued and has the memory for its scratch, once more after it.
    fn upload_where_there_is_room(
        &self,
        data: &SharedRange,
        region: &Arc<LentRegion<D>>,
        shape: &Shape,
        placement: Placement,
    ) -> Result<(D::Array, Option<PageMemory>), Error> {
        let upload = || {
            let (host, home) = self.uploaded_memory(data, region)?;
            let made = self.host.device.upload(host, shape, placement)?;
            Ok((made, home))
        };
        self.host.launch_calls.or_after_call(placement.lane, upload)
    }

    /// What the upload asks for if it is to be retried.
    fn ask_for_more(
        &self,
        placement: Placement,
        bytes: u64,
        again: Option<Again>,
        error: &Error,
    ) -> Option<Again> {
        let description = self.host.device.description();
        let is_short = error.code == ErrorCode::ResourceExhausted;
        if description.on_host || placement.is_host(description) || !is_short {
            return None;
        }
        let asks = again.map_or(0, |again| again.asks) + 1;
        let (free, room) = self.free_and_room();
        let more = free + (bytes.max(MORE_BYTES) << asks);
        let extra_bytes = more.min(room.saturating_sub(bytes));
        (asks <= ASKS_MAX).then(|| Again {
            asks,
            extra_bytes,
            error: error.clone(),
        })
    }

    /// The memory that the device is given, and the page if it is one.
    fn uploaded_memory(
        &self,
        data: &SharedRange,
        region: &Arc<LentRegion<D>>,
    ) -> Result<Uploaded, Error> {
        if !self.host.copy_uploads || data.len() == 0 {
            return Ok((Box::new((data.memory(), Arc::clone(region))), None));
        }
        copy(data, &self.host.pages).map_err(|e| {
            resource_exhausted(format!(
                "the service has no memory for an array of {} bytes: {e}",
                data.len()
            ))
        })
    }

    pub(crate) fn upload_failed(&mut self, array: ArrayId, error: Error) {
        let failed = ArrayFailed {
            array,
            error: error.clone(),
        };
        self.shared.send(&FromService::from(failed), None);
        self.arrays.put(array, Slot::Failed(error));
    }
}

type Uploaded = (Box<dyn HostMemory>, Option<PageMemory>);

/// A copy of a job's bytes that the job cannot write.
fn copy(data: &SharedRange, pages: &Arc<Pool>) -> io::Result<Uploaded> {
    if data.len() as u64 >= PAGE_BYTES_MIN {
        let page = pages.page(data.len() as u64)?;
        data.bytes().copy_to(page.bytes());
        return Ok((Box::new(page.clone()), Some(page)));
    }
    let heap = HeapMemory::zeroed(data.len());
    data.bytes().copy_to(heap.bytes());
    Ok((Box::new(heap), None))
}

/// A region of the job's memory that an array is in: the job may reuse it when this is dropped.
struct LentRegion<D: Device> {
    session: Arc<SharedSession<D>>,
    region: Region,
    /// It is not lent after all.
    is_taken_back: AtomicBool,
}

impl<D: Device> LentRegion<D> {
    fn of(session: &Arc<SharedSession<D>>, data: &SharedRange) -> Arc<Self> {
        Arc::new(Self {
            session: Arc::clone(session),
            region: data.region(),
            is_taken_back: AtomicBool::new(false),
        })
    }

    /// Whether nobody uses it; if so, the job may not reuse it yet.
    fn take_back(self: &Arc<Self>) -> bool {
        let is_unused = Arc::strong_count(self) == 1;
        if is_unused {
            self.is_taken_back.store(true, Relaxed);
        }
        is_unused
    }
}

impl<D: Device> Drop for LentRegion<D> {
    fn drop(&mut self) {
        if !*self.is_taken_back.get_mut() {
            self.session.region_released(self.region);
        }
    }
}
