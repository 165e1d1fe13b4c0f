//! Traces: a line for each policy, or every job as JSON; and generated ones.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use salus_daemon::config::Problem;
use salus_engine::{Policy, Time};
use salus_sim::{
    Estimates, Fate, Generator, Ideal, Placement, Setup, Summary, Trace, TraceJobReport,
    TraceReport, traces_shown,
};
use serde_json::{Value, json};

use super::ms;
use crate::arguments::parse_bytes;
use crate::{Format, Outcome, output};

#[derive(Args)]
pub(super) struct Options {
    /// How many devices there are [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    devices: Option<u32>,
    /// Which device a job gets: first-fit or least-loaded [default: least-loaded]
    #[arg(long, value_name = "RULE", value_parser = parse_placement)]
    place: Option<Placement>,
    /// Memory of each device [default: 16GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<NonZeroU64>,
    /// Memory of each device's host for arrays that are paged out [default: 64GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    host_memory: Option<NonZeroU64>,
    /// What moves between a device and its host in a second, each way [default: 10GiB/s]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    link: Option<NonZeroU64>,
    /// What is known of how long jobs are: exact, none, or wrong=0.5 [default: exact]
    #[arg(long, value_name = "HOW", value_parser = parse_estimates)]
    estimates: Option<Estimates>,
    /// The part of the jobs that fail at a random point [default: 0]
    #[arg(long, value_name = "PART", value_parser = parse_part)]
    failures: Option<u64>,
    /// Draws wrong estimates and failures [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// A table of workloads [default: the original's, on a P100]
    #[arg(long, value_name = "FILE")]
    workloads: Option<PathBuf>,
}

impl Options {
    /// An option that was given, if any.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.devices.is_some(), "--devices"),
            (self.place.is_some(), "--place"),
            (self.memory.is_some(), "--memory"),
            (self.host_memory.is_some(), "--host-memory"),
            (self.link.is_some(), "--link"),
            (self.estimates.is_some(), "--estimates"),
            (self.failures.is_some(), "--failures"),
            (self.seed.is_some(), "--seed"),
            (self.workloads.is_some(), "--workloads"),
        ];
        let mut given = given.into_iter().filter(|(is_given, _)| *is_given);
        given.next().map(|(_, option)| option)
    }

    fn setup(&self) -> Setup {
        let default = Setup::default();
        let or = |size: Option<NonZeroU64>, default| size.map_or(default, NonZeroU64::get);
        Setup {
            devices: self.devices.unwrap_or(default.devices),
            placement: self.place.unwrap_or(default.placement),
            memory_bytes: or(self.memory, default.memory_bytes),
            host_bytes: or(self.host_memory, default.host_bytes),
            link_bytes: or(self.link, default.link_bytes),
            estimates: self.estimates.unwrap_or(default.estimates),
            failures: self.failures.unwrap_or(default.failures),
            seed: self.seed.unwrap_or(default.seed),
            ..default
        }
    }
}

fn parse_placement(text: &str) -> Result<Placement, String> {
    Placement::named(text).ok_or_else(|| {
        let names = Placement::ALL.map(Placement::name).join(" or ");
        format!("expected {names}, found `{text}`")
    })
}

fn parse_rate(text: &str) -> Result<NonZeroU64, String> {
    let bytes = text.strip_suffix("/s").map(parse_bytes);
    let bytes = bytes.and_then(Result::ok);
    bytes.ok_or_else(|| format!("expected a rate such as 12GiB/s or 800MiB/s, found `{text}`"))
}

fn parse_estimates(text: &str) -> Result<Estimates, String> {
    let wrong = text.strip_prefix("wrong=").and_then(thousandths);
    match text {
        "exact" => Ok(Estimates::Exact),
        "none" => Ok(Estimates::None),
        _ => wrong.map(Estimates::Wrong).ok_or_else(|| {
            format!("expected exact, none, or a relative error such as wrong=0.5, found `{text}`")
        }),
    }
}

fn parse_part(text: &str) -> Result<u64, String> {
    let part = thousandths(text).filter(|part| *part <= 1000);
    part.ok_or_else(|| format!("expected a part from 0 to 1 such as 0.05, found `{text}`"))
}

/// Of a number up to 1000.
pub(super) fn thousandths(text: &str) -> Option<u64> {
    let number: f64 = text.parse().ok()?;
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    (is_plain && number <= 1000.0).then(|| (number * 1000.0).round() as u64)
}

/// What is printed of a trace's text.
pub(super) fn run(
    file: &str,
    text: &str,
    (policy, compare): (Option<Policy>, bool),
    options: &Options,
    format: Format,
) -> Result<String, Problem> {
    let workloads = super::workloads(options.workloads.as_deref())?;
    let trace = Trace::parse(text, &workloads).map_err(|p| super::located(file, &p))?;
    let setup = options.setup();
    let policies = match compare {
        true => Policy::ALL.to_vec(),
        false => vec![policy.unwrap_or(setup.policy)],
    };
    let under = |policy| trace.run(&Setup { policy, ..setup });
    let reports: Vec<TraceReport> = policies.into_iter().map(under).collect();
    Ok(match format {
        Format::Json => format!("{:#}\n", json_of(&reports)),
        Format::Table => traces_shown(&reports),
    })
}

#[derive(Args)]
pub(super) struct GenerateArguments {
    /// How many jobs
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    jobs: u64,
    /// Another seed draws another trace
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How much work comes, of what one device can do
    #[arg(long, value_name = "X", default_value = "6.05", value_parser = parse_load)]
    load: u64,
    /// A table of workloads [default: the original's, on a P100]
    #[arg(long, value_name = "FILE")]
    workloads: Option<PathBuf>,
}

fn parse_load(text: &str) -> Result<u64, String> {
    let load = thousandths(text).filter(|load| *load > 0);
    load.ok_or_else(|| format!("expected a load from 0.001 to 1000, found `{text}`"))
}

pub(super) fn generate(arguments: &GenerateArguments) -> Outcome {
    let workloads = super::workloads(arguments.workloads.as_deref())?;
    let generator = Generator {
        jobs: arguments.jobs,
        seed: arguments.seed,
        load: arguments.load,
    };
    let trace = generator
        .trace(&workloads)
        .ok_or_else(|| Problem::new("the table has no training workload with an iteration time"))?;
    output::data(&trace.to_csv());
    Ok(ExitCode::SUCCESS)
}

fn json_of(reports: &[TraceReport]) -> Value {
    let ideals = reports.first().filter(|report| report.devices == 1);
    let ideals = ideals.map(|report| {
        json!({
            "srtf": json_of_ideal(&report.ideal_srtf()),
            "fair": json_of_ideal(&report.ideal_fair()),
        })
    });
    json!({
        "runs": reports.iter().map(json_of_run).collect::<Value>(),
        "ideal": ideals,
    })
}

fn json_of_run(report: &TraceReport) -> Value {
    let (finished, failed, refused) = report.fates();
    json!({
        "policy": report.policy.name(),
        "devices": report.devices,
        "finished": finished,
        "failed": failed,
        "refused": refused,
        "completion_ms": json_of_summary(&report.completion()),
        "to_memory_ms": json_of_summary(&report.to_memory()),
        "to_first_iteration_ms": json_of_summary(&report.to_first_iteration()),
        "makespan_ms": ms(report.makespan),
        "busy_ms": ms(report.busy),
        "busy_share": report.busy_share() as f64 / 1000.0,
        "moved_bytes": report.moved_bytes,
        "switches": report.switches,
        "events": report.events,
        "jobs": report.jobs.iter().map(json_of_job).collect::<Value>(),
    })
}

fn json_of_ideal(ideal: &Ideal) -> Value {
    json!({
        "completion_ms": json_of_summary(&ideal.completion()),
        "to_first_iteration_ms": json_of_summary(&ideal.to_first_iteration()),
        "makespan_ms": ms(ideal.makespan()),
    })
}

fn json_of_summary(summary: &Summary) -> Value {
    json!({
        "mean": ms(summary.mean),
        "p50": ms(summary.p50),
        "p95": ms(summary.p95),
        "p99": ms(summary.p99),
        "max": ms(summary.max),
    })
}

fn json_of_job(job: &TraceJobReport) -> Value {
    let fate = match job.fate {
        Fate::Finished(_) => "finished",
        Fate::Killed(_) => "failed",
        Fate::Refused(..) => "refused",
        Fate::Unfinished => "unfinished",
    };
    let at = |time: Option<Time>| time.map(|at| ms(at - Time(0)));
    json!({
        "job_id": job.name,
        "model": job.model,
        "device": job.device,
        "submitted_at_ms": ms(job.submitted - Time(0)),
        "memory_at_ms": at(job.granted_at),
        "first_iteration_at_ms": at(job.began_at),
        "ended_at_ms": at(job.ended_at()),
        "fate": fate,
        "iterations": job.iterations,
        "service_ms": ms(job.service),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_none_say_what_was_expected() {
        assert_eq!(parse_estimates("wrong=0.5"), Ok(Estimates::Wrong(500)));
        assert_eq!(parse_rate("12GiB/s").map(NonZeroU64::get), Ok(12 << 30));
        for wrong in ["wrong=-1", "wrong=", "maybe", "wrong=nan", "wrong=1e9"] {
            assert!(parse_estimates(wrong).is_err(), "{wrong}");
        }
        for wrong in ["1.5", "-0.1", "all", "", "inf"] {
            assert!(parse_part(wrong).is_err(), "{wrong}");
        }
        assert!(parse_rate("12GiB").is_err() && parse_load("0").is_err());
    }
}
