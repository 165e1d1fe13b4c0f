//! A device with memory of its own: arrays in host memory are charged to the host, pages are copied,
//! and what they take is bounded.

use std::sync::atomic::Ordering::Relaxed;

use salus_engine::Event;

use super::*;

/// The device's memory `pinned_host`.
const HOST: u32 = 1;

fn room(device_bytes: u64, host_bytes: u64) -> Room {
    Room {
        device_bytes,
        host_bytes,
        user_max: None,
    }
}

/// Resident, paged, and in host memory.
fn charged(fixture: &Fixture) -> (u64, u64, u64) {
    fixture.host.engine.look(|engine, _| {
        let ledger = engine.ledger();
        let (resident, paged) = (ledger.resident_bytes(), ledger.paged_bytes());
        (resident, paged, ledger.host_bytes())
    })
}

fn drop_arrays(job: &mut Job, arrays: &[u64]) {
    let arrays = arrays.iter().copied().map(ArrayId).collect();
    job.send(DropArrays { arrays });
}

#[test]
fn arrays_in_host_memory_take_nothing_of_the_device() {
    let mut fixture = Fixture::separate(Clock::Real, room(40, 10_000));
    let mut job = fixture.job("offload.py");
    for array in 1..=4 {
        job.upload_to(HOST, array, [1.0; 4]);
    }
    let uploaded = job.fetch(1, 4).expect("it is there");
    assert_eq!(charged(&fixture), (0, 0, 64));
    // Copied to the device and back.
    for (operation, array, copy, memory) in [(1, 4, 5, 0), (2, 5, 6, HOST)] {
        job.send(CopyArray {
            operation: OperationId(operation),
            array: ArrayId(array),
            copy: ArrayId(copy),
            memory,
        });
        job.ended(operation).expect("there is room for it");
    }
    assert_eq!(charged(&fixture), (16, 0, 80));
    assert_eq!(job.fetch(2, 6).expect("it is there"), uploaded);
    // An output in host memory, larger than the device; then one that takes an argument's place there.
    let offload = "name: offload; params: f32[4]; outputs: f32[500] host, f32[4]; ms: 1";
    job.compile(1, offload).expect("the host has room");
    job.execute(3, 1, &[5], 10);
    job.ended(3).expect("it ran");
    assert_eq!(charged(&fixture), (32, 0, 2080));
    let in_place = "name: in place; params: f32[500]; outputs: f32[500] alias 0 host; ms: 1";
    job.compile(2, in_place).expect("the host has room");
    job.execute(4, 2, &[10], 20);
    job.ended(4).expect("it ran");
    assert_eq!(charged(&fixture), (32, 0, 2080));
    drop_arrays(&mut job, &[1, 2, 3, 4, 5, 6, 11, 20]);
    fixture.until(|| charged(&fixture) == (0, 0, 0));
    fixture.until(|| fixture.host.pages.used_bytes() == (0, 0));
    fixture.until(|| fixture.host.device.host_used_bytes() == 0);
}

#[test]
fn what_the_host_has_no_room_for_is_refused_with_the_numbers() {
    let mut fixture = Fixture::separate(Clock::Real, room(40, 40));
    let mut job = fixture.job("offload.py");
    for array in 1..=3 {
        job.upload_to(HOST, array, [1.0; 4]);
    }
    let refused = job.fetch(1, 3).expect_err("48 of 40 bytes");
    assert_eq!(refused.code, ErrorCode::ResourceExhausted);
    let text = refused.message;
    assert!(
        text.contains("16 B") && text.contains("8 B") && text.contains("40 B"),
        "{text}"
    );
    drop_arrays(&mut job, &[1]);
    job.upload_to(HOST, 4, [1.0; 4]);
    job.fetch(2, 4).expect("there is room again");
}

#[test]
fn a_donated_array_in_host_memory_is_read_before_it_is_overwritten() {
    let mut fixture = Fixture::separate(Clock::Manual, room(1000, 1000));
    let mut job = fixture.job("offload.py");
    let make = "name: make; params: f32[4]; outputs: f32[4] host; ms: 5";
    job.compile(1, make).expect("compiles");
    let step = "name: step; params: f32[4]; outputs: f32[4] alias 0 host; ms: 5";
    job.compile(2, step).expect("compiles");
    job.upload(1, [1.0; 4]);
    job.execute(1, 1, &[1], 10);
    // The read waits for the launch, and what donates the array for the read: the plugin would refuse
    // to keep it.
    job.send(ReadArray {
        request: RequestId(1),
        array: ArrayId(10),
        target: Region {
            segment: SegmentId(0),
            offset: 8192,
            length: 16,
        },
        form: Form::Raw,
    });
    job.execute(2, 2, &[10], 20);
    fixture.run_until(2);
    job.ended(2).expect("it was donated, and not kept");
    let read = job.next(|message| matches!(message, FromService::ReadDone(_)));
    assert!(matches!(read, FromService::ReadDone(done) if done.error.is_none()));
    let first = job.segment.copy_out(8192, 16).expect("inside");
    let second = job.fetch(2, 20).expect("it is there");
    assert_ne!(first, second);
}

const MAKE: &str = "name: make; params: f32[4]; outputs: f32[300000]; ms: 1";
const LOOK: &str = "name: look; params: f32[300000]; outputs: f32[4]; ms: 1";
const STEP_LARGE: &str = "name: large; params: f32[300000]; outputs: f32[300000] alias 0; ms: 1";
const LARGE_BYTES: u64 = 1_200_000;

/// What jobs that took turns have seen.
struct Turns {
    jobs: Vec<Job>,
    seen: Vec<Vec<u8>>,
    /// What was paged out in the later half, and what had to be copied for it.
    out: u64,
    copied: u64,
}

/// Jobs with one large array each, of which one fits the device, take turns.
fn take_turns(fixture: &mut Fixture, overwrite: bool) -> Turns {
    let mut jobs: Vec<Job> = (0..2).map(|_| fixture.job("serve.py")).collect();
    for job in &mut jobs {
        for (program, script) in [(1, MAKE), (2, LOOK), (3, STEP_LARGE)] {
            job.compile(program, script).expect("compiles");
        }
        job.upload(1, [1.0; 4]);
        job.execute(1, 1, &[1], 10);
        job.ended(1).expect("it ran");
    }
    let moved = |fixture: &Fixture| {
        let (mut out, mut copied) = (0, 0);
        fixture.host.engine.each(|session, _, _, _| {
            out += session.paging.out_bytes.load(Relaxed);
            copied += session.paging.copied_bytes.load(Relaxed);
        });
        (out, copied)
    };
    let (mut array, mut half) = (10, (0, 0));
    for turn in 1..=8 {
        for job in &mut jobs {
            if overwrite {
                job.execute(10 * turn, 3, &[array], array + 1);
            }
            let large = array + u64::from(overwrite);
            job.execute(10 * turn + 1, 2, &[large], 1000 + turn);
            job.ended(10 * turn + 1).expect("it ran");
            check_host_memory(fixture);
        }
        array += u64::from(overwrite);
        if turn == 4 {
            half = moved(fixture);
        }
    }
    let (out, copied) = moved(fixture);
    let seen = jobs
        .iter_mut()
        .map(|job| job.fetch(9, 1008).expect("it is there"));
    Turns {
        seen: seen.collect(),
        jobs,
        out: out - half.0,
        copied: copied - half.1,
    }
}

fn check_host_memory(fixture: &Fixture) {
    let (used, _) = fixture.host.pages.used_bytes();
    let room = fixture.host.engine.look(|engine, _| engine.ledger().room());
    let most = room.host_bytes;
    assert!(
        used <= most,
        "{used} bytes of host memory, and {most} is the limit"
    );
}

/// What they see with room for all.
fn undisturbed(overwrite: bool) -> Vec<Vec<u8>> {
    let mut fixture = Fixture::separate(Clock::Real, room(1 << 30, 1 << 30));
    let turns = take_turns(&mut fixture, overwrite);
    assert_eq!(turns.out, 0);
    turns.seen
}

#[test]
fn arrays_that_nobody_overwrites_are_copied_out_once() {
    let mut fixture = Fixture::separate(Clock::Real, room(1_500_000, 2 * LARGE_BYTES + 4096));
    let Turns {
        seen, out, copied, ..
    } = take_turns(&mut fixture, false);
    assert_eq!(seen, undisturbed(false));
    assert!(out >= LARGE_BYTES, "somebody was paged out");
    // Small outputs are.
    assert!(copied < LARGE_BYTES / 100, "{copied} of {out} bytes");
    assert!(
        fixture.host.device.registered().calls > 0,
        "slabs are pinned"
    );
}

#[test]
fn pages_that_are_kept_give_way_where_host_memory_is_short() {
    let mut fixture = Fixture::separate(Clock::Real, room(1_500_000, 2 * LARGE_BYTES + 4096));
    let mut turns = take_turns(&mut fixture, false);
    let kept = |fixture: &Fixture| fixture.host.pages.used_bytes().1;
    assert_eq!(kept(&fixture), LARGE_BYTES, "of what is on the device");
    let mut third = fixture.job("offload.py");
    let offload = "name: offload; params: f32[4]; outputs: f32[300000] host; ms: 1";
    third.compile(1, offload).expect("compiles");
    third.upload(1, [1.0; 4]);
    third.execute(1, 1, &[1], 10);
    third
        .ended(1)
        .expect("there is room as soon as nothing is kept");
    assert_eq!(kept(&fixture), 0);
    check_host_memory(&fixture);
    // Now the host has no room to page out the array that is on the device; then it has again.
    let resident = |fixture: &Fixture| charged(fixture).0;
    let before = resident(&fixture);
    for job in &mut turns.jobs {
        job.execute(1000, 2, &[10], 2000);
    }
    fixture.until(|| fixture.waiting() == 1);
    assert!(resident(&fixture) <= before + 16);
    drop_arrays(&mut third, &[10]);
    for job in &mut turns.jobs {
        job.ended(1000).expect("it ran in the end");
    }
    check_host_memory(&fixture);
}

#[test]
fn an_array_that_was_overwritten_is_not_in_its_page() {
    let mut fixture = Fixture::separate(Clock::Real, room(1_500_000, 4 * LARGE_BYTES));
    let Turns {
        seen, out, copied, ..
    } = take_turns(&mut fixture, true);
    assert_eq!(seen, undisturbed(true));
    assert!(
        out >= LARGE_BYTES && copied >= out,
        "{out} and {copied} bytes"
    );
    drop(fixture);
}

#[test]
fn a_job_that_dies_while_it_is_to_be_paged_in_leaves_nothing_behind() {
    for _ in 0..20 {
        let mut fixture = Fixture::separate(Clock::Real, room(1_500_000, LARGE_BYTES + 4096));
        let (mut one, mut two) = (fixture.job("one.py"), fixture.job("two.py"));
        for job in [&mut one, &mut two] {
            job.compile(1, MAKE).expect("compiles");
            job.compile(2, LOOK).expect("compiles");
            job.upload(1, [1.0; 4]);
            job.execute(1, 1, &[1], 10);
            job.ended(1).expect("it ran");
        }
        // The second is on the device, and the host has no room for it.
        one.execute(2, 2, &[10], 20);
        fixture.until(|| fixture.waiting() == 1);
        // The end of the second makes room for the first, whose own end comes at any moment.
        drop(two);
        drop(one);
        fixture.until(|| fixture.sum(|_| 1) == 0);
        assert_eq!(charged(&fixture), (0, 0, 0));
    }
}

#[test]
fn a_session_is_paged_in_while_another_computes() {
    let mut fixture = Fixture::separate(Clock::Manual, room(2_600_000, 4 * LARGE_BYTES));
    let policy = Policy::Fifo;
    fixture.host.engine.tell(Event::PolicyChanged { policy });
    let mut jobs: Vec<Job> = (0..3).map(|_| fixture.job("train.py")).collect();
    for (n, job) in (1..).zip(&mut jobs) {
        job.compile(1, MAKE).expect("compiles");
        job.compile(2, LOOK).expect("compiles");
        job.upload(1, [1.0; 4]);
        job.execute(1, 1, &[1], 10);
        fixture.run_until(n);
    }
    // The third made the first leave, and is gone.
    drop(jobs.pop());
    fixture.until(|| fixture.sum(|_| 1) == 2);
    let of_first = |fixture: &Fixture| {
        let session = salus_engine::SessionId(1);
        fixture.host.engine.look(|engine, _| {
            let holding = engine.ledger().holding(session).copied();
            let running = engine.account(session).map(|account| account.running);
            (holding.expect("it is open").paged_bytes, running)
        })
    };
    assert!(of_first(&fixture).0 >= LARGE_BYTES);
    let ran = fixture.sum(|account| account.iterations);
    let (first, second) = jobs.split_at_mut(1);
    let (first, second) = (&mut first[0], &mut second[0]);
    let launched = fixture.host.device.launches();
    for operation in 2..=6 {
        second.execute(operation, 2, &[10], 20 + operation);
    }
    // Each iteration takes a millisecond, and time passes only here: once two are in the lane, and others
    // wait.
    let one_ends = |n: u64, waiting: usize| {
        fixture.until(|| fixture.host.device.launches() == launched + n + 1);
        fixture.until(|| fixture.waiting() == waiting);
        fixture.host.device.advance(Duration::from_millis(1));
        fixture.until(|| fixture.sum(|account| account.iterations) == ran + n);
    };
    fixture.until(|| fixture.waiting() == 1);
    first.execute(2, 2, &[10], 20);
    one_ends(1, 2);
    // The first is the first in order. It is copied, and another of the second goes before it: it waits,
    // and what it needs is on the device.
    fixture.until(|| fixture.host.device.launches() == launched + 3);
    let (paged, running) = of_first(&fixture);
    assert!(paged < LARGE_BYTES, "{paged} bytes are paged out");
    assert_eq!(running, Some(0));
    one_ends(2, 2);
    fixture.until(|| of_first(&fixture).1 == Some(1));
    fixture.run_until(ran + 6);
    first.ended(2).expect("it ran");
    second.ended(6).expect("it ran");
    let see = |job: &mut Job, array| job.fetch(9, array).expect("it is there");
    assert_eq!(see(first, 20), see(second, 22));
}

#[test]
fn a_job_that_dies_while_it_is_paged_in_ahead_leaves_nothing_behind() {
    for _ in 0..10 {
        let mut fixture = Fixture::separate(Clock::Real, room(2_600_000, 4 * LARGE_BYTES));
        let jobs: Vec<Job> = (0..3).map(|_| fixture.job("train.py")).collect();
        let threads: Vec<_> = (0..)
            .zip(jobs)
            .map(|(n, mut job)| {
                std::thread::spawn(move || {
                    job.compile(1, MAKE).expect("compiles");
                    job.compile(2, LOOK).expect("compiles");
                    job.upload(1, [1.0; 4]);
                    job.execute(1, 1, &[1], 10);
                    for operation in 2..20 {
                        job.execute(operation, 2, &[10], 20 + operation);
                    }
                    // It waits for some of them, and dies while others wait.
                    job.ended(4 * n + 2).expect("it ran");
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("it ran");
        }
        fixture.until(|| fixture.sum(|_| 1) == 0);
        assert_eq!(charged(&fixture), (0, 0, 0));
        fixture.until(|| fixture.host.device.used_bytes() == 0);
    }
}
