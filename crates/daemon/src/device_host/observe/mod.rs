//! What can be seen of the device from outside: reports, traces, profiles, load, overdue launches,
//! crashes, whether it still works.

pub(crate) mod crash;
pub(crate) mod health;
pub(crate) mod load;
pub(crate) mod overdue;
pub(crate) mod profile;
pub(crate) mod report;
pub(crate) mod trace;
