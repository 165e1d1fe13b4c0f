//! What `salus ps` shows: the device and its sessions, now.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use salus_device::Device;
use salus_engine::{Account, Class, Duration, Engine, SessionId, State, Time, Why};
use serde_json::{Value, json};

use super::Host;
use super::admission::show_bytes;
use super::arrays::Moves;
use super::overdue::{Overdue, overdue};
use super::session::Session;

pub(super) fn text<D: Device>(host: &Host<D>) -> String {
    json(host).to_string()
}

fn json<D: Device>(host: &Host<D>) -> Value {
    let description = host.device.description();
    let mut sessions = Vec::new();
    let show = |session: &Session<D>, account: &Account, engine: &Engine, now: Time| {
        let late = overdue(engine, now, host.overdue);
        let own = late.iter().find(|one| one.session == session.id);
        let holding = engine
            .ledger()
            .holding(session.id)
            .copied()
            .unwrap_or_default();
        let wishes = engine.wishes(session.id).copied().unwrap_or_default();
        let times: serde_json::Map<String, Value> = State::ALL
            .into_iter()
            .map(|state| {
                let time = milliseconds(account.time_in(state, now));
                (format!("{}_ms", state.name()), json!(time))
            })
            .collect();
        sessions.push(json!({
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
            "weight": wishes.weight.0,
            "priority": class(wishes.class),
            "deadline_ms": wishes.latency.map(milliseconds),
            "iterations": account.iterations,
            "switches": account.switches,
            "device_time_ms": milliseconds(account.device_time),
            "waiting_ms": milliseconds(account.waiting(now)),
            "times": times,
            "remaining_ms": engine.remaining(session.id).map(milliseconds),
            "resident_bytes": holding.resident_bytes,
            "paged_bytes": holding.paged_bytes,
            "scratch_bytes": session.usage.scratch_bytes.load(Relaxed),
            "peak_bytes": holding.peak_bytes,
            "memory_max_bytes": holding.memory_max,
            "moves": moves(&session.moves),
            "programs": session.usage.programs.load(Relaxed),
            "why": why(session, engine, &late),
        }));
    };
    let whole = |engine: &Engine| {
        let ledger = engine.ledger();
        let room = ledger.room();
        let lanes: Vec<Value> = engine
            .lanes()
            .map(|(lane, size_bytes, iterations)| {
                json!({ "lane": lane.0, "size_bytes": size_bytes, "iterations": iterations })
            })
            .collect();
        let ledger = json!({
            "room_bytes": room.device_bytes,
            "host_room_bytes": room.host_bytes,
            "free_bytes": ledger.free_bytes(),
            "resident_bytes": ledger.resident_bytes(),
            "paged_bytes": ledger.paged_bytes(),
            "scratch_bytes": ledger.scratch_bytes(),
            "peak_bytes": ledger.peak_bytes(),
        });
        (engine.policy().name(), ledger, lanes)
    };
    let (policy, ledger, lanes) = host.scheduling.survey(show, whole);
    let (major, minor) = description.api_version;
    json!({
        "device": {
            "state": "up",
            "platform": description.platform_name,
            "kind": description.kind,
            "version": description.platform_version,
            "plugin": description.plugin_path,
            "pjrt_api": format!("{major}.{minor}"),
            "capacity_bytes": description.capacity_bytes,
            "resident_bytes": ledger["resident_bytes"],
            "paged_bytes": ledger["paged_bytes"],
            "peak_bytes": ledger["peak_bytes"],
            "policy": policy,
            "lanes": lanes.len(),
            "lane": lanes,
            "ledger": ledger,
            "drift_bytes": host.drift_bytes(),
            "cache": host.programs.report(),
        },
        "sessions": sessions,
    })
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

fn class(class: Class) -> &'static str {
    match class {
        Class::High => "high",
        Class::Normal => "normal",
        Class::Low => "low",
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.0 as f64 / 1e6
}

fn moves(moves: &Moves) -> Value {
    let ms = |ns: &AtomicU64| ns.load(Relaxed) as f64 / 1e6;
    json!({
        "out_bytes": moves.out_bytes.load(Relaxed),
        "copied_bytes": moves.copied_bytes.load(Relaxed),
        "out_ms": ms(&moves.out_ns),
        "in_bytes": moves.in_bytes.load(Relaxed),
        "in_ms": ms(&moves.in_ns),
    })
}

/// What keeps the session from running, in one sentence with the numbers.
fn why<D: Device>(session: &Session<D>, engine: &Engine, late: &[Overdue]) -> String {
    let late_of = |id: SessionId| late.iter().find(|one| one.session == id);
    if session.is_killed() || session.is_ending() {
        let what = match session.is_killed() {
            true => "it was ended with `salus job`",
            false => "its job is gone",
        };
        return match late_of(session.id) {
            Some(one) => format!(
                "{what}, and its iteration {}; `salus job {} kill --now` ends it, and with it \
                 the state of all sessions",
                one.text(),
                session.id.0
            ),
            None => format!("{what}, and waits for its last iteration to end"),
        };
    }
    let named = |id: Option<SessionId>| match id {
        Some(id) => format!("session {}", id.0),
        None => "another session".into(),
    };
    match engine.why(session.id) {
        None => "it is gone".into(),
        Some(Why::AtWork) => "it asks for nothing: its own program works or waits".into(),
        Some(Why::Running) => match late_of(session.id) {
            Some(one) => format!("an iteration of it {}", one.text()),
            None => "an iteration of it runs".into(),
        },
        Some(Why::Callback) => {
            "its iteration waits for a callback that its own process runs".into()
        }
        Some(Why::Compiling) => "a program of it is being compiled or loaded".into(),
        Some(Why::Paused) => format!(
            "it is paused; `salus job {} resume` lets it go on",
            session.id.0
        ),
        Some(Why::Exclusive { owner }) => format!(
            "{} has the device until it ends, because the policy is exclusive",
            named(owner)
        ),
        Some(Why::Turn { ahead, runs }) => {
            let count = match ahead {
                1 => "1 iteration is".into(),
                n => format!("{n} iterations are"),
            };
            let waits = format!(
                "it waits for its turn under `{}`: {count} before it in its lane, and {} runs",
                engine.policy().name(),
                named(runs)
            );
            match runs.and_then(late_of) {
                Some(one) => format!(
                    "{waits}, whose iteration {}; `salus job {} kill --now` ends it, and with it the \
                     state of all sessions",
                    one.text(),
                    one.session.0
                ),
                None => waits,
            }
        }
        Some(Why::Apart) => "it waits for another lane: side by side, both would be slower".into(),
        Some(Why::GivesWay { first }) => format!(
            "it has had its time on the device: session {} is served first, and needs the room",
            first.0
        ),
        Some(Why::Memory {
            needs_bytes,
            free_bytes,
            first,
        }) => {
            let before = match first {
                Some(id) => format!(", and session {} is served first", id.0),
                None => ": others are paged out for it when their stay is over".into(),
            };
            format!(
                "it waits for memory: it needs {} more and {} of the device are free{before}",
                show_bytes(needs_bytes),
                show_bytes(free_bytes)
            )
        }
        Some(Why::Leaving { claimant }) => {
            format!(
                "its arrays go to host memory to make room for {}",
                named(claimant)
            )
        }
    }
}
