//! What is drawn for the jobs of a trace: what is said about their lengths, and which of them fail.
//!
//! Drawn before the run and in the order of the jobs, so that it is the same under every policy.

use salus_engine::{Duration, JobSettings, NonZeroDuration, Work};

use super::Setup;
use crate::random::Random;
use crate::scenario::{Factor, Job, Requests, Span};
use crate::trace::{Iterations, Trace, TraceJob};

/// What the engine is told of how long jobs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimates {
    /// The device time that each needs.
    Exact,
    /// Nothing.
    None,
    /// That time with an error of up to this many thousandths of it, up or down.
    Wrong(u64),
}

/// The least that an estimate is of the truth, in thousandths: a job takes some time.
const LEAST: u64 = 10;

#[derive(Debug)]
pub(super) struct Drawn {
    jobs: Vec<DrawnJob>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct DrawnJob {
    estimate: Option<Duration>,
    pub(super) dies_after: Option<u64>,
}

impl Drawn {
    pub(super) fn new(trace: &Trace, setup: &Setup) -> Self {
        let mut random = Random::new(setup.seed);
        let jobs = trace.jobs().iter();
        let jobs = jobs.map(|job| {
            // Each job draws as often, so that one setting does not change what another draws.
            let (error, fails) = (random.below(2001), random.below(1000));
            let point = random.below(job.iterations.count().max(1)) + 1;
            DrawnJob {
                estimate: estimate(job, setup.estimates, error),
                dies_after: (fails < setup.failures).then_some(point),
            }
        });
        Self {
            jobs: jobs.collect(),
        }
    }

    pub(super) fn of(&self, index: usize) -> DrawnJob {
        self.jobs[index]
    }

    /// The job as it runs on a device.
    pub(super) fn job(&self, job: &TraceJob, index: usize, beside: u64) -> Job {
        let drawn = self.of(index);
        let total = drawn
            .estimate
            .and_then(|total| NonZeroDuration::from_nanos(total.0));
        let (steps, each, wait) = match &job.iterations {
            Iterations::Equal { step, .. } => (None, always(step.device), always(step.host)),
            Iterations::Recorded(steps) => (Some(steps.clone()), Span::default(), Span::default()),
        };
        Job {
            name: job.name.clone(),
            settings: JobSettings {
                work: total.map(Work::DeviceTime),
                ..JobSettings::default()
            },
            from: job.submitted,
            iterations: job.iterations.count(),
            each,
            memory_bytes: job.memory_bytes,
            scratch_bytes: job.scratch_bytes,
            wait,
            ahead: job.ahead,
            requests: Requests::Always,
            beside: Factor(beside),
            recalled: None,
            program: job.program,
            steps,
            linger: Duration(0),
            dies_after: drawn.dies_after,
        }
    }
}

/// `error` is from 0, all the way down, to 2000, all the way up.
fn estimate(job: &TraceJob, estimates: Estimates, error: u64) -> Option<Duration> {
    let service = job.service();
    match estimates {
        Estimates::Exact => Some(service),
        Estimates::None => None,
        Estimates::Wrong(most) => {
            let up = 1000 + most * error / 1000;
            let thousandths = up.saturating_sub(most).max(LEAST);
            let wrong = u128::from(service.0) * u128::from(thousandths) / 1000;
            Some(Duration(u64::try_from(wrong).unwrap_or(u64::MAX)))
        }
    }
}

fn always(time: Duration) -> Span {
    Span {
        low: time,
        high: time,
        seed: 0,
    }
}
