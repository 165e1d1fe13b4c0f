//! What each policy promises, measured on runs of scenarios, some of them drawn at random.
//!
//! Where a picture of one run says it all, it is in `crates/sim/scenarios`.

mod trial;

mod aging;
mod deadline;
mod estimates;
mod exclusive;
mod fair;
mod fair_lanes;
mod pack;
mod pause;
mod priority;
mod srtf;
mod starvation;
