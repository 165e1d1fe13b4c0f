//! What a person types after `salus`, one file each.

pub(crate) mod doctor;
pub(crate) mod job;
pub(crate) mod policy;
pub(crate) mod ps;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod sim;
pub(crate) mod stop;
pub(crate) mod trace;
