//! The objects that C holds by pointer, and the questions about them that are answered here.

pub(crate) mod array_type;
pub(crate) mod buffer;
pub(crate) mod client;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod executable;
pub(crate) mod layouts;
pub(crate) mod program;
pub(crate) mod topology;
