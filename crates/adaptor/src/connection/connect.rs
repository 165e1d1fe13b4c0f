//! Opens a session with the service.
//!
//! Promise: no later than the deadline there is a session or an error that says where we looked,
//! what happened there and what to do.
//! Not here: how the service's socket is found (`salus_channel::endpoint`), the session's life.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use salus_channel::endpoint::{Connected, NotFound, Search, Unusable, connect, left};
use salus_channel::{Inbox, send_all};
use salus_wire::{
    Command, FromService, Hello, JobSettings, NonZeroDuration, Request, ToService, Welcome, Work,
    env, job_name, parse_count, version,
};

use crate::c_api::error::{Error, Result, denied, precondition, unavailable};

/// From the first byte to `Welcome`. A service that is up answers in milliseconds.
const DEADLINE: Duration = Duration::from_secs(10);
/// What `salus ps` can show of a name.
const NAME_CHARS_MAX: usize = 100;

/// For the service to say why it ended a session; it knows within milliseconds.
const FATE_DEADLINE: Duration = Duration::from_secs(1);
const FATE_PAUSE: Duration = Duration::from_millis(20);

const HOW_TO_START: &str =
    "start one with `salus serve`, or run the job with `salus run -- python …`, which starts one";

/// What the environment says, read once.
struct Environment {
    search: Search,
    name: Option<String>,
    /// As `salus run` writes them.
    settings: JobSettings,
    /// Which `salus run` started the job; 0 is none.
    run: u64,
    /// The device of the service that the job wants; empty is any.
    device: String,
    deadline: Duration,
}

fn environment() -> &'static Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let text = |name| {
            std::env::var(name)
                .ok()
                .filter(|text: &String| !text.is_empty())
        };
        let number = |name| text(name).and_then(|n| n.parse().ok()).unwrap_or(0);
        let count = |name| text(name).and_then(|n| parse_count(&n).ok());
        let time = |name| count(name).map(NonZeroDuration::from_micros);
        Environment {
            search: Search::of_this_process(),
            name: text(env::NAME),
            settings: JobSettings {
                weight: text(env::WEIGHT)
                    .and_then(|weight| weight.parse().ok())
                    .unwrap_or_default(),
                priority: text(env::PRIORITY)
                    .and_then(|priority| priority.parse().ok())
                    .unwrap_or_default(),
                deadline: time(env::DEADLINE_US),
                work: count(env::ITERATIONS)
                    .map(Work::Iterations)
                    .or_else(|| time(env::EXPECT_US).map(Work::DeviceTime)),
                memory_max: count(env::MEMORY_MAX),
            },
            run: number(env::RUN),
            device: text(env::DEVICE).unwrap_or_default(),
            deadline: text(env::CONNECT_SECONDS)
                .and_then(|seconds| seconds.parse().ok())
                .and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok())
                .unwrap_or(DEADLINE),
        }
    })
}

/// What the caller of `PJRT_Client_Create` may say instead of the environment.
#[derive(Default)]
pub(crate) struct Choice {
    pub(crate) socket: Option<String>,
    pub(crate) name: Option<String>,
}

/// A socket on which the service said `Welcome`.
pub(crate) struct Opened {
    pub(crate) socket: UnixStream,
    pub(crate) inbox: Inbox,
    pub(crate) path: String,
    pub(crate) welcome: Welcome,
}

pub(crate) fn open(choice: Choice) -> Result<Opened> {
    let chosen = choice.socket.filter(|path| !path.is_empty());
    let deadline = Instant::now() + environment().deadline;
    let Connected { path, socket } = environment()
        .search
        .connect(chosen.as_deref().map(Path::new), deadline)
        .map_err(not_found)?;
    let shown = path.display().to_string();
    let hello = Hello {
        protocol_min: version::MIN,
        protocol_max: version::MAX,
        version: env!("CARGO_PKG_VERSION").into(),
        name: name(choice.name),
        settings: environment().settings,
        run: environment().run,
        device: environment().device.clone(),
    };
    match send_all(&socket, &ToService::from(hello), None) {
        // Whom it does not let in it may have refused, with a reason, and hung up already.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(silent(&shown, &e)),
        _ => {}
    }
    let mut inbox = Inbox::default();
    let welcome = await_welcome(&socket, &mut inbox, deadline, &shown)?;
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, direction, None).map_err(|e| silent(&shown, &e))?;
    }
    Ok(Opened {
        socket: UnixStream::from(socket),
        inbox,
        path: shown,
        welcome,
    })
}

/// Why the service has ended a session, if it knows: one whose device host died does.
pub(crate) fn fate(path: &str, session: u64) -> Option<String> {
    let deadline = Instant::now() + FATE_DEADLINE;
    while Instant::now() < deadline {
        let socket = connect(Path::new(path), deadline).ok()?;
        let command = Command {
            protocol_min: version::MIN,
            protocol_max: version::MAX,
            request: Request::Fate { session },
        };
        send_all(&socket, &ToService::from(command), None).ok()?;
        let mut inbox = Inbox::default();
        set_socket_timeout(&socket, Timeout::Recv, Some(left(deadline))).ok()?;
        let frame = loop {
            match inbox.take::<FromService>().ok()? {
                Some(frame) => break frame.message,
                None if inbox.fill(socket.as_fd(), true).ok()? == 0 => return None,
                None => {}
            }
        };
        if let FromService::Refused(refused) = frame {
            return Some(refused.error.to_string());
        }
        // Its end may have reached us before the service.
        std::thread::sleep(FATE_PAUSE);
    }
    None
}

fn await_welcome(
    socket: &OwnedFd,
    inbox: &mut Inbox,
    deadline: Instant,
    path: &str,
) -> Result<Welcome> {
    loop {
        match inbox.take::<FromService>() {
            Ok(Some(frame)) => return judge(frame.message, path),
            Ok(None) => {}
            Err(e) => return Err(stranger(path, &e)),
        }
        let set = set_socket_timeout(socket, Timeout::Recv, Some(left(deadline)));
        set.map_err(|e| silent(path, &e))?;
        match inbox.fill(socket.as_fd(), true) {
            Ok(0) => return Err(silent(path, &"it closed the connection")),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let seconds = environment().deadline.as_secs_f64();
                let why = format!("it did not answer within {seconds} s");
                return Err(silent(path, &why));
            }
            Err(e) => return Err(silent(path, &e)),
        }
    }
}

fn judge(message: FromService, path: &str) -> Result<Welcome> {
    match message {
        FromService::Welcome(welcome)
            if (version::MIN..=version::MAX).contains(&welcome.protocol) =>
        {
            Ok(welcome)
        }
        FromService::Welcome(welcome) => Err(precondition(format!(
            "the Salus service at {path} is version {} and chose protocol {}, this job's library is \
             version {} and speaks protocols {} to {}; install the same version on both sides",
            welcome.version,
            welcome.protocol,
            env!("CARGO_PKG_VERSION"),
            version::MIN,
            version::MAX
        ))),
        FromService::Refused(refused) => Err(Error {
            message: format!(
                "the Salus service at {path} refused this job: {}",
                refused.error.message
            ),
            ..refused.error
        }),
        _ => Err(stranger(
            path,
            &"its first frame is none that opens a session",
        )),
    }
}

/// Why no service was found, in a job's words.
fn not_found(why: NotFound) -> Error {
    let (path, why) = match why {
        NotFound::At(path, why) => (path.display().to_string(), why),
        NotFound::Nowhere(missed) => return nowhere(missed),
    };
    match why {
        Unusable::Denied(e) => denied(format!(
            "this user may not connect to the Salus service at {path} ({e}); ask its operator for \
             access to the socket, or {HOW_TO_START}"
        )),
        Unusable::Impostor { user } => denied(format!(
            "what listens at {path} is run by user {user}, and only services of this user ({}) and of \
             root are used without being named: if you trust that user with this job's data, set \
             {}={path}",
            environment().search.uid,
            env::SOCKET
        )),
        Unusable::Missing | Unusable::Abandoned => unavailable(format!(
            "no Salus service listens at {path} ({why}); {HOW_TO_START}"
        )),
        Unusable::Busy => unavailable(format!(
            "the Salus service at {path} accepted no connection in time; see whether `salus ps` \
             answers, or give it longer with {}",
            env::CONNECT_SECONDS
        )),
        why => unavailable(format!(
            "the Salus service at {path} cannot be reached: {why}; {HOW_TO_START}"
        )),
    }
}

fn nowhere(missed: Vec<(PathBuf, Unusable)>) -> Error {
    let (mut missing, mut reasons) = (Vec::new(), Vec::new());
    for (path, why) in missed {
        let path = path.display();
        match why {
            Unusable::Missing => missing.push(path.to_string()),
            Unusable::Foreign { owner } => reasons.push(format!(
                "the socket at {path} belongs to user {owner}, and those of others than this user \
                 ({}) and root are used only if they are named",
                environment().search.uid
            )),
            why => reasons.push(format!("the one at {path} cannot be used ({why})")),
        }
    }
    if !missing.is_empty() {
        reasons.insert(0, format!("there is no socket at {}", missing.join(", ")));
    }
    unavailable(format!(
        "no Salus service was found: {}; {HOW_TO_START}, or set {} to the socket of one",
        reasons.join("; "),
        env::SOCKET
    ))
}

/// Whether a service accepts connections that a job may use though nobody named one: JAX's plugin asks
/// before it registers Salus in a process that has not asked for it.
pub(crate) fn service_listens(deadline: Instant) -> bool {
    // Not `environment()`: a script may still set variables before it opens a session.
    Search::of_this_process().connect(None, deadline).is_ok()
}

fn silent(path: &str, why: &dyn Display) -> Error {
    unavailable(format!(
        "the Salus service at {path} opened no session: {why}; see whether `salus ps` answers"
    ))
}

fn stranger(path: &str, why: &dyn Display) -> Error {
    precondition(format!(
        "what listens at {path} does not speak Salus' protocol ({why}); it is another program, or \
         a Salus of another version than this job's library ({})",
        env!("CARGO_PKG_VERSION")
    ))
}

/// The job's name for `salus ps`.
fn name(chosen: Option<String>) -> String {
    let chosen = chosen
        .filter(|name| !name.is_empty())
        .or_else(|| environment().name.clone());
    let name = chosen.unwrap_or_else(|| {
        let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        let words = line.split(|byte| *byte == 0).map(OsStr::from_bytes);
        job_name(&words.collect::<Vec<_>>())
    });
    name.chars().take(NAME_CHARS_MAX).collect()
}
