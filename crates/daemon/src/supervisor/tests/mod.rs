//! The supervisor with a device host that is made up: this same test program, started again.
//!
//! Nothing sleeps: each step waits for a message, with a deadline for the case that none comes.

use std::io::{Read, Write};
use std::num::NonZeroU64;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use salus_channel::{Inbox, Received, open_blob, send_all};
use salus_wire::{
    Change, Command, Error, ErrorCode, FromService, Hello, JobSettings, Request, ToService,
    Welcome, encode_frame,
};

use serde_json::json;

use super::*;
use crate::config::Config;
use crate::paths::Places;

mod commands;
mod connections;
mod device_host;
mod devices;
mod fake;
mod lifetime;
mod sessions;

/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A service in a thread of its own, with a directory of its own.
struct Running {
    dir: PathBuf,
    socket: PathBuf,
    ready: Receiver<Vec<Value>>,
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
    config.host.device.name = device.to_owned();
    config.host.cache.directory = dir.clone();
    let (tell, ready) = channel();
    let at = socket.clone();
    let thread = std::thread::spawn(move || {
        let mut service = Service {
            socket: at,
            allow_users: AllowUsers::Owner,
            idle_exit: None,
            host: config.host,
            devices: Vec::new(),
            launcher: fake::launcher(),
            when_ready: Box::new(move |devices| {
                let _ = tell.send(devices.to_vec());
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
        self.job_on("", name, run)
    }

    /// The same on the device that is named.
    fn job_on(&self, device: &str, name: &str, run: u64) -> UnixStream {
        let stream = self.connect();
        let hello = Hello {
            protocol_min: 1,
            protocol_max: 1,
            version: "test".into(),
            name: name.into(),
            settings: JobSettings::default(),
            run,
            device: device.into(),
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
