//! DEADLINE: for inference beside training. Sessions with a deadline are served by earliest deadline,
//! before all others; the others share what is left equally.
//!
//! Promise: on one lane, if any order of the iterations that are ready meets all their deadlines,
//! this one does (compared with all orders in `tests/policies`). Nothing that runs is preempted:
//! a request may wait for one iteration of others.

use salus_wire::JobSettings;

use super::{Arrangement, Descriptor, Facts, Key, Rank};
use crate::time::Duration;

pub(super) const POLICY: Descriptor = Descriptor {
    name: "deadline",
    what: "latency targets by earliest deadline, others share what is left",
    rank,
    class,
    arrangement: Arrangement {
        keys: [Key::Other, Key::Deadline, Key::VirtualTime, Key::Other],
        ..Arrangement::PLAIN
    },
};

const WITH_DEADLINE: u8 = 1;
const WITHOUT_DEADLINE: u8 = 2;

fn rank(facts: &Facts<'_>) -> Rank {
    let key = match facts.settings().deadline {
        Some(deadline) => u128::from((facts.ready_at + Duration::from(deadline)).0),
        None => facts.virtual_time(),
    };
    Rank::new(class(facts.settings()), key)
}

fn class(settings: &JobSettings) -> u8 {
    match settings.deadline {
        Some(_) => WITH_DEADLINE,
        None => WITHOUT_DEADLINE,
    }
}
