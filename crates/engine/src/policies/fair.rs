//! FAIR: the sessions of a lane share its device time in proportion to their weights.
//!
//! Start-time fair queuing: the ready session furthest behind in virtual time (device time ÷ weight)
//! runs next. How virtual time moves, also for sessions that were away, is in
//! `schedule/virtual_time.rs`.
//!
//! Promise: while two sessions stay ready, their weighted device times differ by at most one longest
//! iteration of each (checked on random workloads in `tests/policies`).

use super::{Arrangement, Descriptor, Facts, Rank, only_class};

pub(super) const POLICY: Descriptor = Descriptor {
    name: "fair",
    what: "equal device time, or in proportion to weights",
    rank,
    class: only_class,
    arrangement: Arrangement::SHARING,
};

pub(super) fn rank(facts: &Facts<'_>) -> Rank {
    Rank::new(1, facts.virtual_time())
}
