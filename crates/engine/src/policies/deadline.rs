//! DEADLINE: for inference beside training. A session with a latency target is served by earliest
//! deadline, before all others; those share what is left equally.
//!
//! Promise: on one lane, if any order of the iterations that are ready meets all their deadlines,
//! this one does (compared with all orders in `tests/policies.rs`). Nothing that runs is pre-empted:
//! a request may wait for one iteration of others.

use super::{Facts, Rank};
use crate::Wishes;

pub(super) const WHAT: &str = "latency targets by earliest deadline, others share what is left";

/// The class of those with a latency target.
pub(super) const DUE: u8 = 1;
/// The class of those without a latency target.
pub(super) const SHARES: u8 = 2;

pub(super) fn rank(facts: &Facts<'_>) -> Rank {
    let key = match facts.wishes.latency {
        Some(latency) => u128::from((facts.ready_at + latency).0),
        None => facts.virtual_time,
    };
    Rank::new(class(facts.wishes), key)
}

pub(super) fn class(wishes: &Wishes) -> u8 {
    match wishes.latency {
        Some(_) => DUE,
        None => SHARES,
    }
}
