//! The trace-event JSON that the Perfetto UI opens (ui.perfetto.dev, "Open trace file").
//!
//! Three groups of tracks for each device: the device with a track for each lane and counters for its memory, the
//! jobs with a track for each, and their pages that went out and came back.
//!
//! Promise: events are sorted by time, and on each track they do not overlap, because the UI would
//! take one for a part of the other. Times are whole microseconds for the same reason: a fraction
//! may be rounded one way here and the other way there.

use std::fmt::Write;

use serde_json::{Value, json};

use super::devices::{Devices, OneDevice};
use super::timeline::Job;

/// The groups of the first device, which the UI takes for processes. Not the processes' own numbers:
/// several sessions may be of one.
const DEVICE: u32 = 1;
const JOBS: u32 = 2;
const PAGES: u32 = 3;
/// Those of the next device follow.
const GROUPS: u32 = 3;
/// Tracks are numbered from here on, through all groups: the UI knows a track by its number alone.
const FIRST_TRACK: u32 = 100;

pub(super) fn json(devices: &Devices) -> String {
    let mut trace = Trace {
        tracks: Vec::new(),
        events: Vec::new(),
    };
    for (place, device) in devices.all.iter().enumerate() {
        let of = Groups {
            before: GROUPS * place as u32,
            device,
        };
        trace.device(&of);
        for job in &device.timeline.jobs {
            trace.job(&of, job);
        }
        trace.pages(&of);
    }
    trace.text(devices)
}

struct Trace {
    /// Their names.
    tracks: Vec<Value>,
    /// With their times in microseconds.
    events: Vec<(u64, String)>,
}

/// Where what belongs to a device is shown.
struct Groups<'a> {
    before: u32,
    device: &'a OneDevice,
}

impl Groups<'_> {
    fn group(&self, group: u32) -> u32 {
        self.before + group
    }

    fn microseconds(&self, at: u64) -> u64 {
        self.device.since(at) / 1000
    }

    fn names(&self) -> [Value; 3] {
        let on = self.device.on();
        let groups = [
            (DEVICE, self.device.timeline.device.clone()),
            (JOBS, format!("jobs{on}")),
            (PAGES, format!("pages{on}")),
        ];
        groups.map(|(group, name)| {
            json!({
                "ph": "M", "pid": self.group(group), "name": "process_name",
                "args": { "name": name },
            })
        })
    }
}

impl Trace {
    fn device(&mut self, of: &Groups<'_>) {
        let (timeline, device) = (&of.device.timeline, of.group(DEVICE));
        for (lane, runs) in &timeline.lanes {
            let track = self.track(device, &format!("lane {lane}"));
            for run in runs {
                let i = &run.whole;
                let waited = i.began_ns.saturating_sub(i.ready_ns) / 1000;
                // On the trace's own axis, as `ts` is: who was ready when another was chosen.
                let (ready, handed) = (of.microseconds(i.ready_ns), of.microseconds(i.started_ns));
                let mut args = json!({
                    "program": run.program, "session": i.session, "waited_us": waited,
                    "waited_for_memory_us": i.memory_ns / 1000,
                    "ready_us": ready, "handed_us": handed,
                });
                if i.runs {
                    args["still_runs"] = json!(true);
                }
                let label = &timeline.jobs[run.job].label;
                self.slice(of, device, track, label, (run.from, run.until), &args);
            }
        }
        for memory in &timeline.memory {
            let at = of.microseconds(memory.at_ns);
            let event = json!({
                "ph": "C", "pid": device, "ts": at, "name": "memory", "args": {
                    "arrays on the device (bytes)": memory.resident_bytes,
                    "scratch of lanes (bytes)": memory.scratch_bytes,
                    "paged out (bytes)": memory.paged_bytes,
                },
            });
            self.events.push((at, event.to_string()));
        }
        for (at, policy) in &timeline.policies {
            let at = of.microseconds(*at);
            let event = json!({
                "ph": "i", "s": "p", "pid": device, "ts": at, "name": format!("policy {policy}"),
            });
            self.events.push((at, event.to_string()));
        }
    }

    fn job(&mut self, of: &Groups<'_>, job: &Job) {
        let jobs = of.group(JOBS);
        let name = match job.pid {
            0 => format!("{} (session {})", job.label, job.session),
            pid => format!("{} (session {}, pid {pid})", job.label, job.session),
        };
        let track = self.track(jobs, &name);
        for stretch in &job.stretches {
            let times = (stretch.from, stretch.until);
            // What takes no time here would only be in the way.
            if of.microseconds(times.0) < of.microseconds(times.1) {
                self.slice(of, jobs, track, stretch.state.name(), times, &Value::Null);
            }
        }
        for (at, what) in &job.marks {
            let at = of.microseconds(*at);
            let event = json!({
                "ph": "i", "s": "t", "pid": jobs, "tid": track, "ts": at, "name": what,
            });
            self.events.push((at, event.to_string()));
        }
    }

    fn pages(&mut self, of: &Groups<'_>) {
        let (timeline, pages) = (&of.device.timeline, of.group(PAGES));
        for job in timeline.jobs.iter().filter(|job| !job.moves.is_empty()) {
            // A session moves its arrays in one thread, so these do not overlap either.
            let track = self.track(pages, &format!("pages of {}", job.label));
            for moved in &job.moves {
                let (name, args) = match moved.out {
                    true => (
                        "out",
                        json!({ "bytes": moved.bytes, "asked_bytes": moved.asked_bytes }),
                    ),
                    false => ("back", json!({ "bytes": moved.bytes })),
                };
                self.slice(
                    of,
                    pages,
                    track,
                    name,
                    (moved.began_ns, moved.ended_ns),
                    &args,
                );
            }
        }
    }

    fn track(&mut self, group: u32, name: &str) -> u32 {
        let track = FIRST_TRACK + self.tracks.len() as u32;
        self.tracks.push(json!({
            "ph": "M", "pid": group, "tid": track, "name": "thread_name",
            "args": { "name": name },
        }));
        track
    }

    fn slice(
        &mut self,
        of: &Groups<'_>,
        group: u32,
        track: u32,
        name: &str,
        times: (u64, u64),
        args: &Value,
    ) {
        let (from, until) = (of.microseconds(times.0), of.microseconds(times.1));
        let name = Value::from(name);
        let mut event = format!(
            r#"{{"ph":"X","pid":{group},"tid":{track},"ts":{from},"dur":{},"name":{name}"#,
            until - from
        );
        if !args.is_null() {
            let _ = write!(event, r#","args":{args}"#);
        }
        event.push('}');
        self.events.push((from, event));
    }

    fn text(mut self, devices: &Devices) -> String {
        self.events.sort_by_key(|(at, _)| *at);
        let named = devices.all.iter().enumerate().flat_map(|(place, device)| {
            let before = GROUPS * place as u32;
            Groups { before, device }.names()
        });
        let named: Vec<Value> = named.collect();
        let about = |one: &OneDevice| {
            let timeline = &one.timeline;
            json!({
                "device": timeline.device, "policy": timeline.policy,
                "room_bytes": timeline.room_bytes,
            })
        };
        let all: Vec<Value> = devices.all.iter().map(about).collect();
        let mut known = json!({ "salus": env!("CARGO_PKG_VERSION") });
        if let (Some(known), Some(first)) = (known.as_object_mut(), all.first()) {
            known.extend(first.as_object().cloned().unwrap_or_default());
            known.insert("devices".into(), all.into());
        }
        let names = named.iter().chain(&self.tracks).map(Value::to_string);
        let lines: Vec<String> = names
            .chain(self.events.into_iter().map(|(_, event)| event))
            .collect();
        format!(
            "{{\"displayTimeUnit\":\"ms\",\"otherData\":{known},\"traceEvents\":[\n{}\n]}}\n",
            lines.join(",\n")
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::devices::tests::{one, two};
    use super::*;

    fn events() -> Vec<Value> {
        events_of(&one())
    }

    fn events_of(devices: &Devices) -> Vec<Value> {
        let parsed: Value = serde_json::from_str(&json(devices)).expect("it is JSON");
        parsed["traceEvents"].as_array().expect("a list").clone()
    }

    #[test]
    fn every_track_has_a_name() {
        let events = events();
        let named = |what: &str| -> Vec<String> {
            let names = events.iter().filter(|e| e["name"] == what);
            names
                .map(|e| e["args"]["name"].as_str().expect("text").to_owned())
                .collect()
        };
        assert_eq!(named("process_name"), ["cpu (Host CPU)", "jobs", "pages"]);
        assert_eq!(
            named("thread_name"),
            [
                "lane 0",
                "lane 1",
                "a \"quoted\" name (session 1, pid 11)",
                "train.py #2 (session 2, pid 12)",
                "train.py #3 (session 3, pid 13)",
                "pages of train.py #2",
            ]
        );
    }

    #[test]
    fn each_device_has_groups_of_its_own_on_one_axis() {
        let events = events_of(&two());
        let groups = events.iter().filter(|e| e["name"] == "process_name");
        let groups: Vec<_> = groups
            .map(|e| (e["pid"].as_u64(), e["args"]["name"].as_str()))
            .collect();
        let names = [
            "cuda:0 (Host CPU)",
            "jobs on cuda:0",
            "pages on cuda:0",
            "cuda:1 (Host CPU)",
            "jobs on cuda:1",
            "pages on cuda:1",
        ];
        let expected: Vec<_> = (1..).map(Some).zip(names.map(Some)).collect();
        assert_eq!(groups, expected);
        // The second device host began 5 ms later, and did the same.
        let first = |pid: u32| events.iter().find(|e| e["ph"] == "X" && e["pid"] == pid);
        let began = |pid: u32| first(pid).and_then(|e| e["ts"].as_u64()).expect("a slice");
        assert_eq!(began(4), began(1) + 5000);
        check_order(&events);
    }

    #[test]
    fn events_are_sorted_and_no_track_has_two_at_once() {
        check_order(&events());
    }

    fn check_order(events: &[Value]) {
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        let mut last = 0;
        let mut slices = 0;
        for event in events.iter().filter(|e| e["ph"] != "M") {
            let ts = event["ts"].as_u64().expect("a time");
            assert!(ts >= last, "{event} comes too late");
            last = ts;
            if event["ph"] == "X" {
                slices += 1;
                let track = event["tid"].as_u64().expect("a track");
                let end = ends.entry(track).or_default();
                assert!(ts >= *end, "{event} begins before {end}");
                *end = ts + event["dur"].as_u64().expect("a length");
            }
        }
        assert!(slices > 10);
    }

    #[test]
    fn an_iteration_says_what_it_ran_and_how_long_it_waited() {
        let events = events();
        let first = events.iter().find(|e| e["args"]["session"] == 2);
        assert_eq!(
            first,
            Some(&json!({
                "ph": "X", "pid": 1, "tid": 100, "ts": 30_000, "dur": 20_000,
                "name": "train.py #2", "args": {
                    "program": "jit_step", "session": 2, "waited_us": 25_000,
                    "waited_for_memory_us": 5_000, "ready_us": 5_000, "handed_us": 20_000,
                },
            }))
        );
        let counters = events.iter().filter(|e| e["ph"] == "C");
        let bytes = |e: &Value| e["args"]["arrays on the device (bytes)"].as_u64();
        let counted: Vec<_> = counters.map(|e| (e["ts"].as_u64(), bytes(e))).collect();
        assert_eq!(counted[0], (Some(0), Some(1000)));
    }
}
