//! Recordings: what was measured, and what a replay makes of it under one policy or all.

use salus_daemon::config::Problem;
use salus_engine::{Policy, Time};
use salus_sim::recording::{Replay, ReplayedJob, replays_shown};
use salus_sim::{Recording, Summary};
use serde_json::{Value, json};

use super::ms;
use crate::Format;

/// What is printed of a recording's text.
pub(super) fn run(
    file: &str,
    text: &str,
    (policy, compare): (Option<Policy>, bool),
    partial: bool,
    format: Format,
) -> Result<String, Problem> {
    let recording = Recording::parse(text, partial).map_err(|p| super::located(file, &p))?;
    let replays: Vec<Replay> = match compare {
        true => Policy::ALL
            .into_iter()
            .map(|policy| recording.replay(Some(policy)))
            .collect(),
        false => vec![recording.replay(policy)],
    };
    if replays.iter().any(|replay| replay.jobs.is_empty()) {
        let what = format!("{file} has no session that ran an iteration");
        return Err(Problem::new(what));
    }
    Ok(match format {
        Format::Json => format!("{:#}\n", json_of(&recording, &replays)),
        Format::Table => replays_shown(&recording, &replays),
    })
}

fn json_of(recording: &Recording, replays: &[Replay]) -> Value {
    let recorded = replays.first().map(|replay| {
        json!({
            "policy": recording.policy().name(),
            "device": recording.header.device,
            "completion_ms": summary(&replay.recorded()),
            "makespan_ms": ms(replay.recorded_makespan),
            "busy_ms": ms(replay.recorded_busy),
        })
    });
    json!({
        "recorded": recorded,
        "runs": replays.iter().map(run_json).collect::<Value>(),
    })
}

fn run_json(replay: &Replay) -> Value {
    json!({
        "policy": replay.policy.name(),
        "completion_ms": summary(&replay.replayed()),
        "makespan_ms": ms(replay.makespan),
        "busy_ms": ms(replay.busy),
        "moved_bytes": replay.moved_bytes,
        "switches": replay.switches,
        "unfinished": replay.unfinished(),
        "jobs": replay.jobs.iter().map(job).collect::<Value>(),
    })
}

fn job(job: &ReplayedJob) -> Value {
    json!({
        "session": job.session,
        "name": job.name,
        "opened_at_ms": ms(job.opened - Time(0)),
        "iterations": job.iterations,
        "replayed_iterations": job.ran,
        "recorded_completion_ms": ms(job.recorded),
        "completion_ms": job.replayed.map(ms),
    })
}

fn summary(summary: &Summary) -> Value {
    json!({
        "mean": ms(summary.mean),
        "p50": ms(summary.p50),
        "p95": ms(summary.p95),
        "p99": ms(summary.p99),
        "max": ms(summary.max),
    })
}
