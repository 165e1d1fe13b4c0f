//! What would happen: the production engine under virtual time, with simulated jobs on a simulated
//! device.
//!
//! [`Simulation`] is the engine with a clock and a record of its sessions; its user plays the jobs
//! and the device, and it checks after every event what must always hold. The engine's own tests are
//! written with it. [`Scenario`] is a text (docs/simulation.md) whose jobs act by themselves: they
//! open sessions, ask for memory and turns and run what the engine starts, as real ones do through
//! the device host; only nothing is computed and nobody waits. [`Run`] is one run of it, from which
//! comes a picture of what ran when, and the numbers. [`Trace`] is many jobs with their times of
//! submission, which run on one device or several ([`Setup`]) beside what would be ideal ([`Ideal`]);
//! [`Study`] and [`Scale`] are experiments with generated ones.
//!
//! Promise: equal scenarios and traces give equal reports, to the byte; one that cannot be read is an
//! error that names the place.
//! Cost: O(log jobs) for each event, of which an iteration takes about four; O(jobs) where a picture is
//! drawn.
//! Not here: the order of things, which is the engine's; real time, real devices, files.

mod invariants;
mod simulation;

mod output;
pub mod recording;
mod scenario;
mod trace;

mod cluster;
mod experiments;
mod ideal;

mod agenda;
mod device;
mod history;
mod job;
mod random;
mod run;

pub use agenda::Agenda;
pub use cluster::{Estimates, Placement, Setup, Summary, TraceJobReport, TraceReport};
pub use experiments::scale::{Clocks, Scale, ScaleStep};
pub use experiments::study::{
    IdealTimes, STUDIED, Spread, StudiedPolicy, StudiedTrace, Study, StudyReport, Target,
};
pub use history::Ran;
pub use ideal::{Ideal, IdealJob, Work as IdealWork, shortest_remaining_first};
pub use output::render::{compared, shown};
pub use output::report::{Fate, JobReport, Latency, Report, Waited};
pub use output::trace::{show_span, traces_shown};
pub use recording::Recording;
pub use run::Run;
pub use scenario::Scenario;
pub use scenario::quantity::{show_bytes, show_time};
pub use scenario::tokens::Problem;
pub use simulation::{
    Decided, Iteration, Needs, Opening, Session, Simulation, lacks, launch, launch_with_callbacks,
    upload, upload_to_host,
};
pub use trace::{Generator, Iterations, Kind, Step, Trace, TraceJob, Workload, Workloads};
