//! The command as a child of ours: as if it had taken our place, until it ends.
//!
//! It shares our terminal and process group, so what a terminal sends reaches it without us. What is
//! sent to us alone is passed on; what somebody sends to the whole group reaches it twice. It ends if
//! we are killed, and we end as it did.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use clap::Args;
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use salus_daemon::config::Problem;

use super::notes;
use crate::{Outcome, output};

/// As a shell has it.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Those that people and schedulers send to a job. Stopping and going on are left to the kernel: a
/// terminal's reach us both.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

#[derive(Args)]
pub(crate) struct Arguments {
    /// The process that waits for the command
    parent: i32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

fn wanted() -> SigSet {
    PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect()
}

/// Runs the command and returns how it ended.
pub(super) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let wanted = wanted();
    // Before the child is there, so that its end is not missed.
    wanted.thread_block()?;
    let signals = SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC)?;
    let mut child = command.spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            wanted.thread_unblock()?;
            return Ok(status);
        }
        let Some(came) = signals.read_signal()? else {
            continue;
        };
        // What the kernel sends by itself comes from the terminal, and the child has it, too.
        let by_kernel = came.ssi_code > 0;
        if let Ok(signal) = Signal::try_from(came.ssi_signo.cast_signed())
            && signal != Signal::SIGCHLD
            && !by_kernel
        {
            // It is not reaped, so the number is still its own.
            let _ = kill(Pid::from_raw(child.id().cast_signed()), signal);
        }
    }
}

/// Ends as the command did: by the same signal, or with its exit status.
pub(super) fn end_like(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        // One core file is enough.
        let none = rustix::process::Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        if let Ok(signal) = Signal::try_from(signal) {
            let _ = raise(signal);
        }
        return ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX));
    }
    ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1))
}

/// In the child: the command takes its place, and ends with its parent.
pub(crate) fn become_command(arguments: &Arguments) -> Outcome {
    let Some((program, rest)) = arguments.command.split_first() else {
        return Err(Problem::new("this command is a part of `salus run`"));
    };
    // If the parent is killed, nothing else would end the job that it started.
    let bound =
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if bound.is_ok() && parent != Some(arguments.parent) {
        return Err(Problem::new("`salus run` has ended"));
    }
    // It inherits what is blocked, and that was for the parent.
    let _ = wanted().thread_unblock();
    let failure = Command::new(program).args(rest).exec();
    if let Some(path) = std::env::var_os(salus_wire::env::RUN_NOTES) {
        notes::add(Path::new(&path), notes::NOT_RUN);
    }
    let what = format!("`{}` cannot be run: {failure}", program.to_string_lossy());
    output::failure(&Problem::new(what));
    Ok(ExitCode::from(match failure.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }))
}
