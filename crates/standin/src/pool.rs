//! A client's pool on a device: BFC, which takes its memory late, gives none back and moves nothing.
//!
//! Stands for xla/tsl/framework/bfc_allocator.cc: lazy extension (136-175: the first allocation extends
//! the pool to the whole limit unless it may grow, going back by a tenth until it fits what the device
//! has left), rounding to 256 bytes, the smallest chunk that fits, split if the rest is worth it.
//! `allocator=cuda_async` does not fragment (GPUC:1341); `platform` takes and gives back each block by
//! itself and has no statistics (GPUC:1749).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use salus_pjrt::sys::PJRT_Error_Code_RESOURCE_EXHAUSTED;

use crate::c_api::error::Error;
use crate::state::{Place, in_place};

/// bfc_allocator.h: `kMinAllocationSize`.
const ROUNDING: u64 = 256;
/// bfc_allocator.cc: what growing pools begin with.
const FIRST_REGION: u64 = 2 << 20;
/// bfc_allocator.cc: a chunk that would waste more than 128 MiB is split, however large the request. That
/// is this part of 80 GiB; on a small device, the same bytes would be all of it.
const WASTE_PART: u64 = 640;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allocator {
    Bfc,
    CudaAsync,
    Platform,
}

pub(crate) struct Settings {
    pub(crate) allocator: Allocator,
    pub(crate) preallocate: bool,
    /// Part of the device's memory that the pool may have.
    pub(crate) fraction: f64,
    pub(crate) fragments: bool,
    /// How long an allocation waits for others to free (bfc_allocator.cc:271).
    pub(crate) wait: Duration,
}

pub(crate) struct Pool {
    place: Place,
    settings: Settings,
    limit: u64,
    arena: Mutex<Arena>,
    freed: Condvar,
}

#[derive(Default)]
struct Arena {
    /// By offset. Offsets of regions do not touch, so chunks of two never merge.
    chunks: BTreeMap<u64, Chunk>,
    /// Free ones by size and offset.
    free: BTreeSet<(u64, u64)>,
    regions_end: u64,
    next_region: u64,
    pool: u64,
    in_use: u64,
    peak: u64,
    peak_pool: u64,
    allocations: u64,
    largest: u64,
}

struct Chunk {
    size: u64,
    free: bool,
}

pub(crate) struct Stats {
    pub(crate) in_use: u64,
    pub(crate) peak: u64,
    pub(crate) limit: u64,
    pub(crate) pool: u64,
    pub(crate) peak_pool: u64,
    pub(crate) largest_free: u64,
    pub(crate) allocations: u64,
    pub(crate) largest: u64,
}

/// Memory of a pool; freed when it is dropped.
pub(crate) struct Block {
    pool: Arc<Pool>,
    offset: u64,
    size: u64,
}

impl Block {
    /// An address that no host can use: device memory is not mapped into the process.
    pub(crate) fn address(&self) -> usize {
        (0xdead_0000_0000_0000 + self.offset) as usize
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.pool.free(self.offset, self.size);
    }
}

impl Pool {
    pub(crate) fn new(place: Place, settings: Settings) -> Arc<Pool> {
        let limit = (place.physical() as f64 * settings.fraction) as u64 / ROUNDING * ROUNDING;
        let next_region = match settings.preallocate {
            true => limit,
            false => FIRST_REGION.min(limit),
        };
        Arc::new(Pool {
            place,
            settings,
            limit,
            arena: Mutex::new(Arena {
                next_region,
                ..Arena::default()
            }),
            freed: Condvar::new(),
        })
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    fn arena(&self) -> MutexGuard<'_, Arena> {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block, or none for no bytes.
    pub(crate) fn allocate(self: &Arc<Pool>, bytes: u64) -> Result<Option<Block>, Error> {
        if bytes == 0 {
            return Ok(None);
        }
        let rounded = bytes.next_multiple_of(ROUNDING);
        let until = Instant::now() + self.settings.wait;
        let mut arena = self.arena();
        loop {
            if let Some((offset, size)) = self.find(&mut arena, rounded) {
                arena.in_use += size;
                arena.peak = arena.peak.max(arena.in_use);
                arena.allocations += 1;
                arena.largest = arena.largest.max(size);
                self.show(&arena);
                let pool = Arc::clone(self);
                return Ok(Some(Block { pool, offset, size }));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.exhausted(&arena, bytes));
            }
            let woken = self.freed.wait_timeout(arena, left);
            arena = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn exhausted(&self, arena: &Arena, bytes: u64) -> Error {
        let (pool, in_use) = (arena.pool, arena.in_use);
        let largest = self.largest_free(arena);
        Error::new(
            PJRT_Error_Code_RESOURCE_EXHAUSTED,
            format!(
                "Out of memory while trying to allocate {bytes} bytes. (stand-in: pool {pool}, in \
                 use {in_use}, largest free block {largest}, limit {})",
                self.limit
            ),
        )
    }

    /// Offset and size of a free chunk, which is marked as used.
    fn find(&self, arena: &mut Arena, rounded: u64) -> Option<(u64, u64)> {
        if self.settings.allocator == Allocator::Platform {
            if !self.place.take(rounded) {
                return None;
            }
            arena.pool += rounded;
            arena.peak_pool = arena.peak_pool.max(arena.pool);
            arena.regions_end += rounded;
            return Some((arena.regions_end - rounded, rounded));
        }
        if !self.fragments() {
            while arena.in_use + rounded > arena.pool {
                self.extend(arena, arena.in_use + rounded - arena.pool)?;
            }
            return Some((arena.in_use, rounded));
        }
        loop {
            let fitting = arena.free.range((rounded, 0)..).next().copied();
            if let Some((size, offset)) = fitting {
                return Some(arena.use_chunk(size, offset, rounded, self.limit / WASTE_PART));
            }
            let (offset, size) = self.extend(arena, rounded)?;
            arena.chunks.insert(offset, Chunk { size, free: true });
            arena.free.insert((size, offset));
        }
    }

    fn fragments(&self) -> bool {
        self.settings.fragments && self.settings.allocator == Allocator::Bfc
    }

    /// A new region of at least `rounded` bytes: bfc_allocator.cc:136-175.
    fn extend(&self, arena: &mut Arena, rounded: u64) -> Option<(u64, u64)> {
        let available = (self.limit - arena.pool.min(self.limit)) / ROUNDING * ROUNDING;
        if rounded > available {
            return None;
        }
        let mut grown = false;
        while rounded > arena.next_region {
            arena.next_region *= 2;
            grown = true;
        }
        let mut bytes = arena.next_region.min(available);
        while !self.place.take(bytes) {
            bytes = (bytes as f64 * 0.9) as u64 / ROUNDING * ROUNDING;
            if bytes < rounded {
                return None;
            }
        }
        if !grown {
            arena.next_region *= 2;
        }
        // A gap, so that chunks of two regions never touch.
        let offset = arena.regions_end;
        arena.regions_end += bytes + ROUNDING;
        arena.pool += bytes;
        arena.peak_pool = arena.peak_pool.max(arena.pool);
        Some((offset, bytes))
    }

    fn free(&self, offset: u64, size: u64) {
        let mut arena = self.arena();
        arena.in_use -= size;
        if self.settings.allocator == Allocator::Platform {
            arena.pool -= size;
            self.place.give_back(size);
        } else if self.fragments() {
            arena.free_chunk(offset);
        }
        self.show(&arena);
        drop(arena);
        self.freed.notify_all();
    }

    fn show(&self, arena: &Arena) {
        let in_use = self.place.word(in_place::IN_USE);
        in_use.store(arena.in_use, Ordering::Relaxed);
    }

    fn largest_free(&self, arena: &Arena) -> u64 {
        match self.fragments() {
            true => arena.free.last().map_or(0, |&(size, _)| size),
            false => arena.pool - arena.in_use,
        }
    }

    /// None where the allocator keeps no count.
    pub(crate) fn stats(&self) -> Option<Stats> {
        if self.settings.allocator == Allocator::Platform {
            return None;
        }
        let arena = self.arena();
        Some(Stats {
            in_use: arena.in_use,
            peak: arena.peak,
            limit: self.limit,
            pool: arena.pool,
            peak_pool: arena.peak_pool,
            largest_free: self.largest_free(&arena),
            allocations: arena.allocations,
            largest: arena.largest,
        })
    }
}

impl Arena {
    fn use_chunk(&mut self, size: u64, offset: u64, rounded: u64, waste: u64) -> (u64, u64) {
        self.free.remove(&(size, offset));
        let split = size >= 2 * rounded || size - rounded >= waste;
        let used = if split { rounded } else { size };
        let chunk = |size, free| Chunk { size, free };
        self.chunks.insert(offset, chunk(used, false));
        if split {
            self.chunks.insert(offset + used, chunk(size - used, true));
            self.free.insert((size - used, offset + used));
        }
        (offset, used)
    }

    fn free_chunk(&mut self, offset: u64) {
        let Some(chunk) = self.chunks.remove(&offset) else {
            return;
        };
        let (mut start, mut size) = (offset, chunk.size);
        let after = self.chunks.get(&(offset + size));
        if let Some(next) = after.filter(|next| next.free).map(|next| next.size) {
            self.chunks.remove(&(offset + size));
            self.free.remove(&(next, offset + size));
            size += next;
        }
        let before = self.chunks.range(..offset).next_back();
        let before = before.map(|(&at, chunk)| (at, chunk.size, chunk.free));
        if let Some((at, len, true)) = before.filter(|&(at, len, _)| at + len == offset) {
            self.chunks.remove(&at);
            self.free.remove(&(len, at));
            (start, size) = (at, size + len);
        }
        self.chunks.insert(start, Chunk { size, free: true });
        self.free.insert((size, start));
    }
}
