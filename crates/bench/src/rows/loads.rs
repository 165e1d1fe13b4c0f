//! A program that another session has loaded: how long it takes to have it too, and what it takes of
//! the device host's memory.
//!
//! A job has the step of a model compiled and loaded, and stays. Then sessions come that ask for the
//! very same program, as the library in a job does (what a job's own JAX needs around that is many
//! times as much, and told beside it). Sessions stay, too; what one takes by itself is there before
//! it asks.

use salus_daemon::config::Problem;
use salus_wire::Token;
use serde_json::{Value, json};

use crate::contenders::jobs::{Jobs, PREPARE_TIME, RUN_TIME};
use crate::contenders::service::Memory;
use crate::contenders::sessions::Session;
use crate::measure::machine::Load;
use crate::measure::statistics::{Interval, Spread, Verdict};
use crate::report::{Finding, microseconds, number};
use crate::rows::row_table::Row;
use crate::rows::run::Run;

const TIME_TARGET_MS: f64 = 5.0;
/// None, that is: below what a heap grows by when something small is kept.
const MEMORY_TARGET_MB: f64 = 0.1;

pub(crate) fn measure(run: &mut Run<'_>, row: &'static Row) -> Result<Vec<Finding>, Problem> {
    let count = run.pace.rounds(row);
    let mut jobs = Jobs::start(run.setup, &[])?;
    let first = Asked::by_a_job(run, &mut jobs, row.name)?;
    let began = Load::now();
    let mut sessions = Vec::new();
    let mut loads = Vec::new();
    for done in 0..count {
        run.progress.rounds(done, count);
        let mut session = jobs.session()?;
        loads.push(Loaded::by(&mut session, &jobs, &first.program)?);
        sessions.push(session);
    }
    let foreign = Load::now().since(began);
    let again = Asked::by_a_job(run, &mut jobs, row.name)?;
    let cache = jobs.report()?["device"]["cache"].clone();
    drop(sessions);

    let times: Vec<f64> = loads.iter().map(|load| load.ms).collect();
    let time = Spread::of(&times);
    let grown = loads.iter().map(Loaded::grown_mb).sum::<f64>() / count as f64;
    let all: Vec<Value> = loads.iter().map(Loaded::json).collect();
    Ok(vec![
        Finding {
            measured: milliseconds(time.interval),
            target: format!("< {TIME_TARGET_MS} ms"),
            verdict: Verdict::at_most(time.interval, TIME_TARGET_MS)
                .unless_busy(foreign.disturbs()),
            detail: format!(
                "{count} sessions, {:.2} to {:.2} ms, {} kB of source; JAX's call to the backend \
                 around it {}, and {} where it was compiled; {:.2} foreign cores",
                times.iter().copied().fold(f64::INFINITY, f64::min),
                times.iter().copied().fold(0.0, f64::max),
                first.program.code.len() / 1000,
                microseconds(again.backend_us),
                microseconds(first.backend_us),
                foreign.cores,
            ),
            numbers: json!({
                "unit": "ms",
                "target": TIME_TARGET_MS,
                "measured": time.interval.json(),
                "compiled": first.json(),
                "found_loaded": again.json(),
                "loads": all,
                "cache": cache,
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
                "anonymous, over {count} loads; that of the first job took {:.1} MB",
                first.memory.grown_mb()
            ),
            numbers: json!({
                "unit": "MB",
                "target": MEMORY_TARGET_MB,
                "measured": Interval::exact(grown).json(),
                "first_mb": first.memory.grown_mb(),
            }),
            ..Finding::of(row)
        },
    ])
}

/// The device host's memory around something.
struct Around {
    before: Memory,
    after: Memory,
}

impl Around {
    fn grown_mb(&self) -> f64 {
        (self.after.anonymous as f64 - self.before.anonymous as f64) / 1e6
    }

    fn json(&self) -> Value {
        json!({ "before": self.before.json(), "after": self.after.json() })
    }
}

/// What JAX says of a program that it asked for.
struct Asked {
    backend_us: f64,
    call_us: f64,
    program: Token,
    memory: Around,
}

impl Asked {
    fn by_a_job(run: &Run<'_>, jobs: &mut Jobs, row: &str) -> Result<Self, Problem> {
        let job = jobs.add(run.setup, &[])?;
        job.ask(&json!({ "do": "prepare", "row": row }), PREPARE_TIME)?;
        let before = jobs.device_host_memory()?;
        let command = json!({ "do": "block", "row": row, "seconds": 0 });
        let job = jobs.all.last_mut().expect("added above");
        let said = job.ask(&command, RUN_TIME)?;
        let after = jobs.device_host_memory()?;
        let number = |key: &str| number(&said[key]);
        let token = said["token"].as_str().and_then(from_hex);
        let program = token.and_then(|token| Token::decode(&token).ok());
        Ok(Self {
            backend_us: number("backend_us"),
            call_us: number("call_us"),
            program: program.ok_or_else(|| Problem::new("a job gave no token of its program"))?,
            memory: Around { before, after },
        })
    }

    fn json(&self) -> Value {
        json!({
            "backend_us": self.backend_us,
            "call_us": self.call_us,
            "code_bytes": self.program.code.len(),
            "memory": self.memory.json(),
        })
    }
}

struct Loaded {
    ms: f64,
    memory: Around,
}

impl Loaded {
    fn by(session: &mut Session, jobs: &Jobs, program: &Token) -> Result<Self, Problem> {
        let before = jobs.device_host_memory()?;
        let took = session.load(program)?;
        let after = jobs.device_host_memory()?;
        Ok(Self {
            ms: took.as_secs_f64() * 1e3,
            memory: Around { before, after },
        })
    }

    fn grown_mb(&self) -> f64 {
        self.memory.grown_mb()
    }

    fn json(&self) -> Value {
        json!({ "ms": self.ms, "memory": self.memory.json() })
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

fn milliseconds(interval: Interval) -> String {
    let Interval { value, low, high } = interval;
    if low.is_finite() && high.is_finite() {
        format!("{value:.2} [{low:.2}, {high:.2}] ms")
    } else {
        format!("{value:.2} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_from_their_digits() {
        assert_eq!(from_hex("00ff7a"), Some(vec![0, 255, 122]));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("zz"), None);
    }
}
