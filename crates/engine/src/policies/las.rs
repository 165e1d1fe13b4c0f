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
    Rank::by_time(level(facts.attained), facts.session)
}

/// Where the level ends that this falls into.
pub(crate) fn level(attained: Duration) -> Duration {
    let levels = attained.0 / LEVEL.0 + 1;
    Duration(LEVEL.0.saturating_mul(levels.next_power_of_two()))
}
