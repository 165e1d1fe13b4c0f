//! A lane of the scripted device: one thread that runs launches in order, by a clock.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::accelerator::Accelerator;
use super::cell::{Cell, Charge, Storage};
use super::script::{Fail, Script};
use crate::failure::{INTERNAL, error};
use crate::{Done, Error};

/// What makes time pass on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// A run of 5 ms takes 5 ms.
    Real,
    /// Time stands still but for [`super::ScriptedDevice::advance`].
    Manual,
}

/// One launch in the queue.
pub(super) struct Run {
    pub(super) script: Arc<Script>,
    pub(super) arguments: Vec<Arc<Cell>>,
    /// Which arguments are overwritten by an output.
    pub(super) donated: Vec<bool>,
    pub(super) outputs: Vec<Arc<Cell>>,
    pub(super) done: Done,
    /// Set when the run ended: dropping a donated array waits for it.
    pub(super) ended: Arc<Ended>,
    /// Given back when the run ended; `None` if it was when the run was enqueued.
    pub(super) scratch: Option<Charge>,
    /// Set if it was enqueued without the memory that it needs.
    pub(super) fails: Option<Error>,
    pub(super) accelerator: Arc<Accelerator>,
    pub(super) enqueued: Duration,
}

/// A flag that can be waited for.
#[derive(Default)]
pub(super) struct Ended {
    flag: Mutex<bool>,
    set: Condvar,
}

impl Ended {
    pub(super) fn wait(&self) {
        let mut flag = self
            .flag
            .lock()
            .unwrap_or_else(|poison| poison.into_inner());
        while !*flag {
            flag = self
                .set
                .wait(flag)
                .unwrap_or_else(|poison| poison.into_inner());
        }
    }

    fn set(&self) {
        *self
            .flag
            .lock()
            .unwrap_or_else(|poison| poison.into_inner()) = true;
        self.set.notify_all();
    }
}

pub(super) struct Lane {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    clock: Clock,
    opened: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Run>,
    /// Runs that were ever put into the queue.
    pushed: u64,
    /// Time since the device was opened, if the clock is manual.
    now: Duration,
    closed: bool,
}

impl Lane {
    pub(super) fn open(clock: Clock) -> Lane {
        let shared = Arc::new(Shared {
            clock,
            opened: Instant::now(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let served = shared.clone();
        let thread = std::thread::spawn(move || served.serve());
        Lane {
            shared,
            thread: Some(thread),
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.shared.now(&self.shared.lock())
    }

    pub(super) fn advance(&self, by: Duration) {
        self.shared.lock().now += by;
        self.shared.changed.notify_all();
    }

    pub(super) fn pushed(&self) -> u64 {
        self.shared.lock().pushed
    }

    pub(super) fn push(&self, run: Run) {
        let mut state = self.shared.lock();
        state.queue.push_back(run);
        state.pushed += 1;
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The last handle may go inside a `done`, on the lane's own thread.
            if thread.thread().id() != std::thread::current().id() {
                // A panic in it was a panic of a test's closure, and has been reported.
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }

    fn now(&self, state: &State) -> Duration {
        match self.clock {
            Clock::Real => self.opened.elapsed(),
            Clock::Manual => state.now,
        }
    }

    fn serve(&self) {
        let mut free_at = Duration::ZERO;
        while let Some(run) = self.next() {
            let inputs = run.arguments.iter().try_for_each(|cell| cell.wait());
            // A run starts when the lane is free, not when this thread comes to look at it.
            free_at = free_at.max(run.enqueued) + run.script.duration;
            let on_time = self.wait_until(free_at);
            run.end(inputs.and(on_time));
        }
    }

    fn next(&self) -> Option<Run> {
        let mut state = self.lock();
        loop {
            if let Some(run) = state.queue.pop_front() {
                return Some(run);
            }
            if state.closed {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(|poison| poison.into_inner());
        }
    }

    /// Waits for the clock. A closing device does not wait for a clock that nobody moves.
    fn wait_until(&self, end: Duration) -> Result<(), Error> {
        let mut state = self.lock();
        loop {
            let now = self.now(&state);
            if now >= end {
                return Ok(());
            }
            if state.closed && self.clock == Clock::Manual {
                return Err(error(INTERNAL, "the device was closed"));
            }
            let left = match self.clock {
                Clock::Real => end - now,
                Clock::Manual => Duration::MAX,
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(|poison| poison.into_inner()).0;
        }
    }
}

impl Run {
    /// Fills the outputs, or poisons them; then wakes all that wait for them, and the launch last.
    fn end(self, inputs: Result<(), Error>) {
        let well = self.accelerator.check();
        let enqueued = self.fails.clone().map_or(Ok(()), Err);
        let inputs = well.and(enqueued).and(inputs);
        let result = inputs.and_then(|()| match self.script.fail {
            Fail::Sticky => Err(self.accelerator.stick(format!(
                "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access in `{}`, as scripted",
                self.script.name
            ))),
            Fail::Async => Err(error(
                INTERNAL,
                format!("`{}` failed while it ran, as scripted", self.script.name),
            )),
            Fail::Crash => std::process::abort(),
            _ => self.compute(),
        });
        let taken = self
            .arguments
            .iter()
            .zip(&self.donated)
            .filter(|(_, donated)| **donated);
        let result = match result {
            Ok(values) => {
                for (cell, value) in self.outputs.iter().zip(values) {
                    cell.settle(Ok(value));
                }
                Ok(())
            }
            Err(failure) => {
                for cell in &self.outputs {
                    cell.settle(Err(failure.clone()));
                }
                // Donated is donated, also to a run that failed.
                for (cell, _) in taken {
                    let _ = cell.take();
                }
                Err(failure)
            }
        };
        drop(self.scratch);
        self.ended.set();
        (self.done)(result);
    }

    /// Every output is a hash of the program's name, the output's number and all arguments, in
    /// order; so a wrong order, a stale array or a lost donation shows.
    fn compute(&self) -> Result<Vec<Storage>, Error> {
        let mut seed = Hash::new();
        seed.add(self.script.name.as_bytes());
        for (argument, shape) in self.arguments.iter().zip(&self.script.parameters) {
            seed.add(&shape.element_type.to_le_bytes());
            argument.with_bytes(|bytes| seed.add(bytes))?;
        }
        let mut values = Vec::new();
        for (index, (shape, alias)) in self.script.outputs.iter().enumerate() {
            let in_place = alias.filter(|&alias| self.donated[alias as usize]);
            let mut storage = match in_place {
                Some(alias) => self.arguments[alias as usize].take()?,
                None => Storage::Own(vec![0; crate::element::host_bytes(shape)?]),
            };
            let mut hash = seed.clone();
            hash.add(&index.to_le_bytes());
            storage.overwrite(|bytes| hash.fill(bytes));
            values.push(storage);
        }
        Ok(values)
    }
}

/// A hash that also yields any number of bytes (the mixing steps of SplitMix64).
#[derive(Clone)]
struct Hash(u64);

impl Hash {
    fn new() -> Hash {
        Hash(0x9e37_79b9_7f4a_7c15)
    }

    fn add(&mut self, bytes: &[u8]) {
        self.mix(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn mix(&mut self, word: u64) {
        let mut x = (self.0 ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = x ^ (x >> 31);
    }

    fn fill(mut self, target: &mut [u8]) {
        for chunk in target.chunks_mut(8) {
            self.mix(1);
            chunk.copy_from_slice(&self.0.to_le_bytes()[..chunk.len()]);
        }
    }
}
