//! What would happen: the production engine under virtual time, with made-up jobs on a made-up
//! device.
//!
//! A scenario is a text (`scenario.rs`, docs/simulation.md). Its jobs open sessions, ask for memory
//! and turns and run what the engine starts, as real ones do through the device host; only nothing
//! is computed and nobody waits. What comes out is a picture of who ran when, and the numbers.
//!
//! Promise: equal scenarios give equal reports, to the byte; a scenario that cannot be read is an
//! error that names the place.
//! Cost: O(jobs) for each event, of which an iteration takes about four.
//! Not here: the order of things, which is the engine's; real time, real devices, files.

mod scenario;

mod items;
mod parse;
mod quantity;
mod words;

mod device;
mod job;
mod random;
mod world;

mod picture;
mod report;
mod text;
mod timeline;

pub use quantity::{show_bytes, show_time};
pub use report::{Fate, JobReport, Latency, Report, Waited};
pub use scenario::Scenario;
pub use text::{compared, shown};
pub use words::Problem;
