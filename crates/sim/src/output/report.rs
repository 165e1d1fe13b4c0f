//! The result of a run, in numbers.

use salus_engine::{Duration, Policy, Refusal, Time};

use crate::job::Actor;
use crate::output::picture;
use crate::output::timeline::State;
use crate::run::Run;
use crate::scenario::Requests;
use crate::scenario::quantity::{show_bytes, show_time};

#[derive(Debug, Clone)]
pub struct Report {
    pub policy: Policy,
    pub lanes: u32,
    pub width: u32,
    /// One column of the pictures.
    pub step: Duration,
    pub jobs: Vec<JobReport>,
    /// Columns in which a command was given.
    pub commands: String,
    pub ended_at: Time,
    /// From arrival to end, of jobs that finished.
    pub average_completion: Option<Duration>,
    /// When the last iteration of all ended, if all jobs finished.
    pub makespan: Option<Duration>,
    pub longest_wait: Duration,
    /// How long the device ran anything.
    pub busy: Duration,
    /// Paged out and paged in.
    pub moved_bytes: u64,
    /// Iterations that followed another job's in their lane.
    pub switches: u64,
    pub late: Option<u64>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct JobReport {
    pub name: String,
    pub picture: String,
    pub came_at: Time,
    pub fate: Fate,
    pub iterations: u64,
    pub device_time: Duration,
    pub waited: Waited,
    /// The longest without a break.
    pub longest_wait: Duration,
    /// Device time of the time it was there, in thousandths.
    pub share: u64,
    /// Of jobs that have a deadline or requests.
    pub latency: Option<Latency>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Finished(Time),
    Killed(Time),
    Refused(Time, Refusal),
    Unfinished,
}

/// What for, and how long.
#[derive(Debug, Clone, Copy)]
pub struct Waited {
    pub turn: Duration,
    pub memory: Duration,
    pub moves: Duration,
    pub paused: Duration,
}

/// From when an iteration was wanted to its end.
#[derive(Debug, Clone, Copy)]
pub struct Latency {
    pub worst: Duration,
    /// Later than the deadline, if there is one.
    pub late: Option<u64>,
}

impl Report {
    pub(crate) fn of(run: &Run) -> Self {
        let end = run.now();
        let scenario = &run.scenario;
        let step = picture::step(scenario.step, end);
        let jobs: Vec<JobReport> = run
            .actors
            .iter()
            .map(|actor| JobReport::of(actor, end, step, scenario.lanes))
            .collect();
        let finished = jobs.iter().filter_map(JobReport::finished);
        let completions = jobs
            .iter()
            .filter_map(|job| Some(job.finished()? - job.came_at));
        let sum: u64 = completions.clone().map(|time| time.0).sum();
        let count = completions.count() as u64;
        let late = jobs.iter().filter_map(|job| job.latency?.late);
        let mut notes = run.notes.clone();
        notes.extend(jobs.iter().filter_map(JobReport::note));
        Self {
            policy: scenario.policy,
            lanes: scenario.lanes,
            width: scenario.width,
            step,
            commands: picture::commands(&scenario.commands, end, step),
            ended_at: end,
            average_completion: (count > 0).then(|| Duration(sum / count.max(1))),
            makespan: (count == jobs.len() as u64)
                .then(|| finished.max().unwrap_or_default() - Time(0)),
            longest_wait: jobs
                .iter()
                .map(|job| job.longest_wait)
                .max()
                .unwrap_or_default(),
            busy: run.device.busy,
            moved_bytes: run.moved_bytes,
            switches: run.device.switches,
            late: late.reduce(|sum, late| sum + late),
            notes,
            jobs,
        }
    }

    /// Of the time until the run ended, how long the device ran anything, in thousandths.
    pub fn busy_share(&self) -> u64 {
        part_of(self.busy, self.ended_at - Time(0))
    }
}

impl JobReport {
    fn of(actor: &Actor, end: Time, step: Duration, lanes: u32) -> Self {
        let timeline = &actor.timeline;
        let time_in = |wanted: State| timeline.time_in(end, |state| state == wanted);
        let device_time = timeline.time_in(end, |state| matches!(state, State::Runs(_)));
        let until = match actor.fate {
            Fate::Finished(at) => at,
            _ => actor.closed_at.unwrap_or(end),
        };
        let has_requests = !matches!(actor.job.requests, Requests::Always);
        let has_deadline = actor.settings.deadline.is_some();
        Self {
            name: actor.job.name.clone(),
            picture: picture::row(timeline, end, step, lanes),
            came_at: actor.job.from,
            fate: actor.fate,
            iterations: actor.ended,
            device_time,
            waited: Waited {
                turn: time_in(State::Turn),
                memory: time_in(State::Memory),
                moves: time_in(State::Moves),
                paused: time_in(State::Paused),
            },
            longest_wait: timeline.longest_wait(end),
            share: part_of(device_time, until - actor.job.from),
            latency: (has_requests || has_deadline).then(|| Latency {
                worst: actor.worst_latency,
                late: has_deadline.then_some(actor.late),
            }),
        }
    }

    pub fn finished(&self) -> Option<Time> {
        match self.fate {
            Fate::Finished(at) => Some(at),
            _ => None,
        }
    }

    /// What the numbers do not say.
    fn note(&self) -> Option<String> {
        let name = &self.name;
        let show = |at: Time| show_time(at - Time(0));
        match self.fate {
            Fate::Finished(_) | Fate::Unfinished => None,
            Fate::Killed(at) => Some(format!("{name} was killed at {}", show(at))),
            Fate::Refused(at, why) => Some(format!(
                "{name} was refused at {}: {}",
                show(at),
                explained(why)
            )),
        }
    }
}

fn explained(why: Refusal) -> String {
    let (needs, has, limit) = why.numbers();
    format!(
        "it needs {}, and {limit} {}",
        show_bytes(needs),
        show_bytes(has)
    )
}

/// In thousandths, rounded.
fn part_of(part: Duration, whole: Duration) -> u64 {
    let whole = u128::from(whole.0.max(1));
    ((u128::from(part.0) * 1000 + whole / 2) / whole) as u64
}
