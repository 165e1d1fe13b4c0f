//! The sandbox: what the processes that run vendors' code give up before the first job connects.
//!
//! Programs of jobs are compiled and run by libraries of hundreds of megabytes. A job that finds a hole in
//! one must find nothing behind it: no network, no other process, no program to start, and no file but
//! what the process itself needs. Each of these is refused by the kernel (`calls.rs`, `files.rs`,
//! namespaces, capabilities, limits), in the process itself, and for good.
//!
//! | | compiler | device host | either, on devices other than `cpu` |
//! |---|---|---|---|
//! | files | reads of the kernel's state; writes none | that, LAPACK, and the cache | as before |
//! | network, programs, signals to others | none | none | as before |
//! | others' memory, mounts, io_uring, bpf, … | none | none | none |
//! | network namespace of its own | yes | no: the cache's owner must be known | no |
//! | capabilities | none | files of others only | as before |
//! | limits | memory, size of a file, descriptors, no core | no core | no core |
//!
//! Plugins of accelerators open devices, load libraries whenever they like and, for CUDA, compile by
//! starting `ptxas`; for Cloud TPUs they speak to the network. Nobody here can try what they need, so
//! they give up only what no plugin needs, and only once they are open, because opening one may start
//! the driver's set-user-id helper.
//!
//! Both processes stay dumpable: jobs of another user cannot look into them anyway, those of the
//! same user are trusted with its data, and an operator must be able to attach a debugger.
//! The number of processes is not limited either: that limit counts all of a user's, and a process that
//! cannot start another needs none.
//!
//! Promise: what the kernel lacks is in [`Held`], which `salus doctor` and the log of the service show.
//! Cost: 1 ms at the start of a process; system calls that are allowed cost the same (Linux 5.11).
//! Not here: how long a compilation may take (`device_host/programs/compiler_pool`).

mod calls;
mod files;
mod trial;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;

use nix::sched::{CloneFlags, unshare};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use salus_device::machine;

use crate::config::HostSettings;
use crate::log;
use calls::Refused;
use files::Needed;

use trial::{CALLS, FILES};
pub use trial::{Escape, GRAVE, escapes};

/// Who is put into a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    DeviceHost,
    Compiler,
}

/// How much is given up; decided by what is known of a device's plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strength {
    /// All that a computation on the CPU does without. To be put on after the plugin's library is
    /// open, so that it need not be readable, and before a client exists, whose threads would not all
    /// be in the box.
    Full,
    /// What no plugin needs. To be put on when the plugin's client exists.
    Light,
}

impl Strength {
    /// A plugin given by its path gets the light box: nobody knows what it needs.
    pub fn of(device: &str) -> Self {
        match device {
            "cpu" | "scripted" => Self::Full,
            _ => Self::Light,
        }
    }
}

/// One thing that the kernel is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mechanism {
    /// What it takes away.
    pub name: &'static str,
    /// By what, or why not.
    pub held: Result<String, String>,
    /// What it means that it is not there.
    pub without: &'static str,
}

/// What a box consists of on this kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    pub mechanisms: Vec<Mechanism>,
}

impl Held {
    fn add(
        &mut self,
        name: &'static str,
        held: Result<String, String>,
        without: &'static str,
    ) -> bool {
        let is_held = held.is_ok();
        self.mechanisms.push(Mechanism {
            name,
            held,
            without,
        });
        is_held
    }

    /// Says in the log what is not there.
    pub(crate) fn log_missing(&self, who: &str) {
        for mechanism in &self.mechanisms {
            if let Err(why) = &mechanism.held {
                let Mechanism { name, without, .. } = mechanism;
                log::warn(format_args!(
                    "{who}: not confined ({name}): {why}; {without}"
                ));
            }
        }
    }
}

/// Puts this process into its box. To be called on its main thread, at the moment that
/// [`Strength`] names, and once.
pub fn confine(process: Process, strength: Strength, settings: &HostSettings) -> Held {
    let mut held = Held::default();
    let limits = limit(process, settings);
    held.add(
        "limits",
        limits,
        "a program may take more than is good for others",
    );
    if strength == Strength::Light {
        let refused = Refused {
            outside: false,
            writes: false,
        };
        held.add(CALLS, refuse(refused), WITHOUT_FILTER);
        return held;
    }
    if process == Process::Compiler {
        let network = leave_network();
        held.add(
            "network",
            network,
            "only the filter of system calls keeps it away",
        );
    }
    let dropped = drop_capabilities(process);
    held.add(
        "capabilities",
        dropped,
        "a service that runs as root stays root here",
    );
    let needed = match process {
        Process::Compiler => Needed::default(),
        Process::DeviceHost => {
            // The cache says later why it cannot be used, if it cannot.
            let mut builder = DirBuilder::new();
            let _ = builder
                .recursive(true)
                .mode(0o700)
                .create(&settings.cache.directory);
            Needed {
                directory: Some(&settings.cache.directory),
                library: settings.device.lapack.as_deref(),
            }
        }
    };
    let restricted = match threads() {
        // The kernel would leave the others out.
        Some(threads) if threads > 1 => files::restrict(&needed).and(Err(format!(
            "the plugin has started {} threads",
            threads - 1
        ))),
        _ => files::restrict(&needed),
    };
    let without_files = match process {
        Process::Compiler => {
            "a hole in the vendor's compiler lets a program read the files of the service's user"
        }
        Process::DeviceHost => {
            "a hole in the vendor's library lets a program use the files of the service's user"
        }
    };
    let restricted = restricted.map(|by| format!("{by}; {needed}"));
    let files = held.add(FILES, restricted, without_files);
    let refused = Refused {
        outside: true,
        writes: process == Process::Compiler && !files,
    };
    held.add(CALLS, refuse(refused), WITHOUT_FILTER);
    held
}

const WITHOUT_FILTER: &str =
    "a hole in the vendor's library leads to whatever the service's user may do";

fn refuse(refused: Refused) -> Result<String, String> {
    match calls::refuse(refused) {
        Ok(()) => Ok("seccomp".into()),
        Err(e) => Err(format!("no seccomp: {e}")),
    }
}

/// Descriptors of a compiler: it needs a dozen.
const DESCRIPTORS: u64 = 256;

fn limit(process: Process, settings: &HostSettings) -> Result<String, String> {
    let mut limits = vec![(Resource::Core, 0)];
    if process == Process::Compiler {
        limits.push((Resource::Nofile, DESCRIPTORS));
        let asked = settings.limits.compile_memory;
        if let Some(bytes) = asked.or_else(|| Some(machine::total_bytes()? / 2)) {
            // A program that takes more ends its own compilation, before the machine has nothing left
            // for others.
            limits.push((Resource::Data, bytes));
            // Shared memory does not count there. The log, which is open, may be a file, too.
            limits.push((Resource::Fsize, bytes.saturating_add(log_bytes())));
        }
    }
    for (resource, most) in limits {
        let most = rustix::process::getrlimit(resource)
            .maximum
            .map_or(most, |allowed| allowed.min(most));
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).map_err(|e| format!("{resource:?}: {e}"))?;
    }
    Ok("rlimits".into())
}

fn log_bytes() -> u64 {
    rustix::fs::fstat(std::io::stderr()).map_or(0, |log| log.st_size.unsigned_abs())
}

/// A network of its own, with nothing in it. A process that may not make one may with a user namespace, where
/// the system allows these.
fn leave_network() -> Result<String, String> {
    let net = CloneFlags::CLONE_NEWNET;
    match unshare(net).or_else(|_| unshare(net | CloneFlags::CLONE_NEWUSER)) {
        Ok(()) => Ok("a network namespace of its own".into()),
        Err(e) => Err(format!("no user namespaces: {}", e.desc())),
    }
}

/// What root may do, and what a user namespace gives. The device host of root's service keeps what opens
/// a cache or a virtual environment of another user; Landlock says which files that can be.
fn drop_capabilities(process: Process) -> Result<String, String> {
    let kept = match process {
        Process::Compiler => CapabilitySet::empty(),
        Process::DeviceHost => CapabilitySet::DAC_OVERRIDE,
    };
    let has = capabilities(None).map_err(|e| e.to_string())?;
    let left = CapabilitySets {
        effective: has.effective & kept,
        permitted: has.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, left).map_err(|e| e.to_string())?;
    Ok(match left.permitted.is_empty() {
        true => "none left".into(),
        false => "none left but for files of others".into(),
    })
}

/// How many threads this process has.
fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}
