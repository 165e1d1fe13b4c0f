//! Arrays: what a buffer is, and how it is copied.

pub(crate) mod buffer;
mod order;
pub(crate) mod transfer;
