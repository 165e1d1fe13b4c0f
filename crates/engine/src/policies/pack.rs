//! PACK: as many lanes side by side as fit and help; within a lane, equal shares.
//!
//! Which iterations run side by side is decided in `pairing.rs`, by trying it.

use super::{Facts, Rank, fair};

pub(super) const WHAT: &str = "iterations of several jobs side by side, where that helps";

pub(super) fn rank(facts: &Facts<'_>) -> Rank {
    fair::rank(facts)
}
