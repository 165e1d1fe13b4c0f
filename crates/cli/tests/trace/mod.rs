//! `salus trace` of a service with two jobs, which are played by hand.

use std::collections::BTreeMap;
use std::time::Instant;

use salus_harness::Client;
use salus_wire::{ArrayId, OperationId, ProgramId, Region, Shape, limits};

use super::*;

/// More than any machine needs.
const ROUNDS: u64 = 1000;
const STEP: &str = "name: step; params: f32[4]; outputs: f32[4]; scratch: 1000; ms: 2";

/// A job that is connected and runs a few iterations.
pub(super) struct Job {
    client: Client,
    program: ProgramId,
    array: ArrayId,
    /// The last launch.
    operation: OperationId,
    /// How many iterations it has asked for.
    asked: u64,
}

impl Job {
    pub(super) fn start(home: &Home, name: &str) -> Self {
        Self::start_on(home, name, "")
    }

    /// The same on the device that is named.
    pub(super) fn start_on(home: &Home, name: &str, device: &str) -> Self {
        let mut client = Client::open_on(&home.socket(), name, device).expect("it listens");
        let compiled = client.compile("mlir", STEP.as_bytes(), &[], PROMPT);
        let (program, _) = compiled.expect("it answers").expect("it compiles");
        let (segment, _memory) = client.segment(16).expect("memory");
        let shape = Shape {
            element_type: 11,
            dims: vec![4],
            minor_to_major: None,
        };
        let data = Region {
            segment,
            offset: 0,
            length: 16,
        };
        let array = client.upload(shape, data);
        Self {
            client,
            program,
            array,
            operation: OperationId(0),
            asked: 0,
        }
    }

    /// Asks for this many more iterations.
    pub(super) fn launch(&mut self, iterations: u64) {
        assert!(iterations <= limits::LAUNCHES.into());
        for _ in 0..iterations {
            let (operation, _) = self.client.launch(self.program, &[self.array], 1);
            self.operation = operation;
        }
        self.asked += iterations;
        self.client.flush().expect("it reads");
    }

    pub(super) fn until_ended(&mut self) {
        let deadline = Instant::now() + PROMPT;
        let failed = self.client.wait_for(self.operation, deadline);
        assert_eq!(failed.expect("it answers"), None);
    }
}

/// Runs two jobs until each has waited for the other; both stay open. On a busy machine the first
/// may be done before the second begins, so they may need more than one round of ten iterations.
fn two_jobs(home: &Home) -> [Job; 2] {
    let mut jobs = ["one.py", "two.py"].map(|name| Job::start(home, name));
    for round in 1..=ROUNDS {
        for job in &mut jobs {
            job.launch(10);
        }
        for job in &mut jobs {
            job.until_ended();
        }
        let each = |report: &Value, is: &dyn Fn(&Value) -> bool| {
            let sessions = report["sessions"].as_array().expect("a list");
            sessions.iter().all(is)
        };
        // The engine hears of an end after the job does.
        let all_ran = |report: &Value| each(report, &|s| s["iterations"] == 10 * round);
        let reports = (0..1000).map(|_| home.report());
        let report = reports.into_iter().find(all_ran).expect("all are counted");
        if each(&report, &|s| s["times"]["turn_ms"].as_f64() > Some(0.0)) {
            return jobs;
        }
    }
    panic!("no job waited for the other in {ROUNDS} rounds");
}

/// The slices of each track, by its name: begin, end, name.
fn tracks(trace: &Value) -> BTreeMap<String, Vec<(u64, u64, String)>> {
    let events = trace["traceEvents"].as_array().expect("a list");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let named = events.iter().filter(|e| e["name"] == "thread_name");
    let names: BTreeMap<_, _> = named
        .map(|e| (e["tid"].as_u64(), text(&e["args"]["name"])))
        .collect();
    let mut tracks = BTreeMap::new();
    for name in names.values() {
        tracks.insert(name.clone(), Vec::new());
    }
    for event in events.iter().filter(|e| e["ph"] == "X") {
        let track = &names[&event["tid"].as_u64()];
        let number = |key: &str| event[key].as_u64().expect("a number");
        let (from, until) = (number("ts"), number("ts") + number("dur"));
        let slices = tracks.get_mut(track).expect("it is named");
        slices.push((from, until, text(&event["name"])));
    }
    tracks
}

#[test]
fn a_trace_has_a_track_for_the_lane_and_each_job() {
    let home = Home::new();
    assert_eq!(home.run(&["serve", "--background"]).code, 0);
    let jobs = two_jobs(&home);
    let each = jobs[0].asked;
    let done = home.run(&["trace", "-o", "-"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let expected = format!("{} iterations of 2 jobs in ", 2 * each);
    assert!(done.err.starts_with(&expected), "{}", done.err);
    assert!(
        done.err
            .ends_with(": it opens in https://ui.perfetto.dev\n"),
        "{}",
        done.err
    );
    let trace: Value = serde_json::from_str(&done.out).expect("it is JSON");
    let tracks = tracks(&trace);
    let pid = std::process::id();
    let job = |n: u64, name: &str| format!("{name}.py (session {n}, pid {pid})");
    let names: Vec<_> = tracks.keys().cloned().collect();
    assert_eq!(names, ["lane 0".into(), job(1, "one"), job(2, "two")]);
    let lane = &tracks["lane 0"];
    assert!(lane.windows(2).all(|two| two[0].1 <= two[1].0), "{lane:?}");
    for name in ["one.py", "two.py"] {
        let count = lane.iter().filter(|slice| slice.2 == name).count();
        assert_eq!(count as u64, each);
    }
    for track in [job(1, "one"), job(2, "two")] {
        for state in ["running", "waiting for its turn"] {
            assert!(
                tracks[&track].iter().any(|slice| slice.2 == state),
                "{state}"
            );
        }
    }
    let events = trace["traceEvents"].as_array().expect("a list");
    assert!(events.iter().any(|e| e["ph"] == "C"));
    assert!(events.iter().any(|e| e["args"]["program"] == "step"));
}

#[test]
fn a_trace_is_a_file_or_a_picture_or_both() {
    let home = Home::new();
    assert_eq!(home.run(&["serve", "--background"]).code, 0);
    let jobs = two_jobs(&home);
    let each = jobs[0].asked;
    // What is closed is still known.
    drop(jobs);
    let run = |arguments: &[&str]| {
        let mut command = home.salus(arguments);
        Done::of(
            command
                .current_dir(home.dir.path())
                .output()
                .expect("it can be started"),
        )
    };
    let (json, svg) = (home.path("salus-trace.json"), home.path("t.svg"));
    let done = run(&["trace", "--svg", "t.svg"]);
    assert_eq!((done.code, done.out.as_str()), (0, ""), "{}", done.err);
    assert!(
        done.err.ends_with(": `t.svg` opens in a browser\n"),
        "{}",
        done.err
    );
    let picture = fs::read_to_string(svg).expect("it was written");
    assert!(picture.starts_with("<svg "));
    assert!(picture.contains(&format!("one.py, {each} iterations")));
    assert!(!json.exists());
    let done = run(&["trace", "--last", "1h"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(
        done.err.contains("`salus-trace.json` opens in "),
        "{}",
        done.err
    );
    let trace = fs::read(json).expect("it was written");
    serde_json::from_slice::<Value>(&trace).expect("it is JSON");
    let done = run(&["trace", "-o", "no/such/place"]);
    assert_eq!(done.code, 2);
    assert!(
        done.err
            .starts_with("error: `no/such/place` cannot be written: No such file")
    );
    let done = run(&["trace", "--last", "soon"]);
    assert_eq!(done.code, 2);
    assert!(
        done.err.contains("such as 20ms, 1.5s, 10m or 2h"),
        "{}",
        done.err
    );
}
