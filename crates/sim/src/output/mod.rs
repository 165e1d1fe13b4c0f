//! What a run shows: a timeline of each job, as a picture, as tables and as numbers.

pub(crate) mod experiments;
pub(crate) mod picture;
pub(crate) mod render;
pub(crate) mod report;
pub(crate) mod table;
pub(crate) mod timeline;
pub(crate) mod trace;
