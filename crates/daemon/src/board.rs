//! What the device is doing, on a page that the device host writes and the supervisor reads.
//!
//! When the device host dies, nothing of it can be asked any more: the page is still there and says
//! which programs ran. Each launch takes a place on it and leaves it when it has ended. Of those that
//! were handed to one lane, which run in order, the first is the one that was running; beside it, those
//! that a thread is just handing over: a device may run small programs in that very call. If it was in
//! such a thread that the process died, it was that program and no other.
//!
//! Cost: a few stores for each launch. Nothing is sent and nobody is woken.
//! Not here: what follows from it (`supervisor/blame.rs`).
#![expect(unsafe_code, reason = "atomics in shared memory")]

mod accusation;

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex};
use std::{io, slice};

use salus_channel::{Mapping, Segment, lock};

pub(crate) use accusation::Accusation;

/// More launches than can be under way: two in each lane, those that call back, and loads.
const PLACES: usize = 256;
/// A program's name, as far as it fits.
const NAME_WORDS: usize = 8;

/// Not in a lane: it runs beside all others.
pub(crate) const BESIDE: u64 = u64::MAX;

#[repr(C)]
struct Page {
    /// Not 0: the device host ended itself because of a bug of its own.
    panicked: AtomicU64,
    /// Not 0: one more than the process that sent the signal which ended it.
    killed_by: AtomicU64,
    /// Not 0: the thread in which a signal of its own ended it.
    died_in: AtomicU64,
    accusation: accusation::Place,
    places: [Place; PLACES],
}

#[repr(C)]
struct Place {
    /// When it was taken, in the order of all; 0 while it is free. Written last, and cleared first.
    order: AtomicU64,
    lane: AtomicU64,
    session: AtomicU64,
    program: AtomicU64,
    /// Not 0: a thread is handing it to the device, and this is which ([`Call`]).
    call: AtomicU64,
    name: [AtomicU64; NAME_WORDS],
}

/// Bits of a thread's number: Linux has no more.
const THREAD_BITS: u32 = 22;
const THREAD: u64 = (1 << THREAD_BITS) - 1;

/// A program that was running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) session: u64,
    pub(crate) program: u64,
    pub(crate) name: String,
}

/// The page as one of the two processes has it.
#[derive(Debug)]
pub(crate) struct Board(Mapping);

impl Board {
    /// A new page, and its descriptor for the other process.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let (mapping, descriptor) = Segment::create(Self::BYTES, true)?.into_parts();
        Ok((Self(mapping), descriptor))
    }

    /// The page of the supervisor.
    pub(crate) fn open(descriptor: OwnedFd) -> io::Result<Self> {
        let (mapping, _) = Segment::open(descriptor, Self::BYTES)?.into_parts();
        Ok(Self(mapping))
    }

    pub(crate) const BYTES: u64 = size_of::<Page>() as u64;

    fn page(&self) -> &Page {
        let start = self.0.range(0, Self::BYTES).expect("it is as long as that");
        // SAFETY: mapped, as long as a page and aligned as the kernel maps; atomics of any value are
        // valid, and zeros to begin with. Only processes of the service have it.
        unsafe { &slice::from_raw_parts(start.cast::<Page>(), 1)[0] }
    }

    /// The device host is about to end because of a bug of its own.
    pub(crate) fn panicked(&self) {
        self.page().panicked.store(1, Release);
    }

    /// The device host is about to end by a signal that another process has sent; 0 is one that cannot
    /// be seen from here. To be called in handlers of signals, too.
    pub(crate) fn killed_by(&self, pid: i32) {
        let pid = u64::from(pid.unsigned_abs());
        self.page().killed_by.store(1 + pid, Release);
    }

    /// The device host is about to end by a signal of its own, in this thread. To be called in handlers
    /// of signals, too.
    pub(crate) fn dies_in(&self, thread: i32) {
        let thread = u64::from(thread.unsigned_abs());
        self.page().died_in.store(thread, Release);
    }

    /// Which process has ended it by a signal, if one has.
    pub(crate) fn killer(&self) -> Option<u64> {
        self.page().killed_by.load(Acquire).checked_sub(1)
    }

    /// What was running when the device host ended; nothing if that was its own doing, or another
    /// process's.
    pub(crate) fn running(&self) -> Vec<Running> {
        let page = self.page();
        if page.panicked.load(Acquire) != 0 || self.killer().is_some() {
            return Vec::new();
        }
        let mut taken: Vec<(u64, u64, &Place)> = Vec::new();
        for place in &page.places {
            let order = place.order.load(Acquire);
            if order != 0 {
                taken.push((place.lane.load(Relaxed), order, place));
            }
        }
        let died_in = page.died_in.load(Acquire);
        let caller = |place: &Place| place.call.load(Acquire) & THREAD;
        if let Some((_, _, place)) = taken
            .iter()
            .find(|(_, _, place)| died_in != 0 && caller(place) == died_in)
        {
            return vec![place.read()];
        }
        taken.sort_unstable_by_key(|(lane, order, _)| (*lane, *order));
        let mut last_led = None;
        taken.retain(|(lane, _, place)| {
            let first = last_led != Some(*lane);
            let is_called = caller(place) != 0;
            if !is_called {
                last_led = Some(*lane);
            }
            is_called || first || *lane == BESIDE
        });
        taken.iter().map(|(_, _, place)| place.read()).collect()
    }
}

impl Place {
    fn read(&self) -> Running {
        Running {
            session: self.session.load(Relaxed),
            program: self.program.load(Relaxed),
            name: text(&self.name),
        }
    }
}

/// The device host's side: gives places out.
#[derive(Clone)]
pub(crate) struct Writer(Arc<Shared>);

struct Shared {
    board: Board,
    free: Mutex<Free>,
}

struct Free {
    places: Vec<usize>,
    order: u64,
}

/// A launch's place, until it is dropped.
pub(crate) struct Taken {
    writer: Writer,
    place: Option<usize>,
}

/// A thread hands a launch to the device, until this is dropped.
pub(crate) struct Call {
    writer: Writer,
    place: usize,
    /// Which launch and thread: the place may be another's when the call returns.
    mark: u64,
}

impl Taken {
    pub(crate) fn call(&self) -> Option<Call> {
        let place = self.place?;
        let at = &self.writer.0.board.page().places[place];
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let mark = at.order.load(Relaxed) << THREAD_BITS | u64::from(thread.unsigned_abs());
        at.call.store(mark, Release);
        Some(Call {
            writer: self.writer.clone(),
            place,
            mark,
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let call = &self.writer.0.board.page().places[self.place].call;
        // Where it is another's by now, it stays.
        let _ = call.compare_exchange(self.mark, 0, Release, Relaxed);
    }
}

impl Writer {
    pub(crate) fn new(board: Board) -> Self {
        let free = Free {
            places: (0..PLACES).collect(),
            order: 0,
        };
        Self(Arc::new(Shared {
            board,
            free: Mutex::new(free),
        }))
    }

    pub(crate) fn board(&self) -> &Board {
        &self.0.board
    }

    pub(crate) fn begin(&self, lane: u64, session: u64, program: u64, name: &str) -> Taken {
        let mut free = lock(&self.0.free);
        free.order += 1;
        let order = free.order;
        let found = free.places.pop();
        drop(free);
        if let Some(place) = found.map(|at| &self.0.board.page().places[at]) {
            place.lane.store(lane, Relaxed);
            place.session.store(session, Relaxed);
            place.program.store(program, Relaxed);
            place.call.store(0, Relaxed);
            put_text(&place.name, name);
            place.order.store(order, Release);
        }
        Taken {
            writer: self.clone(),
            place: found,
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some(place) = self.place else {
            return;
        };
        let shared = &self.writer.0;
        shared.board.page().places[place].order.store(0, Release);
        let mut free = lock(&shared.free);
        free.places.push(place);
    }
}

/// Writes a text, as far as it fits.
fn put_text(words: &[AtomicU64], text: &str) {
    let cut = &text.as_bytes()[..text.floor_char_boundary(words.len() * 8)];
    for (at, word) in words.iter().enumerate() {
        let mut bytes = [0; 8];
        let part = cut.get(at * 8..).unwrap_or_default();
        let part = &part[..part.len().min(8)];
        bytes[..part.len()].copy_from_slice(part);
        word.store(u64::from_le_bytes(bytes), Relaxed);
    }
}

fn text(words: &[AtomicU64]) -> String {
    let bytes = words.iter().map(|word| word.load(Relaxed).to_le_bytes());
    let bytes: Vec<u8> = bytes.flatten().take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> (Board, Writer) {
        let (ours, descriptor) = Board::create().expect("memory");
        let theirs = Board::open(descriptor).expect("the same memory");
        (ours, Writer::new(theirs))
    }

    fn numbers(board: &Board) -> Vec<u64> {
        board.running().iter().map(|one| one.program).collect()
    }

    #[test]
    fn the_first_of_each_lane_is_running_and_all_beside() {
        let (board, writer) = shared();
        assert_eq!(board.running(), []);
        let name = "jit_train_step_ä".repeat(8);
        let first = writer.begin(0, 7, 70, &name);
        let second = writer.begin(0, 8, 80, "second");
        let other = writer.begin(1, 9, 90, "other lane");
        let beside = [
            writer.begin(BESIDE, 7, 71, "a"),
            writer.begin(BESIDE, 7, 72, "b"),
        ];
        assert_eq!(numbers(&board), [70, 90, 71, 72]);
        let running = &board.running()[0];
        assert_eq!(running.session, 7);
        assert!(
            name.starts_with(&running.name) && running.name.len() > 60,
            "{running:?}"
        );
        drop(first);
        assert_eq!(numbers(&board), [80, 90, 71, 72]);
        drop((second, beside));
        assert_eq!(numbers(&board), [90]);
        drop(other);
        assert_eq!(board.running(), []);
    }

    #[test]
    fn what_is_being_handed_over_may_run_beside_the_first() {
        let (board, writer) = shared();
        let first = writer.begin(0, 7, 70, "long");
        let second = writer.begin(0, 8, 80, "at once");
        let call = second.call();
        assert_eq!(numbers(&board), [70, 80]);
        // It was handed over, and waits for the first.
        drop(call);
        assert_eq!(numbers(&board), [70]);
        // A call that returns late ends no other's.
        let call = second.call();
        drop(second);
        let third = writer.begin(0, 9, 90, "takes its place");
        let other = third.call();
        drop(call);
        assert_eq!(numbers(&board), [70, 90]);
        drop((first, other, third));
        assert_eq!(board.running(), []);
    }

    #[test]
    fn a_death_in_a_thread_that_hands_over_is_what_it_hands_over() {
        let (board, writer) = shared();
        let _first = writer.begin(0, 7, 70, "innocent");
        let culprit = writer.begin(0, 8, 80, "crashes");
        let _call = culprit.call();
        let other = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let taken = writer.begin(1, 9, 90, "innocent, too");
                let call = taken.call();
                (taken, call)
            });
            thread.join().expect("no panic")
        });
        assert_eq!(numbers(&board), [70, 80, 90]);
        let here = rustix::thread::gettid().as_raw_nonzero().get();
        writer.board().dies_in(here);
        assert_eq!(numbers(&board), [80]);
        // A thread of the plugin's tells nothing.
        writer.board().dies_in(i32::MAX);
        assert_eq!(numbers(&board), [70, 80, 90]);
        drop(other);
    }

    #[test]
    fn more_launches_than_places_are_merely_not_on_it() {
        let (board, writer) = shared();
        let all: Vec<Taken> = (0..PLACES as u64 + 10)
            .map(|n| writer.begin(BESIDE, 1, n, "x"))
            .collect();
        assert_eq!(board.running().len(), PLACES);
        drop(all);
        assert_eq!(board.running(), []);
        assert_eq!(lock(&writer.0.free).places.len(), PLACES);
    }

    #[test]
    fn a_bug_of_the_device_hosts_own_is_nobodys_doing() {
        let (board, writer) = shared();
        let _running = writer.begin(0, 7, 70, "innocent");
        writer.board().panicked();
        assert_eq!(board.running(), []);
    }

    #[test]
    fn a_signal_of_another_process_is_nobodys_doing() {
        let (board, writer) = shared();
        let _running = writer.begin(0, 7, 70, "innocent");
        assert_eq!(board.killer(), None);
        writer.board().killed_by(4121);
        assert_eq!(board.killer(), Some(4121));
        assert_eq!(board.running(), []);
    }
}
