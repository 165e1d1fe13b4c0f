//! Recordings are read as they were written, and replayed as they were; those that are not whole are
//! errors that name the line.

use std::num::NonZeroU32;

use salus_engine::{Duration, Policy};
use salus_sim::recording::{
    Closed, End, Header, Iteration, Line, Lost, Opened, Program, Recording, Settings, VERSION,
};

const MS: u64 = 1_000_000;

fn header() -> Header {
    Header {
        salus_recording: VERSION,
        device: "cpu:0".into(),
        kind: "cpu".into(),
        policy: "fair".into(),
        memory_bytes: 1 << 30,
        host_bytes: 1 << 30,
        lanes: 1,
        width: 1,
        began_unix_ns: 0,
        at_ns: 0,
    }
}

fn opened(session: u64, at_ns: u64) -> Line {
    Line::Opened(Opened {
        session,
        name: format!("job {session}"),
        at_ns,
        settings: Settings {
            weight: NonZeroU32::MIN,
            priority: "normal".into(),
            deadline_ns: None,
            iterations: None,
            expect_ns: None,
            memory_max_bytes: None,
        },
    })
}

/// An iteration that its host asked for at `ready_ms`, after it had read the one before.
fn iteration(session: u64, ready_ms: u64, began_ms: u64, ended_ms: u64) -> Line {
    Line::Iteration(Iteration {
        session,
        program: u64::MAX,
        lane: 0,
        ready_ns: ready_ms * MS,
        started_ns: began_ms * MS,
        memory_ns: 0,
        began_ns: began_ms * MS,
        ended_ns: ended_ms * MS,
        reads: true,
    })
}

fn closed(session: u64, at_ms: u64) -> Line {
    Line::Closed(Closed {
        session,
        at_ns: at_ms * MS,
        memory_bytes: 0,
        scratch_bytes: 0,
        recalled_ns: None,
    })
}

fn end() -> Line {
    Line::End(End {
        at_ns: 1000 * MS,
        why: "idle".into(),
        sessions: 1,
        iterations: 3,
        lost_records: 0,
    })
}

fn text(lines: &[Line]) -> String {
    let lines = lines.iter().map(Line::to_text);
    std::iter::once(header().to_text()).chain(lines).collect()
}

/// One job whose host works for 5 ms before each of its iterations of 10 ms, and 2 ms after the last.
fn one_job() -> Vec<Line> {
    vec![
        opened(1, 0),
        Line::Program(Program {
            program: u64::MAX,
            name: "step".into(),
        }),
        iteration(1, 5, 5, 15),
        iteration(1, 20, 20, 30),
        iteration(1, 35, 35, 45),
        closed(1, 47),
        end(),
    ]
}

fn refused(text: &str) -> String {
    let problem = Recording::parse(text, false).expect_err("it is not whole");
    match &problem.hint {
        Some(hint) => format!("{problem}; {hint}"),
        None => problem.to_string(),
    }
}

#[test]
fn a_job_alone_is_replayed_to_the_nanosecond() {
    let recording = Recording::parse(&text(&one_job()), false).expect("it is whole");
    assert_eq!(recording.header, header());
    let replay = recording.replay(None);
    assert_eq!(replay.jobs.len(), 1);
    let job = &replay.jobs[0];
    assert_eq!((job.iterations, job.ran), (3, 3));
    assert_eq!(job.recorded, Duration(47 * MS));
    assert_eq!(job.replayed, Some(Duration(47 * MS)));
    assert_eq!(replay.busy, Duration(30 * MS));
}

#[test]
fn waiting_is_simulated_again_and_the_hosts_own_time_is_kept() {
    // The second waits for the first: its gaps of 1 ms are its own, the rest is not.
    let lines = [
        opened(1, 0),
        opened(2, 0),
        iteration(1, 0, 0, 10),
        iteration(2, 1, 10, 14),
        iteration(1, 10, 14, 24),
        iteration(2, 15, 24, 28),
        closed(1, 24),
        closed(2, 28),
        end(),
    ];
    let recording = Recording::parse(&text(&lines), false).expect("it is whole");
    let completions = |policy| {
        let jobs = recording.replay(policy).jobs;
        let times = jobs.into_iter().map(|job| job.replayed);
        times.collect::<Vec<_>>()
    };
    let ms = |ms: u64| Some(Duration(ms * MS));
    assert_eq!(completions(None), [ms(24), ms(28)]);
    // One job after the other: the second begins when the first has ended, and has its gap of 1 ms.
    assert_eq!(completions(Some(Policy::Exclusive)), [ms(20), ms(29)]);
}

#[test]
fn what_is_not_whole_is_named_by_its_line() {
    let whole = text(&one_job());
    let without_end = text(&one_job()[..6]);
    assert_eq!(
        refused(&without_end),
        "line 7, column 1: the recording is cut off here: its end line is missing; `--partial` \
         replays what is there"
    );
    let cut = &whole[..whole.len() - 5];
    assert!(refused(cut).starts_with("line 8, column 1: the recording is cut off here"));
    let damaged = whole.replacen("{\"closed\"", "{\"clos", 1);
    assert!(refused(&damaged).starts_with("line 7, column 1: the line is damaged: "));
    let newer = whole.replacen("\"salus_recording\":1", "\"salus_recording\":7", 1);
    assert_eq!(
        refused(&newer),
        "line 1, column 1: this recording has version 7, and version 1 is read here; replay it \
         with the `salus` that recorded it"
    );
    let backwards = whole.replacen("\"ended_ns\":15000000", "\"ended_ns\":1", 1);
    assert_eq!(
        refused(&backwards),
        "line 4, column 1: the times of this line are not in order"
    );
    let unknown = whole.replacen("\"priority\":\"normal\"", "\"priority\":\"urgent\"", 1);
    assert_eq!(
        refused(&unknown),
        "line 2, column 1: `urgent` is not a priority"
    );
    for cut in [&without_end[..], cut] {
        let partial = Recording::parse(cut, true).expect("what is there is read");
        assert_eq!(partial.replay(None).jobs[0].ran, 3);
    }
}

#[test]
fn what_the_service_forgot_is_said_with_its_numbers() {
    let mut lines = one_job();
    lines.insert(
        3,
        Line::Lost(Lost {
            records: 12,
            from_ns: 15 * MS,
            until_ns: 19 * MS,
        }),
    );
    assert_eq!(
        refused(&text(&lines)),
        "line 5, column 1: 12 records of 4 ms were lost before they were written down; `--partial` \
         replays what is there"
    );
    assert!(Recording::parse(&text(&lines), true).is_ok());
}
