//! `salus sim`: what would happen to some jobs under a policy, in no time and without a device.
//!
//! Not here: scenarios and runs (`salus-sim`), and any service.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use salus_daemon::config::Problem;
use salus_engine::{Duration, Policy, Time};
use salus_sim::{Fate, JobReport, Report, Scenario, compared, shown};
use serde_json::{Value, json};

use crate::arguments::parse_policy;
use crate::{Format, Outcome, output};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The scenario: a text that says what runs on what (docs/simulation.md)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Run it under this policy instead of its own
    #[arg(long, value_name = "NAME", value_parser = parse_policy)]
    policy: Option<Policy>,
    /// Run it under every policy, and print a line for each
    #[arg(long, conflicts_with = "policy")]
    compare: bool,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// A scenario is a page; anything larger is another file.
const FILE_BYTES: u64 = 1 << 20;

pub(crate) fn sim(arguments: &Arguments) -> Outcome {
    let scenario = read(&arguments.file)?;
    let text = if arguments.compare {
        let under = |policy| scenario.under(policy).run();
        let reports: Vec<Report> = Policy::ALL.into_iter().map(under).collect();
        match arguments.output {
            Format::Json => format!("{:#}\n", reports.iter().map(run).collect::<Value>()),
            Format::Table => compared(&reports),
        }
    } else {
        let scenario = match arguments.policy {
            Some(policy) => scenario.under(policy),
            None => scenario,
        };
        let report = scenario.run();
        match arguments.output {
            Format::Json => format!("{:#}\n", run(&report)),
            Format::Table => shown(&report),
        }
    };
    output::data(&text);
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Scenario, Problem> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let file = File::open(path);
    let read = file.and_then(|file| file.take(FILE_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|e| Problem::new(format!("the scenario {shown} cannot be read: {e}")))?;
    if bytes.len() as u64 > FILE_BYTES {
        let what = format!("{shown} has more than {FILE_BYTES} bytes: that is no scenario");
        return Err(Problem::new(what));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Problem::new(format!("{shown} is not a text, so it is no scenario")))?;
    Scenario::parse(&text).map_err(|problem| {
        let at = Problem::new(format!("{shown}, {problem}"));
        match problem.hint {
            Some(hint) => at.hint(hint),
            None => at,
        }
    })
}

/// All numbers of a run; times in milliseconds, as in the other commands.
fn run(report: &Report) -> Value {
    json!({
        "policy": report.policy.name(),
        "lanes": report.lanes,
        "width": report.width,
        "ended_at_ms": ms(report.ended_at - Time(0)),
        "average_completion_ms": report.average_completion.map(ms),
        "makespan_ms": report.makespan.map(ms),
        "longest_wait_ms": ms(report.longest_wait),
        "busy_ms": ms(report.busy),
        "moved_bytes": report.moved_bytes,
        "switches": report.switches,
        "late": report.late,
        "notes": report.notes,
        "column_ms": ms(report.step),
        "jobs": report.jobs.iter().map(job).collect::<Value>(),
    })
}

fn job(job: &JobReport) -> Value {
    let (fate, at) = match job.fate {
        Fate::Finished(at) => ("finished", Some(at)),
        Fate::Killed(at) => ("killed", Some(at)),
        Fate::Refused(at, _) => ("refused", Some(at)),
        Fate::Unfinished => ("unfinished", None),
    };
    json!({
        "name": job.name,
        "picture": job.picture,
        "came_at_ms": ms(job.came_at - Time(0)),
        "fate": fate,
        "ended_at_ms": at.map(|at| ms(at - Time(0))),
        "iterations": job.iterations,
        "device_time_ms": ms(job.device_time),
        "waiting_ms": {
            "turn": ms(job.waited.turn),
            "memory": ms(job.waited.memory),
            "moving": ms(job.waited.moves),
            "paused": ms(job.waited.paused),
        },
        "longest_wait_ms": ms(job.longest_wait),
        "share": job.share as f64 / 1000.0,
        "worst_latency_ms": job.latency.map(|latency| ms(latency.worst)),
        "late": job.latency.and_then(|latency| latency.late),
    })
}

fn ms(time: Duration) -> f64 {
    time.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_as_json_has_the_numbers_of_the_table() {
        let scenario = Scenario::parse("a: 2 x 10ms\nb: from 5ms, 1 x 10ms, deadline 20ms\n");
        let report = run(&scenario.expect("it is a scenario").run());
        assert_eq!(report["policy"], "fair");
        assert_eq!(report["makespan_ms"], 30.0);
        assert_eq!(report["jobs"][0]["fate"], "finished");
        assert_eq!(report["jobs"][0]["waiting_ms"]["memory"], 0.0);
        assert_eq!(report["jobs"][1]["late"], 1);
    }

    #[test]
    fn a_typing_error_is_named_with_its_file_and_place() {
        let file = std::env::temp_dir().join(format!("salus-sim-{}.txt", std::process::id()));
        std::fs::write(&file, "policy fiar\na: 5 x 10ms\n").expect("it can be written");
        let problem = read(&file).map(drop).expect_err("there is no such policy");
        std::fs::remove_file(&file).expect("it is there");
        let at = format!(
            "{}, line 1, column 8: `fiar` is not a policy",
            file.display()
        );
        assert_eq!(problem.what, at);
        let hint = problem.hint.expect("the policies are listed");
        assert!(hint.starts_with("did you mean `fair`?"), "{hint}");
    }
}
