//! A queue of jobs, each a process that is started when it is submitted or as soon as there is a place
//! for it, and that ends by itself.
//!
//! Times are seconds after the queue began. A job is complete when its process has ended: only then
//! could another have had its device.

use std::process::Stdio;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use salus_daemon::config::Problem;
use salus_harness::{Ending, LineReader, Process};
use serde_json::Value;

use crate::contenders::setup::{Route, Setup};
use crate::report::number;

/// Each job process holds 100 MB and more.
pub(crate) const ALIVE_MOST: usize = 8;
/// No queue takes longer than this, even on a busy machine.
const TIME_LIMIT: f64 = 1800.0;
const LOOK_EVERY: Duration = Duration::from_millis(2);
const LINE_TIME: Duration = Duration::from_secs(10);

/// A job as it is submitted.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
    pub(crate) name: String,
    /// When.
    pub(crate) at: f64,
    /// The script's file name and its arguments.
    pub(crate) command: Vec<String>,
    pub(crate) route: Route,
}

/// What became of it.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    pub(crate) submitted: f64,
    pub(crate) started: f64,
    /// When its libraries were loaded and the device was there.
    pub(crate) imported: f64,
    /// When its first step had ended.
    pub(crate) compiled: f64,
    /// When its last step had ended.
    pub(crate) trained: f64,
    pub(crate) ended: f64,
    pub(crate) loss: f64,
}

impl Done {
    /// From submission to its end.
    pub(crate) fn completion(&self) -> f64 {
        self.ended - self.submitted
    }

    /// From its start to its end.
    pub(crate) fn took(&self) -> f64 {
        self.ended - self.started
    }
}

struct Alive {
    index: usize,
    process: Process,
    answers: LineReader<std::process::ChildStdout>,
    started: f64,
}

/// Runs all of them, at most `at_once` at a time, in the order in which they are given, which is that
/// of their times. `tell` hears how many have ended.
pub(crate) fn run(
    setup: &Setup,
    jobs: &[Submission],
    at_once: usize,
    mut tell: impl FnMut(usize),
) -> Result<Vec<Done>, Problem> {
    let begun = clock();
    let now = || clock() - begun;
    let mut done: Vec<Option<Done>> = vec![None; jobs.len()];
    let mut alive: Vec<Alive> = Vec::new();
    let mut next = 0;
    while next < jobs.len() || !alive.is_empty() {
        if now() > TIME_LIMIT {
            return Err(Problem::new("the jobs of the queue do not end"));
        }
        while alive.len() < at_once && jobs.get(next).is_some_and(|job| job.at <= now()) {
            alive.push(start(setup, &jobs[next], next, now())?);
            next += 1;
        }
        let mut at = 0;
        while at < alive.len() {
            if alive[at].process.ended_within(Duration::ZERO).is_none() {
                at += 1;
                continue;
            }
            let ended = alive.swap_remove(at);
            let index = ended.index;
            done[index] = Some(collect(ended, &jobs[index], begun, now())?);
            tell(done.iter().flatten().count());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(done.into_iter().flatten().collect())
}

fn start(setup: &Setup, job: &Submission, index: usize, now: f64) -> Result<Alive, Problem> {
    let log = setup.scratch.path().join(format!("{}.log", job.name));
    let program = setup.python.as_os_str();
    let mut process = Process::start(&setup.keeper, program, Ending::Kill, &log, |command| {
        command
            .arg(setup.scratch.path().join(&job.command[0]))
            .args(&job.command[1..])
            .envs(setup.variables(&job.route))
            .stdout(Stdio::piped());
    })?;
    let Some(output) = process.output() else {
        return Err(Problem::new(format!("the job `{}` has no pipe", job.name)));
    };
    Ok(Alive {
        index,
        process,
        answers: LineReader::new(output),
        started: now,
    })
}

/// What a job that has ended said.
fn collect(mut alive: Alive, job: &Submission, begun: f64, now: f64) -> Result<Done, Problem> {
    let line = alive.answers.next(LINE_TIME).ok();
    let said = line.and_then(|line| serde_json::from_str::<Value>(&line).ok());
    let Some(said) = said else {
        let what = format!("the job `{}` did not end well", job.name);
        return Err(alive.process.problem(&what));
    };
    let at = |key: &str| number(&said[key]) - begun;
    Ok(Done {
        submitted: job.at,
        started: alive.started,
        imported: at("imported"),
        compiled: at("compiled"),
        trained: at("ended"),
        ended: now,
        loss: number(&said["loss"]),
    })
}

/// The clock of Python's `time.monotonic`.
fn clock() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
