//! SRTF: the job with the shortest remaining time runs first, and is overtaken at the next boundary
//! by one with less.
//!
//! What remains is estimated from the user's settings, from the job's own iterations or from earlier
//! runs of its programs (`schedule/estimates.rs`). A job without an estimate is taken to need
//! [`UNKNOWN`], and as long again as it has had already: a new one neither overtakes all that are
//! known nor starves behind a long one, and among themselves they are served as `las` serves all.
//!
//! Promise: with true estimates and one lane no order has a shorter average completion time for
//! jobs that are always ready (compared with all orders in `tests/policies`).

use super::{Arrangement, Descriptor, Facts, Rank, las, only_class};
use crate::time::Duration;

pub(super) const POLICY: Descriptor = Descriptor {
    name: "srtf",
    what: "the shortest remaining time first",
    rank,
    class: only_class,
    arrangement: Arrangement::PLAIN,
};

/// The least that a job without an estimate is taken to need: 10 minutes, because jobs with one are
/// mostly shorter.
const UNKNOWN: Duration = Duration(600_000_000_000);

fn rank(facts: &Facts<'_>) -> Rank {
    let unknown = || UNKNOWN + las::level(facts.attained());
    Rank::by_time(facts.remaining().unwrap_or_else(unknown), facts.id)
}
