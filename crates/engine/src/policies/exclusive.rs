//! EXCLUSIVE: one job has the device until it ends, as without Salus; the baseline of the others.
//!
//! Not work-conserving: while the job works on its own host, the device is idle. The engine serves
//! nobody but the session that came first and is not paused.

use super::{Facts, Rank};

pub(super) const WHAT: &str = "one job until it ends, in order of arrival";

pub(super) fn rank(facts: &Facts<'_>) -> Rank {
    Rank::pair(facts.session.0, 0)
}
