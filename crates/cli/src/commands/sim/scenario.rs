//! Scenarios: one run as a picture, or under all policies as a table.

use salus_daemon::config::Problem;
use salus_engine::{Policy, Time};
use salus_sim::{Fate, JobReport, Report, Scenario, compared, shown};
use serde_json::{Value, json};

use super::ms;
use crate::Format;

/// What is printed of a scenario's text.
pub(super) fn run(
    file: &str,
    text: &str,
    (policy, compare): (Option<Policy>, bool),
    format: Format,
) -> Result<String, Problem> {
    let scenario = Scenario::parse(text).map_err(|problem| super::located(file, &problem))?;
    if compare {
        let under = |policy| scenario.under(policy).run();
        let reports: Vec<Report> = Policy::ALL.into_iter().map(under).collect();
        return Ok(match format {
            Format::Json => format!("{:#}\n", reports.iter().map(json_of).collect::<Value>()),
            Format::Table => compared(&reports),
        });
    }
    let report = match policy {
        Some(policy) => scenario.under(policy).run(),
        None => scenario.run(),
    };
    Ok(match format {
        Format::Json => format!("{:#}\n", json_of(&report)),
        Format::Table => shown(&report),
    })
}

/// All numbers of a run; times in milliseconds, as in the other commands.
fn json_of(report: &Report) -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_as_json_has_the_numbers_of_the_table() {
        let scenario = Scenario::parse("a: 2 x 10ms\nb: from 5ms, 1 x 10ms, deadline 20ms\n");
        let report = json_of(&scenario.expect("it is a scenario").run());
        assert_eq!(report["policy"], "fair");
        assert_eq!(report["makespan_ms"], 30.0);
        assert_eq!(report["jobs"][0]["fate"], "finished");
        assert_eq!(report["jobs"][0]["waiting_ms"]["memory"], 0.0);
        assert_eq!(report["jobs"][1]["late"], 1);
    }
}
