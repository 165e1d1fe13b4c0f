//! PRIORITY: a session of a higher priority runs at the next boundary; equal shares within a priority.

use salus_wire::{JobSettings, Priority};

use super::{Arrangement, Descriptor, Facts, Rank};

pub(super) const POLICY: Descriptor = Descriptor {
    name: "priority",
    what: "higher classes at the next boundary, equal shares within a class",
    rank,
    class,
    arrangement: Arrangement::SHARING,
};

fn rank(facts: &Facts<'_>) -> Rank {
    Rank::new(class(facts.settings()), facts.virtual_time())
}

fn class(settings: &JobSettings) -> u8 {
    match settings.priority {
        Priority::High => 1,
        Priority::Normal => 2,
        Priority::Low => 3,
    }
}
