//! The supervisor with a device host that is made up: this same test program, started again.
//!
//! Nothing sleeps: each step waits for a message, with a deadline for the case that none comes.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use salus_channel::{Inbox, Received, open_blob, send_all};
use salus_wire::{
    Change, Command, Error, FromService, Hello, Request, Terms, ToService, Welcome, encode_frame,
};

use serde_json::json;

use super::*;
use crate::config::Config;
use crate::paths::Places;

mod fake;

/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A service in a thread of its own, with a directory of its own.
struct Running {
    dir: PathBuf,
    socket: PathBuf,
    ready: Receiver<Value>,
    thread: JoinHandle<Result<End, Problem>>,
}

/// Starts a service whose device host behaves as `device` says (see `fake.rs`).
fn start(device: &str) -> Running {
    start_with(device, |_| {})
}

fn start_with(device: &str, change: impl FnOnce(&mut Service) + Send + 'static) -> Running {
    let dir = tests_dir();
    let socket = dir.join("s.sock");
    let mut config = Config::defaults(&Places::default());
    config.device = device.to_owned();
    config.cache_dir = dir.clone();
    let (tell, ready) = channel();
    let at = socket.clone();
    let thread = std::thread::spawn(move || {
        let mut service = Service {
            socket: at,
            allow_users: AllowUsers::Owner,
            idle_exit: None,
            host: config.host_settings(PathBuf::new(), None),
            launcher: fake::launcher(),
            when_ready: Box::new(move |device| {
                let _ = tell.send(device.clone());
            }),
        };
        change(&mut service);
        serve(service)
    });
    Running {
        dir,
        socket,
        ready,
        thread,
    }
}

/// A directory of one test alone.
fn tests_dir() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("salus-supervisor-{}-{number}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).expect("the temporary directory can be written");
    dir
}

impl Running {
    fn until_ready(self) -> Self {
        self.ready
            .recv_timeout(PATIENCE)
            .expect("the device is opened");
        self
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).expect("it listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("it is a socket");
        stream
    }

    /// Connects as a job.
    fn job(&self, name: &str) -> UnixStream {
        self.job_of(name, 0)
    }

    /// The same from this `salus run`.
    fn job_of(&self, name: &str, run: u64) -> UnixStream {
        let stream = self.connect();
        let hello = Hello {
            protocol_min: 1,
            protocol_max: 1,
            version: "test".into(),
            name: name.into(),
            terms: Terms::default(),
            run,
        };
        send_all(&stream, &ToService::from(hello), None).expect("it reads");
        stream
    }

    fn ask(&self, request: Request) -> UnixStream {
        let stream = self.connect();
        let command = Command {
            protocol_min: 1,
            protocol_max: 1,
            request,
        };
        send_all(&stream, &ToService::from(command), None).expect("it reads");
        stream
    }

    fn command(&self, request: Request) -> (Value, UnixStream) {
        let stream = self.ask(request);
        match next(&stream) {
            Some(FromService::Answer(answer)) => {
                let json = serde_json::from_str(&answer.json).expect("it is JSON");
                (json, stream)
            }
            other => panic!("no answer but {other:?}"),
        }
    }

    /// What a library hears of a session that is gone.
    fn fate(&self, session: u64) -> Option<String> {
        match next(&self.ask(Request::Fate { session })) {
            Some(FromService::Refused(refused)) => Some(refused.error.message),
            Some(FromService::Answer(_)) => None,
            other => panic!("no answer but {other:?}"),
        }
    }

    fn report(&self) -> Value {
        self.command(Request::Report).0
    }

    /// Asks again and again until the report is as wanted: each question is a round trip.
    fn report_when(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let report = self.report();
            if wanted(&report) {
                return report;
            }
            assert!(Instant::now() < deadline, "still not: {report:#}");
        }
    }

    /// How the service ended, once it has.
    fn end(self) -> Result<End, Problem> {
        let end = self.thread.join().expect("it does not panic");
        assert!(!self.socket.exists(), "the socket is gone");
        std::fs::remove_dir_all(&self.dir).expect("removed");
        end
    }

    fn stop(self) {
        let (_, mut stream) = self.command(Request::Stop);
        let rest = stream.read(&mut [0; 1]).expect("it ends in time");
        assert_eq!(rest, 0, "nothing follows but the end");
        assert!(matches!(self.end(), Ok(End::Asked { .. })));
    }
}

/// The next message, or `None` at the end of the stream.
fn next(stream: &UnixStream) -> Option<FromService> {
    receive(stream).map(|received| received.message)
}

fn receive(stream: &UnixStream) -> Option<Received<FromService>> {
    let mut inbox = Inbox::default();
    loop {
        if let Some(received) = inbox.take().expect("it is a frame") {
            return Some(received);
        }
        match inbox.fill(stream, true) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return None,
            Err(e) => panic!("nothing comes: {e}"),
        }
    }
}

fn welcome(stream: &UnixStream) -> Welcome {
    match next(stream) {
        Some(FromService::Welcome(welcome)) => welcome,
        other => panic!("not let in: {other:?}"),
    }
}

fn refusal_of(stream: &UnixStream) -> Error {
    match next(stream) {
        Some(FromService::Refused(refused)) => refused.error,
        other => panic!("not refused: {other:?}"),
    }
}

/// Whether nothing more comes; what came before is read.
fn is_over(stream: &UnixStream) -> bool {
    while next(stream).is_some() {}
    true
}

fn is_gone(pid: &Value) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn jobs_are_handed_to_the_device_host_under_ids_that_grow() {
    let service = start("works").until_ready();
    // One after the other: of two that knock together either may be first.
    let first = service.job("a.py");
    assert_eq!(welcome(&first).session, 1);
    let second = service.job("b.py");
    assert_eq!(welcome(&second).session, 2);
    drop((first, second));
    let third = service.job("c.py");
    assert_eq!(welcome(&third).session, 3);
    service.stop();
}

#[test]
fn a_jobs_name_is_escaped_before_anybody_sees_it() {
    let service = start("works").until_ready();
    let job = service.job("tr\u{1b}[2Jain\n.py");
    welcome(&job);
    // As long as a name may be, and longer when it is escaped.
    let long = service.job(&"\u{7f}".repeat(salus_wire::limits::NAME_BYTES));
    welcome(&long);
    let (farewell, _) = service.command(Request::Stop);
    assert_eq!(farewell["sessions"][0]["name"], "tr\\u{1b}[2Jain\\n.py");
    let long = farewell["sessions"][1]["name"].as_str().expect("a name");
    assert!(long.starts_with("\\u{7f}") && long.len() <= salus_wire::limits::NAME_BYTES);
    assert!(matches!(service.end(), Ok(End::Asked { .. })));
}

#[test]
fn a_report_is_the_device_hosts_with_the_service_added() {
    let service = start("works").until_ready();
    let report = service.report();
    assert_eq!(report["device"]["platform"], "fake");
    assert_eq!(report["service"]["pid"], std::process::id());
    assert_eq!(report["service"]["restarts"], 0);
    let host = report["service"]["device_host_pid"].clone();
    assert!(!is_gone(&host));
    service.stop();
    assert!(is_gone(&host), "no child outlives the service");
}

#[test]
fn stop_names_the_sessions_that_were_open() {
    let service = start("works").until_ready();
    let job = service.job("train.py");
    welcome(&job);
    let (farewell, mut stream) = service.command(Request::Stop);
    assert_eq!(farewell["sessions"][0]["name"], "train.py");
    assert_eq!(stream.read(&mut [0; 1]).expect("it ends"), 0);
    assert_eq!(next(&job), None, "the job sees its socket closed");
    assert!(matches!(service.end(), Ok(End::Asked { .. })));
}

#[test]
fn a_session_is_changed_by_its_number_and_the_policy_by_its_name() {
    let service = start("works").until_ready();
    let job = service.job("train.py");
    let session = welcome(&job).session;
    let change = |session, change| Request::Change { session, change };
    let policy = |name: &str| Request::Policy { name: name.into() };
    service.command(change(session, Change::MemoryMax(4096)));
    service.command(policy("srtf"));
    let report = service.report();
    assert_eq!(
        report["events"][0],
        format!("session {session}: MemoryMax(4096)")
    );
    assert_eq!(report["events"][1], "policy srtf");
    let refused = |request| refusal_of(&service.ask(request)).message;
    assert_eq!(
        refused(change(77, Change::Pause)),
        "there is no session 77; `salus ps` shows those that are open"
    );
    assert_eq!(
        refused(change(session, Change::Weight(0))),
        "a weight of 0 would never run; the least is 1"
    );
    assert_eq!(
        refused(policy("fairr")),
        "there is no policy `fairr`; there are exclusive, fifo, srtf, pack, fair, priority, las, \
         deadline"
    );
    assert_eq!(service.report()["events"].as_array().map(Vec::len), Some(2));
    service.stop();
}

#[test]
fn those_who_send_garbage_or_nothing_disturb_nobody() {
    let service = start("works").until_ready();
    let silent: Vec<_> = (0..20).map(|_| service.connect()).collect();
    let mut noisy = service.connect();
    noisy.write_all(&[0xff; 4096]).expect("it is taken");
    assert_eq!(refusal_of(&noisy).code, code::INVALID_ARGUMENT);
    let mut half = service.connect();
    half.write_all(&[9, 0, 0]).expect("it is taken");
    assert_eq!(welcome(&service.job("fine.py")).session, 1);
    drop((silent, half));
    service.stop();
}

#[test]
fn a_program_that_ends_the_device_host_is_convicted_and_told_to_the_next_one() {
    let service = start("works").until_ready();
    let victim = service.job("victim.py");
    let session = welcome(&victim).session;
    let culprit = service.job("crash 5");
    assert!(is_over(&victim) && is_over(&culprit));
    let report = service.report_when(|r| r["events"] == json!(["convicted 5"]));
    assert_eq!(report["service"]["restarts"], 1);
    let convicted = &report["service"]["convicted"][0];
    assert_eq!(convicted["name"], "bad_program");
    assert_eq!(convicted["how"], "signal 6 (SIGABRT)");
    // Both hear why, and nobody else.
    let fate = service.fate(session).expect("it is known");
    assert!(fate.contains("signal 6 (SIGABRT)"), "{fate}");
    assert!(
        fate.contains("`bad_program` of session 2 (`crash 5`"),
        "{fate}"
    );
    let own = service.fate(session + 1).expect("it is known");
    assert!(own.contains("this job's program `bad_program`"), "{own}");
    assert_eq!(service.fate(session + 2), None);
    service.stop();
}

#[test]
fn convicted_programs_do_not_make_the_service_give_up() {
    let service = start("works").until_ready();
    for program in 1..=8 {
        let culprit = service.job(&format!("crash {program}"));
        assert!(is_over(&culprit));
        service.report_when(|r| r["service"]["restarts"] == program && !r["events"].is_null());
    }
    service.stop();
}

#[test]
fn a_session_is_killed_at_once_and_the_others_hear_who_did_it() {
    let service = start("works").until_ready();
    let (one, other) = (service.job("endless.py"), service.job("other.py"));
    let (session, lost) = (welcome(&one).session, welcome(&other).session);
    let change = Request::Change {
        session,
        change: Change::KillNow,
    };
    let (answer, _) = service.command(change);
    assert_eq!(answer["device"]["state"], "starting again", "{answer}");
    assert!(is_over(&one) && is_over(&other));
    let report = service.report_when(|r| r["service"]["restarts"] == 1 && !r["events"].is_null());
    assert_eq!(report["service"]["convicted"], json!([]));
    let fate = service.fate(lost).expect("it is known");
    assert!(
        fate.contains(&format!("`salus job {session} kill --now`")),
        "{fate}"
    );
    service.stop();
}

#[test]
fn a_user_has_so_many_sessions_and_no_more() {
    let service = start_with("works", |service| {
        service.host.user_sessions_max = Some(2);
    })
    .until_ready();
    let (first, second) = (service.job("one.py"), service.job("two.py"));
    welcome(&first);
    welcome(&second);
    let error = refusal_of(&service.job("three.py"));
    assert_eq!(error.code, code::RESOURCE_EXHAUSTED);
    let me = name_of(rustix::process::geteuid().as_raw());
    assert_eq!(
        error.message,
        format!(
            "{me} has 2 sessions open, and the limit for a user is 2 (`[limits] sessions_per_user` \
             of salus.toml); start it again when one has ended (`salus ps` shows them)"
        )
    );
    drop(first);
    // Until the device host has told of its end, it counts.
    let deadline = Instant::now() + PATIENCE;
    while !matches!(
        next(&service.job("three.py")),
        Some(FromService::Welcome(_))
    ) {
        assert!(Instant::now() < deadline, "nobody is let in any more");
    }
    service.stop();
}

#[test]
fn silent_connections_keep_nobody_out() {
    let service = start("works").until_ready();
    let silent: Vec<_> = (0..400).map(|_| service.connect()).collect();
    assert_eq!(welcome(&service.job("late.py")).session, 1);
    // Those that were silent longest had to go.
    assert_eq!(refusal_of(&silent[0]).code, code::RESOURCE_EXHAUSTED);
    drop(silent);
    service.stop();
}

#[test]
fn descriptors_that_come_uninvited_hold_nobody_up() {
    let service = start("works").until_ready();
    let (lingering, reader) = closing::tests::lingering();
    let stream = service.connect();
    // A kernel that keeps them out says so to the sender.
    let sent = closing::tests::send(&stream, &[1], lingering);
    if let Err(error) = sent {
        assert_eq!(error, rustix::io::Errno::PERM);
    }
    drop(stream);
    assert_eq!(welcome(&service.job("fine.py")).session, 1);
    assert_eq!(service.report()["service"]["restarts"], 0);
    drop(reader);
    service.stop();
}

#[test]
fn a_job_of_another_version_is_refused_with_both_ranges() {
    let service = start("works").until_ready();
    let stream = service.connect();
    let hello = Hello {
        protocol_min: 5,
        protocol_max: 6,
        version: "9.9".into(),
        name: "x".into(),
        terms: Terms::default(),
        run: 0,
    };
    send_all(&stream, &ToService::from(hello), None).expect("it reads");
    let error = refusal_of(&stream);
    assert!(error.message.contains("versions 1 to 1"), "{error}");
    assert!(error.message.contains("library 5 to 6"), "{error}");
    service.stop();
}

#[test]
fn jobs_wait_while_the_device_is_being_opened() {
    let gate_dir = tests_dir();
    let gate = UnixListener::bind(gate_dir.join("gate")).expect("bound");
    let at = gate_dir.clone();
    let service = start_with("gated", move |service| service.host.cache_dir = at);
    let (mut opener, _) = gate.accept().expect("the device host waits there");
    let early = service.job("early.py");
    let report = service.report_when(|r| r["service"]["waiting_jobs"] == 1);
    assert_eq!(report["device"]["state"], "starting");
    let gone = service.job("gone.py");
    service.report_when(|r| r["service"]["waiting_jobs"] == 2);
    drop(gone);
    service.report_when(|r| r["service"]["waiting_jobs"] == 1);
    opener.write_all(b"!").expect("it reads");
    assert_eq!(welcome(&early).session, 1);
    service.stop();
    std::fs::remove_dir_all(gate_dir).expect("removed");
}

#[test]
fn a_policy_chosen_while_the_device_is_opened_holds_when_it_is() {
    let gate_dir = tests_dir();
    let gate = UnixListener::bind(gate_dir.join("gate")).expect("bound");
    let at = gate_dir.clone();
    let service = start_with("gated", move |service| service.host.cache_dir = at);
    let (mut opener, _) = gate.accept().expect("the device host waits there");
    let policy = |name: &str| Request::Policy { name: name.into() };
    let (report, _) = service.command(policy("srtf"));
    assert_eq!(report["device"]["state"], "starting");
    assert_eq!(report["device"]["policy"], "srtf");
    opener.write_all(b"!").expect("it reads");
    let report = service.report_when(|report| report["device"]["platform"] == "fake");
    assert_eq!(
        report["policy"], "fair",
        "it was started with the one before"
    );
    assert_eq!(report["events"], serde_json::json!(["policy srtf"]));
    // One that is started again begins with it.
    let crashed = service.job("crash");
    let (mut opener, _) = gate.accept().expect("the next one waits there");
    assert_eq!(next(&crashed), None, "it is lost");
    opener.write_all(b"!").expect("it reads");
    let report = service.report_when(|report| report["policy"] == "srtf");
    assert_eq!(report["events"], serde_json::json!([]));
    service.stop();
    std::fs::remove_dir_all(gate_dir).expect("removed");
}

#[test]
fn a_device_that_cannot_be_opened_ends_the_service_with_its_reason() {
    let end = start("fails").end();
    let problem = end.expect_err("there is no device");
    assert_eq!(
        problem.what,
        "the device `fails` cannot be opened: no such device"
    );
}

#[test]
fn a_device_host_that_dies_is_started_again_and_its_sessions_end() {
    let service = start("works").until_ready();
    let other = service.job("other.py");
    welcome(&other);
    let host = service.report()["service"]["device_host_pid"].clone();
    let culprit = service.job("crash");
    assert_eq!(next(&culprit), None);
    assert_eq!(next(&other), None, "its socket was the device host's");
    // Until its death is noticed, a job that comes would still be handed to it.
    service.report_when(|r| r["service"]["restarts"] == 1);
    let next_job = service.job("next.py");
    assert_eq!(welcome(&next_job).session, 3, "no id is used twice");
    let report = service.report();
    assert_eq!(report["service"]["restarts"], 1);
    assert_ne!(report["service"]["device_host_pid"], host);
    assert!(is_gone(&host));
    service.stop();
}

#[test]
fn a_device_host_that_keeps_dying_is_given_up() {
    let problem = start("dies").end().expect_err("it cannot be kept running");
    assert_eq!(
        problem.what,
        "the device host cannot be kept running: it ended 5 times within 60 s, the last time: it \
         ended: signal 6 (SIGABRT)"
    );
}

#[test]
fn a_device_host_that_talks_nonsense_is_ended() {
    let problem = start("babbles")
        .end()
        .expect_err("it cannot be kept running");
    assert!(problem.what.ends_with("signal 9 (SIGKILL)"), "{problem}");
}

#[test]
fn a_device_host_that_does_not_answer_leaves_what_is_known() {
    let service = start("mute").until_ready();
    let job = service.job("train.py");
    welcome(&job);
    let report = service.report();
    assert_eq!(report["device"]["state"], "not answering");
    assert_eq!(report["sessions"][0]["name"], "train.py");
    service.stop();
}

#[test]
fn a_trace_comes_in_memory_of_its_own() {
    let service = start("works").until_ready();
    let stream = service.ask(Request::Trace { seconds: 10 });
    let received = receive(&stream).expect("it is answered");
    let FromService::Trace(trace) = received.message else {
        panic!("no trace but {:?}", received.message)
    };
    let descriptor = received.descriptor.expect("it comes with a descriptor");
    let data = open_blob(descriptor, trace.bytes).expect("it is as long as announced");
    assert_eq!(data, b"the last 10 s");
    assert_eq!(next(&stream), None, "nothing follows");
    service.stop();
}

#[test]
fn without_a_device_host_that_answers_there_is_no_trace() {
    let service = start("mute").until_ready();
    let refused = refusal_of(&service.ask(Request::Trace { seconds: 0 }));
    assert_eq!(refused.code, code::UNAVAILABLE);
    let expected = "there is no trace: the device is not answering";
    assert_eq!(refused.message, expected);
    service.stop();
}

#[test]
fn compilers_are_started_when_wanted_and_their_ends_are_told() {
    let service = start("works").until_ready();
    let job = service.job("compile");
    welcome(&job);
    let report = service.report_when(|r| r["events"][1].is_string());
    assert_eq!(report["events"][0], "compiler 1 joined");
    // The made-up device host has each compiler crash.
    assert_eq!(report["events"][1], "compiler 1 ended: signal 6 (SIGABRT)");
    service.stop();
}

#[test]
fn a_service_without_jobs_ends_after_its_idle_time() {
    let idle = Duration::from_millis(50);
    let end = start_with("works", move |service| service.idle_exit = Some(idle)).end();
    assert_eq!(end, Ok(End::Idle { after: idle }));
}

#[test]
fn a_started_job_keeps_the_service_before_it_comes() {
    let idle = Duration::from_millis(300);
    let service = start_with("works", move |service| service.idle_exit = Some(idle)).until_ready();
    let (_, held) = service.command(Request::Hold);
    let since = Instant::now();
    service.report_when(|_| since.elapsed() > 2 * idle);
    let gone = Instant::now();
    drop(held);
    assert_eq!(service.end(), Ok(End::Idle { after: idle }));
    assert!(gone.elapsed() >= idle);
}

#[test]
fn a_run_is_told_of_the_first_session_of_its_job_and_of_no_others() {
    let service = start("works").until_ready();
    let hold = || {
        let (answer, held) = service.command(Request::Hold);
        held.set_nonblocking(true).expect("it is a socket");
        (answer["run"].as_u64().expect("a number"), held)
    };
    let ((mine, held), (other, quiet)) = (hold(), hold());
    assert_ne!(mine, other);
    let session = |run| {
        let stream = service.job_of("train.py", run);
        (welcome(&stream).session, stream)
    };
    let _before = session(0);
    let (first, _job) = session(mine);
    let _second = session(mine);
    let _stranger = session(77);
    // Whoever was welcomed was told of before.
    let mut inbox = Inbox::default();
    inbox.fill(&held, false).expect("it was told");
    match inbox.take().expect("a frame").map(|told| told.message) {
        Some(FromService::Answer(told)) => {
            assert_eq!(told.json, format!("{{\"session\":{first}}}"))
        }
        other => panic!("not told but {other:?}"),
    }
    assert!(inbox.take::<FromService>().expect("no frame").is_none());
    for silent in [&held, &quiet] {
        let nothing = Inbox::default().fill(silent, false);
        assert!(nothing.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock));
    }
    service.stop();
}

#[test]
fn an_open_session_keeps_the_service_and_its_end_starts_the_idle_time() {
    let idle = Duration::from_millis(300);
    let service = start_with("works", move |service| service.idle_exit = Some(idle)).until_ready();
    let job = service.job("train.py");
    welcome(&job);
    let opened = Instant::now();
    // Questions do not keep it, and the session does: well past the idle time it still answers.
    service.report_when(|_| opened.elapsed() > 2 * idle);
    drop(job);
    let closed = Instant::now();
    assert_eq!(service.end(), Ok(End::Idle { after: idle }));
    assert!(closed.elapsed() >= idle);
}

#[test]
fn a_second_service_at_the_same_socket_is_refused_and_the_first_stays() {
    let service = start("works").until_ready();
    let at = service.socket.clone();
    let second = start_with("works", move |second| second.socket = at);
    let problem = second
        .thread
        .join()
        .expect("no panic")
        .expect_err("it is taken");
    assert!(problem.what.contains("runs already at"), "{problem}");
    assert_eq!(welcome(&service.job("a.py")).session, 1);
    service.stop();
    std::fs::remove_dir_all(second.dir).expect("removed");
}

#[test]
fn what_follows_the_first_frame_reaches_the_device_host() {
    let service = start("works").until_ready();
    let mut stream = service.connect();
    let hello = Hello {
        protocol_min: 1,
        protocol_max: 1,
        version: "test".into(),
        name: "echo".into(),
        terms: Terms::default(),
        run: 0,
    };
    let mut bytes = Vec::new();
    encode_frame(&ToService::from(hello), 1, 0, &mut bytes);
    bytes.extend_from_slice(b"more");
    stream.write_all(&bytes).expect("it is taken");
    // The made-up device host sends back what it reads.
    let mut back = Vec::new();
    stream
        .shutdown(std::net::Shutdown::Write)
        .expect("it is connected");
    stream.read_to_end(&mut back).expect("it answers");
    assert!(back.ends_with(b"more"));
    service.stop();
}
