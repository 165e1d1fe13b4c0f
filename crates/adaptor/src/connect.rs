//! Finds the service and opens a session with it.
//!
//! Promise: no later than the deadline there is a session or an error that says where we looked,
//! what happened there and what to do. A service that nobody named is spoken to only if this user
//! or root runs it.
//! Not here: the session's life.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use salus_channel::{Inbox, send_all};
use salus_wire::{
    Command, FromService, Hello, Priority, Request, Terms, ToService, Welcome, version,
};

use crate::error::{Error, Result, denied, precondition, unavailable};

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
    socket: Option<PathBuf>,
    name: Option<String>,
    /// As `salus run` writes them.
    terms: Terms,
    /// Which `salus run` started the job; 0 is none.
    run: u64,
    deadline: Duration,
    runtime_directory: Option<PathBuf>,
    temporary_directory: PathBuf,
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
        let path = |name| std::env::var_os(name).filter(|text| !text.is_empty());
        Environment {
            socket: path("SALUS_SOCKET").map(PathBuf::from),
            name: text("SALUS_NAME"),
            terms: Terms {
                memory_max: number("SALUS_MEMORY_MAX"),
                weight: u32::try_from(number("SALUS_WEIGHT")).unwrap_or(0),
                priority: text("SALUS_PRIORITY")
                    .and_then(|name| Priority::named(&name))
                    .unwrap_or_default(),
                deadline_us: number("SALUS_DEADLINE_US"),
                iterations: number("SALUS_ITERATIONS"),
                expect_us: number("SALUS_EXPECT_US"),
            },
            run: number("SALUS_RUN"),
            deadline: text("SALUS_CONNECT_SECONDS")
                .and_then(|seconds| seconds.parse().ok())
                .and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok())
                .unwrap_or(DEADLINE),
            runtime_directory: path("XDG_RUNTIME_DIR").map(PathBuf::from),
            temporary_directory: std::env::temp_dir(),
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
    let found = find(choice.socket)?;
    let path = found.path;
    let shown = path.display().to_string();
    let deadline = Instant::now() + environment().deadline;
    let socket = connect(&path, deadline).map_err(|e| unreachable_service(&shown, e))?;
    if !found.named {
        check_peer(&socket, &shown)?;
    }
    let hello = Hello {
        protocol_min: version::MIN,
        protocol_max: version::MAX,
        version: env!("CARGO_PKG_VERSION").into(),
        name: name(choice.name),
        terms: environment().terms.clone(),
        run: environment().run,
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
            return Some(refused.error.message);
        }
        // Its end may have reached us before the service.
        std::thread::sleep(FATE_PAUSE);
    }
    None
}

/// A socket to try.
struct Found {
    path: PathBuf,
    /// Whoever runs the job named it, so it may be anybody's: they chose whom to trust.
    named: bool,
}

fn find(chosen: Option<String>) -> Result<Found> {
    let environment = environment();
    let named = chosen
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
        .or_else(|| environment.socket.clone());
    if let Some(path) = named {
        return Ok(Found { path, named: true });
    }
    let mut places = Vec::new();
    if let Some(directory) = &environment.runtime_directory {
        places.push(directory.join("salus/salus.sock"));
    }
    let private = format!("salus-{}", this_user());
    places.push(
        environment
            .temporary_directory
            .join(private)
            .join("salus.sock"),
    );
    places.push("/run/salus/salus.sock".into());
    let (mut missing, mut reasons) = (Vec::new(), Vec::new());
    for path in &places {
        let shown = path.display();
        let socket = std::fs::metadata(path).ok();
        // Anyone may make a directory of this name in a shared one: a job must not offer its data
        // to a stranger.
        match socket.filter(|found| found.file_type().is_socket()) {
            Some(found) if is_trusted(found.uid()) => {
                let path = path.clone();
                return Ok(Found { path, named: false });
            }
            Some(found) => reasons.push(format!(
                "the socket at {shown} belongs to user {}, and those of others than this user ({}) \
                 and root are used only if they are named",
                found.uid(),
                this_user()
            )),
            None => missing.push(shown.to_string()),
        }
    }
    if !missing.is_empty() {
        reasons.insert(0, format!("there is no socket at {}", missing.join(", ")));
    }
    Err(unavailable(format!(
        "no Salus service was found: {}; {HOW_TO_START}, or set SALUS_SOCKET to the socket of one",
        reasons.join("; ")
    )))
}

fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a service of this user may be spoken to unless it was named.
fn is_trusted(user: u32) -> bool {
    user == 0 || user == this_user()
}

/// Who listens, as the kernel knows it: what the socket's owner said may have changed since.
fn check_peer(socket: &OwnedFd, path: &str) -> Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(socket).map_err(|e| silent(path, &e))?;
    let user = peer.uid.as_raw();
    if is_trusted(user) {
        return Ok(());
    }
    Err(denied(format!(
        "what listens at {path} is run by user {user}, and only services of this user ({}) and of \
         root are used without being named: if you trust that user with this job's data, set \
         SALUS_SOCKET={path}",
        this_user()
    )))
}

fn connect(path: &Path, deadline: Instant) -> std::result::Result<OwnedFd, Errno> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let address = SocketAddrUnix::new(path)?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Bounds `connect` too: it blocks while a service accepts nobody.
    set_socket_timeout(&socket, Timeout::Send, Some(left(deadline)))?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// What is left until the deadline; never nothing, because that would mean for ever.
fn left(deadline: Instant) -> Duration {
    deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1))
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
            code: refused.error.code,
            message: format!(
                "the Salus service at {path} refused this job: {}",
                refused.error.message
            ),
        }),
        _ => Err(stranger(
            path,
            &"its first frame is none that opens a session",
        )),
    }
}

fn unreachable_service(path: &str, e: Errno) -> Error {
    match e {
        Errno::ACCESS | Errno::PERM => denied(format!(
            "this user may not connect to the Salus service at {path} ({e}); ask whoever runs it \
             for access to the socket, or {HOW_TO_START}"
        )),
        Errno::NOENT => unavailable(format!(
            "no Salus service listens at {path} (there is no such socket); {HOW_TO_START}"
        )),
        Errno::CONNREFUSED => unavailable(format!(
            "no Salus service listens at {path} (the socket is there, but nobody answers: the \
             service has probably ended); {HOW_TO_START}"
        )),
        Errno::AGAIN => unavailable(format!(
            "the Salus service at {path} accepted no connection in time; see whether `salus ps` \
             answers, or give it longer with SALUS_CONNECT_SECONDS"
        )),
        e => unavailable(format!(
            "the Salus service at {path} cannot be reached: {e}; {HOW_TO_START}"
        )),
    }
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
        let words: Vec<String> = line
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        name_of_command(&words)
    });
    name.chars().take(NAME_CHARS_MAX).collect()
}

/// `python -u train.py --lr 1` is `train.py` to a person.
fn name_of_command(words: &[String]) -> String {
    let file = |word: &String| {
        let name = Path::new(word).file_name();
        name.map_or_else(|| word.clone(), |name| name.to_string_lossy().into_owned())
    };
    let Some(program) = words.first().map(file).filter(|name| !name.is_empty()) else {
        return "job".into();
    };
    if !program.starts_with("python") {
        return program;
    }
    let mut rest = words[1..].iter().filter(|word| !word.is_empty());
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-m" => return rest.next().cloned().unwrap_or(program),
            "-c" => return format!("{program} -c"),
            // These options take a value.
            "-W" | "-X" => drop(rest.next()),
            option if option.starts_with('-') => {}
            _ => return file(word),
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use super::name_of_command;

    #[test]
    fn a_job_is_named_after_its_script() {
        let cases = [
            ("/usr/bin/python3 -u /home/a/train.py --lr 1", "train.py"),
            ("python -X dev -m pytest tests", "pytest"),
            ("python3.11 -c pass", "python3.11 -c"),
            ("python", "python"),
            ("/opt/bin/trainer --fast", "trainer"),
            ("", "job"),
        ];
        for (line, name) in cases {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(name_of_command(&words), name);
        }
    }
}
