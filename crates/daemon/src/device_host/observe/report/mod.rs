//! What `salus ps` shows: the device and its sessions, now.

mod session;
mod why;

use salus_device::Device;
use salus_engine::{Account, Duration, Engine, Time};
use serde_json::{Value, json};

use crate::device_host::Host;
use crate::device_host::observe::overdue::overdue;
use crate::device_host::session::SharedSession;

pub(crate) fn text<D: Device>(host: &Host<D>) -> String {
    json(host).to_string()
}

fn json<D: Device>(host: &Host<D>) -> Value {
    let mut sessions = Vec::new();
    let show = |session: &SharedSession<D>, account: &Account, engine: &Engine, now: Time| {
        let late = overdue(engine, now, host.overdue);
        sessions.push(session::json(session, account, engine, now, &late));
    };
    let scheduled = host.engine.survey(show, Scheduled::of);
    json!({ "device": device(host, scheduled), "sessions": sessions })
}

/// What the engine knows of the device.
struct Scheduled {
    policy: &'static str,
    lanes: Vec<Value>,
    ledger: Value,
}

impl Scheduled {
    fn of(engine: &Engine) -> Self {
        let ledger = engine.ledger();
        let room = ledger.room();
        let lanes = engine.lanes().map(|(lane, size_bytes, iterations)| {
            json!({ "lane": lane.0, "size_bytes": size_bytes, "iterations": iterations })
        });
        Self {
            policy: engine.policy().name(),
            lanes: lanes.collect(),
            ledger: json!({
                "room_bytes": room.device_bytes,
                "host_room_bytes": room.host_bytes,
                "free_bytes": ledger.free_bytes(),
                "resident_bytes": ledger.resident_bytes(),
                "paged_bytes": ledger.paged_bytes(),
                "host_bytes": ledger.host_bytes(),
                "scratch_bytes": ledger.scratch_bytes(),
                "peak_bytes": ledger.peak_bytes(),
            }),
        }
    }
}

fn device<D: Device>(host: &Host<D>, scheduled: Scheduled) -> Value {
    let description = host.device.description();
    let (major, minor) = description.api_version;
    let mut ledger = scheduled.ledger;
    let (host_used, kept) = host.pages.used_bytes();
    ledger["host_used_bytes"] = host_used.into();
    ledger["kept_page_bytes"] = kept.into();
    ledger["pinned_bytes"] = host.pages.pins().bytes().into();
    json!({
        "state": "up",
        "platform": description.platform_name,
        "kind": description.kind,
        "version": description.platform_version,
        "plugin": description.plugin_path,
        "pjrt_api": format!("{major}.{minor}"),
        "capacity_bytes": description.capacity_bytes,
        "resident_bytes": ledger["resident_bytes"],
        "paged_bytes": ledger["paged_bytes"],
        "host_bytes": ledger["host_bytes"],
        "peak_bytes": ledger["peak_bytes"],
        "policy": scheduled.policy,
        "lanes": scheduled.lanes.len(),
        "lane": scheduled.lanes,
        "ledger": ledger,
        "drift_bytes": host.drift_bytes(),
        "cache": host.programs.report(),
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.0 as f64 / 1e6
}
