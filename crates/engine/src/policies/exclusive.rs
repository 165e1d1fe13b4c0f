//! EXCLUSIVE: one job has the device until it ends, as without Salus; the baseline of the others.
//!
//! Not work-conserving: while the job works on its own host, the device is idle. All sessions are
//! held but the first that is not paused.

use super::{Arrangement, Descriptor, fifo, only_class};

pub(super) const POLICY: Descriptor = Descriptor {
    name: "exclusive",
    what: "one job until it ends, in order of arrival",
    rank: fifo::rank,
    class: only_class,
    arrangement: Arrangement {
        one_owner: true,
        ..Arrangement::PLAIN
    },
};
