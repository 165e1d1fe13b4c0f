//! A scenario: the device, the jobs, and what is done to them meanwhile.
//!
//! All that a run depends on stands here. What is drawn by chance has a seed of its own for each
//! job, so that every policy meets the same work.

use salus_engine::{Class, Duration, Policy, Room, Time, Weight, Wishes, Work};

use crate::words::Problem;
use crate::{Report, parse, world};

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
    pub(crate) wishes: Wishes,
    pub(crate) from: Time,
    pub(crate) iterations: u64,
    /// What each takes where nothing else runs.
    pub(crate) each: Span,
    /// Arrays that it keeps; every iteration needs them all.
    pub(crate) memory_bytes: u64,
    pub(crate) scratch_bytes: u64,
    /// What its own host works before each iteration.
    pub(crate) wait: Span,
    /// Iterations that it asks for before it has seen the end of the first of them.
    pub(crate) ahead: u64,
    pub(crate) requests: Requests,
    pub(crate) beside: Factor,
    /// What earlier runs of it came to.
    pub(crate) recalled: Option<Duration>,
}

/// When a job has a reason to run an iteration.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Requests {
    /// Always.
    Always,
    Every(Span),
    /// After times that are independent of each other, on average so long.
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
    Change { job: usize, asked: Asked },
    Policy(Policy),
}

/// Wishes that were spoken; the others stay as they are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Asked {
    pub(crate) weight: Option<Weight>,
    pub(crate) class: Option<Class>,
    pub(crate) latency: Option<Duration>,
    pub(crate) work: Option<Work>,
}

impl Asked {
    pub(crate) fn onto(&self, wishes: Wishes) -> Wishes {
        Wishes {
            weight: self.weight.unwrap_or(wishes.weight),
            class: self.class.unwrap_or(wishes.class),
            latency: self.latency.or(wishes.latency),
            work: self.work.or(wishes.work),
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

    pub fn run(&self) -> Report {
        world::run(self)
    }
}
