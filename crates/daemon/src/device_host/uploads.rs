//! Arrays that a job gives: its own memory wrapped, or a copy of it.
//!
//! On a device whose memory is the host's, an upload *is* the job's shared memory, and nothing is copied.
//! The job can still write to it, also while a program sorts it in place or indexes by it, and what the
//! program then does it does in the process that all jobs share. Where jobs belong to one user that is
//! theirs to avoid. Where a service admits several users ([`HostSettings::copies_uploads`]) the array is a
//! copy in memory of the service, made before anything reads it, and the job has its region back at once.
//!
//! [`HostSettings::copies_uploads`]: crate::config::HostSettings::copies_uploads
#![expect(unsafe_code, reason = "copies out of a job's shared memory")]

use std::io;
use std::sync::Arc;

use salus_device::{Device, HostMemory, Shape, host_bytes};
use salus_wire::{ArrayFailed, Error, FromService};

use super::arrays::{Charge, Entry, Kind, Slot};
use super::operations::{Operations, RESOURCE_EXHAUSTED, Range};
use super::pages::{Place, Pool};
use super::programs::normalize;
use super::session::Session;

/// Copies from this size on lie in pages: those are kept warm, and leave for host memory without another
/// copy. Smaller ones come from the heap, because a mapping for each would be slow and there may not be
/// many.
const PAGE_BYTES: u64 = 1 << 20;

impl<D: Device> Operations<D> {
    pub(super) fn upload(
        &mut self,
        array: u64,
        mut shape: Shape,
        lane: u32,
        memory: u32,
        data: Range,
    ) {
        let bytes = host_bytes(&shape).unwrap_or(0) as u64;
        let charge = Charge::on_device(&self.host, self.session.id, bytes);
        normalize(&mut shape);
        let (host, home) = match self.given(data) {
            Ok(given) => given,
            Err(error) => return self.upload_failed(array, error),
        };
        let target = self.memory_of(lane, memory);
        match self.host.device.upload(host, &shape, target) {
            Ok(made) => {
                let entry = Entry::new(made, Kind::Own { shape, memory }, lane, charge, home);
                self.put(array, Slot::Live(entry));
            }
            Err(error) => self.upload_failed(array, error),
        }
    }

    /// The memory of an upload as the device gets it, and the page that it is.
    fn given(&self, data: Range) -> Result<(HostMemory, Option<Place>), Error> {
        let (address, len) = (data.address(), data.region.length as usize);
        let lent = Lent {
            session: Arc::clone(&self.session),
            data,
        };
        if !self.host.copy_uploads || len == 0 {
            let release = Box::new(lent);
            return Ok((
                HostMemory {
                    address,
                    len,
                    release,
                },
                None,
            ));
        }
        let copied = Owned::of(address, len, &self.host.pages).map_err(|e| Error {
            code: RESOURCE_EXHAUSTED,
            message: format!("the service has no memory for an array of {len} bytes: {e}"),
        })?;
        // The job may use its region again.
        drop(lent);
        Ok(match copied {
            Owned::Page(place) => (
                HostMemory {
                    address: place.address(),
                    len,
                    release: Box::new(place.clone()),
                },
                Some(place),
            ),
            Owned::Heap(mut lines) => (
                HostMemory {
                    address: lines.as_mut_ptr().cast(),
                    len,
                    release: Box::new(lines),
                },
                None,
            ),
        })
    }

    pub(super) fn upload_failed(&mut self, array: u64, error: Error) {
        let failed = ArrayFailed {
            array,
            error: error.clone(),
        };
        self.session.send(&FromService::from(failed), None);
        self.put(array, Slot::Failed(error));
    }
}

/// What the CPU plugin wraps without a copy begins at such an address.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line {
    _bytes: [u8; 64],
}

/// A copy of a job's bytes that the job cannot write.
enum Owned {
    Page(Place),
    Heap(Vec<Line>),
}

impl Owned {
    fn of(from: *const u8, len: usize, pages: &Arc<Pool>) -> io::Result<Self> {
        let mut copy = match len as u64 {
            bytes @ PAGE_BYTES.. => Self::Page(pages.slab(bytes)?.place(0, bytes)),
            _ => Self::Heap(vec![
                Line { _bytes: [0; 64] };
                len.div_ceil(size_of::<Line>())
            ]),
        };
        let to = match &mut copy {
            Self::Page(place) => place.address(),
            Self::Heap(lines) => lines.as_mut_ptr().cast(),
        };
        // SAFETY: `len` bytes are mapped at `from` for as long as the caller's range lives, and are
        // writable at `to`, which is no part of a job's segment; the job may change its bytes meanwhile,
        // and any bytes are a value.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        Ok(copy)
    }
}

/// A region that an array lives in: the job may reuse it when this is dropped.
struct Lent<D: Device> {
    session: Arc<Session<D>>,
    data: Range,
}

impl<D: Device> Drop for Lent<D> {
    fn drop(&mut self) {
        self.session.region_released(self.data.region);
    }
}
