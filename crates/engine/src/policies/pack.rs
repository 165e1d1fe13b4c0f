//! PACK: iterations of as many lanes side by side as fit and help; within a lane, equal shares.
//!
//! Which programs run side by side is decided in `schedule/co_run.rs`, by trying it.

use super::{Arrangement, Descriptor, fair, only_class};

pub(super) const POLICY: Descriptor = Descriptor {
    name: "pack",
    what: "iterations of several jobs side by side, where that helps",
    rank: fair::rank,
    class: only_class,
    arrangement: Arrangement {
        co_runs: true,
        ..Arrangement::SHARING
    },
};
