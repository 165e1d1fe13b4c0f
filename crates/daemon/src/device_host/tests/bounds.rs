//! What one job may make the service hold, however it asks.

use salus_wire::ErrorCode;

use super::*;

impl Job {
    /// Shares one more piece of memory with the service.
    fn announce(&mut self, id: u32) {
        let segment = Segment::create(4096, false).expect("memory");
        let descriptor = segment.as_fd().try_clone_to_owned().expect("a descriptor");
        let message = salus_wire::Segment {
            id: SegmentId(id),
            bytes: 4096,
        };
        self.outbox
            .push(&ToService::from(message), Some(descriptor));
        // One that was refused does not read on.
        let _ = self.outbox.flush(&self.socket, true);
    }

    fn refusal(&mut self) -> Error {
        match self.next(|message| matches!(message, FromService::Refused(_))) {
            FromService::Refused(refused) => refused.error,
            _ => panic!("not a refusal"),
        }
    }
}

fn one_value(segment: u32) -> Upload {
    Upload {
        array: ArrayId(u64::from(segment)),
        shape: Shape {
            element_type: F32,
            dims: vec![4],
            minor_to_major: None,
        },
        memory: 0,
        data: Region {
            segment: SegmentId(segment),
            offset: 0,
            length: 16,
        },
    }
}

#[test]
fn a_segment_is_announced_once() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("twice.py");
    job.announce(0);
    let error = job.refusal();
    assert!(
        error.message.contains("segment 0 is announced twice"),
        "{error}"
    );
}

#[test]
fn memory_that_arrays_keep_counts_as_shared() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("hoards.py");
    // Each is taken back at once, and an array keeps it. One is the job's from the start.
    let most = limits::SEGMENTS as u32 - 1;
    for id in 1..=most {
        job.announce(id);
        job.send(one_value(id));
        job.send(salus_wire::SegmentGone { id: SegmentId(id) });
    }
    job.fetch(1, 1).expect("all is well up to here");
    job.announce(most + 1);
    let error = job.refusal();
    assert_eq!(error.code, ErrorCode::ResourceExhausted, "{error}");
    assert!(
        error.message.contains("shares 4096 pieces of memory"),
        "{error}"
    );
    let mut other = fixture.job("fine.py");
    other.upload(1, [1.0; 4]);
    other.fetch(1, 1).expect("undisturbed");
}

#[test]
fn reads_of_what_is_not_there_yet_are_bounded() {
    let mut fixture = Fixture::with(Clock::Manual);
    let mut job = fixture.job("impatient.py");
    job.compile(1, KEEPING).expect("compiles");
    job.upload(1, [1.0; 4]);
    job.execute(1, 1, &[1], 10);
    let reads = 3 * limits::REQUESTS as u64;
    for request in 0..reads {
        job.outbox.push(
            &ToService::from(ReadArray {
                request: RequestId(request),
                array: ArrayId(10),
                target: Region {
                    segment: SegmentId(0),
                    offset: 8192,
                    length: 16,
                },
                form: Form::Raw,
            }),
            None,
        );
    }
    let under_way = |fixture: &Fixture| {
        let mut count = 0;
        let each = |session: &SharedSession<_>, _: &Account, _: &Engine, _| {
            count += session.reads_under_way();
        };
        fixture.host.engine.each(each);
        count
    };
    // What was taken before that many were under way is begun, too: up to a queue of them.
    let bound = limits::REQUESTS + 4096;
    let deadline = Instant::now() + DEADLINE;
    while under_way(&fixture) < limits::REQUESTS {
        assert!(Instant::now() < deadline, "{}", under_way(&fixture));
        let _ = job.outbox.flush(&job.socket, false);
    }
    assert!(under_way(&fixture) <= bound, "{}", under_way(&fixture));
    fixture.run_until(1);
    for _ in 0..reads {
        // What is answered makes room for what the job could not send.
        let _ = job.outbox.flush(&job.socket, false);
        job.next(|message| matches!(message, FromService::ReadDone(_)));
        assert!(under_way(&fixture) <= bound);
    }
    // The last is counted off after it was answered.
    fixture.until(|| under_way(&fixture) == 0);
}

#[test]
fn a_program_under_two_ids_of_one_session_is_loaded_once() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("again.py");
    for program in 1..=20 {
        job.compile(program, STEP).expect("compiles");
    }
    let report = fixture.host.programs.report();
    let counted = [&report["compiled"], &report["programs_loaded"]];
    assert_eq!(counted, [1, 1]);
    assert_eq!(report["found_loaded"], 19);
}
