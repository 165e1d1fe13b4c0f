//! The end of a session: jobs that die, and jobs that break the protocol.

use super::*;

#[test]
fn a_job_that_dies_leaves_nothing_behind() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("dies.py");
    let mut other = fixture.job("lives.py");
    for job in [&mut job, &mut other] {
        job.compile(1, STEP).expect("compiles");
        job.upload(1, [1.0; 4]);
    }
    for step in 0..5 {
        job.execute(
            step + 1,
            1,
            &[if step == 0 { 1 } else { 9 + step }],
            10 + step,
        );
    }
    drop(job);
    fixture.until(|| fixture.sum(|_| 1) == 1 && fixture.resident() == 16);
    other.execute(1, 1, &[1], 10);
    other.ended(1).expect("the device goes on");
}

/// Wherever the end of a job meets the engine: before its turn, in it, or just granted.
#[test]
fn jobs_that_die_at_any_moment_give_their_turns_back() {
    let mut fixture = Fixture::new();
    let script = "name: quick; params: f32[4]; outputs: f32[4]";
    let mut other = fixture.job("lives.py");
    other.compile(1, script).expect("compiles");
    other.upload(1, [1.0; 4]);
    for round in 1..=200 {
        let mut job = fixture.job("dies.py");
        job.compile(1, script).expect("is found");
        job.upload(1, [1.0; 4]);
        for step in 1..=8 {
            job.execute(step, 1, &[1], 10 * step);
            other.execute(8 * round + step, 1, &[1], 1000 * (8 * round + step));
        }
        if round % 2 == 0 {
            job.ended(round % 8 + 1).expect("it ran");
        }
        drop(job);
        other.ended(8 * round + 8).expect("undisturbed");
        other.send(DropArrays {
            arrays: (1..=8)
                .map(|step| ArrayId(1000 * (8 * round + step)))
                .collect(),
        });
    }
    fixture.until(|| fixture.sum(|_| 1) == 1 && fixture.resident() == 16);
}

#[test]
fn a_library_that_breaks_the_protocol_loses_its_session_alone() {
    let mut fixture = Fixture::new();
    let mut other = fixture.job("lives.py");
    let outside = Region {
        segment: SegmentId(0),
        offset: 1 << 15,
        length: 1 << 16,
    };
    let unknown = Region {
        segment: SegmentId(9),
        offset: 0,
        length: 16,
    };
    let shape = Shape {
        element_type: F32,
        dims: vec![4],
        minor_to_major: None,
    };
    for data in [outside, unknown] {
        let mut job = fixture.job("broken.py");
        job.send(Upload {
            array: ArrayId(1),
            shape: shape.clone(),
            memory: 0,
            data,
        });
        let message = job.next(|message| matches!(message, FromService::Refused(_)));
        let FromService::Refused(refused) = message else {
            panic!("not a refusal")
        };
        assert!(
            refused.error.message.contains("broke the protocol"),
            "{:?}",
            refused.error
        );
        assert!(job.is_closed());
    }
    other.upload(1, [1.0; 4]);
    other.fetch(1, 1).expect("undisturbed");
}
