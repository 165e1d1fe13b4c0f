//! `salus bench paging`: jobs that do not fit the device together.
//!
//! The same processes do the same steps twice in each round: one after the other, and all at once.
//! Started and compiled beforehand, so that only steps and moves are timed. What moves cost is reported
//! by the service, and held against plain copies of as many bytes.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use salus_units::Bytes;
use serde_json::{Value, json};

use crate::Common;
use crate::contenders::jobs::{Jobs, PREPARE_TIME, RUN_TIME};
use crate::contenders::setup::Setup;
use crate::json_text;
use crate::measure::machine;
use crate::measure::statistics::median;
use crate::report::{self, number};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Run these only
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    only: Vec<String>,
}

/// Jobs that are alike.
struct Scenario {
    name: &'static str,
    what: &'static str,
    /// Of `worker.py`.
    row: &'static str,
    jobs: usize,
    steps: u32,
    memory_mib: u64,
    target: f64,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "thirty_waiting",
        what: "30 jobs, 2.5 x the device, half of each job's time is waiting on its host",
        row: "hold_60_wait",
        jobs: 30,
        steps: 20,
        memory_mib: 720,
        target: 1.0,
    },
    Scenario {
        name: "thirty",
        what: "30 jobs, 2.5 x the device, all device time",
        row: "hold_60",
        jobs: 30,
        steps: 20,
        memory_mib: 720,
        target: 1.15,
    },
    Scenario {
        name: "two",
        what: "2 jobs, 1.9 x the device",
        row: "hold_240",
        jobs: 2,
        steps: 60,
        memory_mib: 256,
        target: 1.15,
    },
];

const BANDWIDTH: &str = "bandwidth";
/// What a move may cost, in plain copies.
const MOVE_TARGET: f64 = 2.5;

pub(crate) fn paging(arguments: &Arguments) -> Outcome {
    let setup = arguments.common.setup()?;
    let wants =
        |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|one| one == name);
    let chosen: Vec<&Scenario> = SCENARIOS.iter().filter(|s| wants(s.name)).collect();
    if chosen.is_empty() && !wants(BANDWIDTH) {
        let mut names: Vec<&str> = SCENARIOS.iter().map(|s| s.name).collect();
        names.push(BANDWIDTH);
        return Err(Problem::new("there is no such scenario")
            .hint(format!("there are {}", names.join(", "))));
    }
    let copy = copy_bytes_per_second();
    let bandwidth = match wants(BANDWIDTH) {
        true => Some(bandwidth(&setup, copy)?),
        false => None,
    };
    let mut findings = Vec::new();
    for (n, scenario) in chosen.iter().enumerate() {
        output::say(&format!(
            "scenario {} of {}: {}",
            n + 1,
            chosen.len(),
            scenario.what
        ));
        findings.push(measure(&setup, scenario, arguments.common.quick, copy)?);
    }
    let found = json!({
        "machine": machine::description(&setup),
        "copy_bytes_per_second": copy,
        "bandwidth": bandwidth,
        "scenarios": findings,
    });
    arguments
        .common
        .print(|| json_text(&found), || table(&found));
    Ok(ExitCode::SUCCESS)
}

fn measure(setup: &Setup, scenario: &Scenario, quick: bool, copy: f64) -> Result<Value, Problem> {
    let (count, rounds) = match quick {
        true => (scenario.jobs.min(4), 1),
        false => (scenario.jobs, 3),
    };
    let memory_mib = scenario.memory_mib * count as u64 / scenario.jobs as u64;
    let memory = format!("{memory_mib}MiB");
    let mut jobs = Jobs::start(setup, &["--memory", &memory])?;
    for _ in 0..count {
        jobs.add(setup, &[])?;
    }
    jobs.each(
        &json!({ "do": "prepare", "row": scenario.row }),
        PREPARE_TIME,
    )?;
    let steps = json!({ "do": "block", "row": scenario.row, "seconds": scenario.steps });
    let (mut serial, mut together) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let begun = Instant::now();
        for job in &mut jobs.all {
            job.ask(&steps, RUN_TIME)?;
        }
        serial.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        jobs.each(&steps, RUN_TIME)?;
        together.push(begun.elapsed().as_secs_f64());
        output::say(&format!("round {} of {rounds}", round + 1));
    }
    let report = jobs.report()?;
    let ratios = serial.iter().zip(&together).map(|(s, t)| t / s);
    let sum = |key: &str| -> f64 {
        let sessions = report["sessions"].as_array();
        let values = sessions
            .into_iter()
            .flatten()
            .map(|s| s["moves"][key].as_f64());
        values.flatten().sum()
    };
    // Bytes that really were copied; the others stayed where they were.
    let price = |bytes: f64, ms: f64| (bytes > 0.0).then(|| ms / 1e3 / (bytes / copy));
    Ok(json!({
        "name": scenario.name,
        "what": scenario.what,
        "jobs": count,
        "device_bytes": memory_mib << 20,
        "steps": scenario.steps,
        "serial_s": serial,
        "together_s": together,
        "ratio": median(ratios),
        "target": scenario.target,
        "out_bytes": sum("out_bytes"),
        "copied_bytes": sum("copied_bytes"),
        "in_bytes": sum("in_bytes"),
        "out_in_copies": price(sum("out_bytes"), sum("out_ms")),
        "in_in_copies": price(sum("in_bytes"), sum("in_ms")),
        "peak_bytes": report["device"]["peak_bytes"],
    }))
}

/// What moving a session of 236 MiB costs, in plain copies of as many bytes: the first move of a
/// session, and of another just after it; later ones of arrays that are new, and of arrays that lie
/// in their pages.
fn bandwidth(setup: &Setup, copy: f64) -> Result<Value, Problem> {
    output::say("bandwidth: a session of 236 MiB leaves and comes back");
    let new = moves(setup, "replace_240", copy)?;
    let kept = moves(setup, "hold_240", copy)?;
    Ok(json!({
        "what": "236 MiB in 120 arrays, half of them small, out and in, in plain copies",
        "first": kept[0],
        "first_at_once": kept[1],
        "copied": new[2],
        "in_place": kept[2],
        "target": MOVE_TARGET,
    }))
}

/// Two jobs that do not fit together run one after the other, so that one leaves at each change.
/// Returns what the first move of each cost, and the later ones.
pub(super) fn moves(setup: &Setup, row: &'static str, copy: f64) -> Result<[Value; 3], Problem> {
    let mut jobs = Jobs::start(setup, &["--memory", "300MiB"])?;
    // The second takes the device from the first, and is then pushed off it itself.
    for _ in 0..2 {
        jobs.add(setup, &[])?
            .ask(&json!({ "do": "prepare", "row": row }), PREPARE_TIME)?;
    }
    let block = json!({ "do": "block", "row": row, "seconds": 1 });
    let price = |jobs: &Jobs, before: &Moved| -> Result<(Value, Moved), Problem> {
        let now = Moved::of(&jobs.report()?);
        let cost = |bytes: f64, ms: f64| (bytes > 0.0).then(|| ms / 1e3 / (bytes / copy));
        let prices = json!({
            "out": cost(now.out_bytes - before.out_bytes, now.out_ms - before.out_ms),
            "in": cost(now.in_bytes - before.in_bytes, now.in_ms - before.in_ms),
            "out_bytes": now.out_bytes - before.out_bytes,
            "in_bytes": now.in_bytes - before.in_bytes,
        });
        Ok((prices, now))
    };
    // The first has left when the second was prepared.
    let (first, before) = price(&jobs, &Moved::default())?;
    let change = |jobs: &mut Jobs| -> Result<(), Problem> {
        for job in &mut jobs.all {
            job.ask(&block, RUN_TIME)?;
        }
        Ok(())
    };
    jobs.all[0].ask(&block, RUN_TIME)?;
    let (at_once, _) = price(&jobs, &before)?;
    // What was left behind cold is warm after this.
    change(&mut jobs)?;
    let (_, before) = price(&jobs, &Moved::default())?;
    for _ in 0..5 {
        change(&mut jobs)?;
    }
    let (later, _) = price(&jobs, &before)?;
    Ok([first, at_once, later])
}

/// What the service has moved so far.
#[derive(Default)]
pub(super) struct Moved {
    pub(super) out_bytes: f64,
    out_ms: f64,
    pub(super) in_bytes: f64,
    in_ms: f64,
}

impl Moved {
    pub(super) fn of(report: &Value) -> Self {
        let sum = |key: &str| -> f64 {
            let sessions = report["sessions"].as_array().into_iter().flatten();
            sessions.filter_map(|s| s["moves"][key].as_f64()).sum()
        };
        Self {
            out_bytes: sum("out_bytes"),
            out_ms: sum("out_ms"),
            in_bytes: sum("in_bytes"),
            in_ms: sum("in_ms"),
        }
    }
}

/// What a warm copy of many bytes makes here.
fn copy_bytes_per_second() -> f64 {
    const BYTES: usize = 256 << 20;
    let from = vec![1u8; BYTES];
    let mut to = vec![0u8; BYTES];
    let copies = (0..5).map(|_| {
        let begun = Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        begun.elapsed().as_secs_f64()
    });
    BYTES as f64 / median(copies.collect::<Vec<_>>().into_iter())
}

fn table(found: &Value) -> String {
    let middle = |value: &Value| {
        let values = value.as_array().into_iter().flatten();
        median(values.filter_map(Value::as_f64))
    };
    let bytes = |value: &Value| Bytes(number(value) as u64).to_string();
    let mut out = format!(
        "{}one copy makes {}/s\n\n",
        report::header(&found["machine"]),
        bytes(&found["copy_bytes_per_second"])
    );
    let bandwidth = &found["bandwidth"];
    if let Some(what) = bandwidth["what"].as_str() {
        out.push_str(&format!("bandwidth: {what} (at most {MOVE_TARGET})\n"));
        for (key, name) in [
            ("first", "the first move of a session"),
            (
                "first_at_once",
                "the first move of a second session at once after it",
            ),
            ("copied", "later, arrays that are new"),
            ("in_place", "later, arrays that are still in their pages"),
        ] {
            let price = |way: &str| match bandwidth[key][way].as_f64() {
                Some(price) => format!("{price:.2}"),
                None => "-".into(),
            };
            out.push_str(&format!(
                "    {name}: out {}, in {}\n",
                price("out"),
                price("in")
            ));
        }
    }
    for one in found["scenarios"].as_array().into_iter().flatten() {
        let (ratio, target) = (number(&one["ratio"]), number(&one["target"]));
        let verdict = if ratio <= target { "met" } else { "missed" };
        let price = |key: &str| match one[key].as_f64() {
            Some(price) => format!("{price:.2}"),
            None => "-".into(),
        };
        out.push_str(&format!(
            "{}: {}\n    all at once {:.2} s, one after another {:.2} s: {ratio:.3} (at most \
             {target}, {verdict})\n    out {} (of which {} copied) at {} copies, in {} at {} \
             copies; peak {} of {}\n",
            one["name"].as_str().unwrap_or("?"),
            one["what"].as_str().unwrap_or("?"),
            middle(&one["together_s"]),
            middle(&one["serial_s"]),
            bytes(&one["out_bytes"]),
            bytes(&one["copied_bytes"]),
            price("out_in_copies"),
            bytes(&one["in_bytes"]),
            price("in_in_copies"),
            bytes(&one["peak_bytes"]),
            bytes(&one["device_bytes"]),
        ));
    }
    out
}
