//! A job's profiler asks when its own launches ran.

use std::time::SystemTime;

use salus_channel::open_blob;
use salus_wire::{AskProfile, ErrorCode, Profile, Profiled, Reader, Wire};

use super::*;

fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.expect("after 1970").as_nanos() as u64
}

fn ask(job: &mut Job, request: u64, since_ns: u64) -> Result<Profile, Error> {
    job.send(AskProfile {
        request: RequestId(request),
        since_ns,
    });
    loop {
        let Some(received) = job.inbox.take::<FromService>().expect("well-formed") else {
            let n = job.inbox.fill(&job.socket, true).expect("in time");
            assert!(n > 0, "the service closed the session");
            continue;
        };
        match received.message {
            FromService::Profiled(Profiled { error: Some(e), .. }) => return Err(e),
            FromService::Profiled(profiled) => {
                assert_eq!(profiled.request, RequestId(request));
                let descriptor = received.descriptor.expect("a memfd");
                let bytes = open_blob(descriptor, profiled.bytes).expect("as announced");
                return Ok(Profile::take(&mut Reader::new(&bytes), 0).expect("whole"));
            }
            other => job.seen.push(other),
        }
    }
}

#[test]
fn a_profile_has_the_sessions_own_launches_since_then() {
    let mut fixture = Fixture::new();
    let begun = unix_ns();
    let mut jobs = [fixture.job("one.py"), fixture.job("two.py")];
    for (job, script) in jobs.iter_mut().zip([STEP, KEEPING]) {
        job.compile(1, script).expect("compiles");
        job.upload(1, [1.0; 4]);
        job.execute(1, 1, &[1], 10);
        job.ended(1).expect("it ran");
    }
    let [one, two] = &mut jobs;
    let between = unix_ns();
    // At once after its end was told: the last one is there.
    one.execute(2, 1, &[10], 20);
    one.ended(2).expect("it ran");
    let all = ask(one, 7, begun).expect("a profile");
    assert_eq!(all.programs, ["step"]);
    assert_eq!(all.launches.len(), 2);
    assert_eq!(all.from_ns, begun, "nothing is missing");
    let mut last = begun;
    for launch in &all.launches {
        assert_eq!((launch.lane, launch.program), (0, 0));
        assert!(last <= launch.ready_ns && launch.ready_ns <= launch.began_ns);
        // The script says 5 ms.
        assert!(launch.ended_ns - launch.began_ns >= 4_000_000, "{launch:?}");
        last = launch.ended_ns;
    }
    assert!(last <= unix_ns());

    // The end of the last iteration is told to its job first.
    fixture.until(|| fixture.sum(|account| account.iterations) == 3);
    let later = ask(one, 8, between).expect("a profile");
    assert_eq!(later.launches.len(), 1);
    let moved = later.launches[0]
        .began_ns
        .abs_diff(all.launches[1].began_ns);
    assert!(
        moved < 100_000_000,
        "the clocks were compared {moved} ns apart"
    );
    let now = unix_ns() + 1_000_000;
    assert!(ask(one, 9, now).expect("a profile").launches.is_empty());
    let others = ask(two, 1, begun).expect("a profile");
    assert_eq!(others.programs, ["keeping"]);
    assert_eq!(others.launches.len(), 1);
    // However far ahead or back the job's clock is.
    assert!(
        ask(two, 2, u64::MAX)
            .expect("a profile")
            .launches
            .is_empty()
    );
    assert_eq!(ask(two, 3, 0).expect("a profile").launches.len(), 1);
}

#[test]
fn who_asks_without_end_is_held_back_and_keeps_its_session() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    let refused = (0..1000).find_map(|request| ask(&mut job, request, 0).err());
    let refused = refused.expect("a flood");
    assert_eq!(refused.code, ErrorCode::ResourceExhausted);
    assert!(refused.message.contains("profiles were asked for at once"));
    job.compile(1, STEP).expect("the session goes on");
}
