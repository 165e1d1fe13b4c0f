//! A recording made by hand, and what becomes of it.

use salus_wire::{JobSettings, RecordedRefusal, RecordedSession, RecordedSpan, RecordedWait};

use super::*;

const MS: u64 = 1_000_000;

/// Two jobs on two lanes and one that only waits; times in milliseconds from the beginning, which
/// is not the service's.
fn two_jobs() -> Timeline {
    Timeline::of(recording(), None)
}

const BEGAN: u64 = 5_000;

fn at(ms: u64) -> u64 {
    (BEGAN + ms) * MS
}

fn session(session: u64, name: &str, opened_ns: u64) -> RecordedSession {
    RecordedSession {
        session,
        name: name.into(),
        pid: 10 + session as i32,
        opened_ns,
        closed_ns: (session == 2).then_some(at(90)),
        settings: JobSettings::default(),
        recalled_ns: None,
        peak_bytes: 0,
        scratch_bytes: 0,
    }
}

/// Ready, started, began, ended.
fn iteration(session: u64, lane: u32, times: [u64; 4]) -> RecordedIteration {
    let [ready_ns, started_ns, began_ns, ended_ns] = times.map(at);
    RecordedIteration {
        session,
        lane,
        program: lane.into(),
        ready_ns,
        started_ns,
        memory_ns: if session == 2 { 5 * MS } else { 0 },
        began_ns,
        ended_ns,
        runs: ended_ns == at(100),
        reads: false,
    }
}

fn memory(ms: u64, resident_bytes: u64) -> RecordedMemory {
    RecordedMemory {
        at_ns: at(ms),
        resident_bytes,
        paged_bytes: resident_bytes / 2,
        scratch_bytes: 100,
    }
}

pub(in crate::commands::trace) fn recording() -> Recording {
    Recording {
        began_unix_ns: 0,
        from_ns: at(0),
        until_ns: at(100),
        platform: "cpu".into(),
        kind: "Host CPU".into(),
        policy: "fair".into(),
        room_bytes: 1 << 20,
        host_room_bytes: 1 << 20,
        lanes: 2,
        width: 1,
        records_made: 11,
        records_forgotten: 0,
        sessions: vec![
            session(1, "a \"quoted\" name", 1),
            session(2, "train.py", at(3)),
            session(3, "train.py", at(40)),
        ],
        programs: vec![(0, "jit_step".into())],
        iterations: vec![
            iteration(1, 0, [0, 0, 0, 30]),
            iteration(2, 0, [5, 20, 30, 50]),
            iteration(1, 0, [31, 31, 50, 60]),
            iteration(2, 1, [55, 55, 55, 80]),
            iteration(1, 0, [70, 70, 70, 100]),
        ],
        waits: vec![RecordedWait {
            session: 3,
            ready_ns: at(50),
            until_ns: at(100),
            memory_ns: 50 * MS,
        }],
        moves: vec![RecordedMove {
            session: 2,
            out: true,
            asked_bytes: 500,
            bytes: 400,
            began_ns: at(82),
            ended_ns: at(88),
        }],
        pauses: vec![RecordedSpan {
            session: 3,
            began_ns: at(60),
            ended_ns: at(70),
        }],
        compilations: vec![RecordedSpan {
            session: 2,
            began_ns: at(3),
            ended_ns: at(10),
        }],
        refusals: vec![RecordedRefusal {
            session: 1,
            at_ns: at(65),
            why: "it needs more".into(),
        }],
        policies: vec![(at(33), "fair".into())],
        memory: vec![memory(0, 1000), memory(40, 3000), memory(85, 2000)],
    }
}

/// From, until and name, in milliseconds from the beginning.
fn shown(job: &Job) -> Vec<(u64, u64, &'static str)> {
    let stretches = job.stretches.iter();
    stretches
        .map(|s| (s.from / MS - BEGAN, s.until / MS - BEGAN, s.state.name()))
        .collect()
}

#[test]
fn at_every_moment_a_job_does_one_thing() {
    let timeline = two_jobs();
    // While it runs, its next request waits: that is not shown.
    assert_eq!(
        shown(&timeline.jobs[0]),
        [
            (0, 30, "running"),
            (31, 50, "waiting for its turn"),
            (50, 60, "running"),
            (70, 100, "running"),
        ]
    );
    assert_eq!(
        shown(&timeline.jobs[1]),
        [
            (3, 5, "compiling"),
            (5, 15, "waiting for its turn"),
            (15, 20, "waiting for memory"),
            (20, 30, "waiting for its turn"),
            (30, 50, "running"),
            (55, 80, "running"),
            (82, 88, "moving"),
        ]
    );
    assert_eq!(
        shown(&timeline.jobs[2]),
        [
            (50, 60, "waiting for memory"),
            (60, 70, "paused"),
            (70, 100, "waiting for memory"),
        ]
    );
}

#[test]
fn what_is_older_than_what_is_shown_is_cut_and_keeps_its_name() {
    let timeline = Timeline::of(recording(), Some(Duration::from_millis(45)));
    assert_eq!(timeline.from, at(55));
    let runs = &timeline.lanes[&0];
    assert_eq!((runs[0].from, runs[0].until), (at(55), at(60)));
    assert_eq!(runs[0].whole.began_ns, at(50));
    assert_eq!(timeline.iterations(), 3);
    assert_eq!(timeline.jobs[0].label, "a \"quoted\" name");
    // It was opened before, so only what followed is marked.
    assert_eq!(
        timeline.jobs[0].marks,
        [(at(65), "refused: it needs more".to_owned())]
    );
    let memory: Vec<_> = timeline.memory.iter().map(|m| m.resident_bytes).collect();
    assert_eq!(memory, [3000, 2000]);
    assert_eq!(timeline.memory[0].at_ns, at(55));
    assert!(timeline.policies.is_empty());
}

#[test]
fn whoever_is_not_known_by_name_is_shown_by_number() {
    let mut recording = recording();
    recording.sessions.remove(0);
    let timeline = Timeline::of(recording, None);
    let labels: Vec<_> = timeline.jobs.iter().map(|job| &job.label).collect();
    assert_eq!(labels, ["train.py #2", "train.py #3", "session 1"]);
    assert_eq!(timeline.iterations(), 5);
}

#[test]
fn a_service_that_tells_nonsense_makes_nothing_panic() {
    let mut recording = recording();
    (recording.from_ns, recording.until_ns) = (u64::MAX, 0);
    for iteration in &mut recording.iterations {
        (iteration.began_ns, iteration.ended_ns) = (u64::MAX, 1);
        iteration.memory_ns = u64::MAX;
    }
    recording.memory.clear();
    recording.began_unix_ns = u64::MAX;
    let timeline = Timeline::of(recording.clone(), None);
    assert!(timeline.from <= timeline.until);
    let other = self::recording();
    let both = vec![("a".into(), recording), ("b".into(), other)];
    let devices = super::super::devices::Devices::of(both, None);
    serde_json::from_str::<serde_json::Value>(&super::super::perfetto::json(&devices))
        .expect("it is JSON");
    super::super::svg::picture(&devices);
}
