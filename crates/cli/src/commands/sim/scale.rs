//! `salus sim scale`: what a simulation costs with more and more jobs.

use std::process::ExitCode;

use clap::Args;
use salus_daemon::config::Problem;
use salus_engine::Policy;
use salus_sim::{Scale, ScaleStep, Workloads};
use serde_json::Value;

use super::progress::Progress;
use crate::arguments::parse_policy;
use crate::{Format, Outcome, output};

#[derive(Args)]
pub(super) struct ScaleArguments {
    /// Jobs of the largest trace
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    jobs: u64,
    /// Devices of the largest trace
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    devices: u32,
    /// Under which policy
    #[arg(long, value_name = "NAME", default_value = "fair", value_parser = parse_policy)]
    policy: Policy,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn scale(arguments: &ScaleArguments) -> Outcome {
    let scale = Scale {
        jobs: arguments.jobs,
        devices: arguments.devices,
        policy: arguments.policy,
        ..Scale::default()
    };
    let progress = Progress::new();
    let clocks = salus_bench::clocks();
    let steps = scale.run(&Workloads::p100(), &clocks, &|step, of| {
        progress.begin("step", step as u64, of as u64);
    });
    progress.end();
    let steps = steps.ok_or_else(|| Problem::new("the built-in table has no workloads"))?;
    output::data(&match arguments.output {
        Format::Json => format!(
            "{:#}\n",
            steps.iter().map(ScaleStep::json).collect::<Value>()
        ),
        Format::Table => shown(&steps),
    });
    Ok(ExitCode::SUCCESS)
}

fn shown(steps: &[ScaleStep]) -> String {
    let mut out = format!(
        "{:>7}  {:>7}  {:>11}  {:>11}  {:>8}  {:>11}  {:>12}\n",
        "JOBS", "DEVICES", "ITERATIONS", "EVENTS", "SECONDS", "CPU SECONDS", "NS PER EVENT"
    );
    for step in steps {
        out.push_str(&format!(
            "{:>7}  {:>7}  {:>11}  {:>11}  {:>8.2}  {:>11.2}  {:>12.0}\n",
            step.jobs,
            step.devices,
            step.iterations,
            step.events,
            step.took.as_secs_f64(),
            step.worked.as_secs_f64(),
            step.ns_per_event(),
        ));
    }
    out
}
