//! `salus bench inference`: 42 models on one device that answer requests.
//!
//! Fourteen models, three of each, in seven processes of six models. The device's memory is what the
//! parameters of all of them, one request of each process and the largest scratch take. Alone, each model
//! has a device of its own; with fixed shares, as many devices are needed as a first-fit packing of the
//! models' peaks takes. Latency is from the time at which a request arrives to its answer; alone is the
//! same model, asked as rarely, directly on the plugin. Every answer is compared with the model's first,
//! to the bit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use serde_json::{Value, json};

use crate::Common;
use crate::contenders::jobs::{Jobs, PREPARE_TIME};
use crate::contenders::setup::{Route, Setup};
use crate::contenders::{Side, ask_at_once};
use crate::measure::statistics::{geometric_mean, median, quantile_of};
use crate::report::experiment::{Claim, Experiment, Judgement, Plot, PlotKind, Series, Table};
use crate::report::number;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    rounds: usize,
}

const KINDS: [&str; 14] = [
    "mlp_32",
    "mlp_deep_32",
    "cnn_32",
    "cnn_wide_32",
    "cnn_deep_32",
    "resnet_32",
    "resnet_deep_32",
    "vae_32",
    "superres_32",
    "lstm_32",
    "lstm_wide_32",
    "transformer_32",
    "transformer_deep_32",
    "transformer_wide_32",
];
const OF_EACH: usize = 3;
const PROCESSES: usize = 7;
const ROUNDS: usize = 3;
const LATENCY_TARGET: f64 = 1.3;
/// Beyond what the models' own numbers say: inputs that arrive ahead of their turn, and alignment.
const MEMORY_SLACK: f64 = 1.1;
/// Requests a second of all models. The first is the low load.
const RATES: [f64; 5] = [8.0, 50.0, 100.0, 200.0, 400.0];
/// Alone, a model gets the requests that a third of them gets at low load.
const ALONE_RATE: f64 = 8.0;
const ROW: &str = "fleet";
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// How long each part lasts, in seconds.
#[derive(Debug, Clone, Copy)]
struct Pace {
    alone: f64,
    low: f64,
    rising: f64,
}

pub(crate) fn inference(arguments: &Arguments) -> Outcome {
    let setup = arguments.common.setup()?;
    let experiment = measure(&setup, arguments.common.quick, arguments.rounds)?;
    arguments.common.show(&setup, &experiment)
}

/// Bytes of a model.
#[derive(Debug, Clone)]
struct Footprint {
    parameters: u64,
    /// While an answer is computed.
    scratch: u64,
    /// Input and answer of a request: until the process that asked has let go of them.
    request: u64,
}

impl Footprint {
    fn peak(&self) -> u64 {
        self.parameters + self.scratch + self.request
    }
}

/// Latencies in milliseconds by kind.
type Latencies = BTreeMap<String, Vec<f64>>;

struct Round {
    alone: Latencies,
    /// By load, in the order of `RATES`.
    loads: Vec<Latencies>,
    /// Process and kind of those that answered at some load.
    answered: BTreeSet<(usize, String)>,
    wrong: usize,
    peak_bytes: u64,
    /// At low load: where more requests come than can be answered, those that wait take the memory.
    paged_out_bytes: u64,
}

pub(crate) fn measure(setup: &Setup, quick: bool, rounds: usize) -> Result<Experiment, Problem> {
    let (rounds, pace) = match quick {
        true => (1, [1.0, 8.0, 1.0]),
        false => (rounds.max(1), [3.0, 15.0, 4.0]),
    };
    let [alone, low, rising] = pace;
    let pace = Pace { alone, low, rising };
    output::say("inference: preparing the models alone");
    let mut single = Side::start(setup, "alone", &Route::Direct)?;
    let kinds = preparation(&KINDS.map(String::from), PROCESSES);
    let said = single.ask(&kinds, PREPARE_TIME)?;
    let footprints: Vec<Footprint> = said["models"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|model| Footprint {
            parameters: model["parameter_bytes"].as_u64().unwrap_or(0),
            scratch: model["scratch_bytes"].as_u64().unwrap_or(0),
            request: model["request_bytes"].as_u64().unwrap_or(0),
        })
        .collect();
    let budget = budget(&footprints);
    output::say(&format!(
        "inference: preparing {} models on a device of {:.1} MiB",
        KINDS.len() * OF_EACH,
        budget as f64 / MIB,
    ));
    let memory = budget.to_string();
    let mut jobs = Jobs::start(setup, &["--policy", "fair", "--memory", &memory])?;
    for _ in 0..PROCESSES {
        jobs.add(setup, &[])?;
    }
    let models = processes().into_iter().enumerate();
    let commands = models.map(|(seed, models)| preparation(&models, seed));
    ask_at_once(jobs.all.iter_mut().zip(commands), PREPARE_TIME)?;
    let mut found = Vec::new();
    for round in 1..=rounds {
        output::say(&format!("inference: round {round} of {rounds}"));
        found.push(one_round(&mut single, &mut jobs, pace)?);
    }
    Ok(experiment(&footprints, budget, &found))
}

const MIB: f64 = (1 << 20) as f64;

/// The models of each process: no process has two of a kind.
fn processes() -> Vec<Vec<String>> {
    let all = KINDS.iter().cycle().take(KINDS.len() * OF_EACH);
    let all: Vec<String> = all.map(|kind| (*kind).to_owned()).collect();
    all.chunks(all.len() / PROCESSES)
        .map(<[_]>::to_vec)
        .collect()
}

/// With equal seeds, requests would come to several processes at the same moments.
fn preparation(models: &[String], seed: usize) -> Value {
    let with = json!({ "models": models, "seed": seed });
    json!({ "do": "prepare", "row": ROW, "with": with })
}

/// Bytes that hold all parameters, a request of each process, and the largest scratch.
fn budget(footprints: &[Footprint]) -> u64 {
    let parameters: u64 = footprints.iter().map(|f| f.parameters).sum();
    let request = footprints.iter().map(|f| f.request).max().unwrap_or(0);
    let scratch = footprints.iter().map(|f| f.scratch).max().unwrap_or(0);
    let all = OF_EACH as u64 * parameters + PROCESSES as u64 * request + scratch;
    (all as f64 * MEMORY_SLACK) as u64
}

/// Devices of `budget` bytes that hold the peaks of all models, each in the first that has room, the
/// largest first.
fn devices_with_fixed_shares(footprints: &[Footprint], budget: u64) -> usize {
    let peaks = footprints.iter().map(Footprint::peak);
    let mut peaks: Vec<u64> = peaks.flat_map(|peak| [peak; OF_EACH]).collect();
    peaks.sort_unstable_by(|a, b| b.cmp(a));
    let mut devices: Vec<u64> = Vec::new();
    for peak in peaks {
        match devices.iter_mut().find(|used| **used + peak <= budget) {
            Some(used) => *used += peak,
            None => devices.push(peak),
        }
    }
    devices.len()
}

fn one_round(single: &mut Side, jobs: &mut Jobs, pace: Pace) -> Result<Round, Problem> {
    let mut alone = Latencies::new();
    let mut wrong = 0;
    for index in 0..KINDS.len() {
        let block = json!({ "seconds": pace.alone, "rate": ALONE_RATE, "only": index });
        let command = json!({ "do": "block", "row": ROW, "seconds": block });
        let said = single.ask(&command, TIME_LIMIT)?;
        wrong += collect(&said, &mut alone);
    }
    let (mut loads, mut answered) = (Vec::new(), BTreeSet::new());
    let before = paged_out_bytes(&jobs.report()?);
    let mut paged = 0;
    for (n, rate) in RATES.into_iter().enumerate() {
        let seconds = if n == 0 { pace.low } else { pace.rising };
        let block = json!({ "seconds": seconds, "rate": rate / PROCESSES as f64 });
        let command = json!({ "do": "block", "row": ROW, "seconds": block });
        for job in &mut jobs.all {
            job.tell(&command)?;
        }
        let mut latencies = Latencies::new();
        for (process, job) in jobs.all.iter_mut().enumerate() {
            let said = job.hear(&command, TIME_LIMIT)?;
            wrong += collect(&said, &mut latencies);
            answered.extend(kinds_that_answered(&said).map(|kind| (process, kind.clone())));
        }
        loads.push(latencies);
        if n == 0 {
            paged = paged_out_bytes(&jobs.report()?) - before;
        }
    }
    let report = jobs.report()?;
    Ok(Round {
        alone,
        loads,
        answered,
        wrong,
        peak_bytes: report["device"]["peak_bytes"].as_u64().unwrap_or(0),
        paged_out_bytes: paged,
    })
}

/// Of all sessions since they began.
fn paged_out_bytes(report: &Value) -> u64 {
    let sessions = report["sessions"].as_array().into_iter().flatten();
    let moved = |session: &Value| session["moves"]["out_bytes"].as_u64();
    sessions.filter_map(moved).sum()
}

/// Adds what a process said; returns how many answers were wrong.
fn collect(said: &Value, latencies: &mut Latencies) -> usize {
    for (kind, times) in said["latencies_ms"].as_object().into_iter().flatten() {
        let times = times.as_array().into_iter().flatten().map(number);
        latencies.entry(kind.clone()).or_default().extend(times);
    }
    said["wrong"].as_array().map_or(0, Vec::len)
}

fn kinds_that_answered(said: &Value) -> impl Iterator<Item = &String> {
    let kinds = said["latencies_ms"].as_object().into_iter().flatten();
    kinds
        .filter(|(_, times)| times.as_array().is_some_and(|times| !times.is_empty()))
        .map(|(kind, _)| kind)
}

/// A quantile of a kind's latencies in each round; the median of the rounds.
fn latency<'a>(rounds: impl Iterator<Item = &'a Latencies>, kind: &str, q: f64) -> f64 {
    let times = rounds.filter_map(|latencies| latencies.get(kind));
    median(times.map(|times| quantile_of(times, q)))
}

fn experiment(footprints: &[Footprint], budget: u64, rounds: &[Round]) -> Experiment {
    let shares = devices_with_fixed_shares(footprints, budget);
    let count = KINDS.len() * OF_EACH;
    let answered = rounds.iter().map(|round| round.answered.len()).min();
    let answered = answered.unwrap_or(0);
    let wrong: usize = rounds.iter().map(|round| round.wrong).sum();
    let all_answer = answered == count && wrong == 0;
    let ratio = |round: &Round, kind: &str| {
        latency([&round.loads[0]].into_iter(), kind, 0.5)
            / latency([&round.alone].into_iter(), kind, 0.5)
    };
    // The average kind, round by round.
    let ratios: Vec<f64> = rounds
        .iter()
        .map(|round| geometric_mean(KINDS.iter().map(|kind| ratio(round, kind))))
        .collect();
    let slower = median(ratios.iter().copied());
    let paged: u64 = rounds.iter().map(|round| round.paged_out_bytes).sum();
    Experiment {
        name: "inference".into(),
        title: "Many models on one device".into(),
        command: "salus bench inference".into(),
        what: format!(
            "{count} models ({} kinds, {OF_EACH} of each) that answer requests at random times, in \
             {PROCESSES} processes on a device of {:.1} MiB; low load is {} requests a second of all.",
            KINDS.len(),
            budget as f64 / MIB,
            RATES[0],
        ),
        claims: vec![
            Claim {
                what: "devices needed: exclusive / static partition / Salus".into(),
                original: "42 / 6 / 1".into(),
                target: format!("{count} / several / 1, all answering"),
                measured: format!("{count} / {shares} / 1"),
                spread: String::new(),
                rounds: rounds.len(),
                verdict: Judgement::of(all_answer && shares > 1 && paged == 0),
                reason: format!(
                    "{answered} of {count} models answered in every round, {wrong} answers differed from \
                     the model's first; {:.1} MiB were paged out at low load",
                    paged as f64 / MIB,
                ),
            },
            Claim {
                what: "median latency at low load, against the model alone on the plugin".into(),
                original: "1.3 to 2.2 x, 1.72 x on average".into(),
                target: format!("at most {LATENCY_TARGET} x"),
                measured: format!("{slower:.3} x"),
                spread: format!(
                    "{:.2} to {:.2}",
                    ratios.iter().copied().fold(f64::INFINITY, f64::min),
                    ratios.iter().copied().fold(0.0, f64::max),
                ),
                rounds: rounds.len(),
                verdict: Judgement::of(slower <= LATENCY_TARGET),
                reason: "geometric mean over the kinds; wake-ups weigh most on the smallest".into(),
            },
        ],
        tables: vec![by_kind(footprints, rounds), by_load(rounds)],
        plots: vec![kinds_plot(rounds), load_plot(rounds)],
        numbers: json!({
            "budget_bytes": budget,
            "devices_exclusive": count,
            "devices_static": shares,
            "ratios": ratios,
            "wrong": wrong,
            "rounds": rounds.iter().map(round_json).collect::<Vec<_>>(),
        }),
    }
}

fn by_kind(footprints: &[Footprint], rounds: &[Round]) -> Table {
    let rows = KINDS.iter().zip(footprints).map(|(kind, footprint)| {
        let alone = |q| latency(rounds.iter().map(|round| &round.alone), kind, q);
        let low = |q| latency(rounds.iter().map(|round| &round.loads[0]), kind, q);
        vec![
            (*kind).to_owned(),
            format!("{:.2} MiB", footprint.parameters as f64 / MIB),
            format!(
                "{:.2} MiB",
                (footprint.scratch + footprint.request) as f64 / MIB
            ),
            format!("{:.2} ms", alone(0.5)),
            format!("{:.2} ms", alone(0.99)),
            format!("{:.2} ms", low(0.5)),
            format!("{:.2} ms", low(0.99)),
            format!("{:.2} x", low(0.5) / alone(0.5)),
        ]
    });
    let columns = [
        "model",
        "parameters",
        "scratch",
        "alone p50",
        "p99",
        "low load p50",
        "p99",
        "p50 ratio",
    ];
    Table {
        title: "models, and their latency alone and with all others at low load".into(),
        columns: columns.map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

/// Quantiles over the requests of all kinds.
fn over_all(latencies: &Latencies, q: f64) -> f64 {
    let all: Vec<f64> = latencies.values().flatten().copied().collect();
    quantile_of(&all, q)
}

fn by_load(rounds: &[Round]) -> Table {
    let rows = RATES.into_iter().enumerate().map(|(n, rate)| {
        let at = |q| median(rounds.iter().map(|round| over_all(&round.loads[n], q)));
        vec![
            format!("{rate} a second"),
            format!("{:.2} ms", at(0.5)),
            format!("{:.2} ms", at(0.95)),
            format!("{:.2} ms", at(0.99)),
        ]
    });
    Table {
        title: "latency of all requests at rising load".into(),
        columns: ["load", "p50", "p95", "p99"].map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

fn kinds_plot(rounds: &[Round]) -> Plot {
    let series = |name: &str, of: fn(&Round) -> &Latencies| {
        let median_of = |kind: &&str| latency(rounds.iter().map(of), kind, 0.5);
        let points = KINDS.iter().map(median_of).enumerate();
        Series::new(name, points.map(|(x, y)| (x as f64, y)))
    };
    Plot {
        name: "inference".into(),
        title: "Median latency of 42 models on one device".into(),
        kind: PlotKind::Bars,
        x: String::new(),
        y: "ms".into(),
        log_x: false,
        log_y: false,
        groups: KINDS
            .map(|kind| kind.trim_end_matches("_32").into())
            .to_vec(),
        series: vec![
            series("alone, directly", |round| &round.alone),
            series("with all others, Salus", |round| &round.loads[0]),
        ],
    }
}

fn load_plot(rounds: &[Round]) -> Plot {
    let series = |name: &str, q: f64| {
        let at = |n: usize| median(rounds.iter().map(|round| over_all(&round.loads[n], q)));
        let points = RATES.into_iter().enumerate();
        Series::new(name, points.map(|(n, rate)| (rate, at(n))))
    };
    Plot {
        name: "inference-load".into(),
        title: "Latency at rising load".into(),
        kind: PlotKind::Lines,
        x: "requests a second".into(),
        y: "ms".into(),
        log_x: true,
        log_y: true,
        groups: Vec::new(),
        series: vec![series("p50", 0.5), series("p95", 0.95), series("p99", 0.99)],
    }
}

fn round_json(round: &Round) -> Value {
    let loads = RATES.iter().zip(&round.loads);
    json!({
        "alone_ms": round.alone,
        "loads": loads
            .map(|(rate, latencies)| json!({ "rate": rate, "latencies_ms": latencies }))
            .collect::<Vec<_>>(),
        "answered": round.answered.len(),
        "wrong": round.wrong,
        "peak_bytes": round.peak_bytes,
        "paged_out_at_low_load_bytes": round.paged_out_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(parameters: u64, scratch: u64) -> Footprint {
        Footprint {
            parameters,
            scratch,
            request: 1,
        }
    }

    #[test]
    fn fixed_shares_need_more_devices_than_shared_scratch() {
        let models = [model(10, 90), model(20, 50)];
        // Three of each: 90 of parameters, 90 of scratch, 7 requests, and a tenth more.
        assert_eq!(budget(&models), 205);
        // 101 and 71, three times: one of each on a device.
        assert_eq!(devices_with_fixed_shares(&models, 205), 3);
    }

    #[test]
    fn a_model_that_was_never_asked_has_not_answered() {
        let said =
            json!({ "latencies_ms": { "mlp_32": [1.0, 2.0], "cnn_32": [] }, "wrong": ["mlp_32"] });
        assert_eq!(kinds_that_answered(&said).collect::<Vec<_>>(), ["mlp_32"]);
        let mut latencies = Latencies::new();
        assert_eq!(collect(&said, &mut latencies), 1);
        assert_eq!(latencies["mlp_32"], [1.0, 2.0]);
    }

    #[test]
    fn no_process_has_two_models_of_a_kind() {
        let processes = processes();
        assert_eq!(processes.len(), PROCESSES);
        for models in processes {
            let kinds: std::collections::BTreeSet<&String> = models.iter().collect();
            assert_eq!((models.len(), kinds.len()), (6, 6));
        }
    }
}
