//! What sharing gains: one file per experiment, each a subcommand of `salus bench`, and the report of all
//! of them (docs/experiments.md).

pub(crate) mod fairness;
pub(crate) mod inference;
pub(crate) mod jct;
pub(crate) mod memory;
pub(crate) mod overhead_curve;
pub(crate) mod pairs;
pub(crate) mod replay;
pub(crate) mod simulated;
pub(crate) mod sweep;
pub(crate) mod whole_report;

mod beside_training;
