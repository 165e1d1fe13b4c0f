//! Where jobs are not one user's: what one can do to others, and what bounds it.

use salus_channel::open_blob;
use salus_engine::SessionId;
use salus_wire::{DropProgram, ErrorCode, ToCompiler};

use super::*;

const ROOM: Room = Room {
    device_bytes: 8 << 20,
    host_bytes: 8 << 20,
    user_max: None,
};

/// A service with these settings, and a compiler.
fn fixture(clock: Clock, change: impl FnOnce(&mut HostSettings)) -> Fixture {
    let fixture = Fixture::configured(16 << 20, clock, ROOM, DEADLINE, change);
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    fixture.compilers.joined(1, ours);
    std::thread::spawn(move || {
        let device = ScriptedDevice::open(&scripted(16 << 20, Clock::Real));
        crate::compiler::serve(&device, &theirs)
    });
    fixture
}

fn several_users(settings: &mut HostSettings) {
    settings.several_users = true;
}

fn released(job: &mut Job) -> Vec<Region> {
    match job.next(|message| matches!(message, FromService::Released(_))) {
        FromService::Released(released) => released.regions,
        other => panic!("{other:?} is not a release"),
    }
}

/// What the program makes of what the job writes into its memory after the upload, before the launch
/// and while it runs.
fn computed(fixture: &mut Fixture, rewrite: Option<[f32; 4]>) -> Vec<u8> {
    // The iterations of a session that is gone are not counted any more.
    fixture.until(|| fixture.sum(|_| 1) == 0);
    let mut job = fixture.job("train.py");
    let iterations = fixture.sum(|account| account.iterations);
    job.compile(1, KEEPING).expect("compiles");
    job.upload(1, [1.0, 2.0, 3.0, 4.0]);
    job.fetch(1, 1).expect("the upload is done");
    let rewrite = |job: &Job| {
        for (index, value) in rewrite.into_iter().flatten().enumerate() {
            let offset = 64 + 4 * index as u64;
            assert!(job.segment.copy_in(offset, &value.to_ne_bytes()));
        }
    };
    rewrite(&job);
    job.execute(1, 1, &[1], 10);
    fixture.until(|| fixture.sum(|account| account.running.into()) == 1);
    rewrite(&job);
    fixture.run_until(iterations + 1);
    job.ended(1).expect("it ran");
    job.fetch(2, 10).expect("the output is there")
}

#[test]
fn a_job_cannot_change_an_array_under_a_program_where_users_share_a_service() {
    let mut shared = fixture(Clock::Manual, several_users);
    let undisturbed = computed(&mut shared, None);
    assert_eq!(computed(&mut shared, Some([9.0; 4])), undisturbed);
    // One user's arrays are the job's own memory, and it can.
    let mut own = fixture(Clock::Manual, |_| {});
    assert_eq!(computed(&mut own, None), undisturbed);
    assert_ne!(computed(&mut own, Some([9.0; 4])), undisturbed);
}

#[test]
fn a_region_that_was_copied_comes_back_at_once_and_its_array_is_charged_as_ever() {
    let mut fixture = fixture(Clock::Real, several_users);
    let mut job = fixture.job("feed.py");
    // One of each kind of copy: in the heap, and in pages.
    job.upload(1, [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(released(&mut job)[0].offset, 64);
    let bytes = 3 << 20;
    let large = Segment::create(bytes, false).expect("memory");
    let values: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
    assert!(large.copy_in(0, &values));
    let descriptor = large.as_fd().try_clone_to_owned().expect("a descriptor");
    let announced = salus_wire::Segment {
        id: SegmentId(1),
        bytes,
    };
    job.outbox
        .push(&ToService::from(announced), Some(descriptor));
    let data = Region {
        segment: SegmentId(1),
        offset: 0,
        length: bytes,
    };
    let shape = Shape {
        element_type: F32,
        dims: vec![bytes as i64 / 4],
        minor_to_major: None,
    };
    job.send(Upload {
        array: ArrayId(2),
        shape,
        memory: 0,
        data,
    });
    assert_eq!(released(&mut job), [data]);
    assert_eq!(fixture.resident(), 16 + bytes);
    assert!(large.copy_in(0, &vec![0; bytes as usize]));
    job.send(ReadArray {
        request: RequestId(1),
        array: ArrayId(2),
        target: data,
        form: Form::Raw,
    });
    job.next(|message| matches!(message, FromService::ReadDone(_)));
    assert_eq!(large.copy_out(0, bytes).expect("inside"), values);
    let arrays = vec![ArrayId(1), ArrayId(2)];
    job.send(DropArrays { arrays });
    fixture.until(|| fixture.resident() == 0);
}

#[test]
fn programs_that_a_users_sessions_hold_are_counted_once_and_bounded() {
    let one = 24 * STEP.len() as u64;
    let mut fixture = fixture(Clock::Real, |settings| {
        settings.limits.programs_per_user = Some(one);
    });
    let (mut job, mut second) = (fixture.job("train.py"), fixture.job("again.py"));
    let mut other = fixture.job_of("other.py", 2);
    job.compile(1, STEP).expect("one fits");
    job.compile(2, STEP).expect("it is the same");
    second.compile(1, STEP).expect("also in another session");
    let held = |fixture: &Fixture| fixture.host.programs.leases.user_bytes(1);
    assert_eq!(held(&fixture), one);
    assert_eq!(fixture.host.programs.report()["programs_loaded"], 1);
    let error = job.compile(3, KEEPING).expect_err("two are too many");
    assert_eq!(error.code, ErrorCode::ResourceExhausted);
    assert!(
        error.message.starts_with(
            "`keeping` takes about 1.24 KiB of the service's memory, programs of ada's sessions take \
             1.69 KiB already, and the limit for a user is 1.69 KiB"
        ),
        "{}",
        error.message
    );
    other.compile(1, KEEPING).expect("others have their own");
    // An output needs its program, too.
    job.upload(1, [1.0; 4]);
    job.execute(1, 1, &[1], 10);
    job.ended(1).expect("it ran");
    drop(second);
    for program in [1, 2] {
        job.send(DropProgram {
            program: ProgramId(program),
        });
    }
    fixture.until(|| fixture.sum(|_| 1) == 2);
    job.compile(3, KEEPING).expect_err("the output holds it");
    job.send(DropArrays {
        arrays: vec![ArrayId(10)],
    });
    fixture.until(|| held(&fixture) == 0);
    job.compile(3, KEEPING).expect("there is room again");
}

#[test]
fn programs_that_nobody_holds_any_more_are_unloaded_beyond_what_is_kept() {
    let mut fixture = fixture(Clock::Real, |settings| settings.cache.memory = 0);
    let loaded = |fixture: &Fixture| fixture.host.programs.report()["programs_loaded"].clone();
    let (mut job, mut other) = (fixture.job("train.py"), fixture.job("leaves.py"));
    job.compile(1, STEP).expect("compiles");
    other.compile(1, KEEPING).expect("compiles");
    assert_eq!(loaded(&fixture), 2, "what is held stays");
    drop(other);
    fixture.until(|| loaded(&fixture) == 1);
    job.send(DropProgram {
        program: ProgramId(1),
    });
    fixture.until(|| loaded(&fixture) == 0);
}

/// The source that the next compiler is asked to compile; it never answers.
fn asked(fixture: &Fixture, compiler: u64) -> (String, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    theirs.set_read_timeout(Some(DEADLINE)).expect("settable");
    fixture.compilers.joined(compiler, ours);
    let mut inbox = Inbox::default();
    let received = loop {
        match inbox.take::<ToCompiler>().expect("well-formed") {
            Some(received) => break received,
            None => assert!(inbox.fill(&theirs, true).expect("a request in time") > 0),
        }
    };
    let ToCompiler::CompileRequest(request) = received.message else {
        panic!("a compiler of the scripted device is told of none");
    };
    let source = received.descriptor.expect("a source");
    let source = open_blob(source, request.code_bytes).expect("a source");
    (String::from_utf8(source).expect("text"), theirs)
}

#[test]
fn a_user_whose_programs_take_for_ever_to_compile_keeps_no_other_waiting() {
    let mut fixture = Fixture::configured(16 << 20, Clock::Real, ROOM, DEADLINE, |settings| {
        settings.compilers.count = 2;
    });
    let script = |name: &str| format!("name: {name}; params: f32[4]; outputs: f32[4]");
    let mut hogs: Vec<Job> = (0..4).map(|_| fixture.job("hog.py")).collect();
    for (n, hog) in hogs.iter_mut().enumerate() {
        hog.ask_for(1, &script(&format!("slow{n}")));
    }
    let busy: Vec<_> = (1..=2).map(|id| asked(&fixture, id)).collect();
    assert!(busy.iter().all(|(source, _)| source.contains("slow")));
    let mut other = fixture.job_of("other.py", 2);
    other.ask_for(1, &script("wanted"));
    let (source, _compiler) = asked(&fixture, 3);
    assert!(source.contains("wanted"), "{source} has the last compiler");
}

#[test]
fn a_killed_job_whose_iteration_does_not_end_does_not_look_alive() {
    let mut fixture = fixture(Clock::Manual, |_| {});
    let mut job = fixture.job("endless.py");
    job.compile(1, KEEPING).expect("compiles");
    job.upload(1, [1.0; 4]);
    job.execute(1, 1, &[1], 10);
    fixture.until(|| fixture.sum(|account| account.running.into()) == 1);
    let shown = |fixture: &Fixture| {
        let text = crate::device_host::observe::report::text(&fixture.host);
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        report["sessions"][0].clone()
    };
    assert_eq!(shown(&fixture)["state"], "running");
    fixture.host.engine.kill(SessionId(1));
    assert_eq!(shown(&fixture)["state"], "killed");
    assert_eq!(
        shown(&fixture)["why"],
        "it was ended with `salus job`, and waits for its last iteration to end"
    );
    assert!(job.is_closed(), "the job hears of it at once");
    fixture.until(|| {
        fixture.host.device.advance(Duration::from_millis(5));
        shown(&fixture).is_null()
    });
}
