//! Compiled programs, kept for every later job that sends the same one.
//!
//! [`Key`] says when two programs are the same; [`Disk`] keeps them across restarts. What is loaded
//! into the device right now is `device_host::programs`.

mod disk;
mod key;

pub(crate) use disk::Disk;
pub(crate) use key::{Key, Platform};
