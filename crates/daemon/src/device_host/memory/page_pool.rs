//! The page pool: host memory for arrays that are paged out, outside the heap and reused while it is
//! warm.
//!
//! The first touch of new memory costs eight times a warm copy. So memory that is no longer needed is
//! kept for the next page-out, up to a limit, and where the device fills up, a thread of low priority
//! prepares as much as the largest session would need.
#![expect(unsafe_code, reason = "says that a slab stays mapped")]

use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use salus_channel::{HOST_ALIGNMENT, HostMemory, Mapping, Part, Segment, lock};

/// Pages begin at multiples of this, so that the CPU plugin wraps them without a copy.
pub(crate) const ALIGNMENT: u64 = HOST_ALIGNMENT as u64;

/// Slabs kept ready: one for a session that is paged out, and one for the session that is then paged
/// out when the first comes back.
const PREPARED: usize = 2;

/// Memory for pages, and what is kept warm for later.
pub(crate) struct Pool {
    state: Mutex<State>,
    kept_bytes_max: u64,
    /// Signalled when something has to be prepared.
    wanting: Condvar,
}

#[derive(Default)]
struct State {
    kept: Vec<Mapping>,
    /// The size of the largest session that may be paged out soon.
    expected_bytes: u64,
}

impl State {
    /// Mappings of at least `bytes`, but not of more than twice as much.
    fn fitting(&self, bytes: u64) -> impl Iterator<Item = (usize, &Mapping)> {
        let range = bytes..=bytes.saturating_mul(2);
        let fits = move |(_, m): &(usize, &Mapping)| range.contains(&(m.len() as u64));
        self.kept.iter().enumerate().filter(fits)
    }

    fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|m| m.len() as u64).sum()
    }
}

/// A piece of host memory with pages of one session; it goes back to the pool with the last page.
pub(crate) struct Slab {
    /// Always there until the slab is dropped.
    memory: Option<Mapping>,
    pool: Weak<Pool>,
}

/// The host memory of one page, which keeps its slab.
pub(crate) type PageMemory = Part<Slab>;

// SAFETY: the mapping keeps the same promise, and is only taken out when the slab is dropped.
unsafe impl HostMemory for Slab {
    fn span(&self) -> NonNull<[u8]> {
        let memory = self.memory.as_ref();
        memory.expect("there until it is dropped").span()
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
    pub(crate) fn new(kept_bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            kept_bytes_max,
            wanting: Condvar::new(),
        })
    }

    /// A session of this many bytes may be paged out soon.
    pub(crate) fn expect(&self, bytes: u64) {
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
            let is_there = bytes == 0 || state.fitting(bytes).count() >= PREPARED;
            if is_there || state.kept_bytes() + bytes > self.kept_bytes_max {
                let woken = self.wanting.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            drop(state);
            match Segment::create(bytes, false) {
                Ok(segment) => {
                    let memory = segment.into_parts().0;
                    memory.bytes().touch();
                    self.keep(memory);
                }
                // The page-out that needs it reports the error.
                Err(_) => lock(&self.state).expected_bytes = 0,
            }
            state = lock(&self.state);
        }
    }

    /// Memory of at least `bytes`.
    pub(crate) fn slab(self: &Arc<Self>, bytes: u64) -> io::Result<Arc<Slab>> {
        let mut state = lock(&self.state);
        let smallest = state.fitting(bytes).min_by_key(|(_, m)| m.len());
        let memory = match smallest.map(|(at, _)| at) {
            Some(at) => {
                self.wanting.notify_one();
                state.kept.swap_remove(at)
            }
            None => {
                drop(state);
                Segment::create(bytes, false)?.into_parts().0
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

    fn keep(&self, memory: Mapping) {
        let mut state = lock(&self.state);
        if state.kept_bytes() + memory.len() as u64 <= self.kept_bytes_max {
            state.kept.push(memory);
        }
    }
}

/// A range that the caller knows to be inside the slab.
pub(crate) fn page_in_slab(slab: &Arc<Slab>, offset: u64, bytes: u64) -> PageMemory {
    Part::of(slab, offset, bytes).expect("the slab was made for its pages")
}
