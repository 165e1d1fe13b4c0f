//! FAIR: the sessions of a lane share its time in proportion to their weights.
//!
//! Start-time fair queuing: the ready session furthest behind in virtual time (device time ÷ weight)
//! runs next. How virtual time moves, also for those that were away, is in `shares.rs`.
//!
//! Promise: while two sessions stay ready, their weighted device times differ by at most one longest
//! iteration of each (checked on random workloads in `tests/policies.rs`).

use super::{Facts, Rank};

pub(super) const WHAT: &str = "equal device time, or in proportion to weights";

pub(super) fn rank(facts: &Facts<'_>) -> Rank {
    Rank::new(1, facts.virtual_time)
}
