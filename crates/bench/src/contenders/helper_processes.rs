//! Hidden processes of `salus bench`, all of them this same binary.
//!
//! `echo` answers pings; `keep` and `guard` end what the harness starts.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitCode, Stdio};

use clap::{Args, Subcommand};
use salus_console::Outcome;
use salus_daemon::config::Problem;
use salus_harness::{Ending, Keeper, Role, play};

/// The size of a ping: that of a short frame.
pub(crate) const PING_BYTES: usize = 64;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Send back what comes
    Echo,
    #[command(flatten)]
    Kept(Role),
}

pub(crate) fn peer(arguments: &Arguments) -> Outcome {
    match &arguments.what {
        What::Echo => echo(),
        What::Kept(role) => play(role),
    }
}

/// Starts the process that answers pings, and returns our end of its socket.
pub(crate) fn start_echo() -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Keeper::own()
        .command("/proc/self/exe", Ending::Kill)
        .args(["bench", "peer", "echo"])
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
