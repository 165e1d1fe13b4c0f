//! `salus sim study`: how near policies come to their ideals on generated traces.

use std::process::ExitCode;

use clap::Args;
use salus_daemon::config::Problem;
use salus_engine::Policy;
use salus_sim::{STUDIED, Spread, StudiedTrace, Study, StudyReport, Target, Workloads};

use super::progress::Progress;
use super::{ms, threads};
use crate::{Format, Outcome, output};

#[derive(Args)]
pub(super) struct StudyArguments {
    /// How many traces
    #[arg(long, value_name = "N", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Jobs of each trace
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(2..=10_000))]
    jobs: u64,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn study(arguments: &StudyArguments) -> Outcome {
    let study = Study {
        seeds: arguments.seeds,
        jobs: arguments.jobs,
        ..Study::default()
    };
    let progress = Progress::new();
    let report = study.run(&Workloads::p100(), threads(), &|done, of| {
        progress.show("run", done, of);
    });
    progress.end();
    let report = report.ok_or_else(|| Problem::new("the built-in table has no workloads"))?;
    output::data(&match arguments.output {
        Format::Json => format!("{:#}\n", report.json()),
        Format::Table => shown(&report),
    });
    Ok(ExitCode::SUCCESS)
}

/// A row for each policy, each number as its median and what eight of ten traces are within.
fn shown(report: &StudyReport) -> String {
    let minutes = |trace: &StudiedTrace, policy| ms(trace.of(policy).completion) / 60_000.0;
    let mut out = format!(
        "{} generated traces of {} jobs: median (p10 to p90)\n\n{:10} {:>26} {:>22} {:>22} {:>22}\n",
        report.traces.len(),
        report.jobs,
        "POLICY",
        "AVERAGE COMPLETION, MIN",
        "GAIN OVER FIFO",
        "THE IDEAL'S GAIN",
        "PART OF IT REACHED",
    );
    for policy in STUDIED {
        let name = match policy {
            Policy::Exclusive => "FIFO",
            _ => policy.name(),
        };
        let completion = spread(report.spread(|trace| Some(minutes(trace, policy))), 1);
        let gain = spread(report.spread(|trace| Some(trace.gain(policy))), 2);
        let has_ideal = |text: String| match policy {
            Policy::Exclusive => "-".into(),
            _ => text,
        };
        let ideal = spread(report.spread(|trace| trace.ideal_gain(policy)), 2);
        let part = spread(report.spread(|trace| trace.part_of_ideal(policy)), 3);
        let (ideal, part) = (has_ideal(ideal), has_ideal(part));
        out.push_str(&format!(
            "{name:10} {completion:>26} {gain:>22} {ideal:>22} {part:>22}\n"
        ));
    }
    out.push_str(
        "\nFIFO is one job at a time. Ideals: of srtf and las the shortest remaining time first, ",
    );
    out.push_str("of fair and pack processor sharing.\n\n");
    for target in report.targets() {
        out.push_str(&shown_target(&target));
    }
    out
}

fn shown_target(target: &Target) -> String {
    let verdict = match target.is_met() {
        true => "met",
        false => "missed",
    };
    let bound = match target.at_least {
        true => "at least",
        false => "at most",
    };
    let found = spread(target.found, 3);
    let (what, wanted) = (target.what, target.wanted);
    format!("{verdict:6}  {what}: {found}; wanted {bound} {wanted}\n")
}

fn spread(spread: Spread, places: usize) -> String {
    let Spread { median, p10, p90 } = spread;
    format!("{median:.places$} ({p10:.places$} to {p90:.places$})")
}
