//! The state file: what all processes of one test share, and what its test reads.
//!
//! It is a file of little-endian words that every process maps. A client takes a *place* for each of
//! its devices, in which it writes what it holds; a lock on a byte of the file that belongs to the place
//! says that its owner lives, and the kernel takes the lock from a process that is killed. So what a dead
//! process held is given back by whoever looks next.
//!
//! | words | what |
//! |---|---|
//! | 0..64 | [`word`] |
//! | 64 + 64 d .. | device `d` (16 of them): [`on_device`] |
//! | 1088 + 8 p .. | place `p` (256 of them): [`in_place`] |

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::DEVICES_MAX;

/// Words of the whole machine.
pub mod word {
    /// Clients ever created.
    pub const CLIENTS: usize = 0;
    /// Compilations by a client, which may have tuned on the device.
    pub const COMPILED: usize = 1;
    /// Compilations by a topology, without a client.
    pub const COMPILED_WITHOUT_CLIENT: usize = 2;
    /// Processes that opened the library.
    pub const OPENED: usize = 3;
}

/// Words of a device.
pub mod on_device {
    /// Its physical memory; 0 until somebody opens it.
    pub const MEMORY: usize = 0;
    /// The most bytes that pools of all processes held at once.
    pub const TAKEN_MOST: usize = 1;
    pub const LAUNCHES: usize = 2;
    /// The most launch calls that were in the library at once.
    pub const CALLS_MOST: usize = 3;
    /// Launches that ran out of memory.
    pub const OUT_OF_MEMORY: usize = 4;
    /// Sticky errors that programs made.
    pub const STICKY: usize = 5;
    pub const UPLOADS: usize = 6;
    pub const UPLOADED_BYTES: usize = 7;
    pub const READS: usize = 8;
    pub const READ_BYTES: usize = 9;
    /// Ranges that were mapped, ever.
    pub const DMA_MAPS: usize = 10;
    /// The most bytes mapped at once, by one client.
    pub const DMA_BYTES_MOST: usize = 11;
    /// Ranges that were unmapped though not mapped, or gone before they were.
    pub const DMA_FAULTS: usize = 12;
    /// Bytes that were moved from or to mapped ranges.
    pub const DMA_MOVED_BYTES: usize = 13;
    /// Nanoseconds during which the compute stream ran something.
    pub const BUSY_NS: usize = 14;
}

/// Words of a place.
pub mod in_place {
    /// Who has it; 0 is nobody.
    pub const PID: usize = 0;
    pub const DEVICE: usize = 1;
    /// Bytes of physical memory that its pool has taken.
    pub const POOL: usize = 2;
    /// Bytes of it that are in use.
    pub const IN_USE: usize = 3;
    /// Launch calls that are in the library now.
    pub const CALLS: usize = 4;
    /// Ranges that are mapped now, and their bytes.
    pub const DMA_RANGES: usize = 5;
    pub const DMA_BYTES: usize = 6;
}

const DEVICE_AT: usize = 64;
const DEVICE_WORDS: usize = 64;
const PLACE_AT: usize = DEVICE_AT + DEVICES_MAX * DEVICE_WORDS;
const PLACE_WORDS: usize = 8;
const PLACES: usize = 256;
const WORDS: usize = PLACE_AT + PLACES * PLACE_WORDS;
/// Bytes whose locks say that the owner of a place lives. Beyond the words, where nothing is.
const LIVES_AT: i64 = 1 << 20;
const LEDGER_AT: i64 = LIVES_AT - 1;

pub struct State {
    file: File,
    words: &'static [AtomicU64],
    path: Option<PathBuf>,
    /// The ledger's lock among threads, and the places that this process has.
    ours: Mutex<Vec<usize>>,
}

static OPEN: Mutex<Vec<Arc<State>>> = Mutex::new(Vec::new());

impl State {
    /// Maps the file, which is made if need be; without one, the state is this process's own.
    pub fn open(path: Option<&Path>) -> std::io::Result<Arc<State>> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |state: &&Arc<State>| state.path.as_deref() == path;
        if let Some(state) = open.iter().find(same) {
            return Ok(Arc::clone(state));
        }
        let file = match path {
            None => anonymous()?,
            Some(path) => OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?,
        };
        let size = (WORDS * size_of::<u64>()) as u64;
        if file.metadata()?.len() < size {
            file.set_len(size)?;
        }
        let words = map(&file)?;
        let state = Arc::new(State {
            file,
            words,
            path: path.map(Path::to_owned),
            ours: Mutex::default(),
        });
        open.push(Arc::clone(&state));
        Ok(state)
    }

    /// A word of the machine.
    pub fn word(&self, word: usize) -> &AtomicU64 {
        &self.words[word]
    }

    /// A word of a device.
    pub fn device(&self, device: usize, word: usize) -> &AtomicU64 {
        &self.words[DEVICE_AT + device * DEVICE_WORDS + word]
    }

    /// A word of a place.
    pub fn place(&self, place: usize, word: usize) -> &AtomicU64 {
        &self.words[PLACE_AT + place * PLACE_WORDS + word]
    }

    /// The sum of a word over the places of a device whose owners live.
    pub fn sum(&self, device: usize, word: usize) -> u64 {
        let ledger = self.ledger();
        self.places_of(device, &ledger)
            .map(|place| self.get(place, word))
            .sum()
    }

    /// How many clients there are now, of all processes.
    pub fn clients_now(&self, device: usize) -> usize {
        let ledger = self.ledger();
        self.places_of(device, &ledger).count()
    }

    fn get(&self, place: usize, word: usize) -> u64 {
        self.place(place, word).load(Ordering::Relaxed)
    }

    fn places_of<'a>(
        &'a self,
        device: usize,
        ledger: &'a Ledger<'_>,
    ) -> impl Iterator<Item = usize> + 'a {
        (0..PLACES).filter(move |&place| {
            self.get(place, in_place::PID) != 0
                && self.get(place, in_place::DEVICE) == device as u64
                && self.lives(place, ledger)
        })
    }

    /// Whether the owner of a place lives; if not, the place is given back.
    fn lives(&self, place: usize, ledger: &Ledger<'_>) -> bool {
        if ledger.ours.contains(&place) {
            return true;
        }
        let lives = is_locked(&self.file, LIVES_AT + place as i64);
        if !lives {
            self.clear(place);
        }
        lives
    }

    fn clear(&self, place: usize) {
        for word in 0..PLACE_WORDS {
            self.place(place, word).store(0, Ordering::Relaxed);
        }
    }

    fn ledger(&self) -> Ledger<'_> {
        let ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        lock(&self.file, LEDGER_AT, libc::F_WRLCK, true);
        Ledger {
            ours,
            file: &self.file,
        }
    }

    /// A place of its own on a device that has `memory` bytes, unless somebody else said otherwise.
    pub(crate) fn enter(self: &Arc<State>, device: usize, memory: u64) -> Option<Place> {
        let mut ledger = self.ledger();
        let physical = self.device(device, on_device::MEMORY);
        if physical.load(Ordering::Relaxed) == 0 {
            physical.store(memory, Ordering::Relaxed);
        }
        let free = (0..PLACES)
            .find(|&place| self.get(place, in_place::PID) == 0 || !self.lives(place, &ledger))?;
        lock(&self.file, LIVES_AT + free as i64, libc::F_WRLCK, false);
        self.clear(free);
        self.place(free, in_place::DEVICE)
            .store(device as u64, Ordering::Relaxed);
        self.place(free, in_place::PID)
            .store(u64::from(std::process::id()), Ordering::Relaxed);
        ledger.ours.push(free);
        Some(Place {
            state: Arc::clone(self),
            index: free,
            device,
        })
    }
}

/// The right to change what places hold, among all threads of all processes.
struct Ledger<'a> {
    ours: MutexGuard<'a, Vec<usize>>,
    file: &'a File,
}

impl Drop for Ledger<'_> {
    fn drop(&mut self) {
        lock(self.file, LEDGER_AT, libc::F_UNLCK, false);
    }
}

/// A client's place on a device; given back when it is dropped, or when its process dies.
pub(crate) struct Place {
    state: Arc<State>,
    index: usize,
    device: usize,
}

impl Place {
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// A word of this place.
    pub(crate) fn word(&self, word: usize) -> &AtomicU64 {
        self.state.place(self.index, word)
    }

    /// A word of its device.
    pub(crate) fn on_device(&self, word: usize) -> &AtomicU64 {
        self.state.device(self.device, word)
    }

    /// Adds to a count of its device; what it is then.
    pub(crate) fn count(&self, word: usize, more: u64) -> u64 {
        self.on_device(word).fetch_add(more, Ordering::Relaxed) + more
    }

    pub(crate) fn physical(&self) -> u64 {
        self.on_device(on_device::MEMORY).load(Ordering::Relaxed)
    }

    /// Takes physical memory, if that much is left by all others.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let state = &*self.state;
        let ledger = state.ledger();
        let places = state.places_of(self.device, &ledger);
        let taken: u64 = places.map(|place| state.get(place, in_place::POOL)).sum();
        if taken + bytes > self.physical() {
            return false;
        }
        self.word(in_place::POOL)
            .fetch_add(bytes, Ordering::Relaxed);
        self.on_device(on_device::TAKEN_MOST)
            .fetch_max(taken + bytes, Ordering::Relaxed);
        true
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.word(in_place::POOL)
            .fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut ledger = self.state.ledger();
        ledger.ours.retain(|&place| place != self.index);
        self.state.clear(self.index);
        let at = LIVES_AT + self.index as i64;
        lock(&self.state.file, at, libc::F_UNLCK, false);
    }
}

/// Locks or unlocks a byte, for the open file, not for the process.
fn lock(file: &File, at: i64, kind: i32, wait: bool) -> bool {
    let mut range = byte(at, kind);
    let command = if wait {
        libc::F_OFD_SETLKW
    } else {
        libc::F_OFD_SETLK
    };
    loop {
        // SAFETY: a descriptor of ours and a struct that lives during the call.
        let failed = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut range) } != 0;
        let interrupted = std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
        if !(failed && wait && interrupted) {
            return !failed;
        }
    }
}

/// Whether another open file holds a lock on the byte.
fn is_locked(file: &File, at: i64) -> bool {
    let mut range = byte(at, libc::F_WRLCK);
    // SAFETY: as above.
    let failed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut range) } != 0;
    !failed && i32::from(range.l_type) != libc::F_UNLCK
}

fn byte(at: i64, kind: i32) -> libc::flock {
    // SAFETY: integers only.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = at;
    range.l_len = 1;
    range
}

fn anonymous() -> std::io::Result<File> {
    // SAFETY: a constant name; the descriptor is owned by the file that is made of it.
    unsafe {
        let descriptor = libc::memfd_create(c"salus-standin".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(File::from_raw_fd(descriptor))
    }
}

/// Maps the words for the life of the process.
fn map(file: &File) -> std::io::Result<&'static [AtomicU64]> {
    let len = WORDS * size_of::<u64>();
    // SAFETY: a new mapping of a file that is at least as long, and never unmapped; the words are
    // only used as atomic ones.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let descriptor = file.as_raw_fd();
        let start = std::ptr::null_mut();
        let mapped = libc::mmap(start, len, protection, libc::MAP_SHARED, descriptor, 0);
        if mapped == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(std::slice::from_raw_parts(mapped.cast(), WORDS))
    }
}
