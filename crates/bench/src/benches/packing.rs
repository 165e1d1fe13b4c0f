//! `salus bench packing`: two jobs side by side under `pack`, against two processes that share the
//! device without Salus, and against one iteration at a time.
//!
//! For each mix of two models, the same two training loops run for a while in each of these ways, in
//! turn, several rounds. What a pair does is the sum of both jobs' speeds, each relative to the same
//! job alone and directly on the plugin, so that a fast job cannot hide what a slow one lost.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use serde_json::{Value, json};

use crate::Common;
use crate::contenders::jobs::{Jobs, PREPARE_TIME};
use crate::contenders::setup::{Route, Setup};
use crate::contenders::{Side, ask_at_once};
use crate::json_text;
use crate::measure::machine;
use crate::measure::statistics::median;
use crate::report::{self, number};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Run the mixes with these numbers only
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',')]
    only: Vec<usize>,
}

/// Two rows of `worker.py`, and whether both are small or run on one thread.
const MIXES: &[(&str, &str, bool)] = &[
    ("step_1ms", "step_1ms", true),
    ("lstm_3ms", "lstm_3ms", true),
    ("step_1ms", "lstm_3ms", true),
    ("transformer_3ms", "lstm_10ms", true),
    ("step_10ms_mlp", "step_10ms_transformer", false),
    ("cnn_10ms", "step_10ms_mlp", false),
    ("cnn_10ms", "lstm_10ms", false),
    ("cnn_100ms", "step_100ms", false),
];

const EACH_TARGET: f64 = 0.9;
const MEAN_TARGET: f64 = 1.05;
const ONE_AT_A_TIME_TARGET: f64 = 1.1;
const SMALL_TARGET: f64 = 1.5;
const BLOCK: Duration = Duration::from_secs(2);
const QUICK_BLOCK: Duration = Duration::from_millis(500);
const ROUNDS: usize = 7;
/// All ways alike run for this long before anything counts: `pack` tries both ways when it meets two
/// programs, and then keeps to the better one for at least half a minute.
const BEFORE: Duration = Duration::from_secs(8);
/// Beyond the block itself.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The ways in which a pair can share the device.
pub(crate) struct Ways {
    direct: [Side; 2],
    pack: Jobs,
    /// One iteration at a time, if that is compared too.
    one: Option<Jobs>,
}

/// How long a pair is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) rounds: usize,
    pub(crate) block: Duration,
    /// Before anything counts: without Salus, and through it.
    pub(crate) before: [Duration; 2],
}

pub(crate) fn packing(arguments: &Arguments) -> Outcome {
    let setup = arguments.common.setup()?;
    let (most, rounds, block) = match arguments.common.quick {
        true => (2, 1, QUICK_BLOCK),
        false => (MIXES.len(), ROUNDS, BLOCK),
    };
    let wanted = |n: &usize| arguments.only.is_empty() || arguments.only.contains(n);
    let mixes: Vec<usize> = (1..=MIXES.len()).filter(wanted).take(most).collect();
    if mixes.is_empty() {
        return Err(Problem::new("there is no such mix")
            .hint(format!("they have the numbers 1 to {}", MIXES.len())));
    }
    let mut ways = Ways::start(&setup, true)?;
    let pace = Pace {
        rounds,
        block,
        before: [BEFORE.min(4 * block); 2],
    };
    let mut found = Vec::new();
    for mix_number in mixes {
        let (one, other, small) = MIXES[mix_number - 1];
        output::say(&format!(
            "mix {mix_number} of {}: {one} and {other}",
            MIXES.len()
        ));
        let mut mix = ways.measure([one, other], pace)?;
        mix["small"] = json!(small);
        output::say(&format!(
            "  against unmanaged {:.3}, against one at a time {:.3}",
            number(&mix["against_unmanaged"]),
            number(&mix["against_one_at_a_time"]),
        ));
        found.push(mix);
    }
    let number = |mix: &Value, key: &str| number(&mix[key]);
    let logs = found
        .iter()
        .map(|mix| number(mix, "against_unmanaged").ln());
    let mean = (logs.sum::<f64>() / found.len() as f64).exp();
    let found = json!({
        "machine": machine::description(&setup),
        "mixes": found,
        "geometric_mean_against_unmanaged": mean,
        "targets": {
            "each": EACH_TARGET, "mean": MEAN_TARGET,
            "one_at_a_time": ONE_AT_A_TIME_TARGET, "one_at_a_time_small": SMALL_TARGET,
        },
    });
    arguments
        .common
        .print(|| json_text(&found), || table(&found));
    Ok(ExitCode::SUCCESS)
}

impl Ways {
    pub(crate) fn start(setup: &Setup, one_at_a_time: bool) -> Result<Self, Problem> {
        let start = |policy: &str| -> Result<Jobs, Problem> {
            let mut jobs = Jobs::start(setup, &["--policy", policy])?;
            for _ in 0..2 {
                jobs.add(setup, &[])?;
            }
            Ok(jobs)
        };
        Ok(Self {
            direct: [
                Side::start(setup, "direct", &Route::Direct)?,
                Side::start(setup, "again", &Route::Direct)?,
            ],
            pack: start("pack")?,
            one: one_at_a_time.then(|| start("fair")).transpose()?,
        })
    }

    pub(crate) fn measure(&mut self, rows: [&str; 2], pace: Pace) -> Result<Value, Problem> {
        self.prepare(rows)?;
        for (way, pair) in self.all().into_iter().enumerate() {
            together(pair, rows, pace.before[way.min(1)], [1.0; 2])?;
        }
        let (mut unmanaged, mut one, mut totals) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..pace.rounds {
            // Alone, for the scale; each of the ways in turn.
            let mut alone = [0.0; 2];
            for (n, job) in self.direct.iter_mut().enumerate() {
                alone[n] = speed(&ask(job, rows[n], pace.block)?);
            }
            let mut total = [f64::NAN; 3];
            for (way, pair) in self.all().into_iter().enumerate() {
                total[way] = together(pair, rows, pace.block, alone)?;
            }
            let [direct, pack, fair] = total;
            unmanaged.push(pack / direct);
            one.push(pack / fair);
            totals.push(json!({ "unmanaged": direct, "pack": pack, "one_at_a_time": fair }));
        }
        for pair in self.all() {
            for (job, row) in pair.iter_mut().zip(rows) {
                job.ask(&json!({ "do": "drop", "row": row }), TIME_LIMIT)?;
            }
        }
        Ok(json!({
            "jobs": rows,
            "rounds": totals,
            "each_against_unmanaged": unmanaged,
            "against_unmanaged": median(unmanaged.iter().copied()),
            "against_one_at_a_time": median(one.into_iter()),
        }))
    }

    fn prepare(&mut self, rows: [&str; 2]) -> Result<(), Problem> {
        let prepare = |row: &str| json!({ "do": "prepare", "row": row });
        let jobs = self.all().into_iter().flat_map(|pair| {
            let jobs = pair.iter_mut().zip(rows);
            jobs.map(|(job, row)| (job, prepare(row)))
        });
        ask_at_once(jobs, PREPARE_TIME)?;
        Ok(())
    }

    /// Without Salus, under `pack`, and one at a time if that is compared.
    fn all(&mut self) -> Vec<&mut [Side]> {
        let mut all = vec![&mut self.direct[..], &mut self.pack.all];
        all.extend(self.one.as_mut().map(|jobs| &mut jobs.all[..]));
        all
    }
}

fn block_of(row: &str, time: Duration) -> Value {
    json!({ "do": "block", "row": row, "seconds": time.as_secs_f64() })
}

fn ask(job: &mut Side, row: &str, time: Duration) -> Result<Value, Problem> {
    job.ask(&block_of(row, time), time + TIME_LIMIT)
}

/// What both do at once, each relative to its speed alone.
fn together(
    pair: &mut [Side],
    rows: [&str; 2],
    time: Duration,
    alone: [f64; 2],
) -> Result<f64, Problem> {
    for (job, row) in pair.iter_mut().zip(rows) {
        job.tell(&block_of(row, time))?;
    }
    let mut total = 0.0;
    for (n, job) in pair.iter_mut().enumerate() {
        let said = job.hear(&block_of(rows[n], time), time + TIME_LIMIT)?;
        total += speed(&said) / alone[n];
    }
    Ok(total)
}

/// Steps in a second.
fn speed(said: &Value) -> f64 {
    1e6 / number(&said["step_us"])
}

fn table(found: &Value) -> String {
    let mut out = report::header(&found["machine"]);
    out.push_str(
        "what two jobs do side by side under `pack`, against two processes without Salus,\n",
    );
    out.push_str("and against one iteration at a time (`fair`)\n\n");
    out.push_str("UNMANAGED  ONE AT A TIME  TARGETS     MIX\n");
    for mix in found["mixes"].as_array().into_iter().flatten() {
        let number = |key: &str| number(&mix[key]);
        let least = match mix["small"] == true {
            true => SMALL_TARGET,
            false => ONE_AT_A_TIME_TARGET,
        };
        out.push_str(&format!(
            "{:>9.3}  {:>13.3}  {EACH_TARGET}, {least:<5}  {} and {}\n",
            number("against_unmanaged"),
            number("against_one_at_a_time"),
            mix["jobs"][0].as_str().unwrap_or("?"),
            mix["jobs"][1].as_str().unwrap_or("?"),
        ));
    }
    let mean = found["geometric_mean_against_unmanaged"].as_f64();
    out.push_str(&format!(
        "{:>9.3}                 {MEAN_TARGET}        geometric mean\n",
        mean.unwrap_or(f64::NAN)
    ));
    out
}
