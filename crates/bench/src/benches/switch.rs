//! `salus bench switch`: what it costs the device to change jobs between two iterations.
//!
//! Two equal jobs that are always ready run alone and together, in turn. From the service's own
//! record, the time from one iteration's end to the next one's end in the lane is taken where both
//! are of the same job, and where they are of different jobs. The difference is what the change
//! costs: idle time of the device, and what two programs do to each other's caches. The second is
//! measured beside it, with two equal models that take turns in one process directly on the plugin.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use serde_json::{Value, json};

use crate::Common;
use crate::contenders::Side;
use crate::contenders::jobs::{Jobs, PREPARE_TIME, RUN_TIME};
use crate::contenders::setup::{Route, Setup};
use crate::json_text;
use crate::measure::machine;
use crate::measure::statistics::median;
use crate::report::{self, number};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
}

/// Of `worker.py`: what the jobs run, and the same twice in one process.
const MODELS: &[(&str, &str, &str)] = &[
    ("MLP, 1 ms", "unread_1ms", "turns_1ms"),
    ("MLP, 10 ms", "unread_10ms", "turns_10ms"),
];
const ROUNDS: usize = 6;
/// The record has room for this many seconds of the shortest iterations, and more.
const BLOCK: Duration = Duration::from_secs(2);
const MEDIAN_TARGET: f64 = 1.1;
const MEDIAN_MORE_US: f64 = 10.0;
const P99_MORE_US: f64 = 100.0;

pub(crate) fn switch(arguments: &Arguments) -> Outcome {
    let setup = arguments.common.setup()?;
    let (rounds, block) = match arguments.common.quick {
        true => (1, Duration::from_millis(300)),
        false => (ROUNDS, BLOCK),
    };
    let mut found = Vec::new();
    for (what, row, turns) in MODELS {
        output::say(what);
        found.push(measure(&setup, what, row, turns, rounds, block)?);
    }
    let found = json!({
        "machine": machine::description(&setup),
        "models": found,
        "targets": {
            "median_ratio": MEDIAN_TARGET, "median_more_us": MEDIAN_MORE_US,
            "p99_more_us": P99_MORE_US,
        },
    });
    arguments
        .common
        .print(|| json_text(&found), || table(&found));
    Ok(ExitCode::SUCCESS)
}

fn measure(
    setup: &Setup,
    what: &str,
    row: &str,
    turns: &str,
    rounds: usize,
    block: Duration,
) -> Result<Value, Problem> {
    let mut jobs = Jobs::start(setup, &["--policy", "fair"])?;
    for _ in 0..2 {
        jobs.add_prepared(setup, row, &[])?;
    }
    let mut direct = Side::start(setup, "direct", &Route::Direct)?;
    direct.ask(&json!({ "do": "prepare", "row": turns }), PREPARE_TIME)?;
    let command = |row: &str| json!({ "do": "block", "row": row, "seconds": block.as_secs_f64() });
    let mut same = Vec::new();
    let mut changed = Vec::new();
    let (mut direct_same, mut direct_changed) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for n in 0..2 {
            let from = jobs.recording()?.until_ns;
            jobs.all[n].ask(&command(row), RUN_TIME)?;
            same.extend(intervals(&jobs.recording()?, from, false));
        }
        let from = jobs.recording()?.until_ns;
        jobs.each(&command(row), RUN_TIME)?;
        changed.extend(intervals(&jobs.recording()?, from, true));
        let said = direct.ask(&command(turns), RUN_TIME)?;
        let number = |key: &str| number(&said[key]);
        direct_same.push(number("same_us"));
        direct_changed.push(number("turns_us"));
    }
    let (same, changed) = (Spread::of(same), Spread::of(changed));
    let bare = median(direct_changed.into_iter()) - median(direct_same.into_iter());
    Ok(json!({
        "what": what,
        "same": same.json(),
        "changed": changed.json(),
        "median_ratio": changed.median / same.median,
        "median_more_us": changed.median - same.median,
        "p99_more_us": changed.p99 - same.p99,
        "plugin_alone_more_us": bare,
        "beyond_the_plugin_us": changed.median - same.median - bare,
    }))
}

/// From end to end of iterations that follow each other in a lane without a wait, of two jobs or of
/// one, in microseconds. Those before `from_ns` belong to another round.
fn intervals(recording: &salus_wire::Recording, from_ns: u64, changed: bool) -> Vec<f64> {
    let mut ended: Vec<_> = recording.iterations.iter().filter(|i| !i.runs).collect();
    ended.sort_by_key(|i| (i.lane, i.ended_ns));
    let pairs = ended.windows(2).filter(|pair| {
        let (before, after) = (pair[0], pair[1]);
        let follows = before.lane == after.lane && after.began_ns <= before.ended_ns;
        let recent = before.ended_ns >= from_ns;
        follows && recent && (before.session != after.session) == changed
    });
    pairs
        .map(|pair| (pair[1].ended_ns - pair[0].ended_ns) as f64 / 1e3)
        .collect()
}

struct Spread {
    count: usize,
    median: f64,
    p99: f64,
}

impl Spread {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let index = (times.len() as f64 * part) as usize;
            times.get(index).copied().unwrap_or(f64::NAN)
        };
        Self {
            count: times.len(),
            median: at(0.5),
            p99: at(0.99),
        }
    }

    fn json(&self) -> Value {
        json!({ "count": self.count, "median_us": self.median, "p99_us": self.p99 })
    }
}

fn table(found: &Value) -> String {
    let mut out = report::header(&found["machine"]);
    out.push_str("from one iteration's end to the next one's end in the lane, in µs\n");
    for one in found["models"].as_array().into_iter().flatten() {
        let of = |side: &str, key: &str| number(&one[side][key]);
        let number = |key: &str| number(&one[key]);
        let (ratio, more) = (number("median_ratio"), number("median_more_us"));
        let met = ratio <= MEDIAN_TARGET || more <= MEDIAN_MORE_US;
        let tail = number("p99_more_us");
        let verdict = |met: bool| if met { "met" } else { "missed" };
        out.push_str(&format!(
            "\n{}\n  the same job  median {:>9.1}  p99 {:>9.1}  ({} times)\n  another job   median \
             {:>9.1}  p99 {:>9.1}  ({} times)\n  a change costs {more:.1} at the median, {ratio:.3} x \
             (at most {MEDIAN_TARGET} x or {MEDIAN_MORE_US} more, {}); {tail:.1} at p99 (at most \
             {P99_MORE_US}, {})\n  two models in turn on the plugin alone cost {:.1} more, so Salus \
             adds {:.1}\n",
            one["what"].as_str().unwrap_or("?"),
            of("same", "median_us"),
            of("same", "p99_us"),
            of("same", "count"),
            of("changed", "median_us"),
            of("changed", "p99_us"),
            of("changed", "count"),
            verdict(met),
            verdict(tail <= P99_MORE_US),
            number("plugin_alone_more_us"),
            number("beyond_the_plugin_us"),
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_tail() {
        let spread = Spread::of((1..=100).map(f64::from).collect());
        assert_eq!((spread.median, spread.p99), (51.0, 100.0));
        assert!(Spread::of(Vec::new()).median.is_nan());
    }
}
