//! A scenario: the device, the jobs, and what is done to them meanwhile.
//!
//! Everything that a run depends on is here. What is drawn by chance has a seed of its own for each
//! job, so that every policy meets the same work.

pub(crate) mod job_items;
pub(crate) mod parse;
pub(crate) mod quantity;
pub(crate) mod tokens;

use std::sync::Arc;

use salus_engine::{
    Duration, JobSettings, NonZeroDuration, Policy, Priority, Room, Time, Weight, Work,
};

use crate::scenario::tokens::Problem;
use crate::trace::Step;
use crate::{Report, Run};

#[derive(Debug, Clone)]
pub struct Scenario {
    pub(crate) policy: Policy,
    pub(crate) lanes: u32,
    /// How many of the lanes are used by policies that do not use all.
    pub(crate) width: u32,
    pub(crate) room: Room,
    /// What moves between device and host in a second.
    pub(crate) link_bytes: u64,
    /// One column of the picture; `None` is chosen so that the picture fits a page.
    pub(crate) step: Option<Duration>,
    pub(crate) until: Option<Time>,
    pub(crate) jobs: Vec<Job>,
    /// By time.
    pub(crate) commands: Vec<(Time, Command)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) settings: JobSettings,
    pub(crate) from: Time,
    pub(crate) iterations: u64,
    /// What each takes where nothing else runs.
    pub(crate) each: Span,
    /// Arrays that it keeps; every iteration needs them all.
    pub(crate) memory_bytes: u64,
    pub(crate) scratch_bytes: u64,
    /// How long its own host works before each iteration.
    pub(crate) wait: Span,
    /// Iterations that it asks for before it has seen the end of the first of them.
    pub(crate) ahead: u64,
    pub(crate) requests: Requests,
    pub(crate) beside: Factor,
    /// Device time of earlier jobs like it.
    pub(crate) recalled: Option<Duration>,
    /// What its iterations run: a number of its own, unless it shares one.
    pub(crate) program: u64,
    /// What each iteration takes, where that was recorded; `each` and `wait` are not used then.
    pub(crate) steps: Option<Arc<[Step]>>,
    /// How long it stays after its last iteration.
    pub(crate) linger: Duration,
    /// It fails at the end of this iteration.
    pub(crate) dies_after: Option<u64>,
}

/// When a job has a reason to run an iteration.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Requests {
    /// Always.
    Always,
    Every(Span),
    /// Independent of each other, this far apart on average.
    Poisson {
        mean: Duration,
        seed: u64,
    },
}

/// A length of time, or one between two that is drawn each time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Span {
    pub(crate) low: Duration,
    pub(crate) high: Duration,
    pub(crate) seed: u64,
}

/// How many times longer something takes, in thousandths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Factor(pub(crate) u64);

impl Factor {
    pub(crate) const ONE: Self = Self(1000);
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Command {
    Pause { job: usize },
    Resume { job: usize },
    Kill { job: usize },
    Change { job: usize, settings: SomeSettings },
    Policy(Policy),
}

/// Settings that were given; the others stay as they are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SomeSettings {
    pub(crate) weight: Option<Weight>,
    pub(crate) priority: Option<Priority>,
    pub(crate) deadline: Option<NonZeroDuration>,
    pub(crate) work: Option<Work>,
}

impl SomeSettings {
    pub(crate) fn onto(&self, settings: JobSettings) -> JobSettings {
        JobSettings {
            weight: self.weight.unwrap_or(settings.weight),
            priority: self.priority.unwrap_or(settings.priority),
            deadline: self.deadline.or(settings.deadline),
            work: self.work.or(settings.work),
            memory_max: settings.memory_max,
        }
    }
}

impl Scenario {
    pub fn parse(text: &str) -> Result<Self, Problem> {
        parse::scenario(text)
    }

    /// The same jobs under one policy from the beginning to the end.
    #[must_use]
    pub fn under(&self, policy: Policy) -> Self {
        let mut other = self.clone();
        other.policy = policy;
        let commands = &mut other.commands;
        commands.retain(|(_, command)| !matches!(command, Command::Policy(_)));
        other
    }

    /// Lets a job run the program of another.
    pub fn share_program(&mut self, job: &str, other: &str) {
        let program = self.jobs[self.position(other)].program;
        let job = self.position(job);
        self.jobs[job].program = program;
    }

    pub(crate) fn position(&self, job: &str) -> usize {
        let found = self.jobs.iter().position(|other| other.name == job);
        found.expect("the scenario has this job")
    }

    pub fn run(&self) -> Report {
        Run::new(self).report()
    }
}
