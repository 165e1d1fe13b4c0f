//! The simulator's experiments as parts of the report: `salus sim study` and `salus sim scale`.
//!
//! Nothing of this machine takes part in the first; the second times the simulator itself.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use salus_console::output;
use salus_daemon::config::Problem;
use salus_engine::Policy;
use salus_sim::{Clocks, STUDIED, Scale, ScaleStep, Spread, Study, StudyReport, Target, Workloads};
use serde_json::Value;

use crate::report::experiment::{
    Claim, Experiment, Judgement, Plot, PlotKind, Point, Series, Table,
};

/// What the original has for the study's targets, in their order.
const ORIGINAL: [&str; 4] = [
    "3.19 x over FIFO on its own trace",
    "1.77 x over FIFO on its own trace",
    "28.6 min on average",
    "",
];
const SCALE_TARGET_SECONDS: f64 = 60.0;

pub(crate) fn study(seeds: u64) -> Result<Experiment, Problem> {
    let study = Study {
        seeds,
        ..Study::default()
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let said = |done: u64, of: u64| {
        if done * 10 / of > (done - 1) * 10 / of {
            output::say(&format!("study: run {done} of {of}"));
        }
    };
    let report = study.run(&Workloads::p100(), threads, &said);
    Ok(study_found(&report.ok_or_else(no_workloads)?))
}

pub(crate) fn scale(jobs: u64, devices: u32) -> Result<Experiment, Problem> {
    let scale = Scale {
        jobs,
        devices,
        ..Scale::default()
    };
    let steps = scale.run(&Workloads::p100(), &clocks(), &|step, of| {
        output::say(&format!("scale: step {} of {of}", step + 1));
    });
    Ok(scale_found(&steps.ok_or_else(no_workloads)?))
}

/// Wall-clock time, and for how long the processor has worked for the thread that asks.
pub fn clocks() -> impl Fn() -> Clocks {
    let began = Instant::now();
    move || Clocks {
        wall: began.elapsed(),
        work: worked().unwrap_or_else(|| began.elapsed()),
    }
}

fn worked() -> Option<Duration> {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let ns = statistics.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(ns))
}

fn no_workloads() -> Problem {
    Problem::new("the built-in table has no workloads")
}

fn study_found(report: &StudyReport) -> Experiment {
    let gain = |policy| report.spread(|trace| Some(trace.gain(policy)));
    let ideal = |policy| report.spread(|trace| trace.ideal_gain(policy));
    let beside = |policy: Policy| {
        format!(
            "over FIFO it gains {}, the ideal {}",
            shown(gain(policy), 2),
            shown(ideal(policy), 2)
        )
    };
    let reasons = [
        beside(Policy::Srtf),
        beside(Policy::Fair),
        String::new(),
        "aging gives every job a first iteration early, so it says little of later ones".into(),
    ];
    let targets = report.targets().into_iter().zip(ORIGINAL).zip(reasons);
    let claims = targets.map(|((target, original), reason)| {
        study_claim(&target, original, reason, report.traces.len())
    });
    Experiment {
        name: "study".into(),
        title: "The original's trace, simulated".into(),
        command: "salus sim study".into(),
        what: format!(
            "{} generated traces of {} jobs with the statistics of the original's, under the production \
             engine in virtual time on one device like its P100. FIFO is one job at a time. The ideal of \
             `srtf` is the shortest remaining job first with memory for all, that of `fair` processor \
             sharing.",
            report.traces.len(),
            report.jobs,
        ),
        claims: claims.collect(),
        tables: vec![study_table(report)],
        plots: vec![study_plot(report)],
        numbers: report.json(),
    }
}

fn study_claim(target: &Target, original: &str, reason: String, rounds: usize) -> Claim {
    let bound = match target.at_least {
        true => "at least",
        false => "at most",
    };
    let Spread { median, p10, p90 } = target.found;
    Claim {
        what: target.what.into(),
        original: original.into(),
        target: format!("{bound} {}", target.wanted),
        measured: format!("{median:.3}"),
        spread: format!("{p10:.3} to {p90:.3} in eight of ten traces"),
        rounds,
        verdict: Judgement::of(target.is_met()),
        reason,
    }
}

fn study_table(report: &StudyReport) -> Table {
    let row = |policy: Policy| {
        let minutes =
            |trace: &salus_sim::StudiedTrace| Some(trace.of(policy).completion.0 as f64 / 60e9);
        let ideal = |text: String| match policy {
            Policy::Exclusive => String::new(),
            _ => text,
        };
        vec![
            policy_name(policy).to_owned(),
            shown(report.spread(minutes), 1),
            shown(report.spread(|trace| Some(trace.gain(policy))), 2),
            ideal(shown(report.spread(|trace| trace.ideal_gain(policy)), 2)),
            ideal(shown(report.spread(|trace| trace.part_of_ideal(policy)), 3)),
        ]
    };
    let columns = [
        "policy",
        "average completion, min",
        "gain over FIFO",
        "the ideal's gain",
        "part of it reached",
    ];
    Table {
        title: "median over the traces, and where eight of ten are".into(),
        columns: columns.map(String::from).to_vec(),
        rows: STUDIED.map(row).to_vec(),
    }
}

fn study_plot(report: &StudyReport) -> Plot {
    let policies = &STUDIED[1..];
    let series = |name: &str, number: &dyn Fn(Policy) -> Spread| {
        let points = policies.iter().enumerate().map(|(n, policy)| {
            let Spread { median, p10, p90 } = number(*policy);
            Point {
                x: n as f64,
                y: median,
                spread: Some((p10, p90)),
            }
        });
        Series {
            name: name.into(),
            points: points.collect(),
        }
    };
    Plot {
        name: "study".into(),
        title: "Average completion time against FIFO, simulated P100".into(),
        kind: PlotKind::Bars,
        x: String::new(),
        y: "gain over FIFO".into(),
        log_x: false,
        log_y: false,
        groups: policies.iter().map(|p| policy_name(*p).into()).collect(),
        series: vec![
            series("Salus", &|policy| {
                report.spread(|trace| Some(trace.gain(policy)))
            }),
            series("ideal", &|policy| {
                report.spread(|trace| trace.ideal_gain(policy))
            }),
        ],
    }
}

fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Exclusive => "FIFO",
        _ => policy.name(),
    }
}

fn shown(spread: Spread, places: usize) -> String {
    let Spread { median, p10, p90 } = spread;
    format!("{median:.places$} ({p10:.places$} to {p90:.places$})")
}

fn scale_found(steps: &[ScaleStep]) -> Experiment {
    let claim = steps.last().map(|last| {
        let seconds = last.took.as_secs_f64();
        Claim {
            what: format!("{} jobs on {} simulated devices", last.jobs, last.devices),
            original: String::new(),
            target: format!("under {SCALE_TARGET_SECONDS:.0} s"),
            measured: format!("{seconds:.1} s"),
            spread: String::new(),
            rounds: 1,
            verdict: Judgement::of(seconds < SCALE_TARGET_SECONDS),
            reason: format!("{} events on one thread", last.events),
        }
    });
    let row = |step: &ScaleStep| {
        vec![
            format!("{} on {}", step.jobs, step.devices),
            step.iterations.to_string(),
            step.events.to_string(),
            format!("{:.2} s", step.took.as_secs_f64()),
            format!("{:.0} ns", step.ns_per_event()),
        ]
    };
    let columns = [
        "jobs on devices",
        "iterations",
        "events",
        "time",
        "per event",
    ];
    Experiment {
        name: "scale".into(),
        title: "What a simulation costs".into(),
        command: "salus sim scale".into(),
        what: "Generated traces under `fair` with more and more jobs, on as many more devices, each device \
               as loaded as in the others."
            .into(),
        claims: claim.into_iter().collect(),
        tables: vec![Table {
            title: "one run of each size".into(),
            columns: columns.map(String::from).to_vec(),
            rows: steps.iter().map(row).collect(),
        }],
        plots: vec![scale_plot(steps)],
        numbers: steps.iter().map(ScaleStep::json).collect::<Value>(),
    }
}

fn scale_plot(steps: &[ScaleStep]) -> Plot {
    let points = steps
        .iter()
        .map(|step| (step.jobs as f64, step.took.as_secs_f64()));
    Plot {
        name: "scale".into(),
        title: "Time of a simulation over its jobs".into(),
        kind: PlotKind::Lines,
        x: "jobs".into(),
        y: "seconds".into(),
        log_x: true,
        log_y: true,
        groups: Vec::new(),
        series: vec![Series::new("one thread", points)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_study_is_held_against_its_targets() {
        let study = Study {
            seeds: 2,
            jobs: 3,
            ..Study::default()
        };
        let report = study
            .run(&Workloads::p100(), 1, &|_, _| {})
            .expect("it runs");
        let found = study_found(&report);
        assert_eq!(found.claims.len(), ORIGINAL.len());
        for (claim, target) in found.claims.iter().zip(report.targets()) {
            assert_eq!(claim.what, target.what);
            assert_eq!(claim.verdict, Judgement::of(target.is_met()));
        }
        assert_eq!(found.tables[0].rows.len(), STUDIED.len());
        assert_eq!(found.plots[0].groups, ["srtf", "fair", "pack", "las"]);
    }

    #[test]
    fn a_simulation_that_takes_too_long_is_shown_as_missed() {
        let step = |seconds| ScaleStep {
            jobs: 10,
            devices: 1,
            iterations: 100,
            events: 400,
            took: Duration::from_secs(seconds),
            worked: Duration::from_secs(seconds),
        };
        let of = |seconds| scale_found(&[step(1), step(seconds)]).claims.remove(0);
        assert_eq!(of(61).verdict, Judgement::Missed);
        assert_eq!(of(59).verdict, Judgement::Met);
        assert_eq!(of(59).measured, "59.0 s");
    }
}
