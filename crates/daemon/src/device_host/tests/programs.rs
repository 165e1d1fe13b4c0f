//! Programs as jobs send them: what they are called, how they are found, which can never run.

use salus_wire::ErrorCode;

use super::*;

#[test]
fn a_programs_name_cannot_drive_a_terminal() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    let script = "name: st\u{1b}[2Jep\u{9b}31m; params: f32[4]; outputs: f32[4]";
    job.compile(1, script).expect("compiles");
    job.execute(1, 1, &[], 10);
    let error = job.ended(1).expect_err("an argument is missing");
    assert_eq!(
        error.message,
        "`st\\u{1b}[2Jep\\u{9b}31m` takes 1 arguments and was given 0"
    );
    job.upload(1, [1.0; 4]);
    job.execute(2, 1, &[1], 20);
    job.ended(2).expect("it runs");
    let copied = fixture.host.engine.recorded();
    let recording = copied.recording(salus_device::Device::description(&*fixture.host.device), 0);
    assert_eq!(recording.programs[0].1, "st\\u{1b}[2Jep\\u{9b}31m");
}

#[test]
fn a_job_goes_on_while_a_large_program_of_it_is_hashed() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, KEEPING).expect("compiles");
    job.upload(1, [1.0; 4]);
    let large = format!("{KEEPING}{}", " ".repeat(40 << 10));
    let programs = Arc::clone(&fixture.host.programs);
    programs.locked(|| {
        job.ask_for(2, &large);
        job.execute(1, 1, &[1], 10);
        job.ended(1)
            .expect("it ran before the program was looked for");
    });
    job.until_compiled().expect("compiles");
    job.execute(2, 2, &[1], 20);
    job.ended(2).expect("it runs");
}

fn room(device_bytes: u64) -> Room {
    Room {
        device_bytes,
        host_bytes: 1 << 20,
        user_max: None,
    }
}

#[test]
fn what_can_never_fit_is_refused_when_it_is_compiled_and_disturbs_nobody() {
    let mut fixture = Fixture::of(Clock::Real, room(100));
    let (mut large, mut small) = (fixture.job("large.py"), fixture.job("small.py"));
    for job in [&mut large, &mut small] {
        job.compile(1, KEEPING).expect("compiles");
        job.upload(1, [1.0; 4]);
    }
    let error = large
        .compile(2, STEP)
        .expect_err("116 bytes are more than 100");
    assert_eq!(error.code, ErrorCode::ResourceExhausted);
    assert!(
        error.message.starts_with(
            "`step` of `large.py` needs at least 116 B at once (16 B of arguments, 0 B of further \
             outputs, 100 B of scratch), and the device has 100 B to share: it can never run here"
        ),
        "{}",
        error.message
    );
    for job in [&mut small, &mut large] {
        job.execute(2, 1, &[1], 20);
        job.ended(2).expect("this fits");
    }
}

#[test]
fn what_may_fit_is_compiled_and_judged_by_its_arguments() {
    let mut fixture = Fixture::of(Clock::Real, room(100));
    let mut job = fixture.job("large.py");
    let two = "name: two; params: f32[4], f32[4]; outputs: f32[4] alias 0; scratch: 80; ms: 1";
    job.compile(1, two)
        .expect_err("the first is donated or the output is new, and the second is another");
    let sum = "name: sum; params: f32[4], f32[4]; outputs: f32[1]; scratch: 80; ms: 1";
    job.compile(2, sum)
        .expect("that is 100 bytes with its output");
    job.upload(1, [1.0; 4]);
    job.execute(1, 2, &[1, 1], 10);
    job.ended(1).expect("100 bytes fit");
    job.upload(2, [2.0; 4]);
    job.execute(2, 2, &[1, 2], 20);
    let error = job.ended(2).expect_err("116 bytes are more than 100");
    assert_eq!(error.code, ErrorCode::ResourceExhausted);
    assert!(
        error.message.starts_with(
            "`large.py` needs 116 B at once (arguments, outputs and scratch), and the device has \
             100 B to share"
        ),
        "{}",
        error.message
    );
}

#[test]
fn a_limit_that_a_programs_arrays_exceed_is_named_when_it_is_compiled() {
    let mut fixture = Fixture::of(Clock::Real, room(1000));
    let mut job = fixture.job("limited.py");
    let session = salus_engine::SessionId(1);
    let limit = |bytes| {
        let memory_max = std::num::NonZeroU64::new(bytes);
        let engine = &fixture.host.engine;
        engine.change_settings(session, |settings| settings.memory_max = memory_max);
    };
    limit(31);
    let error = job
        .compile(1, KEEPING)
        .expect_err("argument and output take 32 bytes");
    assert!(
        error.message.starts_with(
            "`keeping` of `limited.py` needs arrays of at least 32 B (16 B of arguments, 16 B of \
             further outputs), and the session's limit is 31 B: it cannot run"
        ),
        "{}",
        error.message
    );
    // Scratch is not the session's.
    job.compile(2, STEP).expect("16 bytes of arrays");
    limit(32);
    job.compile(3, KEEPING).expect("the limit was raised");
    job.upload(1, [1.0; 4]);
    job.execute(1, 3, &[1], 10);
    job.ended(1).expect("it fits");
}

#[test]
fn equal_programs_are_compiled_once() {
    let mut fixture = Fixture::new();
    let (mut one, mut two) = (fixture.job("trial1.py"), fixture.job("trial2.py"));
    one.compile(1, STEP).expect("compiles");
    two.compile(5, STEP).expect("is found");
    let report = fixture.host.programs.report();
    assert_eq!(report["compiled"], 1);
    assert_eq!(report["found_loaded"], 1);
}
