//! What `salus ps` shows: the device and its sessions, now.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use salus_device::Device;
use salus_engine::{Duration, Engine, SessionId, Why};
use salus_wire::limits;
use serde_json::{Value, json};

use super::Host;
use super::admission::show_bytes;
use super::arrays::Moves;
use super::session::Session;

/// As it is sent: the sessions are left out, and that is said, where they do not fit a frame.
pub(super) fn text<D: Device>(host: &Host<D>) -> String {
    let mut report = json(host);
    let text = report.to_string();
    if text.len() <= limits::JSON_BYTES {
        return text;
    }
    let left_out = report["sessions"].as_array().map_or(0, Vec::len);
    report["sessions"] = json!([]);
    report["sessions_left_out"] = json!(left_out);
    report.to_string()
}

fn json<D: Device>(host: &Host<D>) -> Value {
    let description = host.device.description();
    let mut sessions = Vec::new();
    host.scheduling.each(|session, account, engine, now| {
        let holding = engine
            .ledger()
            .holding(session.id)
            .copied()
            .unwrap_or_default();
        let waits = account
            .waiting_since
            .map_or(Duration(0), |since| now - since);
        let state = match (account.running, account.waiting_since) {
            (1.., _) => "running",
            (0, Some(_)) => "waiting",
            (0, None) => "idle",
        };
        sessions.push(json!({
            "id": session.id.0,
            "name": session.identity.name,
            "pid": session.identity.pid,
            "user": session.identity.user,
            "state": state,
            "iterations": account.iterations,
            "device_time_ms": milliseconds(account.device_time),
            "waiting_ms": milliseconds(account.waiting + waits),
            "resident_bytes": holding.resident_bytes,
            "paged_bytes": holding.paged_bytes,
            "scratch_bytes": session.usage.scratch_bytes.load(Relaxed),
            "peak_bytes": holding.peak_bytes,
            "memory_max_bytes": holding.memory_max,
            "moves": moves(&session.moves),
            "programs": session.usage.programs.load(Relaxed),
            "why": why(session, engine),
        }));
    });
    let (major, minor) = description.api_version;
    let (ledger, lanes) = host.scheduling.look(|engine, _| {
        let ledger = engine.ledger();
        let room = ledger.room();
        let lanes: Vec<Value> = engine
            .lanes()
            .map(|(size_bytes, iterations)| {
                json!({ "size_bytes": size_bytes, "iterations": iterations })
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
        (ledger, lanes)
    });
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
            "lanes": description.lanes,
            "lane": lanes,
            "ledger": ledger,
            "drift_bytes": host.drift_bytes(),
            "cache": host.programs.report(),
        },
        "sessions": sessions,
    })
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
fn why<D: Device>(session: &Session<D>, engine: &Engine) -> String {
    let named = |id: Option<SessionId>| match id {
        Some(id) => format!("session {}", id.0),
        None => "another session".into(),
    };
    match engine.why(session.id) {
        None => "it is gone".into(),
        Some(Why::AtWork) => "it asks for nothing: its own program works or waits".into(),
        Some(Why::Running) => "an iteration of it runs".into(),
        Some(Why::Turn { ahead }) => {
            format!("it waits for its turn: {ahead} iterations are handed to its lane already")
        }
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
