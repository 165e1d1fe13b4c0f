//! Time to first step: from the start of a process to its first loss on standard output.
//!
//! In each round, in changing order: directly, twice; through a new service with an empty cache and
//! then again through the same service, whose cache is now warm; directly with JAX's own persistent
//! cache, which was filled before the first round. The service runs before the clock does: it is
//! started once, not per job.

use std::time::{Duration, Instant};

use salus_daemon::config::Problem;
use salus_harness::LineReader;
use serde_json::{Value, json};

use crate::contenders::service::PrivateService;
use crate::contenders::setup::{Route, Setup};
use crate::measure::rounds::Rounds;
use crate::measure::statistics::{Comparison, Verdict, median};
use crate::report::{Finding, ratio};
use crate::rows::row_table::Row;
use crate::rows::run::Run;

/// A cold start takes ten seconds on a quiet machine.
const START_TIME: Duration = Duration::from_secs(300);

const DIRECT: usize = 0;
const SALUS: usize = 1;
const CACHED: usize = 2;
const AGAIN: usize = 3;
const NAMES: [&str; 4] = ["direct", "salus", "direct_cached", "again"];

/// Keys of a part's numbers. The part of Salus has both, the others only `cold`.
const COLD: &str = "seconds";
const WARM: &str = "warm_seconds";

pub(crate) fn measure(
    run: &mut Run<'_>,
    row: &'static Row,
    model: &str,
) -> Result<Vec<Finding>, Problem> {
    let setup = run.setup;
    let cached = Route::DirectCached(setup.scratch.directory(&format!("jax-{model}"))?);
    // Untimed: fills the cache, and reads from disk what every later start reads from memory.
    first_step(setup, &cached, model)?;
    let count = run.pace.rounds(row);
    let progress = &run.progress;
    let rounds = Rounds::take(
        count,
        NAMES.len(),
        |done| progress.rounds(done, count),
        |part| match part {
            SALUS => through_salus(setup, model),
            CACHED => first_step(setup, &cached, model),
            _ => first_step(setup, &Route::Direct, model),
        },
    )?;
    let all = Times::of(&rounds)?;
    let floor = ratios(&all.again, &all.direct);
    let judge = |name: &str, what: &str, salus: &[f64], against: &[f64], target: f64| {
        let comparison = Comparison::of(&ratios(salus, against), &floor);
        Finding {
            row: format!("{}_{name}", row.name),
            what: format!("{}: {what}", row.what),
            measured: ratio(comparison.quotient),
            floor: format!("{:.3}", comparison.floor.median),
            target: format!("≤ {target}"),
            verdict: Verdict::at_most(comparison.quotient, target).unless_busy(rounds.busy()),
            detail: format!(
                "Salus {:.2} s against {:.2} s (p15–p85 of the ratio {:.2}–{:.2}); {}",
                middle(salus),
                middle(against),
                comparison.through.p15,
                comparison.through.p85,
                rounds.remark(),
            ),
            numbers: json!({
                "unit": "ratio",
                "target": target,
                "measured": comparison.quotient.json(),
                "ratios": comparison.json(),
                "salus_s": middle(salus),
                "direct_s": middle(against),
            }),
        }
    };
    let mut cold = judge("cold", "empty cache", &all.cold, &all.direct, 1.2);
    // Once is enough: the three lines are about the same rounds.
    cold.numbers["rounds"] = rounds.json(&NAMES);
    Ok(vec![
        cold,
        judge("warm", "Salus' cache warm", &all.warm, &all.direct, 0.5),
        judge(
            "caches",
            "Salus' cache against JAX's own, both warm",
            &all.warm,
            &all.cached,
            1.1,
        ),
    ])
}

/// Seconds, round by round.
struct Times {
    direct: Vec<f64>,
    again: Vec<f64>,
    cached: Vec<f64>,
    cold: Vec<f64>,
    warm: Vec<f64>,
}

impl Times {
    fn of(rounds: &Rounds) -> Result<Self, Problem> {
        Ok(Self {
            direct: rounds.column(DIRECT, COLD)?,
            again: rounds.column(AGAIN, COLD)?,
            cached: rounds.column(CACHED, COLD)?,
            cold: rounds.column(SALUS, COLD)?,
            warm: rounds.column(SALUS, WARM)?,
        })
    }
}

fn through_salus(setup: &Setup, model: &str) -> Result<Value, Problem> {
    let daemon = PrivateService::start(setup)?;
    let route = Route::Salus(daemon.socket().to_owned(), Vec::new());
    let cold = first_step(setup, &route, model)?;
    let warm = first_step(setup, &route, model)?;
    Ok(json!({
        COLD: cold[COLD],
        "split": cold["split"],
        WARM: warm[COLD],
        "warm_split": warm["split"],
    }))
}

/// Starts a process that trains one step, and ends when it has ended.
fn first_step(setup: &Setup, route: &Route, model: &str) -> Result<Value, Problem> {
    let name = match route {
        Route::Salus(..) => "first-step-salus",
        Route::Direct | Route::JaxCpu => "first-step-direct",
        Route::DirectCached(_) => "first-step-cached",
    };
    let begin = Instant::now();
    let mut process = setup.start(name, route, &["first-step", model])?;
    let Some(output) = process.output() else {
        return Err(Problem::new("the output of a first step cannot be read"));
    };
    let mut lines = LineReader::new(output);
    let loss = lines.next(START_TIME);
    let elapsed = begin.elapsed();
    let split = lines.next(START_TIME);
    let ended = process.ended_within(START_TIME);
    match (loss, split, ended) {
        (Ok(loss), Ok(split), Some(status)) if loss.starts_with("loss ") && status.success() => {
            let split: Value = serde_json::from_str(&split).unwrap_or_default();
            Ok(json!({ COLD: elapsed.as_secs_f64(), "split": split }))
        }
        _ => Err(process.problem(&format!("`{name}` of {model} did not print its loss"))),
    }
}

fn ratios(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(a, b)| a / b).collect()
}

fn middle(values: &[f64]) -> f64 {
    median(values.iter().copied())
}
