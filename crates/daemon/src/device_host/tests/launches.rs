//! Launches: pipelined, checked, in turn, and retried when the device is out of memory.

use super::*;

#[test]
fn a_step_with_donation_runs_and_its_result_is_read() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, STEP).expect("compiles");
    job.upload(1, [1.0, 2.0, 3.0, 4.0]);
    let before = job.fetch(1, 1).expect("an upload is ready at once");
    job.execute(1, 1, &[1], 10);
    job.ended(1).expect("the step ran");
    let after = job.fetch(2, 10).expect("the output is there");
    assert_ne!(before, after);
    let gone = job.fetch(3, 1).expect_err("the argument was donated");
    assert_eq!(gone.message, "array 1 has been deleted or donated");
    assert_eq!(
        fixture.resident(),
        16,
        "the output took the argument's place"
    );
    job.send(DropArrays {
        arrays: vec![ArrayId(10)],
    });
    fixture.until(|| fixture.resident() == 0);
}

/// JAX asks whether a launch has ended as soon as it has read one of its outputs: if the read came
/// first, that would cost another round trip.
#[test]
fn the_end_of_a_launch_is_told_with_the_read_of_its_output() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, KEEPING).expect("compiles");
    job.upload(1, [1.0; 4]);
    for operation in 1..20 {
        job.execute(operation, 1, &[1], 100 + operation);
        job.fetch(operation, 100 + operation).expect("it ran");
        let id = OperationId(operation);
        let told = job.seen.iter().any(
            |message| matches!(message, FromService::Completed(ends) if ends.done.contains(&id)),
        );
        assert!(told, "launch {operation} was read before its end was told");
    }
}

#[test]
fn launches_are_pipelined_and_dependent_ones_need_no_answer() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, STEP).expect("compiles");
    job.upload(1, [1.0; 4]);
    for step in 0..10 {
        job.execute(
            step + 1,
            1,
            &[if step == 0 { 1 } else { 9 + step }],
            10 + step,
        );
    }
    job.ended(10).expect("the last ran");
    job.fetch(1, 19).expect("its output is there");
    assert_eq!(fixture.resident(), 16);
}

#[test]
fn arguments_are_checked_before_the_plugin_sees_them() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, STEP).expect("compiles");
    job.compile(2, "name: ints; params: s32[4]; outputs: s32[4]")
        .expect("compiles");
    job.compile(
        3,
        "name: two; params: f32[4], f32[4]; outputs: f32[4] alias 0",
    )
    .expect("compiles");
    job.upload(1, [1.0; 4]);
    let cases: [(u64, &[u64], &str); 5] = [
        (
            2,
            &[1],
            "argument 0 of `ints` is f32[4] and should be s32[4]",
        ),
        (1, &[1, 1], "`step` takes 1 arguments and was given 2"),
        (1, &[99], "array 99 has been deleted or donated"),
        (
            3,
            &[1, 1],
            "argument 0 of `two` is donated and is given twice",
        ),
        (77, &[1], "program 77 is not loaded in this session"),
    ];
    for (n, (program, arguments, message)) in cases.into_iter().enumerate() {
        let operation = n as u64 + 1;
        job.execute(operation, program, arguments, 100 * operation);
        let error = job.ended(operation).expect_err("refused");
        assert_eq!(error.message, message);
    }
    let inherited = job
        .fetch(1, 100)
        .expect_err("the output of a refused launch");
    assert_eq!(inherited.message, cases[0].2);
    job.execute(9, 1, &[1], 900);
    job.ended(9).expect("the session goes on");
}

#[test]
fn faults_of_a_program_reach_its_outputs_and_nobody_else() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("bad.py");
    let mut other = fixture.job("good.py");
    let refused = job
        .compile(1, "name: f; fail: compile")
        .expect_err("does not compile");
    assert!(!refused.message.is_empty());
    job.compile(2, "name: g; params: f32[4]; outputs: f32[4]; fail: launch")
        .expect("compiles");
    job.compile(
        3,
        "name: h; params: f32[4]; outputs: f32[4]; fail: async; ms: 5",
    )
    .expect("compiles");
    other.compile(1, KEEPING).expect("compiles");
    job.upload(1, [1.0; 4]);
    other.upload(1, [1.0; 4]);
    job.execute(1, 2, &[1], 10);
    job.ended(1).expect_err("fails at once");
    job.execute(2, 3, &[1], 20);
    job.ended(2).expect_err("fails while it runs");
    job.fetch(1, 20).expect_err("its output is poisoned");
    other.execute(1, 1, &[1], 10);
    other.ended(1).expect("undisturbed");
}

#[test]
fn sessions_take_turns_whoever_asks_faster() {
    let mut fixture = Fixture::with(Clock::Manual);
    let mut greedy = fixture.job("greedy.py");
    let mut modest = fixture.job("modest.py");
    for job in [&mut greedy, &mut modest] {
        job.compile(1, KEEPING).expect("compiles");
        job.upload(1, [1.0; 4]);
    }
    for step in 1..=20 {
        greedy.execute(step, 1, &[1], 100 * step);
    }
    fixture.until(|| fixture.sum(|account| u64::from(account.running)) == 2);
    modest.execute(1, 1, &[1], 10);
    fixture.until(|| fixture.waiting() == 2);
    // Whatever was granted may not have reached the device yet, so time moves until it has.
    fixture.until(|| {
        fixture.host.device.advance(Duration::from_millis(5));
        fixture.sum(|account| account.iterations) == 21
    });
    modest.ended(1).expect("it had its turn");
    greedy.ended(20).expect("all of it ran");
    // When a granted iteration runs is up to its thread; whom the engine chose is not.
    let copied = fixture.host.engine.recorded();
    let recording = copied.recording(salus_device::Device::description(&*fixture.host.device), 0);
    let (of_greedy, of_modest): (Vec<_>, Vec<_>) =
        recording.iterations.iter().partition(|i| i.session == 1);
    let waited = of_modest[0].ready_ns..of_modest[0].started_ns;
    let before = of_greedy.iter().filter(|i| waited.contains(&i.started_ns));
    assert!(before.count() <= 1, "{of_greedy:?} before {of_modest:?}");
}

#[test]
fn a_launch_that_the_device_has_no_room_for_is_tried_again_with_more() {
    // The ledger believes in twice what the device has.
    let room = Room {
        device_bytes: 2 << 20,
        host_bytes: 8 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::on(1 << 20, Clock::Real, room);
    let (mut one, mut two) = (fixture.job("one.py"), fixture.job("two.py"));
    for job in [&mut one, &mut two] {
        let holds = "name: hold; params: f32[4]; outputs: f32[200000]";
        job.compile(1, holds).expect("compiles");
        job.upload(1, [1.0; 4]);
    }
    one.execute(1, 1, &[1], 10);
    one.ended(1).expect("it fits");
    two.execute(1, 1, &[1], 10);
    two.ended(1).expect("the other made room for it");
    let paged = fixture
        .host
        .engine
        .look(|engine, _| engine.ledger().paged_bytes());
    assert!(paged >= 800_000, "{paged} bytes have left");
    // More than the device ever has: the second failure is the job's.
    let large = "name: large; params: f32[4]; outputs: f32[4]; hidden: 2000000";
    two.compile(2, large).expect("compiles");
    two.execute(2, 2, &[1], 20);
    let error = two.ended(2).expect_err("the device is too small");
    assert!(error.message.contains("out of memory"), "{}", error.message);
    one.execute(2, 1, &[1], 20);
    one.ended(2).expect("nobody else noticed");
}

#[test]
fn scratch_that_the_compiler_does_not_count_is_learned_from_the_device() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(
        1,
        "name: s; params: f32[4]; outputs: f32[4]; scratch: 100; hidden: 5000",
    )
    .expect("compiles");
    job.upload(1, [1.0; 4]);
    let peak = |fixture: &Fixture| {
        let peak = |engine: &salus_engine::Engine, _| engine.ledger().peak_bytes();
        fixture.host.engine.look(peak)
    };
    job.execute(1, 1, &[1], 10);
    job.ended(1).expect("it ran");
    assert_eq!(peak(&fixture), 132);
    job.execute(2, 1, &[1], 20);
    job.ended(2).expect("it ran");
    assert_eq!(peak(&fixture), 5148, "the second run asks for all of it");
}
