//! Virtual time: device time ÷ weight, by which shares are compared.
//!
//! An iteration is charged with what it is expected to take when it is started, and with what it
//! took when it has ended: otherwise whoever asks twice in a row would be served twice before it is
//! charged once. A session that was away comes back at its lane's clock, which is where those stand
//! that were served last: idling earns no credit. One that was away only between two iterations
//! keeps what it is owed, up to [`OWED_MAX`]. Each class of each lane has a clock of its own, because
//! only its sessions share what there is: who was alone in a lane, or was preferred there, is not
//! behind where it goes next.
//!
//! Integers, because the sum of floats depends on their order.

use crate::Weight;
use crate::time::Duration;

/// Whoever asked for nothing for so long was away.
const AWAY: Duration = Duration(20_000_000);
/// Device time that a session may be behind, at a weight of one.
const OWED_MAX: Duration = Duration(100_000_000);
/// Virtual time that a lane may be behind others: as much as a session, at a weight of one.
pub(crate) const OWED_TO_A_LANE: u128 = (OWED_MAX.0 as u128) << FRACTION;
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
    /// From where the clock shows the one to where it shows the other: as far behind as it was.
    pub(crate) fn moved(&mut self, from: u128, to: u128) {
        self.virtual_time = (self.virtual_time + to).saturating_sub(from);
    }

    /// Where it will stand when all that is in flight has ended.
    pub(crate) fn virtual_time(&self, weight: Weight) -> u128 {
        self.virtual_time + scaled(self.pending, weight)
    }

    /// All begin anew.
    pub(crate) fn restart(&mut self) {
        self.virtual_time = 0;
    }

    /// Device time that is expected of what is in flight.
    pub(crate) fn pending(&self) -> Duration {
        self.pending
    }

    /// The session is ready after so long a time without a request, or in which none was served.
    pub(crate) fn ready(&mut self, away: Duration, clock: u128, weight: Weight) {
        let owed = match away > AWAY {
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
