//! What sets an accelerator apart from a CPU, as far as the scripted device plays it.
//!
//! Its memory is not the host's: nothing is wrapped. A launch is enqueued: its call allocates scratch
//! and outputs, and gives the scratch back when it returns. One that runs out of memory meanwhile says so
//! when it ends, after its donated arguments are gone. After an error that sticks every call fails.
//! Free memory may be in pieces.

use std::sync::{Condvar, Mutex};

use salus_channel::{lock, wait};

use crate::Error;
use crate::failure::{INTERNAL, RESOURCE_EXHAUSTED, error};

#[derive(Default)]
pub(super) struct Accelerator {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The error that sticks.
    sticks: Option<Error>,
    pieces: Option<Pieces>,
    /// Calls of `launch` do not return while it is set.
    holds_calls: bool,
    calls: LaunchCalls,
}

/// How free memory is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    /// No free piece is larger than this,
    pub largest: u64,
    /// until less than this is in use: then it is whole again.
    pub used: u64,
}

/// Calls of `launch`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LaunchCalls {
    /// In it now.
    pub now: u32,
    /// The most that were at the same time.
    pub most: u32,
    /// That have returned.
    pub returned: u64,
}

impl Accelerator {
    /// A call of `launch` has allocated what it needs, and takes as long as a test wants.
    pub(super) fn in_call(&self) {
        let mut state = lock(&self.state);
        state.calls.now += 1;
        state.calls.most = state.calls.most.max(state.calls.now);
        self.changed.notify_all();
        while state.holds_calls {
            state = wait(&self.changed, state);
        }
        state.calls.now -= 1;
        state.calls.returned += 1;
    }

    pub(super) fn hold_calls(&self, hold: bool) {
        lock(&self.state).holds_calls = hold;
        self.changed.notify_all();
    }

    pub(super) fn calls(&self) -> LaunchCalls {
        lock(&self.state).calls
    }

    /// Everything fails from now on.
    pub(super) fn stick(&self, message: String) -> Error {
        let failure = error(INTERNAL, message);
        lock(&self.state).sticks = Some(failure.clone());
        failure
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        lock(&self.state).sticks.clone().map_or(Ok(()), Err)
    }

    pub(super) fn break_up(&self, pieces: Pieces) {
        lock(&self.state).pieces = Some(pieces);
    }

    /// The largest free piece, if memory is divided at all.
    pub(super) fn largest_piece(&self, used: u64) -> Option<u64> {
        let mut state = lock(&self.state);
        state.pieces.take_if(|pieces| used < pieces.used);
        state.pieces.map(|pieces| pieces.largest)
    }

    /// Whether free memory has a piece of this size.
    pub(super) fn check_piece(&self, bytes: u64, used: u64) -> Result<(), Error> {
        match self.largest_piece(used) {
            Some(largest) if bytes > largest => Err(error(
                RESOURCE_EXHAUSTED,
                format!(
                    "out of memory: {bytes} bytes wanted, no free piece is larger than {largest}"
                ),
            )),
            _ => Ok(()),
        }
    }
}
