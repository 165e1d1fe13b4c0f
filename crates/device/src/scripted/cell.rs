//! A scripted array's value: its bytes once they are there, and the callbacks that wait for them.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::failure::{INVALID_ARGUMENT, RESOURCE_EXHAUSTED, error};
use crate::{Done, Error, HostBytes, HostMemory};

/// An array's value over its life: pending, then ready or failed, and perhaps taken.
pub(super) struct Cell {
    state: Mutex<State>,
    settled: Condvar,
}

enum State {
    Pending(Vec<Done>),
    Ready(Storage),
    Failed(Error),
    /// Donated to a program that has run.
    Taken,
}

/// Bytes in memory of the device's own, or of the host's.
pub(super) enum Storage {
    Own(Vec<u8>),
    Wrapped(Box<dyn HostMemory>),
}

impl Storage {
    /// What is there now: a copy where the host may change it meanwhile.
    fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Storage::Own(bytes) => Cow::Borrowed(bytes),
            Storage::Wrapped(host) => Cow::Owned(HostBytes::of(&**host).to_vec()),
        }
    }

    pub(super) fn overwrite(&mut self, fill: impl FnOnce(&mut [u8])) {
        match self {
            Storage::Own(bytes) => fill(bytes),
            Storage::Wrapped(host) => {
                let host = HostBytes::of(&**host);
                let mut bytes = vec![0; host.len()];
                fill(&mut bytes);
                host.write(&bytes);
            }
        }
    }
}

impl Cell {
    pub(super) fn pending() -> Arc<Cell> {
        Cell::new(State::Pending(Vec::new()))
    }

    pub(super) fn ready(storage: Storage) -> Arc<Cell> {
        Cell::new(State::Ready(storage))
    }

    fn new(state: State) -> Arc<Cell> {
        Arc::new(Cell {
            state: Mutex::new(state),
            settled: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, and a test that did is failing already.
        self.state
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }

    /// Calls `done` when the value is there, at once if it is there already.
    pub(super) fn on_ready(&self, done: Done) {
        let result = match &mut *self.lock() {
            State::Pending(waiting) => {
                waiting.push(done);
                return;
            }
            State::Ready(_) => Ok(()),
            State::Failed(failure) => Err(failure.clone()),
            State::Taken => Err(deleted()),
        };
        done(result);
    }

    /// Waits until it is no longer pending.
    pub(super) fn wait(&self) -> Result<(), Error> {
        let mut state = self.lock();
        while matches!(*state, State::Pending(_)) {
            state = self
                .settled
                .wait(state)
                .unwrap_or_else(|poison| poison.into_inner());
        }
        match &*state {
            State::Failed(failure) => Err(failure.clone()),
            State::Taken => Err(deleted()),
            State::Ready(_) | State::Pending(_) => Ok(()),
        }
    }

    pub(super) fn settle(&self, value: Result<Storage, Error>) {
        let result = value.as_ref().map(|_| ()).map_err(Clone::clone);
        let state = match value {
            Ok(storage) => State::Ready(storage),
            Err(failure) => State::Failed(failure),
        };
        let before = std::mem::replace(&mut *self.lock(), state);
        self.settled.notify_all();
        if let State::Pending(waiting) = before {
            // Outside of the lock: they may ask about this array.
            for done in waiting {
                done(result.clone());
            }
        }
    }

    /// Uses the bytes of a ready array.
    pub(super) fn with_bytes<T>(&self, use_bytes: impl FnOnce(&[u8]) -> T) -> Result<T, Error> {
        match &*self.lock() {
            State::Ready(storage) => Ok(use_bytes(&storage.bytes())),
            State::Failed(failure) => Err(failure.clone()),
            State::Taken => Err(deleted()),
            State::Pending(_) => Err(error(
                INVALID_ARGUMENT,
                "the array was read before it was ready",
            )),
        }
    }

    /// Takes the storage out, for a program that overwrites it in place.
    pub(super) fn take(&self) -> Result<Storage, Error> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Ready(storage) => Ok(storage),
            State::Failed(failure) => Err(failure),
            State::Pending(_) | State::Taken => Err(deleted()),
        }
    }
}

pub(super) fn deleted() -> Error {
    error(INVALID_ARGUMENT, "the array was deleted or donated")
}

/// Bytes of the device's memory that something holds; given back when it is dropped.
pub(super) struct Charge {
    used: Arc<AtomicU64>,
    bytes: u64,
}

impl Charge {
    pub(super) fn take(used: &Arc<AtomicU64>, bytes: u64, capacity: u64) -> Result<Charge, Error> {
        let fits = |now: u64| now.checked_add(bytes).filter(|&sum| sum <= capacity);
        match used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits) {
            Ok(_) => Ok(Charge {
                used: used.clone(),
                bytes,
            }),
            Err(now) => Err(error(
                RESOURCE_EXHAUSTED,
                format!("out of memory: {bytes} bytes wanted, {now} of {capacity} in use"),
            )),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}
