//! Each trait of the stand-in, on and off.
#![expect(unsafe_code, reason = "calls a plugin")]

mod common;
mod devices;
mod launches;
mod memory;
mod raw;
mod topologies;
mod transfers;
