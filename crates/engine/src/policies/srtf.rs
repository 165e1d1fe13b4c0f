//! SRTF: the job that will be done first runs first, and gives way at the next boundary to one that
//! would be done sooner.
//!
//! What remains is known from the user, from the job's own iterations or from earlier runs of its
//! programs (`progress.rs`). Of a job of which nobody knows anything it is taken that it needs
//! [`UNKNOWN`], and as long again as it has had already: a new one neither overtakes all that are
//! known nor starves behind a long one, and among themselves they are served as `las` serves all.
//!
//! Promise: with true estimates and one lane no order has a shorter average completion time for
//! jobs that are always ready (compared with all orders in `tests/policies.rs`).

use super::{Facts, Rank, las};
use crate::time::Duration;

pub(super) const WHAT: &str = "the shortest remaining time first";

/// What a job takes of which nothing is known, at least: the jobs that are known are mostly shorter.
const UNKNOWN: Duration = Duration(600_000_000_000);

pub(super) fn rank(facts: &Facts<'_>) -> Rank {
    let unknown = || UNKNOWN + las::level(facts.attained);
    Rank::by_time(facts.remaining.unwrap_or_else(unknown), facts.session)
}
