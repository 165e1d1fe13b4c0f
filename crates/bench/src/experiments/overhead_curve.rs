//! `salus bench overhead-curve`: training loops through Salus over the same directly on the plugin, as a
//! curve over how long an iteration takes.
//!
//! Blocks of both sides alternate, in changing order; a workload's figure is the median of the rounds'
//! ratios. `salus bench overhead` measures fewer loops for longer, against its own noise.

use std::time::Duration;

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use serde_json::{Value, json};

use crate::Common;
use crate::contenders::setup::Setup;
use crate::contenders::{DIRECT, Reference, SALUS, Sides};
use crate::measure::rounds::Rounds;
use crate::measure::statistics::{median, quantile_of};
use crate::report::experiment::{
    Claim, Experiment, Judgement, Plot, PlotKind, Point, Series, Table,
};
use crate::report::microseconds;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Rounds of each workload
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    rounds: usize,
}

/// Rows of `worker.py`, and what they are.
const WORKLOADS: [(&str, &str); 8] = [
    ("step_100us", "MLP, small"),
    ("step_1ms", "MLP"),
    ("lstm_3ms", "LSTM"),
    ("transformer_3ms", "transformer, small"),
    ("step_10ms_mlp", "MLP, wide"),
    ("cnn_10ms", "CNN"),
    ("step_10ms_transformer", "transformer"),
    ("step_100ms", "transformer, 76 MiB of scratch"),
];
/// For a quick run: the ends and the middle.
const QUICK: [usize; 3] = [0, 1, 5];
pub(crate) const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 3;
const BLOCK: Duration = Duration::from_millis(400);
const QUICK_BLOCK: Duration = Duration::from_millis(200);
const WARM: Duration = Duration::from_millis(500);
const KEY: &str = "step_us";
/// The side that is only for the noise floor takes no part.
const PARTS: usize = 2;

struct Found {
    what: &'static str,
    direct_us: f64,
    ratios: Vec<f64>,
    numbers: Value,
}

impl Found {
    fn ratio(&self) -> f64 {
        median(self.ratios.iter().copied())
    }

    /// Where the middle 70 % of the rounds are.
    fn spread(&self) -> (f64, f64) {
        (
            quantile_of(&self.ratios, 0.15),
            quantile_of(&self.ratios, 0.85),
        )
    }
}

pub(crate) fn overhead_curve(arguments: &Arguments) -> Outcome {
    let setup = arguments.common.setup()?;
    let experiment = measure(&setup, arguments.common.quick, arguments.rounds)?;
    arguments.common.show(&setup, &experiment)
}

pub(crate) fn measure(setup: &Setup, quick: bool, rounds: usize) -> Result<Experiment, Problem> {
    let (rounds, block, chosen) = match quick {
        true => (
            QUICK_ROUNDS,
            QUICK_BLOCK,
            QUICK.map(|n| WORKLOADS[n]).to_vec(),
        ),
        false => (rounds.max(1), BLOCK, WORKLOADS.to_vec()),
    };
    let mut sides = Sides::start(setup, Reference::Plugin)?;
    let mut found = Vec::new();
    for (row, what) in chosen {
        sides.prepare(row, WARM)?;
        let taken = Rounds::take(rounds, PARTS, |_| {}, |side| sides.block(side, row, block))?;
        sides.drop_row(row)?;
        let one = Found {
            what,
            direct_us: median(taken.column(DIRECT, KEY)?.into_iter()),
            ratios: taken.ratios(SALUS, DIRECT, KEY)?,
            numbers: json!({ "row": row, "rounds": taken.json(&["direct", "salus"]) }),
        };
        output::say(&format!("overhead-curve: {row}: {:.3}", one.ratio()));
        found.push(one);
    }
    found.sort_by(|a, b| a.direct_us.total_cmp(&b.direct_us));
    Ok(experiment(&found, rounds))
}

fn experiment(found: &[Found], rounds: usize) -> Experiment {
    let ratios: Vec<f64> = found.iter().map(Found::ratio).collect();
    let highest = found.iter().max_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = highest.map_or(f64::NAN, Found::ratio);
    Experiment {
        name: "overhead-curve".into(),
        title: "Overhead over the time of an iteration".into(),
        command: "salus bench overhead-curve".into(),
        what: format!(
            "{} training loops through Salus and directly on the plugin, in {rounds} rounds of alternating \
             blocks. Below 1, Salus is faster: the device host uses huge pages, and a launch takes less of \
             the job's own thread.",
            found.len(),
        ),
        claims: vec![Claim {
            what: "time of an iteration through Salus over directly, median of the workloads".into(),
            original: "1.003 to 1.077, and 1.81 and 1.83 for vae and superres, against its own server".into(),
            target: String::new(),
            measured: format!("{:.3}", median(ratios.iter().copied())),
            spread: format!("{least:.2} to {most:.2} over the workloads"),
            rounds,
            verdict: Judgement::NoTarget,
            reason: highest.map_or_else(String::new, |one| {
                format!(
                    "highest for {} with {} an iteration; targets are those of `salus bench overhead`",
                    one.what,
                    microseconds(one.direct_us)
                )
            }),
        }],
        tables: vec![table(found)],
        plots: vec![plot(found)],
        numbers: found.iter().map(|one| one.numbers.clone()).collect(),
    }
}

fn table(found: &[Found]) -> Table {
    let rows = found.iter().map(|one| {
        let (low, high) = one.spread();
        vec![
            one.what.to_owned(),
            microseconds(one.direct_us),
            format!("{:.3}", one.ratio()),
            format!("{low:.3}"),
            format!("{high:.3}"),
        ]
    });
    let columns = [
        "workload",
        "iteration, directly",
        "through Salus / directly",
        "p15",
        "p85",
    ];
    Table {
        title: "ratios of the rounds".into(),
        columns: columns.map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

fn plot(found: &[Found]) -> Plot {
    let salus = found.iter().map(|one| Point {
        x: one.direct_us / 1e3,
        y: one.ratio(),
        spread: Some(one.spread()),
    });
    let times: Vec<f64> = found.iter().map(|one| one.direct_us / 1e3).collect();
    let ends = times.first().into_iter().chain(times.last());
    Plot {
        name: "overhead-curve".into(),
        title: "Time of an iteration through Salus, directly = 1".into(),
        kind: PlotKind::Lines,
        x: "an iteration directly (ms)".into(),
        y: "ratio".into(),
        log_x: true,
        log_y: false,
        groups: Vec::new(),
        series: vec![
            Series {
                name: "through Salus".into(),
                points: salus.collect(),
            },
            Series::new("directly", ends.map(|x| (*x, 1.0))),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::setup::WORKER;

    #[test]
    fn its_rows_are_known_to_the_sides() {
        let worker = WORKER.map(|(_, text)| text).concat();
        for (row, _) in WORKLOADS {
            assert!(worker.contains(&format!("\"{row}\": ")), "{row}");
        }
    }
}
