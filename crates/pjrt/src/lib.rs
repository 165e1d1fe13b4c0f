//! The PJRT C ABI: declarations, and safe handles on a vendor's plugin.
//!
//! [`sys`] is the header. Above it stand handles that own what they point to: a [`Plugin`] opens a
//! shared library and stays for the life of the process; a [`Client`] comes from it; buffers,
//! executables and events come from the client and keep it alive. Every call into the vendor goes
//! through one door (`api::Api::call`), which turns the vendor's errors into [`Error`].
//!
//! Promise: the vendor's table is read only through its pointer and only as far as it says it
//! goes; argument structs are zero-filled and longer than any known version of the header.
//! Not here: what a buffer or a launch means to a session; that is `salus-device`.
#![expect(unsafe_code, reason = "this crate is the fence around the vendor's C")]

pub mod sys;

#[macro_use]
mod api;
mod buffer;
mod client;
mod device;
mod error;
mod event;
mod executable;
#[cfg(test)]
mod fake;
mod ffi;
mod layouts;
mod library;
mod plugin;
mod topology;
mod value;

pub use buffer::{Buffer, HostLayout};
pub use client::{Client, FromHost, Semantics};
pub use device::{Device, DeviceMemoryStats, Memory};
pub use error::Error;
pub use event::Event;
pub use executable::{Executable, Launch, LoadedExecutable, MemoryStats, Program};
pub use ffi::{Call, ExecuteContext, Ffi, FfiBuffer, UserType, handle};
pub use library::Library;
pub use plugin::Plugin;
pub use topology::Topology;
pub use value::Value;
