//! Compiled programs, kept for every later job that sends the same one.
//!
//! [`Key`] says when two programs are the same; [`Disk`] keeps them across restarts. What is loaded
//! into the device right now is `device_host::programs`.

mod canonical;
mod disk;
mod key;

pub use disk::Disk;
pub use key::{Key, Platform};
