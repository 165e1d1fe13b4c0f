//! Experiments with generated traces: how near policies come to their ideals, and what a run costs.
//!
//! Not here: wall-clock time, which is an argument, and what is printed while one runs.

pub(crate) mod scale;
pub(crate) mod study;
