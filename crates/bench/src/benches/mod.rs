//! One file per bench, each a subcommand of `salus bench`.

pub(crate) mod overhead;

pub(crate) mod accelerator;
pub(crate) mod callbacks;
pub(crate) mod fairness;
pub(crate) mod inference;
pub(crate) mod jct;
pub(crate) mod memory;
pub(crate) mod overhead_curve;
pub(crate) mod packing;
pub(crate) mod paging;
pub(crate) mod pairs;
pub(crate) mod policies;
pub(crate) mod replay;
pub(crate) mod sweep;
pub(crate) mod switch;
pub(crate) mod whole_report;

mod beside_training;
mod burst;
mod shares;
