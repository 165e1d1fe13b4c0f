//! Jobs that die or are killed while a callback is under way.

use super::*;

#[test]
fn a_job_that_dies_while_a_call_waits_leaves_nothing_behind() {
    let mut fixture = Fixture::new();
    let mut other = fixture.job("lives.py");
    other.works(1);
    for keeps_channel in [false, true] {
        let (mut job, mut channel) = Job::calling(&mut fixture, CALLS);
        channel.call();
        // It also has something that waits, and something nested.
        job.execute(2, 1, &[1], 20);
        let mut inner = job.channel();
        inner.call();
        job.execute(3, 1, &[1], 30);
        match keeps_channel {
            // As a child of the job would, that was forked.
            true => drop(job),
            false => drop((job, channel, inner)),
        }
        fixture.until_left(1, 32);
    }
    other.works(2);
    assert_eq!(fixture.host.device.used_bytes(), 48);
}

#[test]
fn a_session_that_is_ended_by_its_user_does_not_wait_for_a_callback() {
    let mut fixture = Fixture::new();
    let mut other = fixture.job("lives.py");
    other.works(1);
    let (mut job, mut channel) = Job::calling(&mut fixture, CALLS);
    channel.call();
    fixture.host.engine.kill(SessionId(2));
    let refused = job.next(|message| matches!(message, FromService::Refused(_)));
    let FromService::Refused(refused) = refused else {
        panic!("not a refusal")
    };
    assert_eq!(refused.error.message, "the job was ended with `salus job`");
    assert_eq!(channel.taken(), None);
    fixture.until_left(1, 32);
    other.works(2);
}

#[test]
fn a_program_that_goes_on_calling_ends_with_its_session() {
    let mut fixture = Fixture::new();
    let script = "name: many; params: f32[4]; outputs: f32[4]; callbacks: 1000000000";
    let (job, mut channel) = Job::calling(&mut fixture, script);
    for _ in 0..100 {
        channel.answers();
    }
    drop(job);
    while channel.taken().is_some() {
        let answer = FromCallbacks::from(CallbackReturn { error: None });
        let _ = salus_channel::send_all(&channel.socket, &answer, None);
    }
    fixture.until_left(0, 0);
}

/// Wherever the end of a job meets its calls.
#[test]
fn jobs_that_die_at_any_moment_of_their_calls_give_all_back() {
    let mut fixture = Fixture::new();
    let script = "name: few; params: f32[4]; outputs: f32[4] alias 0; callbacks: 3; together: 1";
    let mut other = fixture.job("lives.py");
    other.works(1);
    for round in 0..100u64 {
        let mut job = fixture.job("dies.py");
        job.compile(1, script).expect("compiles");
        job.compile(2, CALLS).expect("compiles");
        for array in 1..=4 {
            job.upload(array, [1.0; 4]);
        }
        job.execute(1, 1, &[1], 10);
        job.execute(2, 2, &[2], 20);
        job.execute(3, 1, &[3], 30);
        for _ in 0..round % 4 {
            let mut channel = job.channel();
            let call = channel.call();
            if round % 3 == 0 {
                channel.answer(
                    (call.callback == 1).then(|| Error::new(ErrorCode::Internal, "raised")),
                );
            }
        }
        drop(job);
        if round % 10 == 0 {
            other.works(2 + round);
            other.send(DropArrays {
                arrays: vec![ArrayId(1_002 + round)],
            });
        }
    }
    fixture.until_left(1, 32);
    other.works(500);
}

// Threads.

thread_local! {
    /// Dropped when the thread ends.
    static ENDS: RefCell<Option<Sender<()>>> = const { RefCell::new(None) };
}

#[test]
fn threads_of_launches_are_used_again_and_end_with_their_host() {
    let launchers = LaunchThreads::default();
    let (sender, ends) = channel();
    let (done, tasks) = channel();
    for _ in 0..3 {
        // All at the same time, more than are kept.
        let barrier = Arc::new(Barrier::new(20));
        for _ in 0..20 {
            let (sender, done, barrier) = (sender.clone(), done.clone(), Arc::clone(&barrier));
            let task = move || {
                ENDS.set(Some(sender));
                barrier.wait();
                let _ = done.send(std::thread::current().id());
            };
            launchers.run(Box::new(task)).expect("a thread");
        }
        for _ in 0..20 {
            tasks.recv_timeout(DEADLINE).expect("it ran");
        }
    }
    drop((launchers, sender));
    let nobody = ends.recv_timeout(DEADLINE);
    let gone = std::sync::mpsc::RecvTimeoutError::Disconnected;
    assert_eq!(nobody, Err(gone), "a thread hangs");
}
