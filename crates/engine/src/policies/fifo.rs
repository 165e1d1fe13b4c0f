//! FIFO: jobs in order of arrival; a later one runs while the earlier ones are not ready.

use super::{Facts, Rank};
use crate::time::Duration;

pub(super) const WHAT: &str = "jobs in order of arrival; later ones fill the gaps";

pub(super) fn rank(facts: &Facts<'_>) -> Rank {
    Rank::by_time(Duration(0), facts.session)
}
