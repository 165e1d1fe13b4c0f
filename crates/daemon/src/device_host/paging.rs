//! A session's arrays go to host memory, and come back.
//!
//! Both run in the session's own thread, which owns its table of arrays: other sessions' iterations
//! go on meanwhile. On a device whose memory is the host's, a page becomes the array again without a
//! copy, and an array that still lives in its page leaves without one.
//!
//! Promise: what is paged out is ready, not in use and in the plain layout; the rest stays.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::mpsc;
use std::time::Instant;

use salus_device::{Device, HostMemory, HostTarget, ReadForm, host_bytes, is_sub_byte};
use salus_engine::Event;
use salus_wire::Error;

use super::arrays::{Entry, Kind, Page, Slot};
use super::heap;
use super::operations::{Operation, Operations};
use super::pages::{ALIGNMENT, Place};
use crate::log;

impl<D: Device> Operations<D> {
    /// Moves at least so many bytes to the host, as far as they can be moved, and tells the engine.
    pub(super) fn page_out(&mut self, wanted: u64) {
        // What waits at the head of the queue holds its arguments: it looks them up again.
        let mut head = self.queue.pop_front();
        let mut needed = Vec::new();
        if let Some(Operation::Launch(launch)) = &mut head {
            launch.let_go();
            needed = launch.arguments().to_vec();
            needed.sort_unstable();
        }
        let begun = Instant::now();
        let chosen = self.choose(wanted, &needed);
        let (bytes, copied) = self.move_out(chosen);
        self.session.moves.out(bytes, copied, begun.elapsed());
        let mut absent_bytes = 0;
        match &mut head {
            Some(Operation::Launch(launch)) if self.announced.is_some() => {
                absent_bytes = launch.look_up(self);
            }
            Some(other) if self.announced.is_some() => {
                absent_bytes = self.absent_of(other);
            }
            _ => {}
        }
        if let Some(head) = head {
            self.queue.push_front(head);
        }
        let paged_out = Event::PagedOut {
            session: self.session.id,
            bytes,
            absent_bytes,
        };
        self.host.scheduling.tell(paged_out, Some(self.session.id));
        // Whoever waited for the room goes on meanwhile.
        heap::trim(copied);
    }

    /// Arrays that can leave: those that the next launch does not need first, the large before the
    /// small.
    fn choose(&self, wanted: u64, needed: &[u64]) -> Vec<u64> {
        let mut movable: Vec<(bool, Reverse<u64>, u64)> = Vec::new();
        for (&id, slot) in &self.arrays {
            if let Slot::Live(entry) = slot
                && self.can_leave(entry)
            {
                let is_needed = needed.binary_search(&id).is_ok();
                movable.push((is_needed, Reverse(entry.charge.bytes()), id));
            }
        }
        movable.sort_unstable();
        let mut sum = 0;
        let enough = movable.iter().take_while(|(_, Reverse(bytes), _)| {
            let more = sum < wanted;
            sum += bytes;
            more
        });
        enough.map(|(_, _, id)| *id).collect()
    }

    fn can_leave(&self, entry: &Arc<Entry<D>>) -> bool {
        let shape = entry.shape();
        let plain = shape.minor_to_major.is_none() && !is_sub_byte(shape.element_type);
        let free = Arc::strong_count(entry) == 1 && entry.readers.load(Acquire) == 0;
        let in_default = entry.memory() == self.host.device.description().default_memory;
        plain && free && in_default && entry.charge.bytes() > 0 && is_ready(entry)
    }

    /// Returns the bytes that are now on the host, and those that were copied for it.
    fn move_out(&mut self, ids: Vec<u64>) -> (u64, u64) {
        let mut leaving = Vec::new();
        let mut offset = 0;
        for id in ids {
            let Some(Slot::Live(entry)) = self.arrays.get(&id) else {
                continue;
            };
            let entry = Arc::clone(entry);
            let Ok(length) = host_bytes(entry.shape()) else {
                continue;
            };
            let at_home = entry.home.clone().filter(|home| {
                home.len() == length
                    && entry.device().host_address(&entry.array) == Some(home.address().addr())
            });
            let start = offset;
            if at_home.is_none() {
                offset += (length as u64).next_multiple_of(ALIGNMENT);
            }
            leaving.push(Leaving {
                id,
                at_home,
                start,
                length: length as u64,
                rank: entry.shape().dims.len(),
                entry,
            });
        }
        let slab = match self.host.pages.slab(offset.max(1)) {
            Ok(slab) => slab,
            Err(e) => {
                log::warn(format_args!("no host memory for {offset} bytes: {e}"));
                return (0, 0);
            }
        };
        let (told, ends) = mpsc::channel();
        let mut copies = 0;
        let mut places: Vec<Option<Place>> = Vec::with_capacity(leaving.len());
        for (index, one) in leaving.iter().enumerate() {
            if let Some(home) = &one.at_home {
                places.push(Some(home.clone()));
                continue;
            }
            let place = slab.place(one.start, one.length);
            let target = HostTarget {
                address: place.address(),
                len: place.len(),
                keep: Box::new(place.clone()),
            };
            places.push(Some(place));
            let told = told.clone();
            let done = Box::new(move |result| {
                let _ = told.send((index, result));
            });
            copies += 1;
            let form = ReadForm::Host {
                minor_to_major: (0..one.rank as i64).rev().collect(),
            };
            let device = one.entry.device();
            device.read(&one.entry.array, target, &form, done);
        }
        for _ in 0..copies {
            if let Ok((index, Err(error))) = ends.recv() {
                log::warn(format_args!("an array stays on the device: {error}"));
                places[index] = None;
            }
        }
        let mut bytes = 0;
        for (one, place) in leaving.into_iter().zip(places) {
            let Some(place) = place else { continue };
            let entry = one.entry;
            let charge = entry.charge.pass_on(true);
            bytes += charge.bytes();
            let page = Page {
                shape: entry.shape().clone(),
                place,
                charge,
            };
            self.put(one.id, Slot::Paged(Arc::new(page)));
        }
        (bytes, offset)
    }

    /// Brings an array back; the engine has reserved its room.
    pub(super) fn bring_in(&mut self, id: u64, lane: u32) -> Result<Arc<Entry<D>>, Error> {
        let page = match self.arrays.get(&id) {
            Some(Slot::Paged(page)) => Arc::clone(page),
            _ => return self.slot(id),
        };
        let begun = Instant::now();
        let host = HostMemory {
            address: page.place.address(),
            len: page.place.len(),
            release: Box::new(page.place.clone()),
        };
        let charge = page.charge.pass_on(false);
        let memory = self.memory_of(lane, self.host.device.description().default_memory);
        let made = self.host.device.upload(host, &page.shape, memory);
        match made {
            Ok(array) => {
                let kind = Kind::Own {
                    shape: page.shape.clone(),
                    memory: self.host.device.description().default_memory,
                };
                self.session.moves.back(charge.bytes(), begun.elapsed());
                let entry = Entry::new(array, kind, lane, charge, Some(page.place.clone()));
                self.put(id, Slot::Live(Arc::clone(&entry)));
                Ok(entry)
            }
            Err(error) => {
                self.put(id, Slot::Failed(error.clone()));
                Err(error)
            }
        }
    }

    /// Notes for the trace what comes back meanwhile, as one move.
    pub(super) fn noting_returns<R>(&mut self, bring: impl FnOnce(&mut Self) -> R) -> R {
        let moves = |own: &Self| {
            let moves = &own.session.moves;
            (moves.in_bytes.load(Relaxed), moves.in_ns.load(Relaxed))
        };
        let (bytes_before, ns_before) = moves(self);
        let brought = bring(self);
        let (bytes, ns) = moves(self);
        if bytes > bytes_before {
            let scheduling = &self.host.scheduling;
            scheduling.note_return(self.session.id, bytes - bytes_before, ns - ns_before);
        }
        brought
    }

    /// An array that stayed behind when its session went to another lane, because it could not be
    /// moved or has no bytes.
    pub(super) fn carry_over(
        &mut self,
        id: u64,
        entry: &Entry<D>,
        lane: u32,
    ) -> Result<Arc<Entry<D>>, Error> {
        let memory = self.memory_of(lane, entry.memory());
        let array = self.host.device.copy_to_memory(&entry.array, memory)?;
        let kind = Kind::Own {
            shape: entry.shape().clone(),
            memory: entry.memory(),
        };
        let moved = Entry::new(array, kind, lane, entry.charge.pass_on(false), None);
        self.put(id, Slot::Live(Arc::clone(&moved)));
        Ok(moved)
    }

    /// Memory `memory` of a lane, as the device numbers them.
    pub(super) fn memory_of(&self, lane: u32, memory: u32) -> u32 {
        lane * self.host.device.description().memories.len() as u32 + memory
    }
}

/// An array on its way out.
struct Leaving<D: Device> {
    id: u64,
    entry: Arc<Entry<D>>,
    /// The page in which it still lives.
    at_home: Option<Place>,
    /// Where else it goes in the new slab.
    start: u64,
    length: u64,
    rank: usize,
}

/// Whether the array's value is there now.
fn is_ready<D: Device>(entry: &Entry<D>) -> bool {
    let ready = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ready);
    let set = Box::new(move |result: Result<(), Error>| told.store(result.is_ok(), SeqCst));
    entry.device().on_ready(&entry.array, set);
    ready.load(SeqCst)
}
