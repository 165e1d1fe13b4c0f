//! Starts a service that stays when we go: `salus run` where none runs, `salus serve --background`.
//!
//! Two processes on the way: `salus detach` makes a new session (so that no terminal reaches it),
//! starts `salus serve` and ends, so that the service is nobody's child and nobody waits for it. The
//! service's standard output comes back to us: a line when it serves, or the end if it could not.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use salus_daemon::config::Problem;
use salus_daemon::supervisor;

use crate::{Outcome, Where, ask, serve};

/// Opening a device takes seconds at most; a machine under load gets some more.
const START_TIME: Duration = Duration::from_secs(30);
/// A log longer than this begins anew with the next service.
const LOG_BYTES: u64 = 1 << 20;
/// What is shown of a log if the start fails.
const TAIL_LINES: usize = 15;
/// How often to look for a service that somebody else is just starting.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A service that was started, by us or by somebody else at the same time.
pub(crate) struct Started {
    pub(crate) line: String,
    pub(crate) log: PathBuf,
}

/// Starts a service at `socket` and waits until it serves.
pub(crate) fn start(arguments: &serve::Arguments, socket: &Path) -> Result<Started, Problem> {
    let log = log_path(socket);
    let deadline = Instant::now() + START_TIME;
    let cannot = |e: io::Error| {
        Problem::new(format!(
            "a service cannot be started in the background: {e}"
        ))
    };
    let (file, from) = open_log(&log).map_err(|e| {
        Problem::new(format!(
            "the log `{}` cannot be written: {e}",
            log.display()
        ))
        .hint("name a socket in a directory of yours with `--socket` or SALUS_SOCKET")
    })?;
    let mut announcement = launch(arguments, socket, file).map_err(cannot)?;
    if let Some(line) = read_line(&mut announcement, deadline).map_err(cannot)? {
        return Ok(Started { line, log });
    }
    // It ended, or is not ready yet. If somebody else was faster, theirs is as good.
    while supervisor::is_locked(socket) && Instant::now() < deadline {
        if matches!(ask::ask(socket, salus_wire::Request::Report), Ok(Some(_))) {
            let line = format!("a service was just started at {}", socket.display());
            return Ok(Started { line, log });
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let what = if supervisor::is_locked(socket) {
        format!(
            "the service did not begin to serve within {} s",
            START_TIME.as_secs()
        )
    } else {
        "the service could not be started".into()
    };
    Err(Problem::new(format!("{what}:{}", tail(&log, from)))
        .hint(format!("its log is `{}`", log.display())))
}

fn log_path(socket: &Path) -> PathBuf {
    socket.with_extension("log")
}

/// The log, and where what is written from now on begins.
fn open_log(path: &Path) -> io::Result<(File, u64)> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    // Appended to, because somebody else may be starting a service at the same time.
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)?;
    if file.metadata()?.len() > LOG_BYTES {
        file.set_len(0)?;
    }
    let from = file.metadata()?.len();
    Ok((file, from))
}

fn launch(arguments: &serve::Arguments, socket: &Path, log: File) -> io::Result<PipeReader> {
    let (reader, writer) = io::pipe()?;
    let arguments = serve::Arguments {
        place: Where {
            socket: Some(socket.to_owned()),
        },
        ..arguments.clone()
    };
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("salus")
        .arg("detach")
        .args(arguments.to_command_line())
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(log)
        // The service outlives this directory, and one job's flags are not another's.
        .current_dir("/")
        .env_remove("XLA_FLAGS")
        .env_remove(salus_wire::env::NAME)
        .env_remove(salus_wire::env::DEVICE);
    let status = command.status()?;
    if status.success() {
        Ok(reader)
    } else {
        Err(io::Error::other(format!("`salus detach`: {status}")))
    }
}

/// The hidden command in the middle. Its standard streams are already those of the service.
pub(crate) fn detach(arguments: &serve::Arguments) -> Outcome {
    rustix::process::setsid().map_err(|e| Problem::new(format!("no new session: {e}")))?;
    Command::new("/proc/self/exe")
        .arg0("salus")
        .args(["serve", "--announce"])
        .args(arguments.to_command_line())
        .spawn()
        .map_err(|e| Problem::new(format!("`salus serve` cannot be started: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

/// The first line, or `None` if there is none before the end or the deadline.
fn read_line(from: &mut PipeReader, deadline: Instant) -> io::Result<Option<String>> {
    let mut text = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(&*from, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        }
        let mut bytes = [0; 512];
        let n = from.read(&mut bytes)?;
        text.extend_from_slice(&bytes[..n]);
        if let Some(end) = text.iter().position(|&b| b == b'\n') {
            text.truncate(end);
            return Ok(Some(String::from_utf8_lossy(&text).into_owned()));
        }
        if n == 0 {
            return Ok(None);
        }
    }
}

/// The last lines that were written to the log since `from`, each on a line of its own.
fn tail(log: &Path, from: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.take(LOG_BYTES).read_to_end(&mut bytes)
    });
    if read.is_err() || bytes.is_empty() {
        return " its log is empty".into();
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
    let last = lines.len().saturating_sub(TAIL_LINES);
    lines[last..]
        .iter()
        .map(|line| format!("\n  {line}"))
        .collect()
}
