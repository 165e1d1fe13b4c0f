//! `salus bench fairness`: three jobs that join one after the other under `fair`, drawn over time, and
//! many at once.
//!
//! The three make their arrays when they join, so that memory is seen to be taken; what they run is
//! compiled before. A share is that of the device's time, over any five seconds in which all of them ran.
//! `salus bench policies --only fair` has different weights and twenty at once; here there are never more
//! than eight job processes, because each holds 100 MB and more.

use std::time::Duration;

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use serde_json::{Value, json};

use crate::Common;
use crate::benches::policies::STEP;
use crate::benches::shares::{self, Joining, SHARE_TARGET, WINDOW, Watched};
use crate::contenders::queue::ALIVE_MOST;
use crate::contenders::setup::Setup;
use crate::report::experiment::{Claim, Experiment, Judgement, Plot, PlotKind, Series, Table};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
}

/// The original's three joined 15 s apart.
const APART: Duration = Duration::from_secs(10);
const QUICK_APART: Duration = Duration::from_secs(3);
const QUICK_MANY: usize = 4;
/// A speed is over this time.
const SPEED_SECONDS: f64 = 1.0;
const MIB: f64 = (1 << 20) as f64;

pub(crate) fn fairness(arguments: &Arguments) -> Outcome {
    let setup = arguments.common.setup()?;
    let experiment = measure(&setup, arguments.common.quick)?;
    arguments.common.show(&setup, &experiment)
}

pub(crate) fn measure(setup: &Setup, quick: bool) -> Result<Experiment, Problem> {
    let (apart, many, more) = match quick {
        true => (QUICK_APART, QUICK_MANY, Duration::from_secs(2)),
        false => (APART, ALIVE_MOST, WINDOW + Duration::from_secs(2)),
    };
    output::say("fairness: three jobs that join in turn");
    let joined = Joining {
        weights: &[1; 3],
        apart,
        together: WINDOW + more,
        anew: true,
    };
    let three = shares::watch(setup, STEP, &joined)?;
    output::say(&format!("fairness: {many} jobs at once"));
    let at_once = Joining {
        weights: &vec![1; many],
        apart: Duration::ZERO,
        together: WINDOW + more,
        anew: false,
    };
    let all = shares::watch(setup, STEP, &at_once)?;
    Ok(experiment(&three, &all, apart))
}

fn experiment(three: &Watched, many: &Watched, apart: Duration) -> Experiment {
    let count = many.weights.len();
    let points = [(three, 3), (many, count)].map(|(watched, jobs)| {
        let numbers = json!({
            "jobs": jobs,
            "error_points": watched.worst_points(),
            "iteration_ms": watched.longest_ms,
            "looks": looks_json(watched),
        });
        numbers
    });
    let original = "three inception3_50: 47, 48 and 44 images a second, single samples 31 to 61";
    Experiment {
        name: "fairness".into(),
        title: "Shares of jobs that join".into(),
        command: "salus bench fairness".into(),
        what: format!(
            "Three training jobs with steps of about 10 ms join {} s apart under `fair`; each makes its \
             arrays when it joins, which is why it begins a moment later. Then {count} jobs at once, not \
             twenty, because the report keeps to {ALIVE_MOST} job processes: `salus bench policies --only \
             fair` has twenty.",
            apart.as_secs(),
        ),
        claims: vec![
            claim("three jobs that joined in turn", three, original),
            claim(&format!("{count} jobs at once"), many, ""),
        ],
        tables: vec![table(three, many)],
        plots: vec![
            plot(
                "fairness",
                "Throughput of jobs that join",
                "iterations a second",
                PlotKind::Lines,
                |job| three.speed(job, SPEED_SECONDS),
            ),
            plot(
                "fairness-memory",
                "Arrays of jobs that join",
                "MiB on the device",
                PlotKind::Steps,
                |job| {
                    let looks = three.looks.iter();
                    let bytes = looks.map(|(at, jobs)| (*at, jobs[job].resident_bytes / MIB));
                    bytes.collect()
                },
            ),
        ],
        numbers: json!({ "parts": points }),
    }
}

fn claim(what: &str, watched: &Watched, original: &str) -> Claim {
    let error = watched.worst_points();
    let bound = SHARE_TARGET + watched.iteration_points();
    Claim {
        what: format!("largest error of a share over any 5 s, {what}"),
        original: original.into(),
        target: format!("at most {bound:.2} points"),
        measured: format!("{error:.2} points"),
        spread: String::new(),
        rounds: 1,
        verdict: Judgement::of(error <= bound),
        reason: format!(
            "the worst of all windows; the target is {SHARE_TARGET} points and one iteration of {:.1} ms",
            watched.longest_ms
        ),
    }
}

fn table(three: &Watched, many: &Watched) -> Table {
    let rows = [three, many].map(|watched| {
        let speeds: Vec<f64> = (0..watched.weights.len())
            .filter_map(|job| {
                let (from, before) = watched.together().next()?;
                let (to, after) = watched.together().last()?;
                Some((after[job].iterations - before[job].iterations) / (to - from))
            })
            .collect();
        let least = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = speeds.iter().copied().fold(0.0, f64::max);
        vec![
            format!("{} jobs", watched.weights.len()),
            format!("{least:.1} /s"),
            format!("{most:.1} /s"),
            format!("{:.1} /s", speeds.iter().sum::<f64>()),
            format!("{:.2} points", watched.worst_points()),
        ]
    });
    let columns = [
        "while all ran",
        "slowest job",
        "fastest job",
        "all",
        "largest error",
    ];
    Table {
        title: "iterations a second, and shares".into(),
        columns: columns.map(String::from).to_vec(),
        rows: rows.to_vec(),
    }
}

fn plot(
    name: &str,
    title: &str,
    y: &str,
    kind: PlotKind,
    of: impl Fn(usize) -> Vec<(f64, f64)>,
) -> Plot {
    let series = (0..3).map(|job| Series::new(&format!("job {}", job + 1), of(job)));
    Plot {
        name: name.into(),
        title: title.into(),
        kind,
        x: "seconds".into(),
        y: y.into(),
        log_x: false,
        log_y: false,
        groups: Vec::new(),
        series: series.collect(),
    }
}

fn looks_json(watched: &Watched) -> Value {
    let job = |look: &shares::Look| {
        json!({
            "device_ms": look.device_ms,
            "iterations": look.iterations,
            "resident_bytes": look.resident_bytes,
        })
    };
    watched
        .looks
        .iter()
        .map(|(at, jobs)| json!({ "at_s": at, "jobs": jobs.iter().map(job).collect::<Vec<_>>() }))
        .collect()
}
