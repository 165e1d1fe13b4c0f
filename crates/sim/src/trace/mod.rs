//! Traces: jobs with their times of submission, the iterations that each runs, and the memory it needs.
//!
//! A trace is read from a CSV file of jobs that run the workloads of a table (`read.rs`), or generated
//! from a seed (`generate.rs`). A job may also have iterations of its own, each with what the device and
//! what the job's host need for it: that is how a recorded run is replayed.
//!
//! Not here: devices and policies, on which a trace runs (`cluster`).

pub(crate) mod csv;
pub(crate) mod generate;
pub(crate) mod read;
pub(crate) mod workloads;

use std::sync::Arc;

use salus_engine::{Duration, Time};

pub use generate::Generator;
pub use workloads::{Kind, Workload, Workloads};

use crate::scenario::tokens::Problem;

#[derive(Debug, Clone)]
pub struct Trace {
    /// By time of submission.
    jobs: Vec<TraceJob>,
}

#[derive(Debug, Clone)]
pub struct TraceJob {
    pub name: String,
    /// What it runs, for people.
    pub model: String,
    pub submitted: Time,
    /// Arrays that it uploads first and keeps; every iteration needs them all.
    pub memory_bytes: u64,
    /// What an iteration takes while it runs.
    pub scratch_bytes: u64,
    pub iterations: Iterations,
    /// Launches that have not ended, at most.
    pub ahead: u64,
    /// Jobs with equal numbers run the same compiled program.
    pub program: u64,
}

#[derive(Debug, Clone)]
pub enum Iterations {
    /// All alike.
    Equal { count: u64, step: Step },
    /// Each with times of its own; there is at least one.
    Recorded(Arc<[Step]>),
}

/// One iteration where nothing else runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// What the job's host works before it launches the iteration.
    pub host: Duration,
    pub device: Duration,
    /// What it runs, if that is not the program of its job.
    pub program: Option<u64>,
    /// Its host begins with it only when at most this many of those before have not ended: it waits for
    /// a result.
    pub behind: Option<u64>,
}

impl Trace {
    pub fn new(mut jobs: Vec<TraceJob>) -> Self {
        // Those of the same moment stay in their order.
        jobs.sort_by_key(|job| job.submitted);
        Self { jobs }
    }

    /// A trace as CSV: `job_id,model,iterations,submit_time,duration`.
    pub fn parse(text: &str, workloads: &Workloads) -> Result<Self, Problem> {
        read::trace(text, workloads)
    }

    /// Whether a file's first line is the header of a trace rather than the beginning of a scenario.
    pub fn is_trace(text: &str) -> bool {
        // A scenario's first line is a setting, which has no comma, or a job, which has a colon.
        let first = text.lines().find(|line| !line.trim().is_empty());
        first
            .is_some_and(|line| !line.starts_with('#') && line.contains(',') && !line.contains(':'))
    }

    pub fn jobs(&self) -> &[TraceJob] {
        &self.jobs
    }

    /// The same jobs as CSV, which reads as this trace again; recorded iterations become equal ones.
    pub fn to_csv(&self) -> String {
        let mut out = format!("{}\n", read::COLUMNS.join(","));
        for job in &self.jobs {
            let submitted = csv::show_seconds(job.submitted - Time(0));
            let duration = csv::show_seconds(job.service());
            let (name, model, count) = (&job.name, &job.model, job.iterations.count());
            out.push_str(&format!("{name},{model},{count},{submitted},{duration}\n"));
        }
        out
    }
}

impl TraceJob {
    /// Device time that it needs.
    pub fn service(&self) -> Duration {
        self.service_of(self.iterations.count())
    }

    /// Device time of its first iterations.
    pub fn service_of(&self, iterations: u64) -> Duration {
        match &self.iterations {
            Iterations::Equal { step, .. } => Duration(step.device.0.saturating_mul(iterations)),
            Iterations::Recorded(steps) => {
                let steps = steps.iter().take(iterations as usize);
                steps.fold(Duration(0), |sum, step| sum + step.device)
            }
        }
    }
}

impl Iterations {
    pub fn count(&self) -> u64 {
        match self {
            Self::Equal { count, .. } => *count,
            Self::Recorded(steps) => steps.len() as u64,
        }
    }
}
