//! The page pool: host memory for arrays that are paged out, outside the heap and reused while it is
//! warm.
//!
//! The first touch of new memory costs eight times a warm copy. So memory that is no longer needed is
//! kept for the next page-out, up to a limit. Where the device's memory is the host's, a thread of low
//! priority prepares as much as the largest session would need as soon as the device fills up.
//!
//! A device with memory of its own copies pages when they are paged in. There the pool bounds what pages
//! really take: each large array has a slab of its own, which is free with it; an array that is paged in
//! keeps its page ([`KeptPage`]), from which it need not be copied out again until it is overwritten; and
//! such pages go first, the oldest first, when the memory is needed.
//!
//! Promise: on such a device pages, kept ones and what is kept warm fit the host's room together with
//! arrays that are in host memory anyway.
#![expect(unsafe_code, reason = "says that a slab stays mapped")]

mod kept;

use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use salus_channel::{HOST_ALIGNMENT, HostMemory, Mapping, Part, Segment, lock};

pub(crate) use kept::KeptPage;
use kept::KeptPages;

use crate::device_host::memory::pins::{Pin, Pins};

/// Pages begin at multiples of this, so that the CPU plugin wraps them without a copy.
pub(crate) const ALIGNMENT: u64 = HOST_ALIGNMENT as u64;

/// Slabs kept ready: one for a session that is paged out, and one for the session that is then paged
/// out when the first comes back.
const PREPARED: usize = 2;

/// On a device with memory of its own, larger pages have a slab each, and smaller ones share slabs of
/// [`SHARED_BYTES`].
const OWN_SLAB_BYTES_MIN: u64 = 1 << 20;
const SHARED_BYTES: u64 = 8 << 20;

/// Memory for pages, and what is kept warm for later.
pub(crate) struct Pool {
    state: Mutex<State>,
    kept_bytes_max: u64,
    /// What everything here may take, if the device has memory of its own.
    bytes_max: Option<u64>,
    pins: Arc<Pins>,
    /// Signalled when something has to be prepared.
    wanting: Condvar,
}

#[derive(Default)]
struct State {
    /// Warm, and without pages.
    kept: Vec<PageMapping>,
    /// The size of the largest session that may be paged out soon.
    expected_bytes: u64,
    /// All slabs, and what is kept.
    mapped_bytes: u64,
    /// Arrays in host memory that are no pages.
    array_bytes: u64,
    pages: KeptPages,
}

/// Memory of a slab.
struct PageMapping {
    memory: Arc<Mapping>,
    _pin: Option<Pin>,
}

impl PageMapping {
    fn len(&self) -> u64 {
        self.memory.len() as u64
    }
}

impl State {
    /// Mappings of at least `bytes`, but not of much more: one part of `spare` of it.
    fn fitting(&self, bytes: u64, spare: u64) -> impl Iterator<Item = (usize, &PageMapping)> {
        let range = bytes..=bytes.saturating_add(bytes / spare);
        let fits = move |(_, m): &(usize, &PageMapping)| range.contains(&m.len());
        self.kept.iter().enumerate().filter(fits)
    }

    fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(PageMapping::len).sum()
    }

    fn is_within(&self, bytes_max: Option<u64>) -> bool {
        bytes_max.is_none_or(|most| self.mapped_bytes + self.array_bytes <= most)
    }
}

/// A piece of host memory with pages of one session; it goes back to the pool with the last page.
pub(crate) struct Slab {
    /// Always there until the slab is dropped.
    memory: Option<PageMapping>,
    pool: Weak<Pool>,
}

/// The host memory of one page, which keeps its slab.
pub(crate) type PageMemory = Part<Slab>;

// SAFETY: the mapping keeps the same promise, and is only taken out when the slab is dropped.
unsafe impl HostMemory for Slab {
    fn span(&self) -> NonNull<[u8]> {
        let memory = self.memory.as_ref();
        memory.expect("there until it is dropped").memory.span()
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let (Some(memory), Some(pool)) = (self.memory.take(), self.pool.upgrade()) {
            pool.keep(memory);
        }
    }
}

impl Pool {
    /// `bytes_max` if the device has memory of its own.
    pub(crate) fn new(kept_bytes_max: u64, bytes_max: Option<u64>, pins: Arc<Pins>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            kept_bytes_max,
            bytes_max,
            pins,
            wanting: Condvar::new(),
        })
    }

    pub(crate) fn pins(&self) -> &Arc<Pins> {
        &self.pins
    }

    /// What it takes now, with arrays in host memory, and what of that is kept of arrays that are on
    /// the device.
    pub(crate) fn used_bytes(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.mapped_bytes + state.array_bytes, state.pages.bytes())
    }

    /// A session of this many bytes may be paged out soon.
    pub(crate) fn expect(&self, bytes: u64) {
        // Elsewhere each array has memory of its own, whose size nobody knows yet.
        if self.bytes_max.is_some() {
            return;
        }
        let mut state = lock(&self.state);
        if state.expected_bytes < bytes && bytes <= self.kept_bytes_max {
            state.expected_bytes = bytes;
            self.wanting.notify_one();
        }
    }

    /// Prepares what is expected, for as long as the process runs.
    pub(crate) fn prepare(&self) {
        // Threads that compute go first.
        let _ = rustix::process::nice(19);
        let mut state = lock(&self.state);
        loop {
            let bytes = state.expected_bytes;
            let is_there = bytes == 0 || state.fitting(bytes, 1).count() >= PREPARED;
            if is_there || state.kept_bytes() + bytes > self.kept_bytes_max {
                let woken = self.wanting.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.mapped_bytes += bytes;
            drop(state);
            match self.map(bytes) {
                Ok(mapping) => {
                    mapping.memory.bytes().touch();
                    self.keep(mapping);
                }
                // The page-out that needs it reports the error.
                Err(_) => lock(&self.state).expected_bytes = 0,
            }
            state = lock(&self.state);
        }
    }

    /// New memory, which is counted already.
    fn map(&self, bytes: u64) -> io::Result<PageMapping> {
        let created = Segment::create(bytes, false);
        let segment = created.inspect_err(|_| lock(&self.state).mapped_bytes -= bytes)?;
        let memory = Arc::new(segment.into_parts().0);
        Ok(PageMapping {
            _pin: self.pins.pin(&memory),
            memory,
        })
    }

    /// Memory of at least `bytes`.
    fn slab(self: &Arc<Self>, bytes: u64) -> io::Result<Arc<Slab>> {
        let mut state = lock(&self.state);
        // Where all of it is counted, little of it may be left unused.
        let spare = if self.bytes_max.is_some() { 8 } else { 1 };
        let fitting = state.fitting(bytes, spare);
        let smallest = fitting.min_by_key(|(_, mapping)| mapping.len());
        let memory = match smallest.map(|(at, _)| at) {
            Some(at) => {
                self.wanting.notify_one();
                state.kept.swap_remove(at)
            }
            None => {
                let bytes = bytes.max(1);
                state.mapped_bytes += bytes;
                drop(state);
                if self.bytes_max.is_some() {
                    self.make_room();
                }
                self.map(bytes)?
            }
        };
        Ok(Arc::new(Slab {
            memory: Some(memory),
            pool: Arc::downgrade(self),
        }))
    }

    /// A slab with one page of `bytes`.
    pub(crate) fn page(self: &Arc<Self>, bytes: u64) -> io::Result<PageMemory> {
        Ok(page_in_slab(&self.slab(bytes)?, 0, bytes))
    }

    /// Pages of these sizes, for arrays of one session.
    pub(crate) fn pages(self: &Arc<Self>, sizes: &[u64]) -> io::Result<Vec<PageMemory>> {
        let is_large = |bytes: u64| self.bytes_max.is_some() && bytes >= OWN_SLAB_BYTES_MIN;
        let shared_max = self.bytes_max.map_or(u64::MAX, |_| SHARED_BYTES);
        // Those that share a slab, with the size of each slab.
        let mut slabs: Vec<u64> = Vec::new();
        let mut shared = |bytes: u64| {
            let bytes = bytes.next_multiple_of(ALIGNMENT);
            match slabs.last_mut() {
                Some(slab) if *slab + bytes <= shared_max => *slab += bytes,
                _ => slabs.push(bytes),
            }
        };
        sizes
            .iter()
            .filter(|bytes| !is_large(**bytes))
            .for_each(|bytes| shared(*bytes));
        let mut slabs = slabs.into_iter();
        let (mut slab, mut offset, mut end) = (None, 0, 0);
        let pages = sizes.iter().map(|&bytes| {
            if is_large(bytes) {
                return self.page(bytes);
            }
            let rounded = bytes.next_multiple_of(ALIGNMENT);
            if slab.is_none() || offset + rounded > end {
                end = slabs.next().unwrap_or(rounded);
                offset = 0;
                slab = Some(self.slab(end)?);
            }
            let page = slab.as_ref().and_then(|slab| Part::of(slab, offset, bytes));
            offset += rounded;
            page.ok_or_else(|| io::Error::other("a page outside of its slab"))
        });
        pages.collect()
    }

    /// Keeps what was mapped for the next page-out, if not too much is kept.
    fn keep(&self, memory: PageMapping) {
        let mut state = lock(&self.state);
        let kept = state.kept_bytes() + memory.len();
        if kept <= self.kept_bytes_max && state.is_within(self.bytes_max) {
            state.kept.push(memory);
            return;
        }
        state.mapped_bytes -= memory.len();
        drop(state);
        // Outside of the lock: it takes a while.
        drop(memory);
    }

    /// Gives memory back until everything is within the limit: what is warm, then pages of arrays that
    /// are on the device.
    fn make_room(&self) {
        loop {
            let mut state = lock(&self.state);
            if state.is_within(self.bytes_max) {
                return;
            }
            if let Some(warm) = state.kept.pop() {
                state.mapped_bytes -= warm.len();
                drop(state);
                drop(warm);
                continue;
            }
            let Some(page) = state.pages.pop_oldest() else {
                return;
            };
            drop(state);
            drop(page);
        }
    }

    /// Keeps the page of an array that was paged in from it.
    pub(crate) fn keep_page(self: &Arc<Self>, page: PageMemory) -> KeptPage {
        let number = lock(&self.state).pages.add(page);
        KeptPage::new(self, number)
    }

    fn take_page(&self, number: u64) -> Option<PageMemory> {
        lock(&self.state).pages.take(number)
    }

    /// An array of this many bytes is about to be made in host memory.
    pub(crate) fn array_made(&self, bytes: u64) {
        lock(&self.state).array_bytes += bytes;
        self.make_room();
    }

    pub(crate) fn array_gone(&self, bytes: u64) {
        lock(&self.state).array_bytes -= bytes;
    }
}

/// A range that the caller knows to be inside the slab.
fn page_in_slab(slab: &Arc<Slab>, offset: u64, bytes: u64) -> PageMemory {
    Part::of(slab, offset, bytes).expect("the slab was made for its pages")
}

#[cfg(test)]
mod tests;
