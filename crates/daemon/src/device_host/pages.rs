//! Host memory for arrays that were paged out: outside the heap, and used again while it is warm.
//!
//! The first touch of a page costs eight times a warm copy, so what is no longer needed is kept for
//! the next, up to a limit.
#![expect(unsafe_code, reason = "copies between two mappings")]

use std::io;
use std::sync::{Arc, Mutex, Weak};

use salus_channel::{Mapping, Segment};

/// Arrays that the CPU plugin is to wrap without a copy must begin at such addresses.
pub(super) const ALIGNMENT: u64 = 64;

/// What is kept warm for later.
pub(crate) struct Pool {
    kept: Mutex<Vec<Mapping>>,
    kept_bytes_max: u64,
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
            kept: Mutex::default(),
            kept_bytes_max,
        })
    }

    /// Memory of at least so many bytes: the smallest that is there, unless it is far too large.
    pub(super) fn slab(self: &Arc<Self>, bytes: u64) -> io::Result<Arc<Slab>> {
        let mut kept = self.kept.lock().expect("no panic under this lock");
        let fits = |m: &Mapping| {
            let len = m.len() as u64;
            (bytes..=bytes.saturating_mul(2)).contains(&len)
        };
        let found = kept.iter().enumerate().filter(|(_, m)| fits(m));
        let found = found.min_by_key(|(_, m)| m.len()).map(|(at, _)| at);
        let memory = match found {
            Some(at) => kept.swap_remove(at),
            None => {
                drop(kept);
                Segment::create(bytes, false)?.into_parts().0
            }
        };
        Ok(Arc::new(Slab {
            memory: Some(memory),
            pool: Arc::downgrade(self),
        }))
    }

    fn keep(&self, memory: Mapping) {
        let mut kept = self.kept.lock().expect("no panic under this lock");
        let bytes: u64 = kept.iter().map(|m| m.len() as u64).sum();
        if bytes + memory.len() as u64 <= self.kept_bytes_max {
            kept.push(memory);
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
