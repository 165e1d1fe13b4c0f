//! `salus bench policies`: what the policies promise, with real jobs.
//!
//! `fair`: three jobs join one after the other, with equal and with different weights, and twenty at
//! once; the largest error of a share over any five seconds. `inference`: random requests beside a
//! training job; latency against alone, and what training keeps. `burst`: sixteen jobs of very
//! different lengths at once; average completion time under `srtf` and `las` against one after
//! another, beside the best that any order could do.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use salus_wire::{Change, NonZeroDuration};
use serde_json::{Value, json};

use crate::Common;
use crate::benches::burst;
use crate::benches::shares::{self, Joining, SHARE_TARGET, WINDOW};
use crate::contenders::jobs::{Jobs, RUN_TIME, of_session};
use crate::contenders::setup::Setup;
use crate::json_text;
use crate::measure::machine;
use crate::measure::statistics::median;
use crate::report::{self, number};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Run these only: fair, inference, burst
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    only: Vec<String>,
    /// How often requests run alone and beside a training job
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    rounds: usize,
}

const ROUNDS: usize = 5;

const NAMES: [&str; 3] = ["fair", "inference", "burst"];
/// The share of the device time left by inference that training must keep.
const TRAINING_TARGET: f64 = 0.9;
/// Reads its loss every ten steps.
pub(crate) const STEP: &str = "step_10ms_mlp";
/// Always ready: its loss is not read.
const TRAINING: &str = "unread_10ms";
const LATENCY_SLACK: f64 = 1.1;

pub(crate) fn policies(arguments: &Arguments) -> Outcome {
    let setup = arguments.common.setup()?;
    let wants =
        |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|one| one == name);
    if !NAMES.iter().any(|name| wants(name)) {
        return Err(
            Problem::new("there is no such part").hint(format!("there are {}", NAMES.join(", ")))
        );
    }
    let quick = arguments.common.quick;
    let mut found = json!({ "machine": machine::description(&setup) });
    if wants("fair") {
        found["fair"] = json!(fair(&setup, quick)?);
    }
    if wants("inference") {
        found["inference"] = inference(&setup, quick, arguments.rounds)?;
    }
    if wants("burst") {
        found["burst"] = burst::burst(&setup, quick)?;
    }
    arguments
        .common
        .print(|| json_text(&found), || table(&found));
    Ok(ExitCode::SUCCESS)
}

fn fair(setup: &Setup, quick: bool) -> Result<Vec<Value>, Problem> {
    let join = Duration::from_secs(if quick { 1 } else { 5 });
    let many = if quick { 4 } else { 20 };
    Ok(vec![
        shares(
            setup,
            "three equal jobs that join in turn",
            &[1, 1, 1],
            join,
        )?,
        shares(setup, "weights 3:2:1, joining in turn", &[3, 2, 1], join)?,
        shares(
            setup,
            "many equal jobs at once",
            &vec![1; many],
            Duration::ZERO,
        )?,
    ])
}

/// Jobs that are always ready join `apart` from each other; how far each share is from its due.
fn shares(setup: &Setup, what: &str, weights: &[u32], apart: Duration) -> Result<Value, Problem> {
    output::say(&format!("fair: {what}"));
    let joining = Joining {
        weights,
        apart,
        together: 2 * WINDOW + Duration::from_secs(2),
        anew: false,
    };
    let watched = shares::watch(setup, STEP, &joining)?;
    Ok(json!({
        "what": what,
        "weights": weights,
        "windows": watched.together().count(),
        "error_points": watched.worst_points(),
        "iteration_ms": watched.longest_ms,
        "iteration_points": watched.iteration_points(),
        "target_points": SHARE_TARGET,
    }))
}

/// Random requests alone, and beside a training job, under `deadline`: in turn, and what counts is
/// the median of each figure, because of few hundred requests the slowest hundredth is four.
pub(crate) fn inference(setup: &Setup, quick: bool, rounds: usize) -> Result<Value, Problem> {
    let (rounds, seconds) = match quick {
        true => (1, 3),
        false => (rounds.max(1), 20),
    };
    let mut jobs = Jobs::start(setup, &["--policy", "deadline"])?;
    let asked = jobs.add_prepared(setup, "infer", &[])?;
    jobs.change(
        asked,
        Change::Deadline(NonZeroDuration::from_nanos(10_000_000)),
    )?;
    let training = jobs.add_prepared(setup, TRAINING, &[])?;
    let mut all = Vec::new();
    for round in 1..=rounds {
        output::say(&format!(
            "inference: random requests alone and beside a training job, {round} of {rounds}"
        ));
        all.push(beside_training(&mut jobs, asked, training, seconds)?);
    }
    let figure = |key: &str| median(all.iter().filter_map(|round| round[key].as_f64()));
    Ok(json!({
        "rounds": all,
        "alone_p99_ms": figure("alone_p99_ms"),
        "alone_median_ms": figure("alone_median_ms"),
        "beside_p99_ms": figure("beside_p99_ms"),
        "beside_median_ms": figure("beside_median_ms"),
        "training_iteration_ms": figure("training_iteration_ms"),
        "p99_bound_ms": figure("p99_bound_ms"),
        "training_kept": figure("training_kept"),
        "training_target": TRAINING_TARGET,
    }))
}

fn beside_training(
    jobs: &mut Jobs,
    asked: u64,
    training: u64,
    seconds: u64,
) -> Result<Value, Problem> {
    let requests = json!({ "do": "block", "row": "infer", "seconds": seconds });
    let train = json!({
        "do": "block", "row": TRAINING, "seconds": seconds + 2,
    });
    let alone = jobs.all[0].ask(&requests, RUN_TIME)?;
    jobs.all[1].tell(&train)?;
    std::thread::sleep(Duration::from_secs(1));
    let (before, begun) = (jobs.report()?, Instant::now());
    let beside = jobs.all[0].ask(&requests, RUN_TIME)?;
    let (after, took_ms) = (jobs.report()?, begun.elapsed().as_secs_f64() * 1e3);
    jobs.all[1].hear(&train, RUN_TIME)?;
    let used = |id, key: &str| of_session(&after, id, key) - of_session(&before, id, key);
    let (infer_ms, train_ms) = (
        used(asked, "device_time_ms"),
        used(training, "device_time_ms"),
    );
    let iteration_ms = train_ms / used(training, "iterations");
    let number = |said: &Value, key: &str| number(&said[key]);
    Ok(json!({
        "requests": beside["requests"],
        "alone_p99_ms": number(&alone, "p99_ms"),
        "alone_median_ms": number(&alone, "median_ms"),
        "beside_p99_ms": number(&beside, "p99_ms"),
        "beside_median_ms": number(&beside, "median_ms"),
        "training_iteration_ms": iteration_ms,
        "p99_bound_ms": LATENCY_SLACK * (number(&alone, "p99_ms") + iteration_ms),
        "inference_share": infer_ms / took_ms,
        "training_kept": train_ms / (took_ms - infer_ms),
    }))
}

fn table(found: &Value) -> String {
    let mut out = report::header(&found["machine"]);
    let verdict = |met: bool| if met { "met" } else { "missed" };
    for one in found["fair"].as_array().into_iter().flatten() {
        let bound = number(&one["target_points"]) + number(&one["iteration_points"]);
        let error = number(&one["error_points"]);
        out.push_str(&format!(
            "\nfair, {}: largest error of a share over any 5 s {error:.2} points (at most {bound:.2}, {})\n",
            one["what"].as_str().unwrap_or("?"),
            verdict(error <= bound),
        ));
    }
    let inference = &found["inference"];
    if !inference.is_null() {
        let bound = number(&inference["p99_bound_ms"]);
        let beside = number(&inference["beside_p99_ms"]);
        let kept = number(&inference["training_kept"]);
        out.push_str(&format!(
            "\ninference: p99 alone {:.2} ms, beside training {:.2} ms (at most {bound:.2}, {}); \
             median {:.2} and {:.2} ms; an iteration of training takes {:.2} ms\n\
             training keeps {:.1} % of what inference leaves (at least {:.0} %, {})\n",
            number(&inference["alone_p99_ms"]),
            beside,
            verdict(beside <= bound),
            number(&inference["alone_median_ms"]),
            number(&inference["beside_median_ms"]),
            number(&inference["training_iteration_ms"]),
            100.0 * kept,
            100.0 * TRAINING_TARGET,
            verdict(kept >= TRAINING_TARGET),
        ));
    }
    if !found["burst"].is_null() {
        out.push_str(&burst::table(&found["burst"]));
    }
    out
}
