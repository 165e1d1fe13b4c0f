//! LAS: the least attained service first, which favours short jobs without knowing which they are.
//!
//! Attained device time falls into levels that double; within a level jobs run in order of arrival,
//! so that two of about the same length do not slow each other down by taking turns.

use super::{Facts, Rank};
use crate::time::Duration;

pub(super) const WHAT: &str = "the least attained service first: short jobs, without estimates";

/// Where the first level ends.
const LEVEL: Duration = Duration(250_000_000);

pub(super) fn rank(facts: &Facts<'_>) -> Rank {
    Rank::pair(level(facts.attained), facts.session.0)
}

fn level(attained: Duration) -> u64 {
    let times = attained.0 / LEVEL.0;
    u64::from(u64::BITS - times.leading_zeros())
}
