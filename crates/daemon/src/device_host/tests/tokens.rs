//! Tokens of ordered effects: arguments and results without bytes.

use salus_wire::{ArrayFailed, CopyArray};

use super::*;

const PRED: u32 = 1;
const TOKEN: u32 = 23;
const ORDERED: &str = "name: ordered; params: token[], f32[4]; outputs: token[], f32[4] alias 1; \
                       scratch: 100; ms: 5";

/// Uploads what has no bytes.
fn upload_nothing(job: &mut Job, array: u64, element_type: u32, dims: &[i64]) {
    let (segment, offset, length) = (0, 0, 0);
    job.send(Upload {
        array: ArrayId(array),
        shape: Shape {
            element_type,
            dims: dims.to_vec(),
            minor_to_major: None,
        },
        memory: 0,
        data: Region {
            segment: SegmentId(segment),
            offset,
            length,
        },
    });
}

/// Steps that pass a token on, from an array of no booleans, as JAX does it; returns the last bits.
fn train_in_order(job: &mut Job, steps: u64) -> Vec<u8> {
    job.compile(1, ORDERED).expect("compiles");
    upload_nothing(job, 1, PRED, &[0]);
    job.upload(2, [1.0, 2.0, 3.0, 4.0]);
    let (mut token, mut state) = (1, 2);
    for step in 1..=steps {
        job.execute(step, 1, &[token, state], 10 * step);
        (token, state) = (10 * step, 10 * step + 1);
        job.ended(step).expect("it ran");
    }
    job.fetch(99, state).expect("the output is there")
}

#[test]
fn tokens_order_launches_also_of_sessions_that_take_turns_on_the_device() {
    let expected = train_in_order(&mut Fixture::new().job("alone.py"), 20);
    // The arrays of one and its scratch fit, and another's only without the scratch.
    let room = Room {
        device_bytes: 120,
        host_bytes: 1 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::of(Clock::Real, room);
    let jobs: Vec<Job> = (0..3).map(|_| fixture.job("train.py")).collect();
    let trained: Vec<_> = jobs
        .into_iter()
        .map(|mut job| std::thread::spawn(move || train_in_order(&mut job, 20)))
        .collect();
    for bits in trained {
        assert_eq!(bits.join().expect("it trains"), expected);
    }
    fixture.until(|| fixture.sum(|_| 1) == 0);
    assert_eq!(fixture.resident(), 0);
}

#[test]
fn what_is_no_token_is_refused_where_one_is_due() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, ORDERED).expect("compiles");
    job.upload(1, [1.0; 4]);
    upload_nothing(&mut job, 2, PRED, &[0, 0]);
    for (operation, wrong, shape) in [(1, 1, "f32[4]"), (2, 2, "pred[0, 0]")] {
        job.execute(operation, 1, &[wrong, 1], 100 * operation);
        let error = job.ended(operation).expect_err("no token");
        assert_eq!(
            error.message,
            format!("argument 0 of `ordered` is {shape} and should be token[]")
        );
    }
    // Plugins abort the process when they are to make one.
    upload_nothing(&mut job, 3, TOKEN, &[]);
    let failed = job.next(|message| matches!(message, FromService::ArrayFailed(_)));
    let FromService::ArrayFailed(ArrayFailed { array, error }) = failed else {
        panic!("not a failure")
    };
    assert_eq!(
        (array, error.code),
        (ArrayId(3), ErrorCode::InvalidArgument)
    );
    assert!(error.message.contains("only programs make them"), "{error}");
}

#[test]
fn a_token_is_read_and_copied_as_nothing() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, ORDERED).expect("compiles");
    upload_nothing(&mut job, 1, PRED, &[0]);
    job.upload(2, [1.0; 4]);
    job.execute(1, 1, &[1, 2], 10);
    job.send(CopyArray {
        operation: OperationId(2),
        array: ArrayId(10),
        copy: ArrayId(20),
        memory: 1,
    });
    job.ended(2).expect("a copy");
    job.execute(3, 1, &[20, 11], 30);
    job.ended(3).expect("the copy is as good");
    for (request, form) in [
        (1, Form::Raw),
        (
            2,
            Form::Host {
                minor_to_major: Vec::new(),
            },
        ),
    ] {
        let (segment, offset, length) = (0, 0, 0);
        job.send(ReadArray {
            request: RequestId(request),
            array: ArrayId(30),
            target: Region {
                segment: SegmentId(segment),
                offset,
                length,
            },
            form,
        });
        let read = job.next(|message| matches!(message, FromService::ReadDone(_)));
        assert!(matches!(read, FromService::ReadDone(read) if read.error.is_none()));
    }
    job.send(DropArrays {
        arrays: [1, 10, 20, 30, 31].map(ArrayId).to_vec(),
    });
    fixture.until(|| fixture.resident() == 0);
}
