//! Experiments as JSON; times in milliseconds where nothing else is said, as in the other commands.

use salus_engine::{Duration, Policy};
use serde_json::{Value, json};

use crate::experiments::scale::ScaleStep;
use crate::experiments::study::{STUDIED, Spread, StudiedTrace, StudyReport, Target};

impl StudyReport {
    pub fn json(&self) -> Value {
        let targets = self.targets();
        json!({
            "jobs": self.jobs,
            "policies": STUDIED.map(|policy| json_of_policy(self, policy)),
            "targets": targets.iter().map(json_of_target).collect::<Value>(),
            "traces": self.traces.iter().map(json_of_trace).collect::<Value>(),
        })
    }
}

impl ScaleStep {
    pub fn json(&self) -> Value {
        json!({
            "jobs": self.jobs,
            "devices": self.devices,
            "iterations": self.iterations,
            "events": self.events,
            "seconds": self.took.as_secs_f64(),
            "cpu_seconds": self.worked.as_secs_f64(),
            "ns_per_event": self.ns_per_event(),
        })
    }
}

fn json_of_policy(report: &StudyReport, policy: Policy) -> Value {
    let has_ideal = report
        .traces
        .iter()
        .any(|trace| trace.of(policy).ideal.is_some());
    let ideal = |spread: Spread| has_ideal.then(|| json_of_spread(spread));
    json!({
        "policy": policy.name(),
        "completion_ms": json_of_spread(report.spread(|t| Some(ms(t.of(policy).completion)))),
        "gain": json_of_spread(report.spread(|t| Some(t.gain(policy)))),
        "ideal_gain": ideal(report.spread(|t| t.ideal_gain(policy))),
        "part_of_ideal": ideal(report.spread(|t| t.part_of_ideal(policy))),
    })
}

fn json_of_spread(spread: Spread) -> Value {
    json!({"median": spread.median, "p10": spread.p10, "p90": spread.p90})
}

fn json_of_target(target: &Target) -> Value {
    let bound = match target.at_least {
        true => "at_least",
        false => "at_most",
    };
    json!({
        "what": target.what,
        "found": json_of_spread(target.found),
        bound: target.wanted,
        "met": target.is_met(),
    })
}

fn json_of_trace(trace: &StudiedTrace) -> Value {
    let policies = trace.policies.iter().map(|studied| {
        json!({
            "policy": studied.policy.name(),
            "completion_ms": ms(studied.completion),
            "to_memory_p95_ms": ms(studied.to_memory_p95),
            "to_first_iteration_ms": ms(studied.to_first_iteration),
            "makespan_ms": ms(studied.makespan),
            "ideal_completion_ms": studied.ideal.map(|ideal| ms(ideal.completion)),
            "ideal_to_first_iteration_ms": studied.ideal.map(|i| ms(i.to_first_iteration)),
        })
    });
    json!({"seed": trace.seed, "policies": policies.collect::<Value>()})
}

fn ms(time: Duration) -> f64 {
    time.0 as f64 / 1e6
}
