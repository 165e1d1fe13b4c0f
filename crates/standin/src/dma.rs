//! Host memory that the device may read and write by itself: SEC:1034, `cuMemHostRegister`.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::c_api::error::{Error, Outcome};
use crate::c_api::slot::slots;
use crate::client::{self, Client};
use crate::state::{in_place, on_device};

impl Client {
    /// Whether a range is mapped as a whole; if so, it is counted as moved.
    pub(crate) fn is_mapped(&self, start: usize, len: usize, device: usize) -> bool {
        let mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let before = mapped.range(..=start).next_back();
        let is_mapped = before.is_some_and(|(&at, &size)| start + len <= at + size);
        if is_mapped {
            let moved = self.devices[device]
                .pool
                .place()
                .on_device(on_device::DMA_MOVED_BYTES);
            moved.fetch_add(len as u64, Ordering::Relaxed);
        }
        is_mapped
    }

    fn map(&self, start: usize, len: usize) -> Outcome {
        let place = self.devices[0].pool.place();
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let overlaps = mapped.range(..start + len).next_back();
        if len == 0 || overlaps.is_some_and(|(&at, &size)| at + size > start) {
            return Err(Error::internal(
                "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: part or all of the requested memory \
                 range is already mapped",
            ));
        }
        if !is_there(start, len) {
            return Err(Error::invalid(
                "CUDA_ERROR_INVALID_VALUE: the range is not mapped",
            ));
        }
        mapped.insert(start, len);
        place.count(on_device::DMA_MAPS, 1);
        place
            .word(in_place::DMA_RANGES)
            .fetch_add(1, Ordering::Relaxed);
        let bytes = place
            .word(in_place::DMA_BYTES)
            .fetch_add(len as u64, Ordering::Relaxed);
        let most = place.on_device(on_device::DMA_BYTES_MOST);
        most.fetch_max(bytes + len as u64, Ordering::Relaxed);
        Ok(())
    }

    fn unmap(&self, start: usize) -> Outcome {
        let place = self.devices[0].pool.place();
        let fault = || {
            place
                .on_device(on_device::DMA_FAULTS)
                .fetch_add(1, Ordering::Relaxed)
        };
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(len) = mapped.remove(&start) else {
            fault();
            return Err(Error::internal(
                "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: pointer does not correspond to a \
                 registered memory region",
            ));
        };
        place
            .word(in_place::DMA_RANGES)
            .fetch_sub(1, Ordering::Relaxed);
        place
            .word(in_place::DMA_BYTES)
            .fetch_sub(len as u64, Ordering::Relaxed);
        if !is_there(start, len) {
            // The driver would have pages pinned that belong to nobody, or to somebody else.
            fault();
        }
        Ok(())
    }
}

/// Whether all pages of a range are mapped in this process.
fn is_there(start: usize, len: usize) -> bool {
    const PAGE: usize = 4096;
    let first = start / PAGE * PAGE;
    let pages = (start + len).div_ceil(PAGE) - first / PAGE;
    let mut resident = vec![0u8; pages];
    let address = std::ptr::with_exposed_provenance_mut(first);
    // SAFETY: the kernel checks the range, and the target has a byte for each page.
    unsafe { libc::mincore(address, pages * PAGE, resident.as_mut_ptr()) == 0 }
}

slots! {
    fn PJRT_Client_DmaMap(args: PJRT_Client_DmaMap_Args) {
        let client = client::client(args.client)?;
        match client.config.dma {
            true => client.map(args.data.addr(), args.size),
            false => Err(Error::unimplemented("DmaMap")),
        }
    }

    fn PJRT_Client_DmaUnmap(args: PJRT_Client_DmaUnmap_Args) {
        let client = client::client(args.client)?;
        match client.config.dma {
            true => client.unmap(args.data.addr()),
            false => Err(Error::unimplemented("DmaUnmap")),
        }
    }
}
