//! `salus bench memory`: what workloads hold between iterations and need within one.
//!
//! Each workload trains in a process of its own through a service that has no other job. *Persistent* are
//! its arrays on the device when nothing runs: parameters and the optimizer's state. *Ephemeral* is what an
//! iteration takes beyond them: the scratch that its program states, and inputs and outputs that live for
//! it only (the most of the arrays while it trained, less the persistent ones). *Framework* is what is
//! held beside both: the job's process (its proportional set size, with Python, JAX and its own compiled
//! tracing) and the growth of the device host since before the job, less its arrays and scratch.
//!
//! The average over time counts ephemeral bytes for as long as an iteration had the device: a program's
//! scratch is one block, which is there from its beginning to its end.

use std::fs;

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use salus_wire::Recording;
use serde_json::{Value, json};

use crate::Common;
use crate::contenders::jobs::{Jobs, PREPARE_TIME, RUN_TIME, of_session};
use crate::contenders::setup::Setup;
use crate::measure::statistics::median;
use crate::report::experiment::{Claim, Experiment, Judgement, Plot, PlotKind, Series, Table};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
}

const MODELS: [(&str, [u32; 3]); 7] = [
    ("mlp", [32, 64, 128]),
    ("cnn", [16, 32, 64]),
    ("resnet", [8, 16, 32]),
    ("vae", [64, 128, 256]),
    ("superres", [16, 32, 64]),
    ("lstm", [16, 32, 64]),
    ("transformer", [8, 16, 32]),
];
/// Drawn over time, at their largest batches.
const DRAWN: [&str; 3] = ["vae", "superres", "transformer"];
const QUICK_MODELS: [&str; 3] = ["mlp", "vae", "superres"];
const ROW: &str = "footprint";
const STEPS: u32 = 60;
/// Iterations that are drawn.
const SHOWN: usize = 6;
const MIB: f64 = (1 << 20) as f64;

/// Bytes of a workload.
#[derive(Debug, Clone)]
struct Footprint {
    workload: String,
    persistent: f64,
    ephemeral: f64,
    /// Of the job's process, and of the service for it.
    job: f64,
    service: f64,
    /// The part of the time in which an iteration had the device.
    busy: f64,
    /// Milliseconds and bytes of some iterations.
    steps: Vec<(f64, f64)>,
}

impl Footprint {
    fn peak(&self) -> f64 {
        self.persistent + self.ephemeral
    }

    fn average(&self) -> f64 {
        self.persistent + self.busy * self.ephemeral
    }
}

pub(crate) fn memory(arguments: &Arguments) -> Outcome {
    let setup = arguments.common.setup()?;
    let experiment = measure(&setup, arguments.common.quick)?;
    arguments.common.show(&setup, &experiment)
}

pub(crate) fn measure(setup: &Setup, quick: bool) -> Result<Experiment, Problem> {
    let wanted = |model: &str| !quick || QUICK_MODELS.contains(&model);
    let batches = |sizes: [u32; 3]| sizes.into_iter().skip(if quick { 2 } else { 0 });
    let names: Vec<String> = MODELS
        .into_iter()
        .filter(|(model, _)| wanted(model))
        .flat_map(|(model, sizes)| batches(sizes).map(move |batch| format!("{model}_{batch}")))
        .collect();
    let mut found = Vec::new();
    for (n, name) in names.iter().enumerate() {
        output::say(&format!("memory: {} of {}, {name}", n + 1, names.len()));
        found.push(footprint(setup, name)?);
    }
    Ok(experiment(&found))
}

fn footprint(setup: &Setup, workload: &str) -> Result<Footprint, Problem> {
    let mut jobs = Jobs::start(setup, &["--policy", "fair"])?;
    let before = jobs.device_host_memory()?.proportional as f64;
    let job = jobs.add(setup, &[])?;
    let with = json!({ "workload": workload });
    let prepare = json!({ "do": "prepare", "row": ROW, "with": with });
    job.ask(&prepare, PREPARE_TIME)?;
    let from = jobs.recording()?.until_ns;
    let block = json!({ "do": "block", "row": ROW, "seconds": STEPS });
    jobs.all[0].ask(&block, RUN_TIME)?;
    let recording = jobs.recording()?;
    let report = jobs.report()?;
    let session = &report["sessions"][0];
    let id = session["id"].as_u64().unwrap_or(0);
    let number = |key: &str| of_session(&report, id, key);
    let persistent = number("resident_bytes");
    let during = || recording.memory.iter().filter(|one| one.at_ns >= from);
    let most = during()
        .map(|one| one.resident_bytes as f64)
        .fold(persistent, f64::max);
    // Of the lanes: nothing but this job's steps ran there.
    let scratch = during()
        .map(|one| one.scratch_bytes as f64)
        .fold(0.0, f64::max);
    let ephemeral = most - persistent + scratch;
    let grown = jobs.device_host_memory()?.proportional as f64 - before;
    let pid = session["pid"].as_u64().unwrap_or(0);
    Ok(Footprint {
        workload: workload.into(),
        persistent,
        ephemeral,
        job: proportional(pid),
        service: (grown - persistent - ephemeral).max(0.0),
        busy: busy(&recording, from),
        steps: steps(&recording, from, persistent, ephemeral),
    })
}

/// A process's memory; pages that others have mapped too count for their share.
fn proportional(pid: u64) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| kilobytes * 1024.0)
}

/// The part of the time from the first iteration's beginning to the last one's end in which one ran.
fn busy(recording: &Recording, from_ns: u64) -> f64 {
    let ours = || {
        recording
            .iterations
            .iter()
            .filter(|one| one.began_ns >= from_ns)
    };
    let began = ours().map(|one| one.began_ns).min().unwrap_or(0);
    let ended = ours().map(|one| one.ended_ns).max().unwrap_or(0);
    let ran: u64 = ours().map(|one| one.ended_ns - one.began_ns).sum();
    ran as f64 / (ended.saturating_sub(began)).max(1) as f64
}

/// What is on the device during some iterations after the middle, from the recorded times.
fn steps(recording: &Recording, from_ns: u64, persistent: f64, ephemeral: f64) -> Vec<(f64, f64)> {
    let mut spans: Vec<(u64, u64)> = recording
        .iterations
        .iter()
        .filter(|one| one.began_ns >= from_ns)
        .map(|one| (one.began_ns, one.ended_ns))
        .collect();
    spans.sort_unstable();
    let shown: Vec<(u64, u64)> = spans
        .iter()
        .skip(spans.len() / 2)
        .take(SHOWN)
        .copied()
        .collect();
    let Some(first) = shown.first().map(|span| span.0) else {
        return Vec::new();
    };
    let ms = |ns: u64| (ns - first) as f64 / 1e6;
    let mut points = Vec::new();
    for (began, ended) in shown {
        points.push((ms(began), persistent + ephemeral));
        points.push((ms(ended), persistent));
    }
    points
}

fn experiment(found: &[Footprint]) -> Experiment {
    let count = found.len();
    let ratios: Vec<f64> = found.iter().map(|one| one.average() / one.peak()).collect();
    let held: Vec<f64> = found
        .iter()
        .map(|one| one.persistent / one.peak())
        .collect();
    let below = ratios.iter().filter(|ratio| **ratio < 0.5).count();
    let ends = |values: &[f64]| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        format!("{least:.2} to {most:.2} over the workloads")
    };
    let claim =
        |what: &str, original: &str, values: &[f64], measured: String, reason: &str| Claim {
            what: what.into(),
            original: original.into(),
            target: String::new(),
            measured,
            spread: ends(values),
            rounds: 1,
            verdict: Judgement::NoTarget,
            reason: reason.into(),
        };
    Experiment {
        name: "memory".into(),
        title: "Memory of workloads".into(),
        command: "salus bench memory".into(),
        what: format!(
            "{count} workloads, each training {STEPS} steps in a process of its own through a service without \
             other jobs. Persistent: arrays on the device while nothing runs. Ephemeral: scratch of an \
             iteration, its inputs and its outputs that do not stay. Job: what its process holds, Python and \
             JAX included (proportional set size). Service: growth of the device host since before the job, \
             less persistent and ephemeral bytes. Job and service together are the framework's memory."
        ),
        claims: vec![
            claim(
                "average over peak of device memory, median of the workloads",
                "0.25; 39 of 45 workloads below 0.5",
                &ratios,
                format!(
                    "{:.2}; {below} of {count} below 0.5",
                    median(ratios.iter().copied())
                ),
                "the scratch of a program is one block from its beginning to its end, so it falls only \
                 between iterations; the original's framework took and gave back within one",
            ),
            claim(
                "persistent over peak, median of the workloads",
                "0.067, 0.050 at least",
                &held,
                format!("{:.2}", median(held.iter().copied())),
                "what must stay on the device when another job runs",
            ),
        ],
        tables: vec![table(found)],
        plots: vec![bars(found), over_time(found)],
        numbers: found.iter().map(numbers).collect::<Vec<Value>>().into(),
    }
}

fn table(found: &[Footprint]) -> Table {
    let mib = |bytes: f64| format!("{:.2} MiB", bytes / MIB);
    let rows = found.iter().map(|one| {
        vec![
            one.workload.clone(),
            mib(one.persistent),
            mib(one.ephemeral),
            format!("{:.2}", one.persistent / one.peak()),
            format!("{:.2}", one.average() / one.peak()),
            mib(one.job),
            mib(one.service),
        ]
    });
    let columns = [
        "workload",
        "persistent",
        "ephemeral",
        "persistent / peak",
        "average / peak",
        "job",
        "service",
    ];
    Table {
        title: "device memory, and what is held beside it".into(),
        columns: columns.map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

fn bars(found: &[Footprint]) -> Plot {
    let series = |name: &str, of: fn(&Footprint) -> f64| {
        let points = found.iter().enumerate();
        Series::new(name, points.map(|(n, one)| (n as f64, of(one) / MIB)))
    };
    Plot {
        name: "memory".into(),
        title: "Device memory of workloads".into(),
        kind: PlotKind::Bars,
        x: String::new(),
        y: "MiB".into(),
        log_x: false,
        log_y: true,
        groups: found.iter().map(|one| one.workload.clone()).collect(),
        series: vec![
            series("persistent", |one| one.persistent),
            series("ephemeral", |one| one.ephemeral),
        ],
    }
}

fn over_time(found: &[Footprint]) -> Plot {
    let largest = |model: &&str| {
        let of_model =
            |one: &&Footprint| one.workload.rsplit_once('_').is_some_and(|n| n.0 == *model);
        found.iter().rfind(of_model)
    };
    let series = DRAWN.iter().filter_map(largest).map(|one| {
        let points = one.steps.iter().map(|(ms, bytes)| (*ms, bytes / MIB));
        Series::new(&one.workload, points)
    });
    Plot {
        name: "memory-over-time".into(),
        title: format!("Device memory during {SHOWN} iterations"),
        kind: PlotKind::Steps,
        x: "ms".into(),
        y: "MiB".into(),
        log_x: false,
        log_y: false,
        groups: Vec::new(),
        series: series.collect(),
    }
}

fn numbers(one: &Footprint) -> Value {
    json!({
        "workload": one.workload,
        "persistent_bytes": one.persistent,
        "ephemeral_bytes": one.ephemeral,
        "job_pss_bytes": one.job,
        "service_bytes": one.service,
        "busy": one.busy,
        "average_over_peak": one.average() / one.peak(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(workload: &str, persistent: f64, ephemeral: f64, busy: f64) -> Footprint {
        Footprint {
            workload: workload.into(),
            persistent: persistent * MIB,
            ephemeral: ephemeral * MIB,
            job: 100.0 * MIB,
            service: MIB,
            busy,
            steps: vec![(0.0, 4.0), (1.0, 2.0)],
        }
    }

    #[test]
    fn the_average_counts_scratch_while_something_runs() {
        let found = experiment(&[one("vae_64", 1.0, 3.0, 0.5), one("vae_128", 1.0, 9.0, 0.1)]);
        assert_eq!(found.claims[0].measured, "0.41; 1 of 2 below 0.5");
        assert_eq!(found.tables[0].rows[0][3..5], ["0.25", "0.62"]);
        let drawn = &found.plots[1].series;
        assert_eq!((drawn.len(), drawn[0].name.as_str()), (1, "vae_128"));
    }
}
