//! Hidden processes of the bench, all of them this same binary.
//!
//! `echo` answers pings, `keep` becomes another program that ends with the bench, `guard` removes
//! the bench's directory when the bench has ended, however it did.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use rustix::process::Signal;
use salus_daemon::config::Problem;

use crate::Outcome;

/// The size of a ping: that of a short frame.
pub(super) const PING_BYTES: usize = 64;
/// A service ends its children and removes its socket within this.
pub(super) const END_TIME: Duration = Duration::from_secs(5);
/// How often to look whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Send back what comes
    Echo,
    /// Become COMMAND, and end with the bench
    Keep {
        #[arg(long)]
        parent: u32,
        #[arg(long, value_enum)]
        ending: Ending,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Remove DIRECTORY when the bench has ended
    Guard { directory: PathBuf },
}

/// How a process is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Ending {
    /// At once.
    Kill,
    /// It may tidy up: services.
    Term,
}

impl Ending {
    pub(super) fn signal(self) -> Signal {
        match self {
            Self::Kill => Signal::KILL,
            Self::Term => Signal::TERM,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Term => "term",
        }
    }
}

pub(super) fn peer(arguments: &Arguments) -> Outcome {
    match &arguments.role {
        Role::Echo => echo(),
        Role::Keep {
            parent,
            ending,
            command,
        } => keep(*parent, *ending, command),
        Role::Guard { directory } => {
            guard(directory);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What comes before the program and its arguments.
pub(super) fn keep_arguments(ending: Ending) -> Vec<OsString> {
    let parent = std::process::id().to_string();
    let line = ["bench", "peer", "keep", "--parent", &parent, "--ending"];
    let mut line: Vec<OsString> = line.iter().map(OsString::from).collect();
    line.extend([ending.name().into(), "--".into()]);
    line
}

fn keep(parent: u32, ending: Ending, command: &[OsString]) -> Outcome {
    rustix::process::set_parent_process_death_signal(Some(ending.signal()))
        .map_err(|e| Problem::new(format!("the end of the bench cannot be followed: {e}")))?;
    // It may have died before the line above.
    if std::os::unix::process::parent_id() != parent {
        return Ok(ExitCode::FAILURE);
    }
    let (program, rest) = command
        .split_first()
        .ok_or_else(|| Problem::new("no command"))?;
    let error = Command::new(program).args(rest).exec();
    Err(Problem::new(format!(
        "`{}` cannot be run: {error}",
        Path::new(program).display()
    )))
}

/// Starts the process that answers pings, and returns our end of its socket.
pub(super) fn start_echo() -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new("/proc/self/exe")
        .args(keep_arguments(Ending::Kill))
        .args(["/proc/self/exe", "bench", "peer", "echo"])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()?;
    Ok((child, ours))
}

fn echo() -> Outcome {
    let failed = |e: io::Error| Problem::new(format!("standard input is no socket: {e}"));
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let mut socket = UnixStream::from(input);
    let mut ping = [0; PING_BYTES];
    // Ends when the bench closes its end.
    while socket.read_exact(&mut ping).is_ok() && socket.write_all(&ping).is_ok() {}
    Ok(ExitCode::SUCCESS)
}

/// Starts the process that removes `directory` after us.
pub(super) fn start_guard(directory: &Path) -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .args(["bench", "peer", "guard"])
        .arg(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A Ctrl-C at the terminal must not reach it.
        .process_group(0)
        .spawn()
}

fn guard(directory: &Path) {
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    // Processes that are just ending may still write into it.
    let deadline = Instant::now() + END_TIME;
    while directory.exists() && Instant::now() < deadline {
        let _ = std::fs::remove_dir_all(directory);
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Waits for a process that is about to end.
pub(super) fn ends_within(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + time;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
            ended => return ended.ok().flatten(),
        }
    }
}
