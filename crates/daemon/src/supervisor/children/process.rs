//! Child processes: how they are started, which settings they get, how they end.
//!
//! A child is this same binary with another command, or a Python that has the vendor's handlers and
//! our library for the rest (`crates/child`). Its control socket is its standard input, so
//! that no descriptor number has to be agreed on and nothing else is inherited. Its settings are in
//! its environment. It asks the kernel to be killed when the supervisor dies (see `child_entry.rs`).
//!
//! Promise: a [`Process`] that is dropped is dead and reaped.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::config::HostSettings;
use crate::sandbox::Strength;

/// Set for the first compiler of a service, which speaks for all where all would say the same.
pub(crate) use salus_wire::env::CHILD_FIRST as FIRST;
/// Where a child finds its settings.
pub(crate) use salus_wire::env::CHILD_SETTINGS as SETTINGS;
/// The vendors' libraries write to standard error for their developers; errors come as errors. On
/// accelerators the causes are there alone: which library is missing, how large the pool came out, who
/// held the memory.
const LOG_LEVEL: &str = "TF_CPP_MIN_LOG_LEVEL";
const ERRORS_OF_NONE: &str = "3";
const WARNINGS: &str = "1";

/// The CPU plugin takes an iteration's scratch from the heap and gives it back afterwards. If the heap gave it
/// back to the system at once, up to a quarter of a step would be spent on faulting it in again; so free
/// memory stays for ten seconds. What should go back when arrays have left goes back at once
/// (`heap.rs`).
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";
const PURGE_DELAY_MS: &str = "10000";

/// LAPACK's own threads: as many as in JAX's own process, that is, the cores, or what one of these
/// says. A bound on the plugin's pool bounds them, too, unless both are set.
const LAPACK_THREADS: [&str; 3] = [
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "OMP_NUM_THREADS",
];
const PLUGIN_THREADS: &str = "PJRT_NPROC";

/// How children are started. Tests put a program of their own here.
#[derive(Debug, Clone)]
pub struct Launcher {
    pub program: PathBuf,
    pub device_host: Vec<OsString>,
    pub compiler: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
}

/// The image that runs, even if its file was replaced by an update meanwhile: the processes of one
/// service are always of one version.
const OWN_IMAGE: &str = "/proc/self/exe";

impl Default for Launcher {
    fn default() -> Self {
        Self {
            program: OWN_IMAGE.into(),
            device_host: vec!["device-host".into()],
            compiler: vec!["compiler".into()],
            environment: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    DeviceHost,
    Compiler { first: bool },
}

impl Launcher {
    /// Starts a child and returns our end of its control socket.
    ///
    /// To be called on the main thread: "killed when the parent dies" means the thread that
    /// started the child.
    pub(crate) fn start(
        &self,
        role: Role,
        settings: &HostSettings,
    ) -> io::Result<(Process, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let arguments = match role {
            Role::DeviceHost => &self.device_host,
            Role::Compiler { .. } => &self.compiler,
        };
        let mut command = Command::new(&self.program);
        // What it shows as; a Python finds its environment by it.
        if self.program == Path::new(OWN_IMAGE) {
            command.arg0("salus");
        }
        command
            .args(arguments)
            .env(SETTINGS, serde_json::to_string(settings)?)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(match role {
                // LAPACK writes a line there for some matrices, so a job could fill the log.
                Role::DeviceHost => Stdio::null(),
                // What a vendor's library prints belongs in the log.
                Role::Compiler { .. } => Stdio::from(io::stderr().as_fd().try_clone_to_owned()?),
            })
            // A Ctrl-C at the terminal is for the supervisor, which then ends its children.
            .process_group(0);
        if role == (Role::Compiler { first: true }) {
            command.env(FIRST, "1");
        }
        if std::env::var_os(LOG_LEVEL).is_none() {
            let level = match Strength::of(&settings.device.name) {
                Strength::Full => ERRORS_OF_NONE,
                Strength::Light => WARNINGS,
            };
            command.env(LOG_LEVEL, level);
        }
        if role == Role::DeviceHost {
            if let Some(threads) = lapack_threads(|name| std::env::var(name).ok()) {
                command.env(LAPACK_THREADS[0], threads.to_string());
            }
            if std::env::var_os(PURGE_DELAY).is_none() {
                command.env(PURGE_DELAY, PURGE_DELAY_MS);
            }
        }
        let child = command
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("`{}`: {e}", self.program.display())))?;
        Ok((Process { child, ended: None }, ours))
    }
}

/// The number of threads for LAPACK, if it must be set.
fn lapack_threads(variable: impl Fn(&str) -> Option<String>) -> Option<usize> {
    if LAPACK_THREADS.iter().any(|name| variable(name).is_some()) {
        return None;
    }
    let threads = variable(PLUGIN_THREADS)?.parse().ok()?;
    let cores = std::thread::available_parallelism().ok()?.get();
    // It would take more than the cores, too.
    (1..cores).contains(&threads).then_some(threads)
}

/// A child of ours.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Process {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.map(how)
    }

    /// Sends a signal unless it is known to have ended; its number cannot be another's meanwhile,
    /// because it stays ours until it is reaped here.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.ended.is_none()
            && let Some(pid) = Pid::from_raw(self.pid())
        {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// `exit status 1`, `signal 6 (SIGABRT)`.
fn how(status: ExitStatus) -> String {
    if let Some(code) = status.code() {
        return format!("exit status {code}");
    }
    let number = status.signal().unwrap_or_default();
    match nix::sys::signal::Signal::try_from(number) {
        Ok(signal) => format!("signal {number} ({})", signal.as_str()),
        Err(_) => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lapack_has_no_more_threads_than_the_plugin() {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let told = |said: &[(&str, usize)]| {
            let find = |name: &str| said.iter().find(|(said, _)| *said == name);
            lapack_threads(|name| find(name).map(|(_, value)| value.to_string()))
        };
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[(PLUGIN_THREADS, cores)]), None);
        assert_eq!(told(&[(PLUGIN_THREADS, cores + 1)]), None);
        assert_eq!(told(&[(PLUGIN_THREADS, 0)]), None);
        if cores > 1 {
            assert_eq!(told(&[(PLUGIN_THREADS, 1)]), Some(1));
            assert_eq!(told(&[(PLUGIN_THREADS, 1), ("OMP_NUM_THREADS", 2)]), None);
        }
    }

    #[test]
    fn ends_are_told_in_words() {
        assert_eq!(how(ExitStatus::from_raw(1 << 8)), "exit status 1");
        assert_eq!(how(ExitStatus::from_raw(6)), "signal 6 (SIGABRT)");
        assert_eq!(how(ExitStatus::from_raw(9)), "signal 9 (SIGKILL)");
        assert_eq!(how(ExitStatus::from_raw(40)), "signal 40");
    }
}
