//! The recorder beside a real engine, in time that the test makes up.

use salus_engine::{Event, JobSettings, Kind, Policy, Room, User};
use salus_wire::{Description, Recording};

use super::*;

/// Milliseconds as the engine counts time.
const MS: u64 = 1_000_000;

struct Scene {
    engine: Engine,
    recorder: Recorder,
    now: Time,
}

impl Scene {
    fn new(records: usize, device_bytes: u64) -> Self {
        let room = Room {
            device_bytes,
            host_bytes: 1 << 20,
            user_max: None,
        };
        Self {
            engine: Engine::new(Policy::Fifo, room, 1, 1),
            recorder: Recorder::holding(records),
            now: Time(0),
        }
    }

    fn at(&mut self, ms: u64, event: Event) -> Vec<Decision> {
        self.now = Time(ms * MS);
        let decisions = self.engine.on(self.now, event);
        let (recorder, engine) = (&mut self.recorder, &self.engine);
        recorder.note(self.now, &event, &decisions, engine);
        decisions
    }

    fn open(&mut self, ms: u64, id: u64) -> SessionId {
        let session = SessionId(id);
        let who = Identity {
            pid: 1,
            // Every other job is another user's.
            uid: 1000 + (id % 2) as u32,
            user: format!("user{}", id % 2),
            name: format!("job{id}.py"),
        };
        self.recorder.opened(Time(ms * MS), session, &who);
        let decisions = self.at(
            ms,
            Event::Opened {
                session,
                user: User(0),
                settings: JobSettings::default(),
            },
        );
        assert!(decisions.is_empty());
        session
    }

    fn ready(&mut self, ms: u64, session: SessionId, new_bytes: u64) -> Vec<Decision> {
        let kind = Kind::Launch {
            scratch_bytes: 10,
            program: Program(7),
        };
        self.ask(ms, session, kind, new_bytes)
    }

    fn ask(&mut self, ms: u64, session: SessionId, kind: Kind, new: u64) -> Vec<Decision> {
        let demand = Demand {
            kind,
            new_bytes: new,
            new_host_bytes: 0,
            argument_bytes: 0,
            paged_bytes: 0,
        };
        self.at(ms, Event::Ready { session, demand })
    }

    fn copied(&self, now_ms: u64) -> Copied {
        let mut copied = Copied::with_room();
        while self.recorder.copy_part(&mut copied) {}
        let now = Time(now_ms * MS);
        self.recorder.copy_rest(now, &self.engine, &mut copied);
        copied
    }

    fn recording(&self, now_ms: u64, seconds: u32) -> Recording {
        self.copied(now_ms).recording(&device(), seconds)
    }
}

fn device() -> Description {
    use salus_device::{Clock, Device, ScriptedConfig, ScriptedDevice};
    let config = ScriptedConfig {
        lanes: 1,
        capacity_bytes: 1 << 20,
        clock: Clock::Manual,
        on_host: true,
    };
    ScriptedDevice::open(&config).description().clone()
}

/// Of each iteration, in milliseconds: ready, started, began, ended.
fn times(recording: &Recording) -> Vec<[u64; 4]> {
    let iterations = recording.iterations.iter();
    iterations
        .map(|i| [i.ready_ns, i.started_ns, i.began_ns, i.ended_ns].map(|ns| ns / MS))
        .collect()
}

/// An iteration that does not call back has ended.
fn ran(session: SessionId) -> Event {
    let calling = None;
    Event::Ran { session, calling }
}

#[test]
fn what_was_handed_over_early_began_when_its_predecessor_ended() {
    let mut scene = Scene::new(100, 1 << 20);
    let (one, two) = (scene.open(0, 1), scene.open(0, 2));
    scene.recorder.named(Program(7), "step");
    scene.ready(1, one, 0);
    scene.ready(2, two, 0);
    scene.at(10, ran(one));
    scene.ready(11, one, 0);
    scene.at(15, ran(two));
    scene.at(30, ran(one));
    // After a gap, it began when it was started.
    scene.ready(50, two, 0);
    scene.at(60, ran(two));
    let recording = scene.recording(60, 0);
    assert_eq!(
        times(&recording),
        [
            [1, 1, 1, 10],
            [2, 2, 10, 15],
            [11, 11, 15, 30],
            [50, 50, 50, 60]
        ]
    );
    assert_eq!(recording.programs, [(7, "step".to_owned())]);
    assert!(recording.waits.is_empty());
}

#[test]
fn other_users_jobs_and_programs_are_there_without_their_names() {
    let mut scene = Scene::new(100, 1 << 20);
    let (one, two) = (scene.open(0, 1), scene.open(0, 2));
    for (number, name) in [(7, "shared"), (8, "secret")] {
        scene.recorder.named(Program(number), name);
    }
    scene.ready(1, one, 0);
    scene.at(10, ran(one));
    let kind = Kind::Launch {
        scratch_bytes: 0,
        program: Program(8),
    };
    let demand = Demand {
        kind,
        new_bytes: 0,
        new_host_bytes: 0,
        argument_bytes: 0,
        paged_bytes: 0,
    };
    let session = two;
    scene.at(11, Event::Ready { session, demand });
    scene.at(20, ran(two));
    let seen_by = |uid: u32| {
        let mut copied = scene.copied(20);
        copied.hide_names_from(uid);
        let recording = copied.recording(&device(), 0);
        assert_eq!(recording.iterations.len(), 2);
        let sessions = recording.sessions.iter();
        let names: Vec<String> = sessions.map(|s| format!("{} {}", s.name, s.pid)).collect();
        (names, recording.programs)
    };
    let (names, programs) = seen_by(1001);
    assert_eq!(names, ["job1.py 1", "a job of user0 0"]);
    assert_eq!(programs, [(7, "shared".to_owned())]);
    let (names, programs) = seen_by(1000);
    assert_eq!(names, ["a job of user1 0", "job2.py 1"]);
    assert_eq!(programs, [(8, "secret".to_owned())]);
    let (names, programs) = seen_by(4711);
    assert_eq!(names, ["a job of user1 0", "a job of user0 0"]);
    assert!(programs.is_empty());
}

/// One calls back: its time before and after its callback is shown, and beside it what its lane did
/// meanwhile, whichever ended first.
#[test]
fn what_calls_back_is_shown_where_it_ran() {
    let mut scene = Scene::new(100, 1 << 20);
    let (one, two) = (scene.open(0, 1), scene.open(0, 2));
    let calling = salus_engine::Calling(5);
    let calls = Kind::CallsBack {
        program: Program(8),
        calling,
    };
    let session = one;
    scene.ask(1, one, calls, 0);
    scene.at(10, Event::CallbackBegan { session, calling });
    // Its callback launches something, and leaves it behind.
    scene.ready(11, one, 0);
    scene.ready(12, two, 0);
    scene.at(20, Event::CallbackEnded { session, calling });
    let calling = Some(calling);
    scene.at(30, Event::Ran { session, calling });
    scene.at(40, ran(one));
    scene.at(45, ran(two));
    let recording = scene.recording(45, 0);
    let of = |program: u64| {
        let iterations = recording.iterations.iter().enumerate();
        let of = iterations.filter(|(_, i)| i.program == program);
        of.map(|(at, _)| times(&recording)[at]).collect::<Vec<_>>()
    };
    assert_eq!(of(8), [[1, 1, 1, 10], [20, 20, 20, 30]]);
    assert_eq!(of(7), [[11, 11, 11, 40], [12, 12, 40, 45]]);
}

#[test]
fn what_calls_back_runs_beside_what_its_lane_runs_now() {
    let mut scene = Scene::new(100, 1 << 20);
    let (one, two) = (scene.open(0, 1), scene.open(0, 2));
    let (session, calling) = (one, salus_engine::Calling(5));
    let program = Program(8);
    scene.ask(1, one, Kind::CallsBack { program, calling }, 0);
    scene.at(10, Event::CallbackBegan { session, calling });
    scene.ready(11, two, 0);
    scene.ready(12, two, 0);
    let away = scene.recording(15, 0);
    assert_eq!(times(&away), [[1, 1, 1, 10], [11, 11, 11, 15]]);
    scene.at(20, Event::CallbackEnded { session, calling });
    let back = scene.recording(25, 0);
    let mut both = times(&back);
    both.sort_unstable();
    assert_eq!(both, [[1, 1, 1, 10], [11, 11, 11, 25], [20, 20, 20, 25]]);
    let waits = back.waits.iter();
    assert!(
        waits
            .clone()
            .all(|w| w.session == 2 && w.ready_ns == 12 * MS)
    );
    assert_eq!(waits.count(), 2, "to be handed over, and for the first");
}

#[test]
fn what_goes_on_ends_with_the_present() {
    let mut scene = Scene::new(100, 1 << 20);
    let jobs: Vec<SessionId> = (1..=4).map(|id| scene.open(id, id)).collect();
    for (&job, ms) in jobs.iter().zip([10, 11, 12, 13]) {
        scene.ready(ms, job, 0);
    }
    scene.at(14, Event::Paused { session: jobs[3] });
    scene.at(15, Event::CompileStarted { session: jobs[3] });
    let recording = scene.recording(20, 0);
    assert_eq!(times(&recording), [[10, 10, 10, 20]]);
    assert!(recording.iterations[0].runs);
    // The second is handed over and waits for the first to end; the others wait for a place.
    let waits = recording.waits.iter();
    let waits: Vec<_> = waits
        .map(|w| (w.session, w.ready_ns / MS, w.until_ns / MS))
        .collect();
    assert_eq!(waits, [(2, 11, 11), (2, 11, 20), (3, 12, 20), (4, 13, 20)]);
    assert_eq!(recording.pauses[0].began_ns, 14 * MS);
    assert_eq!(recording.compilations[0].began_ns, 15 * MS);
    assert_eq!((recording.from_ns, recording.until_ns), (MS, 20 * MS));
}

#[test]
fn the_ring_forgets_the_oldest_and_says_from_when_on_it_is_complete() {
    let mut scene = Scene::new(16, 1 << 20);
    let job = scene.open(0, 1);
    scene.ask(1, job, Kind::Array, 5000);
    let gone = scene.open(2, 2);
    scene.at(3, Event::Closed { session: gone });
    for step in 1..=100 {
        scene.ready(100 * step, job, 0);
        scene.at(100 * step + 50, ran(job));
    }
    let recording = scene.recording(20_000, 0);
    let ended = |i: &salus_wire::RecordedIteration| i.ended_ns;
    let first = recording.iterations.iter().map(ended).min();
    assert!(recording.iterations.len() < 16);
    assert_eq!(recording.records_made - recording.records_forgotten, 16);
    assert_eq!(
        times(&recording).last(),
        Some(&[10_000, 10_000, 10_000, 10_050])
    );
    assert!(first >= Some(recording.from_ns), "{first:?}");
    // It was opened long before, and is still known; what closed before is not shown.
    assert_eq!(recording.sessions.len(), 1);
    assert_eq!(recording.sessions[0].name, "job1.py");
    // So is what it holds, which never changed since.
    let memory = &recording.memory[0];
    assert_eq!(
        (memory.at_ns, memory.resident_bytes),
        (recording.from_ns, 5000)
    );
}

#[test]
fn the_time_asked_for_is_cut_out() {
    let mut scene = Scene::new(1000, 1 << 20);
    let job = scene.open(0, 1);
    for step in 1..=20 {
        scene.ready(1000 * step, job, 1);
        scene.at(1000 * step + 500, ran(job));
    }
    let recording = scene.recording(21_000, 5);
    assert_eq!(recording.from_ns, 16_000 * MS);
    assert_eq!(times(&recording)[0], [16_000, 16_000, 16_000, 16_500]);
    assert_eq!(recording.iterations.len(), 5);
    assert_eq!(recording.records_forgotten, 0);
    assert_eq!(recording.memory[0].at_ns, 16_000 * MS);
    assert_eq!(recording.memory[0].resident_bytes, 16);
}

#[test]
fn waits_for_memory_moves_and_refusals_are_told() {
    let mut scene = Scene::new(100, 100);
    let (one, two) = (scene.open(0, 1), scene.open(0, 2));
    scene.ask(1, one, Kind::Array, 60);
    let asked = scene.ask(2, two, Kind::Array, 70);
    assert!(asked.is_empty(), "it stays a while before it leaves");
    let at = scene.engine.wake_at().expect("then it is asked to leave");
    let asked = scene.at(at.0 / MS + 1, Event::Woke);
    let [Decision::PageOut { session, bytes }] = asked[..] else {
        panic!("nobody leaves: {asked:?}")
    };
    assert_eq!(session, one);
    let left = at.0 / MS + 21;
    let started = scene.at(
        left,
        Event::PagedOut {
            session,
            bytes: 60,
            paged_bytes: 0,
        },
    );
    assert!(
        matches!(started[..], [Decision::Start { .. }]),
        "{started:?}"
    );
    scene.ask(left + 1, two, Kind::Array, 101);
    let recording = scene.recording(left + 2, 0);
    let moved = &recording.moves[0];
    assert_eq!(
        (moved.session, moved.asked_bytes, moved.bytes),
        (1, bytes, 60)
    );
    assert_eq!((moved.ended_ns - moved.began_ns) / MS, 20);
    assert!(moved.out);
    let wait = &recording.waits[0];
    assert_eq!((wait.session, wait.until_ns / MS), (2, left));
    assert!(wait.memory_ns > 0 && wait.memory_ns <= wait.until_ns - wait.ready_ns);
    let refused = &recording.refusals[0];
    assert_eq!((refused.session, refused.at_ns / MS), (2, left + 1));
    assert_eq!(refused.why, "it needs 101 B, and the device has 100 B");
}

#[test]
fn a_session_is_told_with_its_settings_and_its_memory_also_when_it_has_ended() {
    let mut scene = Scene::new(100, 1 << 20);
    let session = scene.open(0, 1);
    let settings = JobSettings {
        work: std::num::NonZeroU64::new(7).map(salus_engine::Work::Iterations),
        ..JobSettings::default()
    };
    scene.at(1, Event::SettingsChanged { session, settings });
    let total = Duration(5);
    scene.at(1, Event::EstimatedFromHistory { session, total });
    scene.ask(2, session, Kind::Array, 5000);
    scene.ready(3, session, 300);
    scene.at(4, ran(session));
    let open = scene.recording(4, 0);
    scene.at(5, Event::Withdrew { session });
    scene.at(
        6,
        Event::Released {
            session,
            resident_bytes: 5300,
            paged_bytes: 0,
            host_bytes: 0,
        },
    );
    scene.at(7, Event::Closed { session });
    let ended = scene.recording(8, 0);
    for (recording, closed) in [(open, None), (ended, Some(7 * MS))] {
        let one = &recording.sessions[0];
        assert_eq!((one.settings, one.recalled_ns), (settings, Some(5)));
        assert_eq!((one.peak_bytes, one.scratch_bytes), (5300, 10));
        assert_eq!(one.closed_ns, closed);
    }
}

#[test]
fn the_launch_after_a_read_says_so() {
    let mut scene = Scene::new(100, 1 << 20);
    let job = scene.open(0, 1);
    for (ms, reads) in [(1, false), (3, true), (5, false)] {
        if reads {
            scene.recorder.reads(job);
            // Room for an array is no launch.
            scene.ask(ms, job, Kind::Array, 1);
        }
        scene.ready(ms, job, 0);
        scene.at(ms + 1, ran(job));
    }
    let recording = scene.recording(7, 0);
    let reads: Vec<bool> = recording.iterations.iter().map(|i| i.reads).collect();
    assert_eq!(reads, [false, true, false]);
}

#[test]
fn names_are_short_and_few() {
    let mut scene = Scene::new(16, 1 << 20);
    for id in 1..=2 * ENDED_MAX as u64 {
        let session = scene.open(id, id);
        scene.at(id, Event::Closed { session });
    }
    for program in 0..2 * PROGRAMS_MAX as u64 {
        scene.recorder.named(Program(program), &"n".repeat(1000));
    }
    assert_eq!(scene.recorder.ended.len(), ENDED_MAX);
    assert_eq!(scene.recorder.programs.len(), PROGRAMS_MAX);
    assert_eq!(scene.recorder.programs[0].1.len(), NAME_CHARS_MAX);
}

#[test]
fn a_profile_says_from_when_on_it_is_complete() {
    // Two iterations, and what they do to memory, overwrite all before.
    let mut scene = Scene::new(4, 1 << 20);
    let (one, two) = (scene.open(0, 1), scene.open(0, 2));
    scene.recorder.named(Program(7), "step");
    for ms in [10, 20, 30, 40] {
        for (session, ms) in [(one, ms), (two, ms + 5)] {
            scene.ready(ms, session, 0);
            scene.at(ms + 2, ran(session));
        }
    }
    scene.ready(50, one, 0);
    let profile = |since: u64| {
        let mut own = Own::new(one, Time(since * MS));
        while scene.recorder.look_through(Time(60 * MS), &mut own) {}
        own.profile(|time| time.0 + 7)
    };
    let all = profile(0);
    assert_eq!(all.programs, ["step"]);
    let times: Vec<[u64; 2]> = all
        .launches
        .iter()
        .map(|launch| [launch.began_ns, launch.ended_ns].map(|ns| (ns - 7) / MS))
        .collect();
    // The newest that are left, and what runs, up to now.
    assert_eq!(times.last(), Some(&[50, 60]));
    assert!(times.len() < 5 && times.contains(&[40, 42]), "{times:?}");
    let from_ms = (all.from_ns - 7) / MS;
    assert!((27..=42).contains(&from_ms), "{from_ms}");
    assert!(times.iter().all(|[_, ended]| *ended >= from_ms));
    // What is asked for is all there.
    assert_eq!((profile(45).from_ns - 7) / MS, 45);
    assert_eq!(profile(45).launches.len(), 1);
}
