//! The rows of the benches that are tables: which there are, and one file per way to measure one.

pub(crate) mod row_table;
pub(crate) mod run;

pub(crate) mod idle;
pub(crate) mod loads;
pub(crate) mod neighbour;
pub(crate) mod ratio_rows;
pub(crate) mod reads;
pub(crate) mod start;
pub(crate) mod transfers;
pub(crate) mod wakeups;
