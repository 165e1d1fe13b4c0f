//! What can be seen of the device from outside: reports, traces, profiles, overdue launches, crashes.

pub(crate) mod crash;
pub(crate) mod overdue;
pub(crate) mod profile;
pub(crate) mod report;
pub(crate) mod trace;
