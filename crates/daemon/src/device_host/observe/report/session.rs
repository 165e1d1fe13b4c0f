//! One session in `salus ps`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use salus_device::Device;
use salus_engine::{Account, Engine, State, Time};
use serde_json::{Map, Value, json};

use super::milliseconds;
use super::why::why;
use crate::device_host::memory::arrays::PagingTotals;
use crate::device_host::observe::overdue::Overdue;
use crate::device_host::session::SharedSession;

pub(super) fn json<D: Device>(
    session: &SharedSession<D>,
    account: &Account,
    engine: &Engine,
    now: Time,
    late: &[Overdue],
) -> Value {
    let own = late.iter().find(|one| one.session == session.id);
    let holding = engine.ledger().holding(session.id);
    let holding = holding.copied().unwrap_or_default();
    let settings = engine.settings(session.id).copied().unwrap_or_default();
    json!({
        "id": session.id.0,
        "name": session.identity.name,
        "pid": session.identity.pid,
        "user": session.identity.user,
        "state": match (session.is_killed(), session.is_ending()) {
            (true, _) => "killed",
            (false, true) => "ending",
            (false, false) => state(account.state()),
        },
        "overdue_ms": own.map(|one| milliseconds(one.runs)),
        "lane": engine.lane(session.id).map(|lane| lane.0),
        "weight": settings.weight.0,
        "priority": settings.priority.name(),
        "deadline_ms": settings.deadline.map(|time| milliseconds(time.into())),
        "iterations": account.iterations,
        "switches": account.switches,
        "device_time_ms": milliseconds(account.device_time),
        "waiting_ms": milliseconds(account.waiting(now)),
        "times": times(account, now),
        "remaining_ms": engine.remaining(session.id).map(milliseconds),
        "resident_bytes": holding.resident_bytes,
        "paged_bytes": holding.paged_bytes,
        "host_bytes": holding.host_bytes,
        "scratch_bytes": session.usage.scratch_bytes.load(Relaxed),
        "peak_bytes": holding.peak_bytes,
        "memory_max_bytes": settings.memory_max,
        "moves": moves(&session.paging),
        "programs": session.usage.programs.load(Relaxed),
        "why": why(session, engine, late),
    })
}

/// How long it was in each state so far.
fn times(account: &Account, now: Time) -> Map<String, Value> {
    let times = State::ALL.into_iter().map(|state| {
        let time = milliseconds(account.time_in(state, now));
        (format!("{}_ms", state.name()), json!(time))
    });
    times.collect()
}

/// What `salus ps` calls it.
fn state(state: State) -> &'static str {
    match state {
        State::Host => "idle",
        State::Compile => "compiling",
        State::Running => "running",
        State::Callback => "callback",
        State::Turn | State::Memory | State::Paging => "waiting",
        State::Paused => "paused",
    }
}

fn moves(paging: &PagingTotals) -> Value {
    let ms = |ns: &AtomicU64| ns.load(Relaxed) as f64 / 1e6;
    json!({
        "out_bytes": paging.out_bytes.load(Relaxed),
        "copied_bytes": paging.copied_bytes.load(Relaxed),
        "out_ms": ms(&paging.out_ns),
        "in_bytes": paging.in_bytes.load(Relaxed),
        "in_ms": ms(&paging.in_ns),
    })
}
