//! The C ABI on both sides: how slots are written down, errors, events, extensions, the CPU plugin.

pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod extension;
pub(crate) mod inner;
pub(crate) mod named;
pub(crate) mod slot;
