//! The files that a process may still open, as a Landlock ruleset.
//!
//! Landlock asks at `open`: what is open already stays open, and so do shared segments, which have no
//! path. It holds for the thread that calls it and for those that this one starts, so it comes before the
//! plugin's threads.
//!
//! Not here: who may open what (`mod.rs`).

use std::fmt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

/// Up to here all rights were looked at. An older kernel enforces those that it knows; what the later
/// versions added (TCP, signals, abstract sockets) the filter of system calls refuses as well.
const LOOKED_AT: ABI = ABI::V6;

/// What the C library and the plugins read of the kernel: cores, memory, limits of control groups, this
/// process itself. Others' directories in `/proc` are not among it.
const KERNEL: &[&str] = &[
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
    // Vendors' log lines have local times.
    "/etc/localtime",
];

/// Where libraries are that others are linked to.
const LIBRARIES: &[&str] = &[
    "/etc/ld.so.cache",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/nix/store",
    "/gnu/store",
];

/// What a process needs beyond [`KERNEL`].
#[derive(Debug, Default)]
pub(super) struct Needed<'a> {
    /// May be read and changed.
    pub(super) directory: Option<&'a Path>,
    /// A library that is opened later, with all that it is linked to.
    pub(super) library: Option<&'a Path>,
}

/// Restricts this thread, and those that it starts. Says by what, or why it cannot be.
pub(super) fn restrict(needed: &Needed<'_>) -> Result<String, String> {
    let status = try_to(needed).map_err(|e| e.to_string())?;
    match (status.ruleset, status.landlock) {
        (
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced,
            LandlockStatus::Available {
                effective_abi,
                kernel_abi,
            },
        ) => {
            let version = kernel_abi.unwrap_or(effective_abi as i32);
            Ok(format!("Landlock ABI {version}"))
        }
        (_, LandlockStatus::NotEnabled) => Err("the kernel has Landlock, switched off".into()),
        _ => Err("the kernel has no Landlock".into()),
    }
}

fn try_to(needed: &Needed<'_>) -> Result<RestrictionStatus, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(LOOKED_AT))?
        .handle_access(AccessNet::from_all(LOOKED_AT))?
        .scope(Scope::from_all(LOOKED_AT))?
        .create()?
        .add_rules(path_beneath_rules(KERNEL, read))?
        // Threads are given their names there.
        .add_rules(path_beneath_rules(["/proc/self/task"], AccessFs::WriteFile))?;
    if let Some(library) = needed.library {
        ruleset = ruleset
            .add_rules(path_beneath_rules(LIBRARIES, read))?
            .add_rules(path_beneath_rules(beside(library), read))?;
    }
    if let Some(directory) = needed.directory {
        ruleset = ruleset.add_rules(path_beneath_rules([directory], all_of_a_cache()))?;
    }
    ruleset.restrict_self()
}

/// Files and directories, but nothing that runs, and no devices, sockets or links.
fn all_of_a_cache() -> BitFlags<AccessFs> {
    use AccessFs::{
        MakeDir, MakeReg, ReadDir, ReadFile, RemoveDir, RemoveFile, Truncate, WriteFile,
    };
    ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | RemoveFile | RemoveDir
}

/// Where the loader looks for what a library is linked to: beside it, and where it was told to.
fn beside(library: &Path) -> Vec<PathBuf> {
    let real = library.canonicalize().ok();
    let told = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    [Some(library), real.as_deref()]
        .into_iter()
        .flatten()
        .filter_map(|path| path.parent().map(Into::into))
        .chain(std::env::split_paths(&told))
        .filter(|path| path.is_absolute())
        .collect()
}

impl fmt::Display for Needed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.directory {
            Some(directory) => write!(f, "only {} can be written", directory.display()),
            None => write!(f, "none can be written"),
        }
    }
}
