//! Compilers played by hand: what jobs are told when one dies, talks nonsense or never comes.

use salus_channel::{Inbox, send_all};
use salus_wire::{CompileError, FromCompiler, FromHost, ToCompiler};

use super::*;

const SOURCE: Source<'_> = Source {
    format: "mlir",
    code: b"code",
    options: b"",
};

fn compilers(start_wait: Duration) -> (Compilers, UnixStream) {
    let (ours, supervisors) = UnixStream::pair().expect("a pair of sockets");
    let mut compilers = Compilers::new(Supervisor::new(ours), 1, START_WAIT);
    compilers.start_wait = start_wait;
    (compilers, supervisors)
}

/// Has a compiler join; returns its end of the connection.
fn join(compilers: &Compilers, id: u64) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    theirs.set_read_timeout(Some(START_WAIT)).expect("settable");
    compilers.joined(id, ours);
    theirs
}

/// Waits for a request.
fn requested(socket: &UnixStream) {
    let mut inbox = Inbox::default();
    while inbox.take::<ToCompiler>().expect("a frame").is_none() {
        assert_ne!(inbox.fill(socket, true).expect("a frame"), 0);
    }
}

fn answer(socket: &UnixStream, message: &str) {
    let error = Error::new(ErrorCode::Unknown, message);
    let failure = FromCompiler::from(CompileError { error });
    send_all(socket, &failure, None).expect("sent");
}

#[test]
fn no_compiler_is_a_service_that_is_not_there() {
    let (compilers, _supervisor) = compilers(Duration::ZERO);
    // The one that was asked for could not be started, and the supervisor says so.
    compilers.prepare();
    compilers.ended(1, "it could not be started".into());
    let error = compilers
        .compile(&SOURCE, &Cancel::default())
        .expect_err("none");
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.message.contains("within 0 s"), "{}", error.message);
}

#[test]
fn a_compiler_that_dies_of_a_program_says_how() {
    let (compilers, _supervisor) = compilers(START_WAIT);
    let theirs = join(&compilers, 1);
    let error = std::thread::scope(|scope| {
        let compiling = scope.spawn(|| compilers.compile(&SOURCE, &Cancel::default()));
        requested(&theirs);
        compilers.ended(1, "signal 11".into());
        drop(theirs);
        compiling.join().expect("no panic").expect_err("it died")
    });
    assert_eq!(error.code, ErrorCode::Internal);
    assert!(error.message.contains("(signal 11)"), "{}", error.message);
}

#[test]
fn ends_that_are_told_late_or_of_strangers_do_not_make_a_busy_pool_a_broken_one() {
    let (mut compilers, supervisor) = compilers(Duration::ZERO);
    compilers.limit = 2;
    compilers.end_wait = Duration::ZERO;
    // One talks nonsense, and its end is told when nobody asks any more.
    let nonsense = join(&compilers, 1);
    std::io::Write::write_all(&mut &nonsense, &[0xff; 64]).expect("sent");
    // What it says is taken for its end as long as it is idle.
    compilers.lock().busy.insert(1, None);
    let connection = compilers.lock().idle.pop().expect("joined");
    connection
        .compile(&SOURCE, START_WAIT)
        .expect_err("that is no frame");
    compilers.wait_for_end(connection);
    compilers.ended(1, "signal 11".into());
    // Another came without a connection.
    compilers.could_not_join();
    compilers.ended(2, "exit status 0".into());
    assert_eq!(compilers.lock().count(), 0);
    // The third is busy, and a fourth does not come in time.
    let theirs = join(&compilers, 3);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| compilers.compile(&SOURCE, &Cancel::default()));
        requested(&theirs);
        let second = scope.spawn(|| compilers.compile(&SOURCE, &Cancel::default()));
        // It asks for the fourth and looks at the time under one lock.
        let mut inbox = Inbox::default();
        while inbox.take::<FromHost>().expect("a frame").is_none() {
            assert_ne!(inbox.fill(&supervisor, true).expect("a frame"), 0);
        }
        drop(compilers.lock());
        answer(&theirs, "first");
        requested(&theirs);
        answer(&theirs, "second");
        for (compiled, message) in [(first, "first"), (second, "second")] {
            let error = compiled.join().expect("no panic").expect_err("as answered");
            assert_eq!(error.message, message);
        }
    });
}
