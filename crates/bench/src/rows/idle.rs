//! What a service costs while nobody works: its CPU, and its memory for a session.

use std::time::{Duration, Instant};

use salus_daemon::config::Problem;
use serde_json::json;

use crate::contenders::service::PrivateService;
use crate::contenders::sessions::Session;
use crate::measure::statistics::{Interval, Verdict};
use crate::report::Finding;
use crate::rows::row_table::Row;
use crate::rows::run::Run;

const IDLE_SESSIONS: usize = 10;
const IDLE_TIME: Duration = Duration::from_secs(10);
const IDLE_TARGET_MS: f64 = 10.0;

/// The first sessions make what all share, so they are not counted.
const FEW: usize = 5;
const MANY: usize = 25;
const MEMORY_TARGET_MB: f64 = 2.0;

/// After the last message: timers that run once, and threads that go to sleep.
const SETTLE: Duration = Duration::from_secs(1);

pub(crate) fn cpu(run: &mut Run<'_>, row: &'static Row) -> Result<Vec<Finding>, Problem> {
    let daemon = PrivateService::start(run.setup)?;
    let sessions = open(&daemon, IDLE_SESSIONS)?;
    std::thread::sleep(SETTLE);
    let (before, begin) = (daemon.cpu_ns(), Instant::now());
    std::thread::sleep(IDLE_TIME);
    let after = daemon.cpu_ns();
    // It started, so it used some; a kernel without these counters would look like a perfect rest.
    if before == 0 || after < before {
        return Err(Problem::new(format!(
            "the CPU time of the service went from {before} to {after} ns"
        ))
        .hint("this row needs a kernel with /proc/PID/task/*/schedstat"));
    }
    let used_ms = (after - before) as f64 / 1e6;
    let processes = daemon.processes().len();
    let elapsed = begin.elapsed().as_secs_f64();
    drop(sessions);
    Ok(vec![Finding {
        measured: format!("{used_ms:.2} ms"),
        target: format!("< {IDLE_TARGET_MS} ms"),
        verdict: Verdict::at_most(Interval::exact(used_ms), IDLE_TARGET_MS),
        detail: format!("all threads of {processes} processes over {elapsed:.2} s"),
        numbers: json!({
            "unit": "ms",
            "target": IDLE_TARGET_MS,
            "measured": Interval::exact(used_ms).json(),
            "seconds": elapsed,
            "sessions": IDLE_SESSIONS,
            "processes": processes,
        }),
        ..Finding::of(row)
    }])
}

pub(crate) fn memory(run: &mut Run<'_>, row: &'static Row) -> Result<Vec<Finding>, Problem> {
    let daemon = PrivateService::start(run.setup)?;
    let mut sessions = open(&daemon, FEW)?;
    std::thread::sleep(SETTLE);
    let few = daemon.memory();
    sessions.extend(open(&daemon, MANY - FEW)?);
    std::thread::sleep(SETTLE);
    let many = daemon.memory();
    drop(sessions);
    let per_session =
        |before: u64, after: u64| (after as f64 - before as f64) / (MANY - FEW) as f64 / 1e6;
    let proportional = per_session(few.proportional, many.proportional);
    let anonymous = per_session(few.anonymous, many.anonymous);
    Ok(vec![Finding {
        measured: format!("{proportional:.3} MB"),
        target: format!("< {MEMORY_TARGET_MB} MB"),
        verdict: Verdict::at_most(Interval::exact(proportional), MEMORY_TARGET_MB),
        detail: format!(
            "growth from {FEW} to {MANY} sessions over {}; {anonymous:.3} MB of it anonymous",
            MANY - FEW
        ),
        numbers: json!({
            "unit": "MB",
            "target": MEMORY_TARGET_MB,
            "measured": Interval::exact(proportional).json(),
            "anonymous_mb": anonymous,
            "few": { "sessions": FEW, "memory": few.json() },
            "many": { "sessions": MANY, "memory": many.json() },
        }),
        ..Finding::of(row)
    }])
}

fn open(daemon: &PrivateService, count: usize) -> Result<Vec<Session>, Problem> {
    (0..count).map(|_| Session::open(daemon.socket())).collect()
}
