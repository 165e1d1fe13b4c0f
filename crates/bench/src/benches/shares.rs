//! Jobs that are always ready and join one after the other, watched: what each has done and holds.
//!
//! Used by `salus bench policies` for the largest error of a share, and by `salus bench fairness`, which
//! draws it.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use salus_daemon::config::Problem;
use salus_wire::{Change, Weight};
use serde_json::{Value, json};

use crate::contenders::jobs::{Jobs, PREPARE_TIME, RUN_TIME, of_session};
use crate::contenders::setup::Setup;

/// Shares are looked at over windows of this length.
pub(crate) const WINDOW: Duration = Duration::from_secs(5);
/// Of a share, in percentage points, beyond one iteration.
pub(crate) const SHARE_TARGET: f64 = 2.0;
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// After the last has joined, before shares count.
const SETTLE: f64 = 1.0;

/// Who joins, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joining<'a> {
    /// One for each job.
    pub(crate) weights: &'a [u32],
    pub(crate) apart: Duration,
    /// How long all of them run.
    pub(crate) together: Duration,
    /// Whether each makes its arrays when it joins; else it has them before, and nothing but its steps
    /// begins then.
    pub(crate) anew: bool,
}

/// What a job has at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Look {
    pub(crate) device_ms: f64,
    pub(crate) iterations: f64,
    pub(crate) resident_bytes: f64,
}

#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) weights: Vec<u32>,
    /// Seconds after the first began, and all jobs then.
    pub(crate) looks: Vec<(f64, Vec<Look>)>,
    /// When the last of them had joined, in the same seconds.
    pub(crate) all_joined: f64,
    /// The longest of the jobs' average iterations.
    pub(crate) longest_ms: f64,
}

/// Where a job is in its joining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Away,
    Prepares,
    Runs,
}

pub(crate) fn watch(setup: &Setup, row: &str, joining: &Joining<'_>) -> Result<Watched, Problem> {
    let (mut jobs, ids) = start(setup, row, joining)?;
    let prepare = json!({ "do": "prepare", "row": row });
    let mut stages = vec![Stage::Away; ids.len()];
    let last_joins = joining.apart * (ids.len() as u32 - 1);
    let mut total = last_joins + joining.together;
    let mut all_joined = None;
    let begun = Instant::now();
    let mut looks = Vec::new();
    while begun.elapsed() < total {
        for (n, stage) in stages.iter_mut().enumerate() {
            let job = &mut jobs.all[n];
            if *stage == Stage::Away && begun.elapsed() >= joining.apart * n as u32 {
                *stage = match joining.anew {
                    true => {
                        job.tell(&prepare)?;
                        Stage::Prepares
                    }
                    false => {
                        job.tell(&block(row, total.saturating_sub(begun.elapsed())))?;
                        Stage::Runs
                    }
                };
            }
            if *stage == Stage::Prepares && job.try_hear()?.is_some() {
                // The last one joined later than it was told to: all of them run that much longer.
                total = total.max(begun.elapsed() + joining.together);
                let left = (last_joins + 2 * joining.together).saturating_sub(begun.elapsed());
                job.tell(&block(row, left))?;
                *stage = Stage::Runs;
            }
        }
        if all_joined.is_none() && stages.iter().all(|stage| *stage == Stage::Runs) {
            all_joined = Some(begun.elapsed().as_secs_f64());
        }
        let report = jobs.report()?;
        let at = begun.elapsed().as_secs_f64();
        looks.push((at, ids.iter().map(|id| Look::of(&report, *id)).collect()));
        std::thread::sleep(LOOK_EVERY);
    }
    let report = jobs.report()?;
    for job in &mut jobs.all {
        // Who joined anew was told to run for longer, and ends with its process.
        match joining.anew {
            true => job.try_hear().map(drop)?,
            false => job.hear(&Value::Null, RUN_TIME).map(drop)?,
        }
    }
    let iteration = |id: &u64| {
        of_session(&report, *id, "device_time_ms") / of_session(&report, *id, "iterations")
    };
    Ok(Watched {
        weights: joining.weights.to_vec(),
        looks,
        all_joined: all_joined.unwrap_or(f64::INFINITY),
        longest_ms: ids.iter().map(iteration).fold(0.0, f64::max),
    })
}

fn block(row: &str, time: Duration) -> Value {
    json!({ "do": "block", "row": row, "seconds": time.as_secs_f64() + 1.0 })
}

/// All processes and their sessions, with everything imported and compiled.
fn start(setup: &Setup, row: &str, joining: &Joining<'_>) -> Result<(Jobs, Vec<u64>), Problem> {
    let mut jobs = Jobs::start(setup, &["--policy", "fair"])?;
    let mut ids = Vec::new();
    for weight in joining.weights.iter().copied().filter_map(NonZeroU32::new) {
        let id = jobs.add_prepared(setup, row, &[])?;
        jobs.change(id, Change::Weight(Weight(weight)))?;
        ids.push(id);
    }
    // So that none of them compiles where shares are looked at.
    let first = json!({ "do": "block", "row": row, "seconds": 0.05 });
    for job in &mut jobs.all {
        job.ask(&first, RUN_TIME)?;
        if joining.anew {
            job.ask(&json!({ "do": "drop", "row": row }), PREPARE_TIME)?;
        }
    }
    Ok((jobs, ids))
}

impl Look {
    fn of(report: &Value, session: u64) -> Self {
        let number = |key: &str| of_session(report, session, key);
        Self {
            device_ms: number("device_time_ms"),
            iterations: number("iterations"),
            resident_bytes: number("resident_bytes"),
        }
    }
}

impl Watched {
    /// From when on all of them ran.
    pub(crate) fn together(&self) -> impl Iterator<Item = &(f64, Vec<Look>)> {
        let settled = self.all_joined + SETTLE;
        self.looks.iter().filter(move |(at, _)| *at > settled)
    }

    /// One iteration, as a part of the window.
    pub(crate) fn iteration_points(&self) -> f64 {
        100.0 * self.longest_ms / WINDOW.as_secs_f64() / 1e3
    }

    /// The largest distance of any share from its due, in percentage points, over all windows.
    pub(crate) fn worst_points(&self) -> f64 {
        let looks: Vec<&(f64, Vec<Look>)> = self.together().collect();
        let all: f64 = self.weights.iter().map(|w| f64::from(*w)).sum();
        let mut worst = f64::NAN;
        for (n, (from, before)) in looks.iter().enumerate() {
            let window = WINDOW.as_secs_f64();
            let Some((_, after)) = looks[n..].iter().find(|(at, _)| at - from >= window) else {
                break;
            };
            let used = after
                .iter()
                .zip(before)
                .map(|(a, b)| a.device_ms - b.device_ms);
            let used: Vec<f64> = used.collect();
            let sum: f64 = used.iter().sum();
            for (used, weight) in used.iter().zip(&self.weights) {
                let error = 100.0 * (used / sum - f64::from(*weight) / all).abs();
                worst = f64::max(worst, error);
            }
        }
        worst
    }

    /// Iterations a second of a job, each over about `over` seconds.
    pub(crate) fn speed(&self, job: usize, over: f64) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        let mut from = 0;
        for (at, jobs) in &self.looks {
            while self.looks[from].0 + over < *at {
                from += 1;
            }
            let (began, before) = &self.looks[from];
            if at > began {
                let done = jobs[job].iterations - before[job].iterations;
                points.push((*at, done / (at - began)));
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(looks: &[(f64, [f64; 2])]) -> Watched {
        let look = |done: f64| Look {
            device_ms: done,
            iterations: done / 10.0,
            resident_bytes: 0.0,
        };
        Watched {
            weights: vec![1, 1],
            looks: looks
                .iter()
                .map(|(at, done)| (*at, done.map(look).to_vec()))
                .collect(),
            all_joined: -SETTLE - 0.1,
            longest_ms: 10.0,
        }
    }

    #[test]
    fn the_worst_window_counts() {
        let all = [
            (0.0, [0.0, 0.0]),
            (5.0, [2500.0, 2500.0]),
            (10.0, [5500.0, 4500.0]),
        ];
        assert!((watched(&all).worst_points() - 10.0).abs() < 1e-9);
        assert!(watched(&all[..1]).worst_points().is_nan());
        assert!((watched(&all).iteration_points() - 0.2).abs() < 1e-9);
    }

    #[test]
    fn speed_is_over_the_time_before() {
        let all = [(0.0, [0.0, 0.0]), (1.0, [100.0, 0.0]), (2.0, [400.0, 0.0])];
        assert_eq!(watched(&all).speed(0, 1.0), [(1.0, 10.0), (2.0, 30.0)]);
        assert_eq!(watched(&all).speed(0, 2.0), [(1.0, 10.0), (2.0, 20.0)]);
    }
}
