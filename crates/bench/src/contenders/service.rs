//! The service of one comparison: private, on the plugin that is compared, and what it takes of
//! the machine.

use std::ffi::OsString;
use std::fs;
use std::ops::Deref;
use std::path::PathBuf;

use salus_daemon::config::Problem;
use salus_harness::{Service, Start};
use serde_json::{Value, json};

use crate::contenders::setup::Setup;
use crate::measure::machine;

pub(crate) struct PrivateService(Service);

impl Deref for PrivateService {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.0
    }
}

/// Memory of the service's processes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Pages that others have mapped too count for their share.
    pub(crate) proportional: u64,
    pub(crate) anonymous: u64,
}

impl PrivateService {
    /// Starts one with an empty cache and waits until it serves.
    pub(crate) fn start(setup: &Setup) -> Result<Self, Problem> {
        Self::start_with(setup, &[])
    }

    /// The same, with more of the options of `salus serve`.
    pub(crate) fn start_with(setup: &Setup, options: &[&str]) -> Result<Self, Problem> {
        let device = [OsString::from("--device"), setup.plugin.clone().into()];
        let options = options.iter().map(OsString::from);
        let mut variables = vec![("PJRT_NPROC", setup.pool.to_string().into())];
        variables.extend(setup.service_variables.iter().cloned());
        let service = Service::start(Start {
            keeper: &setup.keeper,
            configuration: &setup.configuration,
            options: device.into_iter().chain(options).collect(),
            variables,
        })?;
        Ok(Self(service))
    }

    /// CPU time of all threads of all its processes so far, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
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

    pub(crate) fn memory(&self) -> Memory {
        let mut sum = Memory::default();
        for pid in self.processes() {
            let one = memory_of(pid);
            sum.proportional += one.proportional;
            sum.anonymous += one.anonymous;
        }
        sum
    }

    /// That of the process that has the device.
    pub(crate) fn device_host_memory(&self) -> Result<Memory, Problem> {
        let is_it = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).nth(1) == Some(b"device-host")
        };
        let pid = self.processes().into_iter().find(is_it);
        let pid = pid.ok_or_else(|| Problem::new("the bench's service has no device host"))?;
        Ok(memory_of(pid))
    }

    pub(crate) fn processes(&self) -> Vec<u32> {
        self.pid().map(machine::family).unwrap_or_default()
    }
}

impl Memory {
    pub(crate) fn json(self) -> Value {
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
