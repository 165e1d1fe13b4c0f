//! Host memory for arrays that were paged out: outside the heap, and used again while it is warm.
//!
//! The first touch of a page costs eight times a warm copy, so what is no longer needed is kept for
//! the next, up to a limit, and where the device fills up a thread with nothing better to do prepares
//! as much as the largest session would need.
#![expect(unsafe_code, reason = "copies between mappings, and touches them")]

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

use salus_channel::{Mapping, Segment};

/// Arrays that the CPU plugin is to wrap without a copy must begin at such addresses.
pub(super) const ALIGNMENT: u64 = 64;

/// For one that leaves, and one that makes room for it when it comes back.
const PREPARED: usize = 2;

/// What is kept warm for later.
pub(crate) struct Pool {
    state: Mutex<State>,
    kept_bytes_max: u64,
    /// Something is to be prepared.
    wanting: Condvar,
}

#[derive(Default)]
struct State {
    kept: Vec<Mapping>,
    /// A session of so many bytes may have to leave soon.
    expected_bytes: u64,
}

impl State {
    /// Those that are there for so many bytes and not far too large.
    fn fitting(&self, bytes: u64) -> impl Iterator<Item = (usize, &Mapping)> {
        let range = bytes..=bytes.saturating_mul(2);
        let fits = move |(_, m): &(usize, &Mapping)| range.contains(&(m.len() as u64));
        self.kept.iter().enumerate().filter(fits)
    }
}

/// A piece of host memory with pages of one session in it; it goes back to the pool with the last.
pub(crate) struct Slab {
    /// Taken when it is dropped.
    memory: Option<Mapping>,
    pool: Weak<Pool>,
}

/// Where one array lies.
#[derive(Clone)]
pub(crate) struct Place {
    slab: Arc<Slab>,
    offset: u64,
    length: u64,
}

impl Pool {
    pub(super) fn new(kept_bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            kept_bytes_max,
            wanting: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    /// A session of so many bytes may have to leave soon.
    pub(super) fn expect(&self, bytes: u64) {
        let mut state = self.lock();
        if state.expected_bytes < bytes && bytes <= self.kept_bytes_max {
            state.expected_bytes = bytes;
            self.wanting.notify_one();
        }
    }

    /// Prepares what is expected, for ever.
    pub(super) fn prepare(&self) {
        // Whoever computes goes first.
        let _ = rustix::process::nice(19);
        let mut state = self.lock();
        loop {
            let bytes = state.expected_bytes;
            let held: u64 = state.kept.iter().map(|m| m.len() as u64).sum();
            let is_there = bytes == 0 || state.fitting(bytes).count() >= PREPARED;
            if is_there || held + bytes > self.kept_bytes_max {
                state = self.wanting.wait(state).expect("no panic under this lock");
                continue;
            }
            drop(state);
            match Segment::create(bytes, false) {
                Ok(segment) => {
                    let memory = segment.into_parts().0;
                    touch(&memory);
                    self.keep(memory);
                }
                // Whoever needs it will say so.
                Err(_) => self.lock().expected_bytes = 0,
            }
            state = self.lock();
        }
    }

    /// Memory of at least so many bytes.
    pub(super) fn slab(self: &Arc<Self>, bytes: u64) -> io::Result<Arc<Slab>> {
        let mut state = self.lock();
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

    fn keep(&self, memory: Mapping) {
        let mut state = self.lock();
        let bytes: u64 = state.kept.iter().map(|m| m.len() as u64).sum();
        if bytes + memory.len() as u64 <= self.kept_bytes_max {
            state.kept.push(memory);
        }
    }
}

/// Has the system give the memory now, in small steps, so that others who map memory do not wait.
fn touch(memory: &Mapping) {
    for offset in (0..memory.len()).step_by(4096) {
        if let Some(address) = memory.range(offset as u64, 1) {
            // SAFETY: inside the mapping, which nobody else has.
            unsafe { address.write_volatile(0) };
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let (Some(memory), Some(pool)) = (self.memory.take(), self.pool.upgrade()) {
            pool.keep(memory);
        }
    }
}

impl Slab {
    /// A range that lies inside.
    pub(super) fn place(self: &Arc<Self>, offset: u64, length: u64) -> Place {
        Place {
            slab: Arc::clone(self),
            offset,
            length,
        }
    }
}

impl Place {
    pub(super) fn len(&self) -> usize {
        self.length as usize
    }

    /// Where it is mapped, for as long as this lives.
    pub(super) fn address(&self) -> *mut u8 {
        let memory = self.slab.memory.as_ref();
        memory
            .and_then(|memory| memory.range(self.offset, self.length))
            .expect("a place lies in its slab")
    }

    /// Copies all of it to a mapped range as long as it is.
    pub(super) fn copy_to(&self, target: *mut u8) {
        // SAFETY: both ranges are mapped for that length, which the caller compared, and a page is
        // no part of a job's segment.
        unsafe { std::ptr::copy_nonoverlapping(self.address(), target, self.len()) };
    }
}
