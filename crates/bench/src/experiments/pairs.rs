//! `salus bench pairs`: two jobs together under `pack`, against two processes that share the device
//! without Salus, for all pairs of five workloads.
//!
//! The method is that of `salus bench packing`, which compares fewer mixes for longer and one iteration
//! at a time as well.

use std::time::Duration;

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use serde_json::{Value, json};

use crate::Common;
use crate::benches::packing::{Pace, Ways};
use crate::contenders::setup::Setup;
use crate::measure::statistics::{geometric_mean, least, most};
use crate::report::experiment::{
    Claim, Experiment, Judgement, Plot, PlotKind, Point, Series, Table,
};
use crate::report::number;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// How often each pair is measured
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    rounds: usize,
}

/// Rows of `worker.py`, and their short names.
const WORKLOADS: [(&str, &str); 5] = [
    ("step_1ms", "mlp"),
    ("step_10ms_mlp", "mlp-wide"),
    ("cnn_10ms", "cnn"),
    ("lstm_3ms", "lstm"),
    ("transformer_3ms", "transformer"),
];
pub(crate) const ROUNDS: usize = 3;
const BLOCK: Duration = Duration::from_secs(1);
const QUICK_BLOCK: Duration = Duration::from_millis(500);
const QUICK_PAIRS: usize = 2;
/// Without Salus the first second of a program is slow; `pack` tries both ways before it keeps to one.
const BEFORE: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];
const QUICK_BEFORE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
const MEAN_TARGET: f64 = 1.05;
const EACH_TARGET: f64 = 0.95;

pub(crate) fn pairs(arguments: &Arguments) -> Outcome {
    let setup = arguments.common.setup()?;
    let experiment = measure(&setup, arguments.common.quick, arguments.rounds)?;
    arguments.common.show(&setup, &experiment)
}

/// Two workloads and the ratio of every round.
struct Pair {
    name: String,
    ratios: Vec<f64>,
    ratio: f64,
    numbers: Value,
}

pub(crate) fn measure(setup: &Setup, quick: bool, rounds: usize) -> Result<Experiment, Problem> {
    let (most, pace) = match quick {
        true => (
            QUICK_PAIRS,
            Pace {
                rounds: 1,
                block: QUICK_BLOCK,
                before: QUICK_BEFORE,
            },
        ),
        false => (
            usize::MAX,
            Pace {
                rounds: rounds.max(1),
                block: BLOCK,
                before: BEFORE,
            },
        ),
    };
    let all = all_pairs();
    let count = all.len().min(most);
    let mut ways = Ways::start(setup, false)?;
    let mut found = Vec::new();
    for (n, [one, other]) in all.into_iter().take(most).enumerate() {
        let name = format!("{} + {}", one.1, other.1);
        let numbers = ways.measure([one.0, other.0], pace)?;
        let ratio = number(&numbers["against_unmanaged"]);
        output::say(&format!("pairs: {} of {count}, {name}: {ratio:.3}", n + 1));
        let ratios = numbers["each_against_unmanaged"].as_array();
        found.push(Pair {
            name,
            ratios: ratios.into_iter().flatten().map(number).collect(),
            ratio,
            numbers,
        });
    }
    Ok(experiment(&found, pace))
}

/// Each workload with itself and with all others. Different ones first, so that a quick run has some.
fn all_pairs() -> Vec<[(&'static str, &'static str); 2]> {
    let count = WORKLOADS.len();
    let different = (1..count).flat_map(|apart| (0..count - apart).map(move |n| (n, n + apart)));
    let same = (0..count).map(|n| (n, n));
    let all = different.chain(same);
    all.map(|(a, b)| [WORKLOADS[a], WORKLOADS[b]]).collect()
}

fn experiment(pairs: &[Pair], pace: Pace) -> Experiment {
    let mean = geometric_mean(pairs.iter().map(|pair| pair.ratio));
    // That of each round, so that its spread is known.
    let means: Vec<f64> = (0..pace.rounds)
        .map(|round| {
            geometric_mean(
                pairs
                    .iter()
                    .filter_map(|pair| pair.ratios.get(round).copied()),
            )
        })
        .collect();
    let worst = pairs.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let below = pairs.iter().filter(|pair| pair.ratio < EACH_TARGET).count();
    let worst_is = worst.map_or(f64::NAN, |pair| pair.ratio);
    let spread = |values: &[f64]| format!("{:.2} to {:.2}", least(values), most(values));
    Experiment {
        name: "pairs".into(),
        title: "Two jobs together".into(),
        command: "salus bench pairs".into(),
        what: format!(
            "{} pairs of {} workloads, {} rounds of {:.1} s: both jobs at once under `pack` against two \
             processes that share the device without Salus. What a pair does is the sum of both jobs' \
             speeds, each relative to the same job alone on the plugin.",
            pairs.len(),
            WORKLOADS.len(),
            pace.rounds,
            pace.block.as_secs_f64(),
        ),
        claims: vec![
            Claim {
                what: "two jobs together against unmanaged, geometric mean of all pairs".into(),
                original: "equal to MPS (two alexnet_25)".into(),
                target: format!("at least {MEAN_TARGET}"),
                measured: format!("{mean:.3}"),
                spread: spread(&means),
                rounds: pace.rounds,
                verdict: Judgement::of(mean >= MEAN_TARGET),
                reason: format!(
                    "of {} pairs; where two processes fill the cores already, the service's own threads \
                     come on top",
                    pairs.len()
                ),
            },
            Claim {
                what: "the same, the worst pair".into(),
                original: String::new(),
                target: format!("at least {EACH_TARGET}"),
                measured: format!("{worst_is:.3}"),
                spread: worst.map_or_else(String::new, |pair| spread(&pair.ratios)),
                rounds: pace.rounds,
                verdict: Judgement::of(worst_is >= EACH_TARGET),
                reason: worst.map_or_else(String::new, |pair| {
                    format!("it is {}; {below} of {} are below", pair.name, pairs.len())
                }),
            },
        ],
        tables: vec![table(pairs)],
        plots: vec![plot(pairs)],
        numbers: json!({
            "geometric_mean": mean,
            "pairs": pairs.iter().map(|pair| &pair.numbers).collect::<Vec<_>>(),
        }),
    }
}

fn table(pairs: &[Pair]) -> Table {
    let rows = pairs.iter().map(|pair| {
        vec![
            pair.name.clone(),
            format!("{:.3}", pair.ratio),
            format!("{:.3}", least(&pair.ratios)),
            format!("{:.3}", most(&pair.ratios)),
        ]
    });
    Table {
        title: "throughput under `pack` over that of two processes without Salus".into(),
        columns: ["pair", "median", "least", "most"]
            .map(String::from)
            .to_vec(),
        rows: rows.collect(),
    }
}

fn plot(pairs: &[Pair]) -> Plot {
    let points = pairs.iter().enumerate().map(|(n, pair)| Point {
        x: n as f64,
        y: pair.ratio,
        spread: Some((least(&pair.ratios), most(&pair.ratios))),
    });
    Plot {
        name: "pairs".into(),
        title: "Two jobs together, against two processes without Salus".into(),
        kind: PlotKind::Bars,
        x: String::new(),
        y: "throughput, unmanaged = 1".into(),
        log_x: false,
        log_y: false,
        groups: pairs.iter().map(|pair| pair.name.clone()).collect(),
        series: vec![Series {
            name: "Salus, pack".into(),
            points: points.collect(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_there_once() {
        let all = all_pairs();
        assert_eq!(all.len(), 15);
        let names = all.iter().map(|[a, b]| {
            let mut pair = [a.0, b.0];
            pair.sort_unstable();
            pair
        });
        assert_eq!(names.collect::<std::collections::BTreeSet<_>>().len(), 15);
        assert_eq!(all.iter().filter(|[a, b]| a == b).count(), 5);
    }

    #[test]
    fn the_mean_and_the_worst_are_judged() {
        let pair = |name: &str, ratio: f64| Pair {
            name: name.into(),
            ratios: vec![ratio - 0.1, ratio, ratio + 0.1],
            ratio,
            numbers: Value::Null,
        };
        let pace = Pace {
            rounds: 3,
            block: BLOCK,
            before: BEFORE,
        };
        let found = experiment(&[pair("a + b", 1.3), pair("a + a", 0.9)], pace);
        assert_eq!(found.claims[0].measured, "1.082");
        assert_eq!(found.claims[0].verdict, Judgement::Met);
        assert_eq!(found.claims[1].measured, "0.900");
        assert_eq!(found.claims[1].verdict, Judgement::Missed);
        assert_eq!(found.claims[1].reason, "it is a + a; 1 of 2 are below");
    }
}
