//! What a job whose programs call back costs another one that trains through the same service.
//!
//! One job trains throughout. In each round it does so alone, twice; beside a job that calls back
//! through the same service; and beside one that makes the same calls on JAX's own CPU backend. The
//! last tells what it costs anyway to share the cores with a process that runs that much Python.

use std::time::Duration;

use salus_daemon::config::Problem;
use serde_json::{Value, json};

use crate::contenders::Side;
use crate::contenders::jobs::{Jobs, PREPARE_TIME, RUN_TIME};
use crate::contenders::setup::Route;
use crate::measure::rounds::Rounds;
use crate::measure::statistics::{Comparison, Spread, Verdict, median};
use crate::report::{Finding, microseconds, ratio};
use crate::rows::row_table::Row;
use crate::rows::run::Run;

/// Of `worker.py`.
const TRAINING: &str = "step_10ms_mlp";

const ALONE: usize = 0;
const SALUS: usize = 1;
const JAX: usize = 2;
const AGAIN: usize = 3;
const NAMES: [&str; 4] = ["alone", "beside_salus", "beside_jax_cpu", "again"];

const STEP: &str = "step_us";
const RATE: &str = "callbacks_per_second";

pub(crate) fn measure(
    run: &mut Run<'_>,
    row: &'static Row,
    calls: &str,
    target: f64,
) -> Result<Vec<Finding>, Problem> {
    let (block, count) = (run.pace.block(), run.pace.rounds(row));
    let mut jobs = Jobs::start(run.setup, &[])?;
    jobs.add_prepared(run.setup, TRAINING, &[])?;
    jobs.add_prepared(run.setup, calls, &[])?;
    let mut jax = Side::start(run.setup, "calls-back", &Route::JaxCpu)?;
    jax.ask(&json!({ "do": "prepare", "row": calls }), PREPARE_TIME)?;
    let [trains, salus] = &mut jobs.all[..] else {
        return Err(Problem::new("the neighbours are not two"));
    };
    trains.ask(&of(TRAINING, run.pace.warm()), RUN_TIME)?;
    let progress = &run.progress;
    let rounds = Rounds::take(
        count,
        NAMES.len(),
        |done| progress.rounds(done, count),
        |part| match part {
            SALUS => beside(trains, salus, calls, block),
            JAX => beside(trains, &mut jax, calls, block),
            _ => trains.ask(&of(TRAINING, block), RUN_TIME),
        },
    )?;
    findings(row, target, &rounds)
}

fn of(row: &str, time: Duration) -> Value {
    json!({ "do": "block", "row": row, "seconds": time.as_secs_f64() })
}

/// A block of training, with what the other one did meanwhile.
fn beside(
    trains: &mut Side,
    other: &mut Side,
    calls: &str,
    block: Duration,
) -> Result<Value, Problem> {
    // The first block starts its calls, the second ends them.
    other.ask(&of(calls, block), RUN_TIME)?;
    let mut said = trains.ask(&of(TRAINING, block), RUN_TIME)?;
    let called = other.ask(&of(calls, block), RUN_TIME)?;
    said[RATE] = called[RATE].clone();
    Ok(said)
}

fn findings(row: &'static Row, target: f64, rounds: &Rounds) -> Result<Vec<Finding>, Problem> {
    let floor = rounds.ratios(AGAIN, ALONE, STEP)?;
    let salus = Comparison::of(&rounds.ratios(SALUS, ALONE, STEP)?, &floor);
    let jax = Comparison::of(&rounds.ratios(JAX, ALONE, STEP)?, &floor);
    let added = Spread::of(&rounds.ratios(SALUS, JAX, STEP)?);
    let middle = |part: usize, key: &str| -> Result<f64, Problem> {
        Ok(median(rounds.column(part, key)?.into_iter()))
    };
    let (alone_us, salus_us, jax_us) = (
        middle(ALONE, STEP)?,
        middle(SALUS, STEP)?,
        middle(JAX, STEP)?,
    );
    let (salus_rate, jax_rate) = (middle(SALUS, RATE)?, middle(JAX, RATE)?);
    let shown = format!("≤ {target}");
    Ok(vec![
        Finding {
            measured: ratio(salus.quotient),
            floor: format!("{:.3}", salus.floor.median),
            target: shown.clone(),
            verdict: Verdict::at_most(salus.quotient, target).unless_busy(rounds.busy()),
            detail: format!(
                "alone {}, beside {salus_rate:.0} callbacks a second through Salus {}; beside \
                 {jax_rate:.0} on JAX's own CPU backend {}, a ratio of {}; {}",
                microseconds(alone_us),
                microseconds(salus_us),
                microseconds(jax_us),
                ratio(jax.quotient),
                rounds.remark(),
            ),
            numbers: json!({
                "unit": "ratio",
                "target": target,
                "measured": salus.quotient.json(),
                "beside_jax_cpu": jax.quotient.json(),
                "alone_us": alone_us,
                "salus_us": salus_us,
                "jax_cpu_us": jax_us,
                "salus_callbacks_per_second": salus_rate,
                "jax_cpu_callbacks_per_second": jax_rate,
                "rounds": rounds.json(&NAMES),
            }),
            ..Finding::of(row)
        },
        Finding {
            row: format!("{}_added", row.name),
            what: "the same, against the step beside such callbacks on JAX's own CPU backend"
                .into(),
            measured: ratio(added.interval),
            target: shown,
            verdict: Verdict::at_most(added.interval, target).unless_busy(rounds.busy()),
            detail: format!(
                "beside callbacks through Salus {}, on JAX's own CPU backend {} (p15–p85 of the \
                 ratio {:.2}–{:.2})",
                microseconds(salus_us),
                microseconds(jax_us),
                added.p15,
                added.p85,
            ),
            numbers: json!({
                "unit": "ratio",
                "target": target,
                "measured": added.interval.json(),
            }),
            ..Finding::of(row)
        },
    ])
}
