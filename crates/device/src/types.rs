//! The words that a device and its user share.

use std::any::Any;

pub use salus_wire::{Description, Error, Memory, MemoryStats, Output, Shape, Signature, Value};

/// A program as a job sent it, with options that were rebuilt from an allowlist.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// `mlir` or `hlo`.
    pub format: &'a str,
    pub code: &'a [u8],
    /// A serialized `CompileOptionsProto`.
    pub options: &'a [u8],
}

/// A compiled program that can be stored and loaded elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct Compiled {
    pub executable: Vec<u8>,
    pub signature: Signature,
}

/// Host memory offered to the device: readable, and writable by it, until `release` is dropped.
pub struct HostMemory {
    pub address: *mut u8,
    pub len: usize,
    /// Keeps the memory mapped; dropped when the device no longer uses it.
    pub release: Box<dyn Any + Send + Sync>,
}

#[expect(
    unsafe_code,
    reason = "a pointer into a mapping that `release` keeps alive"
)]
// SAFETY: the memory is shared and mapped for as long as `release` lives, whatever the thread.
unsafe impl Send for HostMemory {}

/// Host memory that a read fills. The owner keeps it mapped until `done` was called.
pub struct HostTarget {
    pub address: *mut u8,
    pub len: usize,
    pub keep: Box<dyn Any + Send + Sync>,
}

#[expect(
    unsafe_code,
    reason = "a pointer into a mapping that `keep` keeps alive"
)]
// SAFETY: as for [`HostMemory`].
unsafe impl Send for HostTarget {}

/// What a device's allocator reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    pub bytes: u64,
    /// The most it ever was.
    pub peak_bytes: u64,
}

/// How a read lays the bytes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadForm {
    /// As the device holds them.
    Raw,
    /// One element after another (sub-byte types one byte each), minor to major as given.
    Host { minor_to_major: Vec<i64> },
}
