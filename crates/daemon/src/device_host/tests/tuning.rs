//! Turns of the service's own, in which a compiler measures on the device.

use std::sync::mpsc::channel;

use salus_engine::SessionId;

use super::*;
use crate::device_host::programs::Tuned;
use crate::device_host::programs::compiler_pool::{Cancel, Source};

#[test]
fn nothing_runs_while_the_service_has_its_turn() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, STEP).expect("compiles");
    job.upload(1, [1.0; 4]);
    let (begin, began) = channel();
    let (end, ended) = channel::<()>();
    let host = Arc::clone(&fixture.host);
    let turn = std::thread::spawn(move || {
        host.engine.in_a_turn(|| {
            begin.send(()).expect("the test waits");
            ended.recv_timeout(DEADLINE).expect("the test ends it");
        })
    });
    began.recv_timeout(DEADLINE).expect("nobody else is there");
    job.execute(1, 1, &[1], 10);
    fixture.until(|| {
        let why = fixture
            .host
            .engine
            .look(|engine, _| engine.why(SessionId(1)));
        matches!(why, Some(salus_engine::Why::Turn { runs: Some(own), .. }) if own == SessionId(0))
    });
    let report = crate::device_host::observe::report::text(&fixture.host);
    assert!(
        report.contains("which measures on the device, runs"),
        "{report}"
    );
    end.send(()).expect("the turn waits");
    job.ended(1).expect("it ran then");
    assert_eq!(turn.join().expect("no panic"), Some(()));
    // And once more: the session of the turn is closed.
    assert_eq!(fixture.host.engine.in_a_turn(|| 7), Some(7));
}

#[test]
fn a_job_that_has_the_device_to_itself_is_not_waited_for() {
    let mut fixture = Fixture::new();
    fixture
        .host
        .engine
        .tell(salus_engine::Event::PolicyChanged {
            policy: Policy::Exclusive,
        });
    let mut job = fixture.job("train.py");
    job.compile(1, STEP).expect("compiles");
    assert_eq!(fixture.host.engine.in_a_turn(|| 7), Some(7));
}

#[test]
fn a_compiler_that_cannot_open_the_device_is_given_up() {
    let fixture = Fixture::new();
    let (supervisor, _theirs) = UnixStream::pair().expect("sockets");
    let compilers = Compilers::new(Supervisor::new(supervisor), 1, DEADLINE);
    let description = salus_device::Device::description(&*fixture.host.device).clone();
    let compilers = Arc::new(compilers.that_tune(description));
    let tuned = Tuned::new(Arc::clone(&compilers), Arc::clone(&fixture.host.engine));
    let product = Source {
        format: "mlir",
        code: b"stablehlo.dot_general",
        options: b"",
    };
    let plain = Source {
        code: b"stablehlo.add",
        ..product
    };
    let none = |source: &Source<'_>| tuned.compile(source, &Cancel::default()).is_none();
    // Nothing to measure: no compiler is asked, of which there is none.
    assert!(none(&plain));
    for id in 1..=2 {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        compilers.joined(id, ours);
        let dies = Arc::clone(&compilers);
        let host = Arc::clone(&fixture.host);
        let dying = std::thread::spawn(move || {
            let mut inbox = salus_channel::Inbox::default();
            let mut messages = 0;
            while messages < 2 {
                match inbox.take::<salus_wire::ToCompiler>().expect("frames") {
                    Some(_) => messages += 1,
                    None => assert_ne!(inbox.fill(&theirs, true).expect("frames"), 0),
                }
            }
            let runs = host.engine.look(|engine, _| {
                engine
                    .running()
                    .any(|(session, ..)| session == SessionId(0))
            });
            assert!(runs, "it is a turn of the service's own");
            dies.ended(id, "exit status 1".into());
        });
        assert!(none(&product));
        dying.join().expect("it was told of the device, and asked");
    }
    // None has joined, and none is waited for.
    assert!(none(&product));
    assert_eq!(fixture.host.engine.in_a_turn(|| 7), Some(7));
}
