//! A device whose memory is not the host's: launches are enqueued, one at a time, out-of-memory comes
//! when they have ended, and some errors stick.

use super::*;

/// Two jobs' arrays fit, and scratch beside one of them.
const MEMORY: u64 = 1 << 20;
/// What the ledger believes.
const TWICE: Room = Room {
    device_bytes: 2 << 20,
    host_bytes: 8 << 20,
    user_max: None,
};
/// An array of 400 kB.
const HOLD: &str = "name: hold; params: f32[4]; outputs: f32[100000]";
const SUM: &str = "name: sum; params: f32[100000]; outputs: f32[4]";
/// Scratch for which there is room beside one such array, and not beside two.
const TRAIN: &str =
    "name: train; params: f32[100000]; outputs: f32[100000] alias 0; scratch: 400000";
/// The same that its compiler does not report.
const HIDES: &str = "name: hides; params: f32[100000]; outputs: f32[4]; hidden: 400000";
const HIDES_IN_PLACE: &str =
    "name: hides2; params: f32[100000]; outputs: f32[100000] alias 0; hidden: 400000";

/// What a launch of `program` gives on `hold`'s output, and `sum` of that if it is large.
fn expected(program: &str, sums: bool) -> Vec<u8> {
    let mut fixture = Fixture::on(16 << 20, Clock::Real, TWICE);
    let mut job = fixture.job("alone.py");
    hold(&mut job);
    job.compile(2, program).expect("compiles");
    job.execute(2, 2, &[10], 20);
    fetch_result(&mut job, sums)
}

fn hold(job: &mut Job) {
    job.compile(1, HOLD).expect("compiles");
    job.upload(1, [1.0; 4]);
    job.execute(1, 1, &[1], 10);
    job.ended(1).expect("it fits");
}

fn fetch_result(job: &mut Job, sums: bool) -> Vec<u8> {
    if !sums {
        return job.fetch(99, 20).expect("the output is there");
    }
    job.compile(3, SUM).expect("compiles");
    job.execute(3, 3, &[20], 30);
    job.fetch(99, 30).expect("the output is there")
}

fn paged(fixture: &Fixture) -> u64 {
    let paged = |engine: &Engine, _| engine.ledger().paged_bytes();
    fixture.host.engine.look(paged)
}

#[test]
fn an_error_that_sticks_is_noticed_and_a_program_is_suspected() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let mut job = fixture.job("bad.py");
    let bad = "name: bad; params: f32[4]; outputs: f32[4]; fail: sticky";
    job.compile(1, bad).expect("compiles");
    job.upload(1, [1.0; 4]);
    job.execute(1, 1, &[1], 10);
    let error = job.ended(1).expect_err("it failed");
    assert!(error.message.contains("ILLEGAL_ADDRESS"), "{error}");
    let found = fixture
        .broken
        .recv_timeout(DEADLINE)
        .expect("a probe failed, too");
    assert_eq!(found.session, 1);
    assert_eq!(found.program.expect("a suspect").name, "bad");
    assert_eq!(found.why, error.message);
}

#[test]
fn a_transfer_notices_as_well_and_no_program_is_suspected_of_what_hardware_does() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let mut job = fixture.job("train.py");
    job.upload(1, [1.0; 4]);
    job.fetch(1, 1).expect("it works");
    fixture
        .host
        .device
        .stick("CUDA_ERROR_LAUNCH_FAILED: of whatever reason");
    job.upload(2, [2.0; 4]);
    let found = fixture.broken.recv_timeout(DEADLINE).expect("probed");
    assert_eq!((found.session, found.program), (1, None));
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let mut job = fixture.job("train.py");
    job.compile(1, KEEPING).expect("compiles");
    job.upload(1, [1.0; 4]);
    job.fetch(1, 1).expect("it works");
    fixture
        .host
        .device
        .stick("Uncorrectable ECC error encountered");
    job.execute(1, 1, &[1], 10);
    let found = fixture.broken.recv_timeout(DEADLINE).expect("probed");
    assert_eq!((found.session, found.program), (1, None));
}

#[test]
fn failures_of_two_sessions_on_a_device_that_works_end_nothing() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    for name in ["one.py", "two.py"] {
        let mut job = fixture.job(name);
        let bad = "name: bad; params: f32[4]; outputs: f32[4]; fail: async";
        job.compile(1, bad).expect("compiles");
        job.upload(1, [1.0; 4]);
        job.execute(1, 1, &[1], 10);
        job.ended(1).expect_err("it failed");
    }
    // The second has it probed.
    fixture.until(|| fixture.host.health_probes() == 1);
    let mut job = fixture.job("good.py");
    train(&mut job, 3, |_| {});
    assert!(fixture.broken.try_recv().is_err(), "it works");
    assert_eq!(fixture.host.health_probes(), 1);
}

#[test]
fn outputs_of_a_launch_that_failed_hold_its_error_and_no_memory() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let mut job = fixture.job("bad.py");
    let bad = "name: bad; params: f32[4]; outputs: f32[4], f32[1000]; fail: async";
    job.compile(1, bad).expect("compiles");
    job.compile(2, KEEPING).expect("compiles");
    job.upload(1, [1.0; 4]);
    job.execute(1, 1, &[1], 10);
    let failed = job.ended(1).expect_err("it failed");
    assert_eq!(job.fetch(1, 10).expect_err("its output"), failed);
    job.execute(2, 2, &[10], 20);
    assert_eq!(job.ended(2).expect_err("its argument"), failed);
    fixture.until(|| fixture.resident() == 16);
}

#[test]
fn launch_calls_of_a_lane_do_not_overlap() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let mut jobs = [fixture.job("one.py"), fixture.job("two.py")];
    for job in &mut jobs {
        job.compile(1, KEEPING).expect("compiles");
        job.upload(1, [1.0; 4]);
    }
    for round in 1..=50 {
        fixture.host.device.hold_calls(true);
        for job in &mut jobs {
            job.execute(round, 1, &[1], 100 * round);
        }
        // Both have their turn; one is being handed over, and the other wants to be.
        fixture.until(|| fixture.sum(|account| u64::from(account.running)) == 2);
        fixture.until(|| fixture.host.device.launch_calls().now > 0);
        fixture.host.device.hold_calls(false);
        for job in &mut jobs {
            job.ended(round).expect("it ran");
        }
    }
    let calls = fixture.host.device.launch_calls();
    assert_eq!((calls.most, calls.returned), (1, 100));
}

#[test]
fn the_follower_is_handed_over_while_the_first_runs() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Manual, TWICE);
    let mut jobs = [fixture.job("one.py"), fixture.job("two.py")];
    for job in &mut jobs {
        job.compile(1, KEEPING).expect("compiles");
        job.upload(1, [1.0; 4]);
        job.execute(1, 1, &[1], 10);
    }
    // Time stands still: none has ended.
    fixture.until(|| fixture.host.device.launch_calls().returned == 2);
    assert_eq!(fixture.sum(|account| account.iterations), 0);
    fixture.run_until(2);
}

#[test]
fn what_the_device_has_no_room_for_is_not_given_what_it_would_lose() {
    let expected = expected(TRAIN, true);
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let mut jobs = [fixture.job("one.py"), fixture.job("two.py")];
    for job in &mut jobs {
        hold(job);
        job.compile(2, TRAIN).expect("compiles");
    }
    assert_eq!(paged(&fixture), 0);
    for job in &mut jobs {
        job.execute(2, 2, &[10], 20);
        job.ended(2).expect("the other made room for it");
        assert_eq!(fetch_result(job, true), expected);
    }
}

#[test]
fn a_launch_that_has_given_nothing_away_runs_again_before_its_job_hears_of_it() {
    let expected = expected(HIDES, false);
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let mut jobs = [fixture.job("one.py"), fixture.job("two.py")];
    for job in &mut jobs {
        hold(job);
        job.compile(2, HIDES).expect("compiles");
    }
    for job in &mut jobs {
        // The read waits for the launch, and the drops come after it.
        job.execute(2, 2, &[10], 20);
        job.read(99, 20);
        job.send(DropArrays {
            arrays: vec![ArrayId(10), ArrayId(20)],
        });
        assert_eq!(job.until_read(99).expect("it ran again"), expected);
        job.ended(2).expect("it ran again");
        job.upload(2, [2.0; 4]);
        job.execute(3, 1, &[2], 50);
        job.ended(3).expect("the session goes on");
    }
    let arrays: u64 = 2 * (16 + 16 + 400_000);
    fixture.until(|| fixture.resident() + paged(&fixture) == arrays);
}

#[test]
fn a_launch_is_tried_until_all_others_are_paged_out() {
    // Two others must leave, and the ledger has more room than the device.
    let room = Room {
        device_bytes: 128 << 20,
        host_bytes: 256 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::accelerator(64 << 20, Clock::Real, room);
    let mut jobs = ["one.py", "two.py", "three.py"].map(|name| fixture.job(name));
    let hold = "name: hold; params: f32[4]; outputs: f32[5000000]";
    for job in &mut jobs {
        job.compile(1, hold).expect("compiles");
        job.upload(1, [1.0; 4]);
        job.execute(1, 1, &[1], 10);
        job.ended(1).expect("it fits");
    }
    let [one, ..] = &mut jobs;
    let hides = "name: hides; params: f32[5000000]; outputs: f32[4]; hidden: 40000000";
    one.compile(2, hides).expect("compiles");
    one.execute(2, 2, &[10], 20);
    one.ended(2).expect("it ran in the end");
    assert!(paged(&fixture) >= 40_000_000);
}

#[test]
fn a_launch_that_others_depend_on_already_does_not_run_again() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Manual, TWICE);
    let mut jobs = [fixture.job("one.py"), fixture.job("two.py")];
    for (n, job) in (1..).zip(&mut jobs) {
        job.compile(1, HOLD).expect("compiles");
        job.upload(1, [1.0; 4]);
        job.execute(1, 1, &[1], 10);
        fixture.run_until(n);
    }
    let [one, _two] = &mut jobs;
    let in_place = "name: in place; params: f32[100000]; outputs: f32[100000] alias 0; ms: 1";
    let programs = [
        (
            2,
            "name: one; params: f32[100000]; outputs: f32[4]; hidden: 400000; ms: 1",
        ),
        (3, "name: uses; params: f32[4]; outputs: f32[4]; ms: 1"),
        // One that was short of memory is waited for.
        (
            4,
            "name: two; params: f32[100000]; outputs: f32[4]; hidden: 400000; ms: 1",
        ),
        (5, in_place),
    ];
    for (id, program) in programs {
        one.compile(id, program).expect("compiles");
    }
    // What it makes is used, then what it reads is given away, before it has failed.
    for (operation, argument) in [(2, 20), (4, 10)] {
        let before = fixture.host.device.launch_calls().returned;
        one.execute(operation, operation, &[10], 20);
        one.execute(operation + 1, operation + 1, &[argument], 30 + operation);
        fixture.until(|| fixture.host.device.launch_calls().returned == before + 2);
        fixture.host.device.advance(Duration::from_millis(2));
        let error = one.ended(operation).expect_err("there was no room for it");
        assert_eq!(error.code, ErrorCode::ResourceExhausted, "{error}");
    }
    assert_eq!(fixture.host.device.launch_calls().returned, 6);
    one.ended(5).expect("it did not need the other");
}

#[test]
fn a_program_that_lost_its_arguments_once_is_not_given_them_the_next_time() {
    let expected = expected(HIDES_IN_PLACE, true);
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let (mut one, mut two) = (fixture.job("one.py"), fixture.job("two.py"));
    hold(&mut one);
    hold(&mut two);
    one.compile(2, HIDES_IN_PLACE).expect("compiles");
    one.execute(2, 2, &[10], 20);
    let error = one.ended(2).expect_err("its argument is gone");
    assert_eq!(error.code, ErrorCode::ResourceExhausted);
    assert_eq!(one.fetch(1, 20).expect_err("its output"), error);
    // Again and again, whoever needs memory meanwhile.
    for round in 0..5 {
        let [start, end, of_other] = [100, 200, 300].map(|ids| ids + 10 * round);
        two.execute(start, 1, &[1], of_other);
        two.ended(start).expect("it fits, or others are paged out");
        one.execute(start, 1, &[1], start);
        one.execute(end, 2, &[start], 20);
        one.ended(end).expect("nothing is lost any more");
        assert_eq!(fetch_result(&mut one, true), expected);
        let arrays = vec![ArrayId(20), ArrayId(30)];
        one.send(DropArrays { arrays });
        let arrays = vec![ArrayId(of_other)];
        two.send(DropArrays { arrays });
    }
}

#[test]
fn what_depends_on_a_launch_that_may_have_to_run_again_waits_for_it() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Manual, TWICE);
    let mut job = fixture.job("train.py");
    let two = "name: two; params: f32[4]; outputs: f32[4], f32[4]; scratch: 100; ms: 5";
    job.compile(1, two).expect("compiles");
    job.upload(1, [1.0; 4]);
    // Large enough for each of its pieces, but not for all together.
    let (largest, used) = (110, 0);
    fixture.host.device.break_up(Pieces { largest, used });
    job.execute(1, 1, &[1], 10);
    job.execute(2, 1, &[10], 20);
    fixture.until(|| fixture.host.device.launch_calls().returned == 1);
    // When the second answer is there, everything was looked at once more.
    for request in [1, 2] {
        job.usage(request);
    }
    assert_eq!(fixture.host.device.launch_calls().returned, 1);
    fixture.run_until(2);
    job.ended(2).expect("it ran after the first");
}

#[test]
fn memory_in_pieces_is_made_whole_by_paging_others_out() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let (mut one, mut two) = (fixture.job("one.py"), fixture.job("two.py"));
    hold(&mut one);
    hold(&mut two);
    let small = "name: small; params: f32[100000]; outputs: f32[100000] alias 0; scratch: 100000";
    two.compile(2, small).expect("compiles");
    // There is enough, but not in one piece, until the other's array is gone.
    let (largest, used) = (90_000, 500_000);
    fixture.host.device.break_up(Pieces { largest, used });
    two.execute(2, 2, &[10], 20);
    two.ended(2).expect("it was not handed over before");
    assert!(paged(&fixture) >= 400_000);
}

#[test]
fn memory_in_pieces_is_asked_for_until_it_is_whole() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let mut jobs = ["one.py", "two.py", "three.py", "four.py"].map(|name| fixture.job(name));
    for job in &mut jobs {
        let hold = "name: hold; params: f32[4]; outputs: f32[50000]";
        job.compile(1, hold).expect("compiles");
        job.upload(1, [1.0; 4]);
        job.execute(1, 1, &[1], 10);
        job.ended(1).expect("it fits");
    }
    let [one, ..] = &mut jobs;
    let small = "name: small; params: f32[50000]; outputs: f32[50000] alias 0; scratch: 100000";
    one.compile(2, small).expect("compiles");
    // All others must leave, and each time one does.
    let (largest, used) = (90_000, 350_000);
    fixture.host.device.break_up(Pieces { largest, used });
    one.execute(2, 2, &[10], 20);
    one.ended(2).expect("it was asked for often enough");
    assert!(paged(&fixture) >= 600_000);
}

#[test]
fn an_array_that_there_is_no_room_for_stays_in_its_page() {
    let expected = expected(SUM, false);
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let (mut one, mut two) = (fixture.job("one.py"), fixture.job("two.py"));
    hold(&mut one);
    hold(&mut two);
    one.compile(2, SUM).expect("compiles");
    two.execute(2, 1, &[1], 20);
    two.ended(2).expect("the other is paged out for it");
    assert!(paged(&fixture) >= 400_000);
    // The ledger has room for it, and the device has not.
    one.execute(2, 2, &[10], 20);
    assert_eq!(one.fetch(99, 20).expect("room was made for it"), expected);
}

#[test]
fn what_may_not_fit_is_not_given_what_it_would_lose() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let (mut one, mut two) = (fixture.job("one.py"), fixture.job("two.py"));
    hold(&mut one);
    hold(&mut two);
    let pieces = "name: pieces; params: f32[100000]; outputs: f32[100000] alias 0, f32[25000]; \
                  scratch: 100000";
    two.compile(2, pieces).expect("compiles");
    // Enough for each, and for both only as it happens, until the other's array is gone.
    let (largest, used) = (150_000, 500_000);
    fixture.host.device.break_up(Pieces { largest, used });
    two.execute(2, 2, &[10], 20);
    two.ended(2).expect("it fits");
    assert!(paged(&fixture) >= 400_000, "it was made sure");
}

#[test]
fn uploads_ask_for_room_that_the_device_has_not() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let (mut one, mut two) = (fixture.job("one.py"), fixture.job("two.py"));
    hold(&mut one);
    hold(&mut two);
    let (largest, used) = (8, 500_000);
    fixture.host.device.break_up(Pieces { largest, used });
    two.upload(5, [5.0; 4]);
    let read = two.fetch(1, 5).expect("the other made room for it");
    assert_eq!(read[..4], 5.0f32.to_ne_bytes());
    assert!(paged(&fixture) >= 400_000);
    // Where there is none, the job is told, and only the array is lost.
    let (largest, used) = (8, 0);
    fixture.host.device.break_up(Pieces { largest, used });
    two.upload(6, [6.0; 4]);
    let error = two.fetch(2, 6).expect_err("nobody can make room for it");
    assert_eq!(error.code, ErrorCode::ResourceExhausted);
    two.fetch(3, 5).expect("the session goes on");
    let arrays: u64 = 2 * (16 + 400_000) + 16;
    assert_eq!(fixture.resident() + paged(&fixture), arrays);
}

#[test]
fn memory_that_a_session_divides_itself_is_made_whole() {
    let expected = expected(TRAIN, true);
    // The ledger has just enough for it: more, for which all would be paged out, cannot be asked for.
    let room = Room {
        device_bytes: 800_000,
        ..TWICE
    };
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, room);
    let mut job = fixture.job("train.py");
    hold(&mut job);
    job.compile(2, TRAIN).expect("compiles");
    let arrays = vec![ArrayId(1)];
    job.send(DropArrays { arrays });
    // There is room beside its only array, but not in one piece before that has moved.
    let (largest, used) = (300_000, 100_000);
    fixture.host.device.break_up(Pieces { largest, used });
    job.execute(2, 2, &[10], 20);
    job.ended(2).expect("its array was moved");
    assert_eq!(fetch_result(&mut job, true), expected);
    assert_eq!(fixture.resident() + paged(&fixture), 400_000 + 16);
}

#[test]
fn an_upload_that_a_launch_call_leaves_no_room_for_waits_for_the_call() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let (mut one, mut two) = (fixture.job("one.py"), fixture.job("two.py"));
    // With its argument and its output, all that there is.
    let fills = "name: fills; params: f32[4]; outputs: f32[4]; scratch: 1048544";
    one.compile(1, fills).expect("compiles");
    one.upload(1, [1.0; 4]);
    fixture.host.device.hold_calls(true);
    one.execute(1, 1, &[1], 10);
    fixture.until(|| fixture.host.device.launch_calls().now == 1);
    two.upload(2, [2.0; 4]);
    fixture.until(|| fixture.host.device.refusals() == 1);
    fixture.host.device.hold_calls(false);
    one.ended(1).expect("it ran");
    two.fetch(1, 2).expect("there is room after the call");
    assert_eq!(paged(&fixture), 0, "nobody had to leave for it");
}

#[test]
fn what_can_never_have_a_piece_is_refused_and_loses_nothing() {
    let mut fixture = Fixture::accelerator(MEMORY, Clock::Real, TWICE);
    let mut job = fixture.job("train.py");
    job.compile(1, STEP).expect("compiles");
    job.upload(1, [1.0; 4]);
    let (largest, used) = (90, 0);
    fixture.host.device.break_up(Pieces { largest, used });
    job.execute(1, 1, &[1], 10);
    let error = job.ended(1).expect_err("there is no piece for its scratch");
    assert_eq!(error.code, ErrorCode::ResourceExhausted);
    assert!(error.message.contains("100 B in one piece"), "{error}");
    assert_eq!(fixture.host.device.launch_calls().returned, 0);
    job.fetch(1, 1).expect("its argument is still there");
}
