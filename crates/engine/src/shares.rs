//! Virtual time: device time ÷ weight, by which shares are compared.
//!
//! An iteration is charged with what it is expected to take when it is started, and with what it
//! took when it has ended: otherwise whoever asks twice in a row would be served twice before it is
//! charged once. A session that was away comes back at the clock, which is where those stand that
//! were served last: idling earns no credit. One that was away only between two iterations keeps
//! what it is owed, up to [`OWED_MAX`].
//!
//! Integers, because the sum of floats depends on their order.

use crate::Weight;
use crate::time::{Duration, Time};

/// Whoever asked for nothing for so long was away.
const AWAY: Duration = Duration(20_000_000);
/// Device time that a session may be behind, at a weight of one.
const OWED_MAX: Duration = Duration(100_000_000);
/// Virtual time is counted in this part of a nanosecond, so that weights divide it well.
const FRACTION: u32 = 20;

#[derive(Debug, Default)]
pub(crate) struct Share {
    /// By what has ended.
    virtual_time: u128,
    /// Expected of what is in flight.
    pending: Duration,
}

impl Share {
    /// Where it will stand when all that is in flight has ended.
    pub(crate) fn virtual_time(&self, weight: Weight) -> u128 {
        self.virtual_time + scaled(self.pending, weight)
    }

    /// Device time that is expected of what is in flight.
    pub(crate) fn pending(&self) -> Duration {
        self.pending
    }

    /// The session is ready, and asked for nothing since `quiet_since`.
    pub(crate) fn ready(&mut self, now: Time, quiet_since: Time, clock: u128, weight: Weight) {
        let owed = match now - quiet_since > AWAY {
            true => 0,
            false => scaled(OWED_MAX, weight),
        };
        self.virtual_time = self.virtual_time.max(clock.saturating_sub(owed));
    }

    pub(crate) fn started(&mut self, expected: Duration) {
        self.pending = self.pending + expected;
    }

    pub(crate) fn ran(&mut self, expected: Duration, took: Duration, weight: Weight) {
        self.pending = Duration(self.pending.0.saturating_sub(expected.0));
        self.virtual_time += scaled(took, weight);
    }
}

fn scaled(time: Duration, weight: Weight) -> u128 {
    (u128::from(time.0) << FRACTION) / u128::from(weight.0.get())
}
