//! Jobs that close a channel, answer nonsense, answer late or not at all.

use super::*;

/// Ends the launch of the first session in some way and returns its error. Another session works
/// before and after; so does the first, over another channel.
fn only_its_launch_ends(misbehave: impl FnOnce(Channel)) -> Error {
    let mut fixture = Fixture::new();
    let mut other = fixture.job("other.py");
    let (mut job, mut channel) = Job::calling(&mut fixture, CALLS);
    channel.call();
    other.works(1);
    misbehave(channel);
    let error = job.ended(1).expect_err("nobody answered");
    other.works(2);
    assert_eq!(fixture.channels(2), (0, 0));
    job.execute(2, 1, &[1], 20);
    job.channel().answers();
    job.ended(2).expect("the session goes on");
    error
}

#[test]
fn a_job_that_closes_a_channel_ends_its_launch() {
    let error = only_its_launch_ends(drop);
    assert_eq!(error.code, ErrorCode::Unavailable, "{error}");
    assert!(error.message.contains("closed the connection"), "{error}");
}

#[test]
fn a_job_that_answers_with_garbage_ends_its_launch() {
    let unknown = [4, 0, 0, 0, 99, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    for garbage in [&[0xff; 4096][..], &[0xff; 64], &unknown] {
        let error = only_its_launch_ends(|mut channel| {
            channel.socket.write_all(garbage).expect("writable");
            // It does not close it.
            std::mem::forget(channel);
        });
        assert_eq!(error.code, ErrorCode::Unavailable, "{error}");
        assert!(error.message.contains("not a frame"), "{error}");
    }
}

#[test]
fn an_answer_before_the_call_is_an_answer_and_no_more() {
    let mut fixture = Fixture::new();
    let (mut job, mut channel) = Job::calling(&mut fixture, CALLS);
    channel.call();
    channel.answer(None);
    channel.answer(None);
    job.ended(1).expect("it ran");
    job.execute(2, 1, &[1], 20);
    job.ended(2).expect("it was answered already");
    job.execute(3, 1, &[1], 30);
    assert_eq!(channel.call().operation, OperationId(2));
    assert_eq!(channel.answers().operation, OperationId(3));
    job.ended(3).expect("it ran");
}

#[test]
fn a_callback_that_takes_too_long_ends_its_launch() {
    let mut fixture = Fixture::impatient(Duration::from_secs(1));
    let mut other = fixture.job("other.py");
    let (mut job, mut channel) = Job::calling(&mut fixture, CALLS);
    channel.call();
    other.works(1);
    let error = job.ended(1).expect_err("nobody answered");
    assert_eq!(error.code, ErrorCode::DeadlineExceeded);
    assert_eq!(
        error.to_string(),
        "a callback of this job did not return within 1 s\n\nhint: `[limits] callback_seconds` of \
         salus.toml sets how long one may take"
    );
    // What it answers now is nobody's.
    assert_eq!(channel.taken(), None);
    job.execute(2, 1, &[1], 20);
    job.channel().answers();
    job.ended(2).expect("the session goes on");
}

/// It answers what it was not asked yet, and never reads: the socket fills up.
#[test]
fn a_job_that_does_not_take_its_calls_is_not_waited_for_longer() {
    let mut fixture = Fixture::impatient(Duration::from_secs(1));
    let mut other = fixture.job("other.py");
    let script = "name: many; params: f32[4]; outputs: f32[4]; callbacks: 1000000";
    let (mut job, channel) = Job::calling(&mut fixture, script);
    let writing = channel.socket.try_clone().expect("a descriptor");
    let answers = std::thread::spawn(move || {
        let answer = FromCallbacks::from(CallbackReturn { error: None });
        while salus_channel::send_all(&writing, &answer, None).is_ok() {}
    });
    let error = job.ended(1).expect_err("nobody listened");
    assert_eq!(error.code, ErrorCode::Unavailable, "{error}");
    other.works(1);
    answers.join().expect("its channel was closed");
}

#[test]
fn more_calls_than_may_be_under_way_are_refused() {
    let mut fixture = Fixture::new();
    let most = limits::CALLBACK_CHANNELS as u64;
    let (mut job, first) = Job::calling(&mut fixture, CALLS);
    let mut channels = vec![first];
    for launch in 2..=most {
        job.execute(launch, 1, &[1], 10 * launch);
        channels.push(job.channel());
    }
    job.execute(most + 1, 1, &[1], 10 * (most + 1));
    let error = job.ended(most + 1).expect_err("one too many");
    assert_eq!(error.code, ErrorCode::ResourceExhausted);
    assert!(
        error
            .message
            .starts_with("16 callbacks of this job are under way"),
        "{error}"
    );
    // Another job has as many of its own.
    let mut other = fixture.job("other.py");
    other.compile(1, CALLS).expect("compiles");
    other.upload(1, [1.0; 4]);
    other.execute(1, 1, &[1], 10);
    other.channel().answers();
    other.ended(1).expect("it ran");
    for channel in &mut channels {
        channel.answers();
    }
    for launch in 1..=most {
        job.ended(launch).expect("it ran");
    }
    assert_eq!(fixture.channels(1), (16, 16));
}

// The end of sessions.
