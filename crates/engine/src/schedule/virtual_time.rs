//! Virtual time: device time ÷ weight, by which sessions that share the device are compared.
//!
//! An iteration is charged with its estimate when it is started, and with what it took when it has
//! ended: otherwise a session that asks twice in a row would be served twice before it is charged
//! once. A session that was away comes back at its lane's clock, which is the virtual time of the
//! session served last: idling earns no credit. One that was away only between two iterations keeps
//! what it is owed, up to [`OWED_MAX`]. Each class of each lane has a clock of its own, because only
//! its sessions share what there is: a session that was alone in a lane, or was preferred there, is
//! not behind in the lane it moves to.
//!
//! Integers, because the sum of floats depends on their order.

use salus_wire::Weight;

use crate::time::Duration;

/// A session without a request for longer than this was away: 20 ms, more than the host's part of an
/// iteration usually takes.
const AWAY: Duration = Duration(20_000_000);
/// Device time that a session may be behind its lane's clock, at a weight of one: 100 ms, a few
/// iterations.
const OWED_MAX: Duration = Duration(100_000_000);
/// Virtual time that a lane may be behind others: as much as a session, at a weight of one.
pub(super) const OWED_TO_A_LANE: u128 = (OWED_MAX.0 as u128) << FRACTION_BITS;
/// Virtual time has this many binary places of a nanosecond, so that weights divide it well.
const FRACTION_BITS: u32 = 20;

#[derive(Debug, Default)]
pub(crate) struct VirtualTime {
    /// Charged for what has ended.
    charged: u128,
    /// Estimate for what is in flight.
    pending: Duration,
}

impl VirtualTime {
    /// Moves from one clock to another, and stays as far behind as it was.
    pub(crate) fn moved(&mut self, from: u128, to: u128) {
        self.charged = (self.charged + to).saturating_sub(from);
    }

    /// What it will be when all that is in flight has ended.
    pub(crate) fn at(&self, weight: Weight) -> u128 {
        self.charged + scaled(self.pending, weight)
    }

    /// Begins anew, with all others.
    pub(crate) fn restart(&mut self) {
        self.charged = 0;
    }

    /// Estimated device time of what is in flight.
    pub(crate) fn pending(&self) -> Duration {
        self.pending
    }

    /// The session is ready again after it was `away` for some time: it had no request, or was paused.
    pub(crate) fn ready(&mut self, away: Duration, clock: u128, weight: Weight) {
        let owed = match away > AWAY {
            true => 0,
            false => scaled(OWED_MAX, weight),
        };
        self.charged = self.charged.max(clock.saturating_sub(owed));
    }

    pub(crate) fn started(&mut self, expected: Duration) {
        self.pending = self.pending + expected;
    }

    pub(crate) fn ran(&mut self, expected: Duration, took: Duration, weight: Weight) {
        self.pending = Duration(self.pending.0.saturating_sub(expected.0));
        self.charged += scaled(took, weight);
    }
}

fn scaled(time: Duration, weight: Weight) -> u128 {
    (u128::from(time.0) << FRACTION_BITS) / u128::from(weight.0.get())
}
