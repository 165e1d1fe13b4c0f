//! The connection to the service: finding it, sending, receiving, shared memory, and its end.

pub(crate) mod connect;
pub(crate) mod session;

mod deferred;
pub(crate) mod pending;
mod send;

mod receive;
pub(crate) mod threads;
mod turns;

pub(crate) mod segments;

pub(crate) mod fork;
