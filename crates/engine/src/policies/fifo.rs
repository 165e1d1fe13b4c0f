//! FIFO: jobs in order of arrival; a later one runs while the earlier ones are not ready.

use super::{Arrangement, Descriptor, Facts, Rank, only_class};
use crate::time::Duration;

pub(super) const POLICY: Descriptor = Descriptor {
    name: "fifo",
    what: "jobs in order of arrival; later ones fill the gaps",
    rank,
    class: only_class,
    arrangement: Arrangement::PLAIN,
};

pub(super) fn rank(facts: &Facts<'_>) -> Rank {
    Rank::by_time(Duration(0), facts.id)
}
