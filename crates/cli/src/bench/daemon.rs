//! A private service: its own socket, cache and configuration, for one comparison.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use salus_daemon::config::Problem;
use serde_json::{Value, json};

use super::lines::Lines;
use super::machine;
use super::peers::Ending;
use super::process::Kept;
use super::setup::Setup;

/// Loading the vendor's library takes a third of a second from a cold disk.
const START_TIME: Duration = Duration::from_secs(60);

pub(super) struct Daemon {
    process: Kept,
    socket: PathBuf,
}

/// Memory of the service's processes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Pages that others have mapped too count for their share.
    pub(super) proportional: u64,
    pub(super) anonymous: u64,
}

impl Daemon {
    /// Starts one with an empty cache and waits until it serves.
    pub(super) fn start(setup: &Setup) -> Result<Self, Problem> {
        Self::start_with(setup, &[])
    }

    /// The same, with more of the options of `salus serve`.
    pub(super) fn start_with(setup: &Setup, options: &[&str]) -> Result<Self, Problem> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = setup.scratch.directory(&format!("d{number}"))?;
        let socket = directory.join("s");
        let log = directory.join("log");
        let own = std::env::current_exe()
            .map_err(|e| Problem::new(format!("the path of this program is not known: {e}")))?;
        let process = Kept::start(own.as_os_str(), Ending::Term, &log, |command| {
            command
                .args(["serve", "--announce", "--socket"])
                .arg(&socket)
                .arg("--device")
                .arg(&setup.plugin)
                .arg("--config")
                .arg(&setup.config)
                .args(options)
                .env("SALUS_CACHE_DIR", directory.join("cache"))
                .env("PJRT_NPROC", setup.pool.to_string())
                .stdout(Stdio::piped());
        })?;
        // From here on, so that it is stopped whatever happens next.
        let mut daemon = Self { process, socket };
        let announced = match daemon.process.child.stdout.take() {
            Some(output) => Lines::new(output).next(START_TIME),
            None => Ok(String::new()),
        };
        match announced {
            Ok(_) => Ok(daemon),
            Err(_) => Err(daemon.process.problem("the bench's service did not start")),
        }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// CPU time of all threads of all its processes so far, in nanoseconds.
    pub(super) fn cpu_ns(&self) -> u64 {
        let threads = |pid: u32| {
            let tasks = fs::read_dir(format!("/proc/{pid}/task"));
            tasks.into_iter().flatten().flatten()
        };
        let ran = |path: PathBuf| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let first = text.split_whitespace().next();
            first.and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
        };
        self.processes()
            .into_iter()
            .flat_map(threads)
            .map(|thread| ran(thread.path().join("schedstat")))
            .sum()
    }

    pub(super) fn memory(&self) -> Memory {
        let mut sum = Memory::default();
        for pid in self.processes() {
            let one = memory_of(pid);
            sum.proportional += one.proportional;
            sum.anonymous += one.anonymous;
        }
        sum
    }

    /// That of the process that has the device.
    pub(super) fn device_host_memory(&self) -> Result<Memory, Problem> {
        let is_it = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).nth(1) == Some(b"device-host")
        };
        let pid = self.processes().into_iter().find(is_it);
        let pid = pid.ok_or_else(|| Problem::new("the bench's service has no device host"))?;
        Ok(memory_of(pid))
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        machine::family(self.process.pid())
    }
}

impl Memory {
    pub(super) fn json(self) -> Value {
        json!({ "pss_bytes": self.proportional, "anonymous_bytes": self.anonymous })
    }
}

fn memory_of(pid: u32) -> Memory {
    memory(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default())
}

/// Reads `/proc/<pid>/smaps_rollup`.
fn memory(text: &str) -> Memory {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes = line.trim().strip_suffix("kB")?.trim();
        Some(kilobytes.parse::<u64>().ok()? * 1024)
    };
    Memory {
        proportional: field("Pss:").unwrap_or(0),
        anonymous: field("Anonymous:").unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_rollup() {
        let text = "5600-7fff ---p 00000000 00:00 0 [rollup]\nRss:   9 kB\nPss:   12 kB\n\
                    Pss_Anon:   3 kB\nAnonymous:    7 kB\n";
        let expected = Memory {
            proportional: 12 << 10,
            anonymous: 7 << 10,
        };
        assert_eq!(memory(text), expected);
        assert_eq!(memory("nothing"), Memory::default());
    }
}
