//! Memory shared with the service, handed out in blocks.
//!
//! Blocks up to 4 MiB come in size classes out of larger segments; bigger ones have a segment each,
//! kept for the next of about that size. What was freed last is given out first, because touching
//! fresh pages costs eight times a warm copy.
//!
//! Promise: blocks are aligned to 64 bytes, so that the device can take them as arrays without a
//! copy; no two live blocks overlap; a segment is announced before anything in it is named.
//! Cost: a lock and a few words for a block that can be reused.
//! Not here: what is in the blocks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use salus_channel::{Mapping, lock};
use salus_wire::{Region, SegmentId, ToService, limits};

use crate::c_api::error::{Result, exhausted};
use crate::connection::session::Session;

/// Alignment and least size of a block: what the CPU plugin needs to take it without a copy.
const GRAIN: u64 = 64;
/// The largest block that shares a segment.
const SMALL_MAX: u64 = 4 << 20;
/// A segment for small blocks. Its pages cost nothing before they are touched.
const SHARED_BYTES: u64 = 16 << 20;
/// After this many, shared segments double, so that a job with very many arrays stays far below the
/// limit of segments.
const SHARED_BEFORE_DOUBLING: u32 = 64;
/// Idle segments of big blocks that are kept for reuse.
const IDLE_BYTES_MAX: u64 = 512 << 20;
/// Sizes of big blocks are rounded up to this, so that near sizes share their segments.
const BIG_GRAIN: u64 = 64 << 10;
const CLASSES: usize = 60;

#[derive(Default)]
pub(crate) struct Segments {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_id: u32,
    segments: HashMap<SegmentId, Entry>,
    /// The shared segment that blocks are cut from.
    current: Option<SegmentId>,
    shared: u32,
    /// Free small blocks of each class, freed last at the end.
    free: Vec<Vec<Location>>,
    /// Segments of big blocks that nobody uses, freed last at the end.
    idle: Vec<SegmentId>,
    idle_bytes: u64,
    /// Blocks of uploads, which are free when the service says so.
    uploads: HashMap<(SegmentId, u64), Location>,
}

struct Entry {
    mapping: Mapping,
    /// Small blocks in use; `None` in the segment of a big block.
    live: Option<u32>,
    /// Where the next block is cut.
    cut: u64,
}

#[derive(Clone, Copy)]
struct Location {
    segment: SegmentId,
    offset: u64,
    /// `CLASSES` for a big block.
    class: usize,
}

/// A range of shared memory that belongs to its holder until it is dropped or uploaded.
pub(crate) struct Block {
    session: Arc<Session>,
    location: Location,
    address: *mut u8,
    length: u64,
}

#[expect(
    unsafe_code,
    reason = "a pointer into a mapping that the session keeps"
)]
// SAFETY: the memory belongs to the block, whichever thread holds it.
unsafe impl Send for Block {}
#[expect(unsafe_code, reason = "as above")]
// SAFETY: a shared block only gives its address.
unsafe impl Sync for Block {}

impl Block {
    pub(crate) fn address(&self) -> *mut u8 {
        self.address
    }

    pub(crate) fn region(&self) -> Region {
        Region {
            segment: self.location.segment,
            offset: self.location.offset,
            length: self.length,
        }
    }

    /// Gives the block to the service, until `Released` names it.
    pub(crate) fn into_upload(self) -> Region {
        let region = self.region();
        let mut state = lock(&self.session.segments.state);
        state
            .uploads
            .insert((region.segment, region.offset), self.location);
        drop(state);
        let mut this = std::mem::ManuallyDrop::new(self);
        #[expect(
            unsafe_code,
            reason = "drops the session's reference but not the block"
        )]
        // SAFETY: `this` is never dropped, so its session is dropped once.
        unsafe {
            std::ptr::drop_in_place(&mut this.session);
        }
        region
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let session = Arc::clone(&self.session);
        session.segments.free(&session, self.location);
    }
}

/// The class of a size and the size of that class: four to a doubling.
fn class(bytes: u64) -> (usize, u64) {
    let bytes = bytes.max(GRAIN);
    if bytes <= 4 * GRAIN {
        let units = bytes.div_ceil(GRAIN);
        return (units as usize - 1, units * GRAIN);
    }
    let power = u64::from((bytes - 1).ilog2());
    let (base, step) = (1u64 << power, 1u64 << (power - 2));
    let steps = (bytes - base).div_ceil(step);
    (
        4 + (power as usize - 8) * 4 + steps as usize - 1,
        base + steps * step,
    )
}

impl Segments {
    /// A block of `bytes`; an empty one has an address, too.
    pub(crate) fn block(&self, session: &Arc<Session>, bytes: u64) -> Result<Block> {
        let (location, address) = if bytes <= SMALL_MAX {
            self.small(session, bytes)?
        } else {
            self.big(session, bytes)?
        };
        Ok(Block {
            session: Arc::clone(session),
            location,
            address,
            length: bytes,
        })
    }

    fn small(&self, session: &Session, bytes: u64) -> Result<(Location, *mut u8)> {
        let (class, size) = class(bytes);
        let mut state = lock(&self.state);
        state.free.resize_with(CLASSES, Vec::new);
        let location = match state.free[class].pop() {
            Some(location) => location,
            None => state.cut(session, class, size)?,
        };
        let entry = state.segments.get_mut(&location.segment);
        let found = entry.and_then(|entry| {
            entry.live = entry.live.map(|live| live + 1);
            entry.mapping.range(location.offset, size)
        });
        Ok((
            location,
            found.ok_or_else(|| no_memory(bytes, "a block outside its segment"))?,
        ))
    }

    fn big(&self, session: &Session, bytes: u64) -> Result<(Location, *mut u8)> {
        let mut state = lock(&self.state);
        let idle = state.take_idle(bytes);
        let range = |id: &SegmentId| state.segments.get(id)?.mapping.range(0, bytes);
        if let Some((id, address)) = idle.and_then(|id| Some((id, range(&id)?))) {
            return Ok((big_location(id), address));
        }
        state.may_add(bytes)?;
        state.last_id += 1;
        let id = SegmentId(state.last_id);
        // Its pages are made now, all at once: nobody else needs to wait for that.
        drop(state);
        let size = bytes.next_multiple_of(BIG_GRAIN);
        let mapping = announce(session, id, size, true)?;
        let address = mapping
            .range(0, bytes)
            .ok_or_else(|| no_memory(bytes, "a segment shorter than asked for"))?;
        let entry = Entry {
            mapping,
            live: None,
            cut: size,
        };
        lock(&self.state).segments.insert(id, entry);
        Ok((big_location(id), address))
    }

    /// The service no longer uses the region of an upload.
    pub(crate) fn released(&self, session: &Session, region: &Region) {
        let location = lock(&self.state)
            .uploads
            .remove(&(region.segment, region.offset));
        if let Some(location) = location {
            self.free(session, location);
        }
    }

    fn free(&self, session: &Session, location: Location) {
        let mut gone = Vec::new();
        let mut state = lock(&self.state);
        if location.class < CLASSES {
            if let Some(entry) = state.segments.get_mut(&location.segment) {
                entry.live = entry.live.map(|live| live - 1);
            }
            state.free[location.class].push(location);
            return;
        }
        state.idle.push(location.segment);
        state.idle_bytes += state.bytes_of(location.segment);
        while state.idle_bytes > IDLE_BYTES_MAX && !state.idle.is_empty() {
            let oldest = state.idle.remove(0);
            state.idle_bytes -= state.bytes_of(oldest);
            gone.extend(state.segments.remove(&oldest).map(|entry| (oldest, entry)));
        }
        drop(state);
        for (id, entry) in gone {
            // Unmapping takes a while, so not under the lock.
            drop(entry);
            session.drop_segment(id);
        }
    }
}

fn big_location(segment: SegmentId) -> Location {
    Location {
        segment,
        offset: 0,
        class: CLASSES,
    }
}

impl State {
    /// Cuts a block from the current segment, or from a new one.
    fn cut(&mut self, session: &Session, class: usize, size: u64) -> Result<Location> {
        let fits = |entry: &Entry| entry.cut + size <= entry.mapping.len() as u64;
        let current = self
            .current
            .filter(|id| self.segments.get(id).is_some_and(fits));
        let segment = match current {
            Some(segment) => segment,
            None => self.next_shared(session, size)?,
        };
        self.current = Some(segment);
        let entry = self
            .segments
            .get_mut(&segment)
            .ok_or_else(|| no_memory(size, "no current segment"))?;
        let offset = entry.cut;
        entry.cut += size;
        Ok(Location {
            segment,
            offset,
            class,
        })
    }

    /// A shared segment with room: one whose blocks are all free, or a new one.
    fn next_shared(&mut self, session: &Session, size: u64) -> Result<SegmentId> {
        let empty = self
            .segments
            .iter()
            .find(|(_, entry)| entry.live == Some(0));
        if let Some(id) = empty.map(|(id, _)| *id) {
            for free in &mut self.free {
                free.retain(|location| location.segment != id);
            }
            if let Some(entry) = self.segments.get_mut(&id) {
                entry.cut = 0;
            }
            return Ok(id);
        }
        self.may_add(size)?;
        let doublings = (self.shared / SHARED_BEFORE_DOUBLING).min(6);
        self.last_id += 1;
        let id = SegmentId(self.last_id);
        let mapping = announce(session, id, SHARED_BYTES << doublings, false)?;
        self.shared += 1;
        let entry = Entry {
            mapping,
            live: Some(0),
            cut: 0,
        };
        self.segments.insert(id, entry);
        Ok(id)
    }

    /// An idle segment of at most a quarter more than asked for, freed last.
    fn take_idle(&mut self, bytes: u64) -> Option<SegmentId> {
        let limit = bytes.next_multiple_of(BIG_GRAIN) / 4 * 5;
        let fits = |id: &SegmentId| (bytes..=limit).contains(&self.bytes_of(*id));
        let index = self.idle.iter().rposition(fits)?;
        let id = self.idle.remove(index);
        self.idle_bytes -= self.bytes_of(id);
        Some(id)
    }

    fn bytes_of(&self, id: SegmentId) -> u64 {
        self.segments.get(&id).map_or(0, |e| e.mapping.len() as u64)
    }

    fn may_add(&self, bytes: u64) -> Result<()> {
        if self.segments.len() < limits::SEGMENTS {
            return Ok(());
        }
        Err(no_memory(
            bytes,
            &format!(
                "the job has {} shared segments, the most that a session may have; delete arrays \
                 that came from the host",
                limits::SEGMENTS
            ),
        ))
    }
}

/// Makes a segment and announces it to the service before anything in it can be named.
fn announce(session: &Session, id: SegmentId, bytes: u64, populate: bool) -> Result<Mapping> {
    session.usable()?;
    let segment = salus_channel::Segment::create(bytes, populate)
        .map_err(|e| no_memory(bytes, &format!("shared memory could not be made: {e}")))?;
    let (mapping, descriptor) = segment.into_parts();
    let frame = ToService::from(salus_wire::Segment { id, bytes });
    session.queue(&frame, descriptor);
    Ok(mapping)
}

fn no_memory(bytes: u64, why: &str) -> crate::c_api::error::Error {
    exhausted(format!(
        "no {bytes} bytes of memory to share with the Salus service: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, GRAIN, SMALL_MAX, class};

    #[test]
    fn classes_are_aligned_and_waste_at_most_a_quarter() {
        let mut last = None;
        for bytes in (0..2 * 4096).chain((1..=SMALL_MAX).step_by(4093)) {
            let (index, size) = class(bytes);
            assert!(index < CLASSES, "{bytes} has class {index}");
            assert!(
                size >= bytes.max(1) && size % GRAIN == 0,
                "{bytes} gets {size}"
            );
            assert!(size <= GRAIN + bytes / 4 * 5, "{bytes} gets {size}");
            if let Some((last_index, last_size)) = last
                && bytes >= 1
                && size >= last_size
            {
                assert_eq!(index == last_index, size == last_size, "{bytes}");
            }
            last = Some((index, size));
        }
        assert_eq!(class(SMALL_MAX), (CLASSES - 1, SMALL_MAX));
    }
}
