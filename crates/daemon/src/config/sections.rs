//! The sections of `salus.toml`, each with its keys and what holds where nothing is said.
//!
//! A new setting is a field here, its default, its use and its line in `docs/configuration.md`. The
//! device host and compilers get the same structs as JSON.
//!
//! Not here: how values are read and problems worded (`file.rs`), what follows from the settings
//! (`host_settings.rs`).

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use salus_engine::Policy;
use salus_wire::Value;
use serde::{Deserialize, Serialize};

use super::AllowUsers;
use super::file::{number, path, policy, policy_name, size, size_or_0, text};

/// The whole file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Sections {
    /// Checked before all else (`file.rs`).
    schema_version: u32,
    pub(super) service: Service,
    pub(super) device: Device,
    pub(super) scheduling: Scheduling,
    pub(super) limits: Limits,
    pub(super) cache: Cache,
    pub(super) compilers: Compilers,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    #[serde(deserialize_with = "path")]
    pub socket: Option<PathBuf>,
    pub allow_users: AllowUsers,
    /// Whether jobs may bring kernels of their own though others are admitted.
    pub allow_raw_kernels: bool,
    /// `Some(0)`: never. `None`: never, but `salus run` chooses a time for a service it starts.
    #[serde(deserialize_with = "number::<0, { u32::MAX }, _, _>")]
    pub idle_exit_seconds: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Device {
    /// As the user gave it: a name (`cpu`) or a path; [`AUTO`] until one was chosen.
    #[serde(rename = "device", deserialize_with = "text")]
    pub name: String,
    /// How many iterations may run side by side; `None`: one, or as many as help if the policy packs.
    /// On the CPU device no more than cores (checked where the device is known).
    #[serde(deserialize_with = "number::<1, 64, _, _>")]
    pub lanes: Option<u32>,
    /// `None`: what the device says it has, or a part of what the machine has left.
    #[serde(deserialize_with = "size")]
    pub memory: Option<u64>,
    /// For arrays that are paged out. `None`: a part of what the machine has left.
    #[serde(deserialize_with = "size")]
    pub host_memory: Option<u64>,
    /// Host memory that may be pinned, so that the device's transfers from and to it need no copy.
    /// `None`: a part of `host_memory`. Of no use where the device's memory is the host's.
    #[serde(deserialize_with = "size_or_0")]
    pub pinned_memory: Option<u64>,
    /// LAPACK's library: as configured, then as found. Without one, programs with linear algebra are
    /// refused.
    #[serde(deserialize_with = "path")]
    pub lapack: Option<PathBuf>,
    /// Handed to the plugin when its client is made.
    pub options: BTreeMap<String, PluginOption>,
}

/// The name of whichever device the machine has.
pub const AUTO: &str = "auto";

impl Default for Device {
    fn default() -> Self {
        Self {
            name: AUTO.into(),
            lanes: None,
            memory: None,
            host_memory: None,
            pinned_memory: None,
            lapack: None,
            options: BTreeMap::new(),
        }
    }
}

/// A value of `[device.options]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a number, a text, true, false or a list of whole numbers"
)]
pub enum PluginOption {
    Bool(bool),
    Int(i64),
    Float(f32),
    Ints(Vec<i64>),
    Text(String),
}

impl From<&PluginOption> for Value {
    fn from(option: &PluginOption) -> Self {
        match option {
            PluginOption::Bool(flag) => Self::Bool(*flag),
            PluginOption::Int(number) => Self::Int(*number),
            PluginOption::Float(number) => Self::Float(*number),
            PluginOption::Ints(numbers) => Self::Ints(numbers.clone()),
            PluginOption::Text(text) => Self::Text(text.clone()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scheduling {
    /// In which order jobs are served.
    #[serde(serialize_with = "policy_name", deserialize_with = "policy")]
    pub policy: Policy,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self {
            policy: Policy::Fair,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The most that a session may hold that has no limit of its own.
    #[serde(deserialize_with = "size")]
    pub memory_per_session: Option<u64>,
    /// The most that a user's sessions may hold together.
    #[serde(deserialize_with = "size")]
    pub memory_per_user: Option<u64>,
    /// The most that programs may take that a user's sessions hold loaded. `None`: a quarter of the
    /// machine's memory.
    #[serde(deserialize_with = "size")]
    pub programs_per_user: Option<u64>,
    /// Sessions that a user may have open. `None`: half of all where several users are admitted.
    #[serde(deserialize_with = "number::<1, { u32::MAX }, _, _>")]
    pub sessions_per_user: Option<u32>,
    /// How long a callback of a job may take.
    #[serde(deserialize_with = "number::<1, { u32::MAX }, _, _>")]
    pub callback_seconds: u32,
    /// How long a compilation may take.
    #[serde(deserialize_with = "number::<1, { u32::MAX }, _, _>")]
    pub compile_seconds: u32,
    /// What a compiler may take of the machine's memory. `None`: half of it.
    #[serde(deserialize_with = "size")]
    pub compile_memory: Option<u64>,
    /// An iteration of a program that never ran is overdue after this.
    #[serde(deserialize_with = "number::<1, { u32::MAX }, _, _>")]
    pub first_iteration_seconds: u32,
    /// What no iteration may take.
    #[serde(deserialize_with = "number::<1, { u32::MAX }, _, _>")]
    pub iteration_seconds: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_per_session: None,
            memory_per_user: None,
            programs_per_user: None,
            sessions_per_user: None,
            // Long enough for somebody who looks at `jax.debug.breakpoint`; others do not wait for it.
            callback_seconds: 3600,
            // The largest models compile in minutes on a core that others use, too.
            compile_seconds: 1800,
            compile_memory: None,
            // A first run takes as long as the next, and few take a minute.
            first_iteration_seconds: 60,
            iteration_seconds: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// Empty in a file that does not name it, until `HostSettings` puts the default there.
    #[serde(deserialize_with = "path")]
    pub directory: PathBuf,
    #[serde(deserialize_with = "size")]
    pub disk: u64,
    #[serde(deserialize_with = "size")]
    pub memory: u64,
    #[serde(deserialize_with = "number::<0, { u32::MAX }, _, _>")]
    pub memory_programs: u32,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            directory: PathBuf::new(),
            // Some thousands of programs of a few hundred kB.
            disk: 2 << 30,
            // Compiled programs kept in memory for the next job; the bytes bound the few large ones.
            memory: 1 << 30,
            memory_programs: 4096,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Compilers {
    /// Compiler processes that may run at once; each has a copy of the vendor's library in memory.
    #[serde(deserialize_with = "number::<1, 64, _, _>")]
    pub count: u32,
    /// On GPUs: one more compiler with a small client of its own, which measures on the device what is
    /// fastest. The others open no client.
    pub tune: bool,
    /// How long a tuned compilation may take, during which nothing else runs.
    #[serde(deserialize_with = "number::<1, { u32::MAX }, _, _>")]
    pub tune_seconds: u32,
    /// Handed to the plugin when that compiler's client is made, before those of the device.
    pub options: BTreeMap<String, PluginOption>,
}

/// All cores, but four already keep up with JAX's small programs.
const COMPILERS_DEFAULT_MAX: usize = 4;

impl Default for Compilers {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            count: cores.min(COMPILERS_DEFAULT_MAX) as u32,
            tune: true,
            // Few programs are measured for longer, and all jobs wait meanwhile.
            tune_seconds: 60,
            options: BTreeMap::new(),
        }
    }
}
