//! Where a session's arrays are: on the device, or in host pages.

pub(crate) mod array_table;
pub(crate) mod arrays;
pub(crate) mod audit;
pub(crate) mod job_segments;
pub(crate) mod page_pool;
pub(crate) mod paging;
pub(crate) mod pins;
pub(crate) mod shared_range;
