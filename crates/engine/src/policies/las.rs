//! LAS: the least attained service first, which favours short jobs without knowing which they are.
//!
//! Attained device time is in levels that double; within a level jobs run in order of arrival, so
//! that two of about the same length do not slow each other down by taking turns.

use super::{Arrangement, Descriptor, Facts, Rank, only_class};
use crate::time::Duration;

pub(super) const POLICY: Descriptor = Descriptor {
    name: "las",
    what: "the least attained service first: short jobs, without estimates",
    rank,
    class: only_class,
    arrangement: Arrangement::PLAIN,
};

/// Where the first level ends: a quarter of a second, which interactive jobs rarely exceed.
const FIRST_LEVEL: Duration = Duration(250_000_000);

fn rank(facts: &Facts<'_>) -> Rank {
    Rank::by_time(level(facts.attained()), facts.id)
}

/// The end of the level that this device time is in.
pub(crate) fn level(attained: Duration) -> Duration {
    let levels = attained.0 / FIRST_LEVEL.0 + 1;
    Duration(FIRST_LEVEL.0.saturating_mul(levels.next_power_of_two()))
}
