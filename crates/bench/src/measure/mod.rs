//! From runs to numbers: rounds in changing order, the machine's own load, statistics.

pub(crate) mod machine;
pub(crate) mod rounds;
pub(crate) mod statistics;
