//! Paging: a session's arrays move to host pages when it is evicted, and back when a launch needs
//! them.
//!
//! Both run in the session's own thread, which owns its table of arrays: iterations of other sessions
//! go on meanwhile. On a device whose memory is the host's, a page is wrapped and becomes the array
//! again without a copy, and an array that is still in its page is paged out without one. Elsewhere it
//! is copied, but its page is kept, and paging it out needs no copy until a launch overwrites it.
//!
//! Promise: what is paged out is ready, not in use, in the plain layout and in the default memory; all
//! other arrays stay on the device.
//! Not here: whom to evict, which the engine decides, and how much.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use salus_device::{Device, Placement, ReadForm, Shape, host_bytes, is_sub_byte};
use salus_engine::Event;
use salus_wire::{ArrayId, Error, ErrorCode};

use crate::device_host::memory::arrays::{Charge, Entry, Held, Home, Kind, Page, Site, Slot};
use crate::device_host::memory::page_pool::{ALIGNMENT, PageMemory};
use crate::device_host::session::SessionThread;
use crate::device_host::session::operations::Operation;
use crate::heap;
use crate::log;

impl<D: Device> SessionThread<D> {
    /// Pages out at least `wanted` bytes, as far as arrays can be moved, and tells the engine.
    pub(crate) fn page_out(&mut self, wanted: u64) {
        let needed = self.release_head();
        let begun = Instant::now();
        let mut outgoing = self.plan_page_out(wanted, u64::MAX, &needed);
        let planned = outgoing.iter().map(|one| one.source.charge().bytes()).sum();
        if planned > wanted {
            // Arrays are moved whole. The host has promised what was asked for, and may have no more.
            let most = self.host.engine.claim_host(self.shared.id, planned);
            if most < planned {
                outgoing = self.plan_page_out(wanted, most, &needed);
            }
        }
        let (bytes, copied_bytes) = self.move_out(outgoing, Site::Page);
        let took = begun.elapsed();
        self.shared.paging.paged_out(bytes, copied_bytes, took);
        let paged_out = Event::PagedOut {
            session: self.shared.id,
            bytes,
            paged_bytes: self.hold_head(),
        };
        self.tell(paged_out);
        // The request that this makes room for goes on meanwhile.
        heap::trim(copied_bytes);
    }

    /// A launch at the head of the window lets go of its arguments, so that they can be paged out.
    /// Returns their ids, in order.
    fn release_head(&mut self) -> Vec<ArrayId> {
        let Some(Operation::Launch(launch)) = self.window.front_mut() else {
            return Vec::new();
        };
        launch.release_arguments();
        let mut needed = launch.argument_ids().to_vec();
        needed.sort_unstable();
        needed
    }

    /// A launch at the head of the window that waits for the engine takes hold of its arguments again.
    /// Returns how many bytes of what the waiting operation needs are paged out now.
    fn hold_head(&mut self) -> u64 {
        if self.announced.is_none() {
            return 0;
        }
        let held: Vec<Held<D>> = match self.window.front() {
            Some(Operation::Launch(launch)) => {
                let ids = launch.argument_ids().iter();
                ids.filter_map(|&id| self.arrays.held(id).ok()).collect()
            }
            Some(other) => return self.paged_bytes_of(other),
            None => return 0,
        };
        match self.window.front_mut() {
            Some(Operation::Launch(launch)) => launch.hold_arguments(held),
            _ => 0,
        }
    }

    /// Which arrays to page out: those that the next launch does not need first, large ones before
    /// small ones, until `wanted` bytes are reached, and never more than `most`.
    fn plan_page_out(&self, wanted: u64, most: u64, needed: &[ArrayId]) -> Vec<Outgoing<D>> {
        let mut movable = Vec::new();
        for (id, slot) in self.arrays.iter() {
            let source = match slot {
                Slot::Live(entry) if self.can_be_paged_out(entry) => {
                    Source::Device(Arc::clone(entry))
                }
                Slot::Paged(page) if page.charge.is_at(Site::Device) => {
                    Source::Page(Arc::clone(page))
                }
                _ => continue,
            };
            let is_needed = needed.binary_search(&id).is_ok();
            movable.push((is_needed, Reverse(source.charge().bytes()), id, source));
        }
        movable.sort_unstable_by_key(|&(is_needed, bytes, id, _)| (is_needed, bytes, id));
        let mut sum = 0;
        let enough = movable.into_iter().filter(|(_, Reverse(bytes), ..)| {
            let chosen = sum < wanted && bytes.saturating_add(sum) <= most;
            sum += if chosen { *bytes } else { 0 };
            chosen
        });
        enough
            .filter_map(|(_, _, id, source)| {
                Some(Outgoing {
                    id,
                    page: None,
                    bytes: host_bytes(source.shape()).ok()? as u64,
                    source,
                })
            })
            .collect()
    }

    /// Moves all arrays that can be moved to host pages, from where launches page them in again: memory
    /// that they divide is whole in between. The engine counts them as on the device all the time. False
    /// if none was moved.
    pub(crate) fn move_aside(&mut self) -> bool {
        let outgoing = self.plan_page_out(u64::MAX, u64::MAX, &[]);
        let (bytes, copied_bytes) = self.move_out(outgoing, Site::Device);
        heap::trim(copied_bytes);
        bytes > 0
    }

    fn can_be_paged_out(&self, entry: &Arc<Entry<D>>) -> bool {
        let shape = entry.shape();
        let plain = shape.minor_to_major.is_none() && !is_sub_byte(shape.element_type);
        let free = Arc::strong_count(entry) == 1 && entry.readers.load(SeqCst) == 0;
        let device = &self.host.device;
        let in_default = entry.placement.is_default(device.description());
        plain && free && in_default && entry.charge.bytes() > 0 && device.is_ready(&entry.array)
    }

    /// Moves arrays to their pages, and their charges to `site`. Returns the bytes that are in pages now,
    /// and those that were copied for it.
    fn move_out(&mut self, mut outgoing: Vec<Outgoing<D>>, site: Site) -> (u64, u64) {
        for one in &mut outgoing {
            one.page = match &one.source {
                Source::Device(entry) => current_page(entry),
                Source::Page(page) => Some(page.memory.clone()),
            };
        }
        let copied = outgoing.iter().filter(|one| one.page.is_none());
        let copied_bytes = copied
            .map(|one| one.bytes.next_multiple_of(ALIGNMENT))
            .sum();
        if let Err(e) = self.copy_to_pages(&mut outgoing, copied_bytes) {
            log::warn(format_args!(
                "no array is paged out: there is no host memory for {copied_bytes} bytes: {e}"
            ));
            return (0, 0);
        }
        let mut bytes = 0;
        for one in outgoing {
            let Some(memory) = one.page else { continue };
            let charge = one.source.charge().move_to(site);
            bytes += charge.bytes();
            let page = Page {
                shape: one.source.shape().clone(),
                memory,
                charge,
            };
            self.arrays.put(one.id, Slot::Paged(Arc::new(page)));
        }
        (bytes, copied_bytes)
    }

    /// Reads all arrays that are not in a page into new ones, at the same time, and waits for the
    /// end. An array that cannot be read has no page afterwards.
    fn copy_to_pages(&self, outgoing: &mut [Outgoing<D>], bytes: u64) -> std::io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let without = outgoing.iter().filter(|one| one.page.is_none());
        let sizes: Vec<u64> = without.map(|one| one.bytes).collect();
        let mut pages = self.host.pages.pages(&sizes)?.into_iter();
        let (sender, results) = mpsc::channel();
        for (index, one) in outgoing.iter().enumerate() {
            let Source::Device(entry) = &one.source else {
                continue;
            };
            if one.page.is_some() {
                continue;
            }
            let Some(page) = pages.next() else { break };
            let (sender, target) = (sender.clone(), Box::new(page.clone()));
            let done = Box::new(move |result: Result<(), Error>| {
                let _ = sender.send((index, result.map(|()| page)));
            });
            let rank = entry.shape().dims.len() as i64;
            let form = ReadForm::Host {
                minor_to_major: (0..rank).rev().collect(),
            };
            let device = &self.host.device;
            device.read(&entry.array, target, &form, done);
        }
        // The last `done` drops the last of the others.
        drop(sender);
        for (index, result) in results {
            match result {
                Ok(page) => outgoing[index].page = Some(page),
                Err(error) => {
                    self.host.device_failed(self.shared.id, None, &error);
                    log::warn(format_args!("an array cannot be paged out: {error}"));
                }
            }
        }
        Ok(())
    }

    /// An array on the device, paged in if it has to be; the engine has reserved its memory.
    pub(crate) fn page_in(&mut self, id: ArrayId, lane: u32) -> Result<Arc<Entry<D>>, Error> {
        let (entry, paged_in) = self.page_in_one(id, lane)?;
        self.note_paged_in(paged_in);
        Ok(entry)
    }

    /// A launch's arguments on its lane, paged in or copied over if they have to be.
    pub(crate) fn page_in_all(
        &mut self,
        arguments: impl Iterator<Item = (ArrayId, Held<D>)>,
        lane: u32,
    ) -> Result<Vec<Arc<Entry<D>>>, Error> {
        let mut paged_in = PagedIn::default();
        let entries = arguments.map(|(id, held)| match held {
            Held::Live(entry) if entry.placement.lane == lane => Ok(entry),
            Held::Live(entry) => match self.arrays.live(id) {
                // The same argument twice: it was copied over with the first.
                Ok(copied) if copied.placement.lane == lane => Ok(copied),
                _ => self.copy_to_lane(id, &entry, lane),
            },
            Held::Paged(_) => {
                let (entry, one) = self.page_in_one(id, lane)?;
                paged_in.bytes += one.bytes;
                paged_in.took += one.took;
                Ok(entry)
            }
        });
        let entries = entries.collect();
        self.note_paged_in(paged_in);
        entries
    }

    fn page_in_one(&mut self, id: ArrayId, lane: u32) -> Result<(Arc<Entry<D>>, PagedIn), Error> {
        let page = match self.arrays.get(id) {
            Some(Slot::Paged(page)) => Arc::clone(page),
            _ => return Ok((self.arrays.live(id)?, PagedIn::default())),
        };
        let begun = Instant::now();
        let charge = page.charge.move_to(Site::Device);
        let device = &self.host.device;
        let placement = Placement::default_in(lane, device.description());
        let upload = || device.upload(Box::new(page.memory.clone()), &page.shape, placement);
        match self.host.launch_calls.or_after_call(lane, upload) {
            Ok(array) => {
                let shape = page.shape.clone();
                let paged_in = PagedIn {
                    bytes: charge.bytes(),
                    took: begun.elapsed(),
                };
                self.shared.paging.paged_in(paged_in.bytes, paged_in.took);
                let memory = page.memory.clone();
                let home = match device.description().on_host {
                    true => Home::Wrapped(memory),
                    false => Home::Copied(self.host.pages.keep_page(memory)),
                };
                let kind = Kind::Own { shape };
                let entry = Entry::new(array, kind, placement, charge, Some(home));
                self.arrays.put(id, Slot::Live(Arc::clone(&entry)));
                Ok((entry, paged_in))
            }
            Err(error) if error.code == ErrorCode::ResourceExhausted => {
                // It stays in its page, and is paged in when there is room. The engine counts it as on
                // the device already.
                let page = Page {
                    shape: page.shape.clone(),
                    memory: page.memory.clone(),
                    charge,
                };
                self.arrays.put(id, Slot::Paged(Arc::new(page)));
                Err(error)
            }
            Err(error) => {
                self.arrays.put(id, Slot::Failed(error.clone()));
                Err(error)
            }
        }
    }

    /// Pages in the arguments of the launch at the head of the window before its turn, for which the
    /// engine has reserved their memory, and tells the engine. What cannot be paged in fails the launch
    /// when its turn has come.
    pub(crate) fn page_in_ahead(&mut self, lane: u32) {
        let ids = match self.window.front() {
            Some(Operation::Launch(launch)) => launch.argument_ids().to_vec(),
            _ => Vec::new(),
        };
        let mut paged_in = PagedIn::default();
        for &id in &ids {
            if let Ok((_, one)) = self.page_in_one(id, lane) {
                paged_in.bytes += one.bytes;
                paged_in.took += one.took;
            }
        }
        self.note_paged_in(paged_in);
        let held: Result<Vec<Held<D>>, Error> =
            ids.iter().map(|&id| self.arrays.held(id)).collect();
        if let (Some(Operation::Launch(launch)), Ok(held)) = (self.window.front_mut(), held) {
            launch.hold_arguments(held);
        }
        let session = self.shared.id;
        self.tell(Event::PagedIn { session });
    }

    /// The engine has reserved memory for what the operation at the head of the window would have paged
    /// in, and counts it as on the device. It never will be: its memory is given back from there.
    pub(crate) fn count_as_paged_in(&mut self) {
        let ids = match self.window.front() {
            Some(Operation::Launch(launch)) => launch.argument_ids(),
            Some(Operation::Copy { array, .. } | Operation::Read { array, .. }) => {
                std::slice::from_ref(array)
            }
            _ => &[],
        };
        for id in ids {
            if let Some(Slot::Paged(page)) = self.arrays.get(*id) {
                drop(page.charge.move_to(Site::Device));
            }
        }
    }

    /// Tells the trace what an operation paged in, as one move.
    fn note_paged_in(&self, paged_in: PagedIn) {
        if paged_in.bytes > 0 {
            let took_ns = u64::try_from(paged_in.took.as_nanos()).unwrap_or(u64::MAX);
            let engine = &self.host.engine;
            engine.note_page_in(self.shared.id, paged_in.bytes, took_ns);
        }
    }

    /// Copies an array that stayed on the device when its session went to another lane, because it
    /// could not be paged out or has no bytes.
    fn copy_to_lane(
        &mut self,
        id: ArrayId,
        entry: &Entry<D>,
        lane: u32,
    ) -> Result<Arc<Entry<D>>, Error> {
        let placement = Placement {
            lane,
            ..entry.placement
        };
        let array = self.host.device.copy_to_memory(&entry.array, placement)?;
        let shape = entry.shape().clone();
        let charge = entry.charge.pass_on();
        let copied = Entry::new(array, Kind::Own { shape }, placement, charge, None);
        self.arrays.put(id, Slot::Live(Arc::clone(&copied)));
        Ok(copied)
    }
}

/// Where an array is that the engine counts as on the device.
enum Source<D: Device> {
    Device(Arc<Entry<D>>),
    /// There was no room for it on the device.
    Page(Arc<Page<D>>),
}

impl<D: Device> Source<D> {
    fn charge(&self) -> &Charge<D> {
        match self {
            Self::Device(entry) => &entry.charge,
            Self::Page(page) => &page.charge,
        }
    }

    fn shape(&self) -> &Shape {
        match self {
            Self::Device(entry) => entry.shape(),
            Self::Page(page) => &page.shape,
        }
    }
}

/// An array on its way to a page.
struct Outgoing<D: Device> {
    id: ArrayId,
    source: Source<D>,
    /// As its host copy has.
    bytes: u64,
    /// The page that it is still in, or that it was copied to.
    page: Option<PageMemory>,
}

/// What an operation paged in.
#[derive(Default)]
struct PagedIn {
    bytes: u64,
    took: Duration,
}

/// The page that an array was paged in from, if it is still there: then it need not be copied.
fn current_page<D: Device>(entry: &Entry<D>) -> Option<PageMemory> {
    let home = match entry.home.as_ref()? {
        Home::Wrapped(page) => page,
        Home::Copied(page) => return page.take(),
    };
    let bytes = host_bytes(entry.shape()).ok()?;
    let address = entry.device().host_address(&entry.array)?;
    let is_there = home.len() == bytes && home.bytes().as_ptr().addr() == address;
    is_there.then(|| home.clone())
}
