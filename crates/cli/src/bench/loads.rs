//! A program that another session has loaded: how long a job waits for it, and what it takes of the
//! device host's memory.
//!
//! Jobs come one after the other and stay. Each connects and lowers the step of a model first, which
//! needs nothing of the service, and then asks for the program; what it has in arrays or by being a
//! session is no part of either number. The first one has it compiled and loaded, for comparison.

use salus_daemon::config::Problem;
use serde_json::{Value, json};

use super::daemon::Memory;
use super::jobs::{Jobs, PREPARE_TIME, RUN_TIME};
use super::machine::Load;
use super::overhead::Run;
use super::report::{Finding, microseconds};
use super::rows::Row;
use super::stats::{Interval, Spread, Verdict};

const TIME_TARGET_MS: f64 = 5.0;
/// None, that is: below what a heap grows by when something small is kept.
const MEMORY_TARGET_MB: f64 = 0.1;

/// Of a worker's answer: inside JAX's call to the backend, and all of `lowered.compile()`.
const BACKEND: &str = "backend_us";
const CALL: &str = "call_us";

pub(super) fn measure(run: &mut Run<'_>, row: &'static Row) -> Result<Vec<Finding>, Problem> {
    let count = run.pace.rounds(row);
    let began = Load::now();
    let mut jobs = Jobs::start(run.setup, &[])?;
    let mut loads = Vec::new();
    for done in 0..=count {
        run.progress.rounds(done, count);
        loads.push(Loaded::by_one_more(run, &mut jobs, row.name)?);
    }
    let programs = jobs.report()?["programs"].clone();
    let foreign = Load::now().since(began);
    let first = loads.remove(0);
    let times: Vec<f64> = loads.iter().map(|load| load.backend_us / 1e3).collect();
    let calls: Vec<f64> = loads.iter().map(|load| load.call_us).collect();
    let (time, call) = (Spread::of(&times), Spread::of(&calls));
    let grown: f64 = loads.iter().map(Loaded::grown_mb).sum::<f64>() / count as f64;
    let all: Vec<Value> = loads.iter().map(Loaded::json).collect();
    Ok(vec![
        Finding {
            measured: milliseconds(time.interval),
            target: format!("< {TIME_TARGET_MS} ms"),
            verdict: Verdict::at_most(time.interval, TIME_TARGET_MS)
                .unless_busy(foreign.disturbs()),
            detail: format!(
                "{count} jobs after the first, which waited {} for its compilation; {:.1} to {:.1} \
                 ms, all of `lowered.compile()` {}; {:.2} foreign cores",
                microseconds(first.backend_us),
                times.iter().copied().fold(f64::INFINITY, f64::min),
                times.iter().copied().fold(0.0, f64::max),
                microseconds(call.median),
                foreign.cores,
            ),
            numbers: json!({
                "unit": "ms",
                "target": TIME_TARGET_MS,
                "measured": time.interval.json(),
                "call_us": call.json(),
                "first": first.json(),
                "loads": all,
                "programs": programs,
                "foreign_cores": foreign.cores,
            }),
            ..Finding::of(row)
        },
        Finding {
            row: format!("{}_memory", row.name),
            what: "memory of the device host for one such load".into(),
            measured: format!("{grown:.3} MB"),
            target: format!("< {MEMORY_TARGET_MB} MB"),
            verdict: Verdict::at_most(Interval::exact(grown), MEMORY_TARGET_MB),
            detail: format!(
                "anonymous, over {count} loads; the first took {:.1} MB",
                first.grown_mb()
            ),
            numbers: json!({
                "unit": "MB",
                "target": MEMORY_TARGET_MB,
                "measured": Interval::exact(grown).json(),
                "first_mb": first.grown_mb(),
            }),
            ..Finding::of(row)
        },
    ])
}

struct Loaded {
    backend_us: f64,
    call_us: f64,
    before: Memory,
    after: Memory,
}

impl Loaded {
    fn by_one_more(run: &Run<'_>, jobs: &mut Jobs, row: &str) -> Result<Self, Problem> {
        let job = jobs.add(run.setup, &[])?;
        job.ask(&json!({ "do": "prepare", "row": row }), PREPARE_TIME)?;
        let before = jobs.device_host_memory()?;
        let command = json!({ "do": "block", "row": row, "seconds": 0 });
        let job = jobs.all.last_mut().expect("added above");
        let said = job.ask(&command, RUN_TIME)?;
        let after = jobs.device_host_memory()?;
        let number = |key: &str| {
            let found = said[key].as_f64();
            found.ok_or_else(|| Problem::new(format!("a load gave no number `{key}` but {said}")))
        };
        Ok(Self {
            backend_us: number(BACKEND)?,
            call_us: number(CALL)?,
            before,
            after,
        })
    }

    fn grown_mb(&self) -> f64 {
        (self.after.anonymous as f64 - self.before.anonymous as f64) / 1e6
    }

    fn json(&self) -> Value {
        json!({
            BACKEND: self.backend_us,
            CALL: self.call_us,
            "before": self.before.json(),
            "after": self.after.json(),
        })
    }
}

fn milliseconds(interval: Interval) -> String {
    let Interval { value, low, high } = interval;
    if low.is_finite() && high.is_finite() {
        format!("{value:.2} [{low:.2}, {high:.2}] ms")
    } else {
        format!("{value:.2} ms")
    }
}
