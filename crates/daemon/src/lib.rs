//! The service: a supervisor, a device host and compilers, one process each.
//!
//! All are the same binary, `salus`, started by different commands. [`supervisor`] is the one that a
//! person starts; it starts the others and outlives them.

mod board;
pub mod compiler;
pub mod config;
pub mod device_host;
pub mod heap;
pub mod log;
mod open_device;
pub mod paths;
pub mod sandbox;
pub mod supervisor;
mod vendor_handlers;
