//! The types that a device and its user share.

pub use salus_channel::{HeapMemory, HostBytes, HostMemory};
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

/// What a device's allocator reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    pub bytes: u64,
    /// The largest value of `bytes` so far.
    pub peak_bytes: u64,
    /// The largest value that `bytes` can have.
    pub limit_bytes: Option<u64>,
    /// What the allocator has taken of the device so far, in use or not.
    pub pool_bytes: Option<u64>,
    /// The largest array that fits into what the allocator has taken and nobody uses.
    pub largest_free_block: Option<u64>,
}

/// How a read lays the bytes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadForm {
    /// As the device holds them.
    Raw,
    /// One element after another (sub-byte types one byte each), minor to major as given.
    Host { minor_to_major: Vec<i64> },
}
