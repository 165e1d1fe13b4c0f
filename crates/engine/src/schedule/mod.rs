//! Scheduling: who waits where, who is before whom, and who is started next.

mod aging;
mod co_run;
mod estimates;
mod lanes;
mod page_in;
mod queues;
mod select;
mod virtual_time;

pub use aging::AGING_LIMIT;
pub(crate) use co_run::CoRun;
pub use estimates::Estimates;
pub(crate) use estimates::SessionEstimate;
pub use lanes::DEPTH;
pub(crate) use lanes::LaneState;
pub(crate) use queues::{Counted, Order, Place, Queue, Queues};
pub(crate) use virtual_time::VirtualTime;
