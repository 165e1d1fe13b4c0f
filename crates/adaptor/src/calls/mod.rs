//! The calls that reach the service: compile, launch, upload, read, callbacks, profiles.

pub(crate) mod compile;
pub(crate) mod launch;
pub(crate) mod upload;

pub(crate) mod read;
pub(crate) mod strided;
pub(crate) mod transfer_manager;

pub(crate) mod callbacks;

pub(crate) mod profiler;
pub(crate) mod xspace;
