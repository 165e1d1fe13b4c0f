//! What sharing costs and what policies promise: one file per subcommand of `salus bench`.

pub(crate) mod overhead;

pub(crate) mod accelerator;
pub(crate) mod callbacks;
pub(crate) mod packing;
pub(crate) mod paging;
pub(crate) mod policies;
pub(crate) mod shares;
pub(crate) mod switch;

mod burst;
