//! Sessions that do not fit together: paged out, paged in, read where they are.

use super::*;

/// What a job computes with all the room in the world.
fn undisturbed(steps: u64) -> Vec<u8> {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("alone.py");
    let last = train(&mut job, steps, |_| {});
    job.fetch(99, last).expect("the output is there")
}

#[test]
fn sessions_that_do_not_fit_together_take_turns_on_the_device() {
    let expected = undisturbed(20);
    // An array and scratch of 100 bytes fit, and another array only without the scratch.
    let room = Room {
        device_bytes: 120,
        host_bytes: 1 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::of(Clock::Real, room);
    let jobs: Vec<Job> = (0..3).map(|_| fixture.job("train.py")).collect();
    let trained: Vec<_> = jobs
        .into_iter()
        .map(|mut job| {
            std::thread::spawn(move || {
                let last = train(&mut job, 20, |_| {});
                let bits = job.fetch(99, last).expect("the output is there");
                (job, bits)
            })
        })
        .collect();
    let trained: Vec<(Job, Vec<u8>)> = trained
        .into_iter()
        .map(|thread| thread.join().expect("it trains"))
        .collect();
    for (_, bits) in &trained {
        assert_eq!(*bits, expected);
    }
    let (peak, paged) = fixture.host.engine.look(|engine, _| {
        let ledger = engine.ledger();
        (ledger.peak_bytes(), ledger.paged_bytes())
    });
    assert!(peak <= room.device_bytes, "{peak} bytes at the peak");
    assert!(paged > 0, "somebody must have left");
    drop(trained);
    fixture.until(|| fixture.sum(|_| 1) == 0);
    let left = fixture.host.engine.look(|engine, _| {
        let ledger = engine.ledger();
        ledger.resident_bytes() + ledger.paged_bytes() + ledger.scratch_bytes()
    });
    assert_eq!(left, 0);
}

#[test]
fn a_quiet_session_that_is_asked_to_leave_twice_in_a_row_leaves_twice() {
    let room = Room {
        device_bytes: 2_300_000,
        host_bytes: 8 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::of(Clock::Manual, room);
    let mut jobs: Vec<Job> = (0..3).map(|_| fixture.job("train.py")).collect();
    for job in &mut jobs {
        let holds = "name: hold; params: f32[4]; outputs: f32[250000]; ms: 1";
        job.compile(1, holds).expect("compiles");
        job.upload(1, [1.0; 4]);
    }
    // The first holds two large arrays and is busy, so that both others wait for its room.
    for operation in 1..=2 {
        jobs[0].execute(operation, 1, &[1], 10 * operation);
        fixture.run_until(operation);
    }
    jobs[0].compile(2, STEP).expect("compiles");
    jobs[0].execute(3, 2, &[1], 30);
    fixture.until(|| fixture.sum(|account| account.running.into()) == 1);
    for job in &mut jobs[1..] {
        job.execute(1, 1, &[1], 10);
        job.flush();
    }
    fixture.until(|| fixture.waiting() == 2);
    fixture.run_until(5);
}

#[test]
fn what_is_paged_out_is_read_where_it_is() {
    let room = Room {
        device_bytes: 40,
        host_bytes: 1 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::of(Clock::Real, room);
    let (mut one, mut two) = (fixture.job("one.py"), fixture.job("two.py"));
    one.upload(1, [1.0, 2.0, 3.0, 4.0]);
    let before = one.fetch(1, 1).expect("it is there");
    two.upload(1, [5.0; 4]);
    two.upload(2, [6.0; 4]);
    two.fetch(1, 2).expect("room was made for it");
    let paged = |fixture: &Fixture| {
        let look = |engine: &salus_engine::Engine, _| engine.ledger().paged_bytes();
        fixture.host.engine.look(look)
    };
    assert_eq!(paged(&fixture), 16);
    assert_eq!(one.fetch(2, 1).expect("from its page"), before);
    assert_eq!(paged(&fixture), 16, "it stayed where it was");
    one.send(DropArrays {
        arrays: vec![ArrayId(1)],
    });
    fixture.until(|| paged(&fixture) == 0);
}

#[test]
fn an_array_that_the_host_has_no_room_for_stays_on_the_device() {
    let room = Room {
        device_bytes: 1_500_000,
        host_bytes: 600_000,
        user_max: None,
    };
    let mut fixture = Fixture::of(Clock::Manual, room);
    let mut jobs: Vec<Job> = (0..2).map(|_| fixture.job("train.py")).collect();
    for job in &mut jobs {
        let holds = "name: hold; params: f32[4]; outputs: f32[250000]; ms: 1";
        job.compile(1, holds).expect("compiles");
        job.upload(1, [1.0; 4]);
    }
    jobs[0].execute(1, 1, &[1], 10);
    fixture.run_until(1);
    // It lacks half a megabyte, and the other's array has a whole one: there is no room for that.
    jobs[1].execute(1, 1, &[1], 10);
    jobs[1].flush();
    fixture.until(|| fixture.waiting() == 1);
    jobs[0].send(DropArrays {
        arrays: vec![ArrayId(10)],
    });
    fixture.run_until(2);
    jobs[1].ended(1).expect("it ran when there was room");
}
