//! The trace of real sessions.

use super::*;

#[test]
fn a_trace_tells_who_ran_when_and_what_moved() {
    let room = Room {
        device_bytes: 120,
        host_bytes: 1 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::of(Clock::Real, room);
    let jobs = [fixture.job("one.py"), fixture.job("two.py")];
    let trained = jobs.map(|mut job| {
        std::thread::spawn(move || {
            train(&mut job, 10, |_| {});
            job
        })
    });
    let mut jobs = trained.map(|thread| thread.join().expect("it trains"));
    // On a busy machine the one may have been done before the other began. One of them has left by
    // now, and comes back for another step.
    for job in &mut jobs {
        job.execute(11, 1, &[20], 21);
        job.ended(11).expect("it ran");
    }
    // The end of the last iteration is told to its job first.
    fixture.until(|| fixture.sum(|account| account.iterations) == 22);
    let copied = fixture.host.engine.recorded();
    let recording = copied.recording(salus_device::Device::description(&*fixture.host.device), 0);
    let names: Vec<_> = recording.sessions.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["one.py", "two.py"]);
    assert_eq!(recording.programs[0].1, "step");
    assert_eq!(recording.iterations.len(), 22);
    let mut last_end = 0;
    for iteration in &recording.iterations {
        assert_eq!(iteration.program, recording.programs[0].0);
        assert!(iteration.ready_ns <= iteration.started_ns);
        assert!(iteration.started_ns <= iteration.began_ns);
        assert!(iteration.began_ns >= last_end, "two at once in a lane");
        assert!(iteration.ended_ns > iteration.began_ns);
        last_end = iteration.ended_ns;
    }
    // They do not fit together: a session that is paged out is paged in again.
    assert!(recording.moves.iter().any(|moved| moved.out));
    assert!(recording.moves.iter().any(|moved| !moved.out));
    assert!(recording.moves.iter().all(|moved| moved.bytes <= 16));
    assert!(recording.iterations.iter().any(|i| i.memory_ns > 0));
    assert_eq!(recording.compilations.len(), 2);
    drop(jobs);
}
