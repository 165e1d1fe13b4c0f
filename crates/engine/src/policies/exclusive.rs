//! EXCLUSIVE: one job has the device until it ends, as without Salus; the baseline of the others.
//!
//! Not work-conserving: while the job works on its own host, the device is idle. The engine serves
//! nobody but the session that came first and is not paused.

use super::{Facts, Rank};
use crate::time::Duration;

pub(super) const WHAT: &str = "one job until it ends, in order of arrival";

pub(super) fn rank(facts: &Facts<'_>) -> Rank {
    Rank::by_time(Duration(0), facts.session)
}
