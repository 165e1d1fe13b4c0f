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

use salus_device::{Device, HeapMemory, HostMemory, Placement, Shape, host_bytes};
use salus_wire::{ArrayFailed, ArrayId, Error, FromService, Region};

use crate::device_host::errors::resource_exhausted;
use crate::device_host::memory::arrays::{Charge, Entry, Home, Kind, Slot};
use crate::device_host::memory::page_pool::{PageMemory, Pool};
use crate::device_host::memory::shared_range::SharedRange;
use crate::device_host::programs::normalize;
use crate::device_host::session::{SessionThread, SharedSession};

/// Copies of at least this size are made in pages, which are kept warm and can be paged out without
/// another copy. Smaller ones are made in the heap, because a mapping for each would be slow and a
/// process may not have many.
const PAGE_BYTES_MIN: u64 = 1 << 20;

impl<D: Device> SessionThread<D> {
    pub(crate) fn upload(
        &mut self,
        array: ArrayId,
        mut shape: Shape,
        placement: Placement,
        data: SharedRange,
    ) {
        let bytes = host_bytes(&shape).unwrap_or(0) as u64;
        let charge = Charge::in_memory(&self.host, self.shared.id, bytes, placement.memory);
        normalize(&mut shape);
        let (host, home) = match self.uploaded_memory(data) {
            Ok(uploaded) => uploaded,
            Err(error) => return self.upload_failed(array, error),
        };
        match self.host.device.upload(host, &shape, placement) {
            Ok(made) => {
                let home = home.map(Home::Wrapped);
                let entry = Entry::new(made, Kind::Own { shape }, placement, charge, home);
                self.arrays.put(array, Slot::Live(entry));
            }
            Err(error) => {
                self.host.device_failed(self.shared.id, None, &error);
                self.upload_failed(array, error);
            }
        }
    }

    /// The memory that the device is given, and the page if it is one.
    fn uploaded_memory(&self, data: SharedRange) -> Result<Uploaded, Error> {
        let lent = LentRegion {
            session: Arc::clone(&self.shared),
            region: data.region(),
        };
        if !self.host.copy_uploads || data.len() == 0 {
            return Ok((Box::new((data.memory(), lent)), None));
        }
        // The job may use its region again when this returns.
        copy(&data, &self.host.pages).map_err(|e| {
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
}

impl<D: Device> Drop for LentRegion<D> {
    fn drop(&mut self) {
        self.session.region_released(self.region);
    }
}
