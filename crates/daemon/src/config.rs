//! `salus.toml`: what may be said in it, and what holds where nothing is said.
//!
//! Everything has a default, so that a file is optional. A file that is there is read strictly: a
//! misspelt key or a wrong value stops the start with file, line and the nearest key, because a
//! setting that is silently ignored is found out much later.
//!
//! Promise: no text of a configuration makes it panic.
//! Not here: how the file is read strictly (`config/file.rs`), where it is looked for (`paths.rs`), what the settings do.

mod file;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use salus_device::machine;
use salus_engine::{Policy, Room};
use salus_wire::{Description, Value};
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use self::file::{File, Section};

use crate::paths::{Places, absolute};

/// What all processes of one service need to know of the device and the cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSettings {
    /// As the user gave it: a name (`cpu`) or a path.
    pub device: String,
    /// The vendor's library that `device` stands for.
    pub plugin: PathBuf,
    /// LAPACK's library, if there is one; without it programs with linear algebra are refused.
    pub lapack: Option<PathBuf>,
    /// In which order jobs are served.
    pub policy: String,
    /// How many iterations may run side by side; `None`: one, or as many as help if the policy
    /// packs.
    pub lanes: Option<u32>,
    /// `None`: what the device says it has, or a part of what the machine has left.
    pub capacity_bytes: Option<u64>,
    /// For arrays that are paged out. `None`: a part of what the machine has left.
    pub host_bytes: Option<u64>,
    /// The most that a session may hold that has no limit of its own.
    pub session_bytes_max: Option<u64>,
    /// The most that a user's sessions may hold together.
    pub user_bytes_max: Option<u64>,
    /// The most that programs may take that a user's sessions hold loaded. `None`: a quarter of the
    /// machine's memory.
    pub user_programs_bytes_max: Option<u64>,
    /// Sessions that a user may have open. `None`: half of all where several users are admitted.
    pub user_sessions_max: Option<u32>,
    /// Whether somebody besides the service's own user and root may come in.
    pub several_users: bool,
    /// How long a callback of a job may take.
    pub callback_seconds: u64,
    /// How long a compilation may take.
    pub compile_seconds: u64,
    /// What a compiler may take of the machine's memory. `None`: half of it.
    pub compile_bytes_max: Option<u64>,
    /// An iteration of a program that never ran is overdue after this.
    pub first_iteration_seconds: u64,
    /// What no iteration may take.
    pub iteration_seconds: Option<u64>,
    pub cache_dir: PathBuf,
    pub cache_disk_bytes: u64,
    pub cache_memory_programs: u32,
    pub cache_memory_bytes: u64,
    /// Compiler processes that may run at once.
    pub compilers: u32,
    /// Handed to the plugin when its client is made.
    pub plugin_options: BTreeMap<String, PluginOption>,
}

/// The part of a device that the ledger does not give away: what the plugin and its allocator take
/// beyond what programs declare.
const HEADROOM: u64 = 32;

/// Lanes that a policy which packs may use where nothing is said: more than a few side by side help
/// little, and each is a virtual device of the CPU plugin, of which there may be no more than cores.
const LANES_PACKED: usize = 4;

/// Which part of the machine's memory the programs of one user may take where nothing is said: far more
/// than jobs need, and others' are left room.
const PROGRAMS_PART: u64 = 4;

impl HostSettings {
    /// How many lanes the device is opened with.
    pub fn device_lanes(&self) -> u32 {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.lanes.unwrap_or(cores.min(LANES_PACKED) as u32)
    }

    /// Whether arrays are copied out of the memory that a job shares with the service. A job could
    /// otherwise write to an array while a program computes with it, and so make the program read and
    /// write where it must not, in the process that all users share. A user's own jobs are trusted not to.
    pub fn copies_uploads(&self) -> bool {
        self.several_users
    }

    /// One more than may run for a single user, so that who has filled them does not keep others out.
    pub fn compilers_max(&self) -> u32 {
        self.compilers.max(1) + 1
    }

    pub fn user_programs_bytes(&self) -> u64 {
        let part = || machine::total_bytes().map_or(u64::MAX, |bytes| bytes / PROGRAMS_PART);
        self.user_programs_bytes_max.unwrap_or_else(part)
    }

    /// How many of so many sessions one user may have.
    pub fn user_sessions(&self, sessions: usize) -> usize {
        let share = match self.several_users {
            true => (sessions / 2).max(1),
            false => sessions,
        };
        let said = self.user_sessions_max.map(|most| most as usize);
        said.unwrap_or(share).min(sessions)
    }

    /// What holds of `[limits]`, under the names of the configuration and what is fixed; `null` is no
    /// limit. The service serves so many sessions.
    pub fn limits(&self, sessions: usize) -> serde_json::Value {
        let half = || machine::total_bytes().map(|bytes| bytes / 2);
        serde_json::json!({
            "memory_per_session": self.session_bytes_max,
            "memory_per_user": self.user_bytes_max,
            "programs_per_user": self.user_programs_bytes(),
            "sessions": sessions,
            "sessions_per_user": self.user_sessions(sessions),
            "launches_in_flight": salus_wire::limits::LAUNCHES,
            "callback_seconds": self.callback_seconds,
            "compile_seconds": self.compile_seconds,
            "compile_memory": self.compile_bytes_max.or_else(half),
            "first_iteration_seconds": self.first_iteration_seconds,
            "iteration_seconds": self.iteration_seconds,
        })
    }

    /// What the ledger may give away of this device.
    pub fn room(&self, device: &Description) -> Room {
        let capacity_bytes = device.capacity_bytes;
        let pages = || {
            let available = machine::available_bytes().unwrap_or(0);
            machine::page_bytes(available, device.on_host.then_some(capacity_bytes))
        };
        Room {
            device_bytes: capacity_bytes - capacity_bytes / HEADROOM,
            host_bytes: self.host_bytes.unwrap_or_else(pages),
            user_max: self.user_bytes_max,
        }
    }
}

/// A value of `[device.options]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
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

/// Who may connect, besides the service's own user and root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AllowUsers {
    #[default]
    Owner,
    All,
    /// Names or numbers.
    Users(Vec<String>),
}

impl AllowUsers {
    /// Whether somebody besides the service's own user and root may come in.
    pub fn several(&self) -> bool {
        match self {
            Self::Owner => false,
            Self::All => true,
            Self::Users(named) => !named.is_empty(),
        }
    }
}

/// A configuration with every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file it was read from, if there was one.
    pub file: Option<PathBuf>,
    pub socket: Option<PathBuf>,
    pub allow_users: AllowUsers,
    /// `Some(0)`: never. `None`: never, but `salus run` chooses a time for a service it starts.
    pub idle_exit_seconds: Option<u64>,
    pub device: String,
    /// `None`: the one in SciPy's wheel.
    pub lapack: Option<PathBuf>,
    pub policy: Policy,
    pub lanes: Option<u32>,
    pub capacity_bytes: Option<u64>,
    pub host_bytes: Option<u64>,
    pub session_bytes_max: Option<u64>,
    pub user_bytes_max: Option<u64>,
    pub user_programs_bytes_max: Option<u64>,
    pub user_sessions_max: Option<u32>,
    pub callback_seconds: u64,
    pub compile_seconds: u64,
    pub compile_bytes_max: Option<u64>,
    pub first_iteration_seconds: u64,
    pub iteration_seconds: Option<u64>,
    pub plugin_options: BTreeMap<String, PluginOption>,
    pub cache_dir: PathBuf,
    pub cache_disk_bytes: u64,
    pub cache_memory_programs: u32,
    pub cache_memory_bytes: u64,
    pub compilers: u32,
}

/// A thing that a person has to put right: what happened, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub what: String,
    pub hint: Option<String>,
}

impl Problem {
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Each lane of the CPU plugin is a virtual device; more than cores would change results, which
/// depend on the size of the plugin's thread pool (checked where the device is known).
const LANES: RangeInclusive<i64> = 1..=64;
/// Likewise; each compiler has a copy of the vendor's library in memory.
const COMPILERS: RangeInclusive<i64> = 1..=64;
/// Compilers where nothing is said: all cores, but four already keep up with JAX's small programs.
const COMPILERS_DEFAULT_MAX: usize = 4;
/// Some thousands of programs of a few hundred kB.
/// Long enough for somebody who looks at `jax.debug.breakpoint`; others do not wait for it.
const CALLBACK_SECONDS: u64 = 3600;
/// The largest models compile in minutes on a core that others use, too.
const COMPILE_SECONDS: u64 = 1800;
/// A first run takes as long as the next, and few take a minute.
const FIRST_ITERATION_SECONDS: u64 = 60;
const CACHE_DISK_BYTES: u64 = 2 << 30;
/// Compiled programs kept in memory for the next job; the bytes bound the few large ones.
const CACHE_MEMORY_PROGRAMS: u32 = 4096;
const CACHE_MEMORY_BYTES: u64 = 1 << 30;
/// A configuration is a page; anything larger is another file.
const FILE_BYTES: u64 = 1 << 20;

impl Config {
    pub fn defaults(places: &Places) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            file: None,
            socket: None,
            allow_users: AllowUsers::Owner,
            idle_exit_seconds: None,
            device: "cpu".into(),
            lapack: None,
            policy: Policy::Fair,
            lanes: None,
            capacity_bytes: None,
            host_bytes: None,
            session_bytes_max: None,
            user_bytes_max: None,
            user_programs_bytes_max: None,
            user_sessions_max: None,
            callback_seconds: CALLBACK_SECONDS,
            compile_seconds: COMPILE_SECONDS,
            compile_bytes_max: None,
            first_iteration_seconds: FIRST_ITERATION_SECONDS,
            iteration_seconds: None,
            plugin_options: BTreeMap::new(),
            cache_dir: absolute(&places.default_cache_dir()),
            cache_disk_bytes: CACHE_DISK_BYTES,
            cache_memory_programs: CACHE_MEMORY_PROGRAMS,
            cache_memory_bytes: CACHE_MEMORY_BYTES,
            compilers: cores.min(COMPILERS_DEFAULT_MAX) as u32,
        }
    }

    /// The file that was named (it must be there), else the first that is found, else defaults.
    pub fn load(named: Option<&Path>, places: &Places) -> Result<Self, Problem> {
        if let Some(path) = named.or(places.config.as_deref()) {
            return Self::read(path, places)?.ok_or_else(|| {
                Problem::new(format!(
                    "the configuration `{}` does not exist",
                    path.display()
                ))
                .hint("it was named by `--config` or SALUS_CONFIG")
            });
        }
        for path in places.config_files() {
            if let Some(config) = Self::read(&path, places)? {
                return Ok(config);
            }
        }
        Ok(Self::defaults(places))
    }

    fn read(path: &Path, places: &Places) -> Result<Option<Self>, Problem> {
        let unreadable = |e: &dyn fmt::Display| {
            Problem::new(format!(
                "the configuration `{}` cannot be read: {e}",
                path.display()
            ))
        };
        match fs::metadata(path) {
            Ok(found) if found.len() > FILE_BYTES => {
                return Err(unreadable(&format!(
                    "it has {} bytes, {FILE_BYTES} is the limit",
                    found.len()
                )));
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(unreadable(&e)),
        }
        let text = fs::read_to_string(path).map_err(|e| unreadable(&e))?;
        Self::parse(path, &text, places).map(Some)
    }

    pub fn parse(path: &Path, text: &str, places: &Places) -> Result<Self, Problem> {
        let file = File { path, text };
        let table = DeTable::parse(text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            file.problem(at, e.message())
        })?;
        let root = Section::new(&file, "", table.get_ref(), 0)?;
        root.check_version()?;
        let mut config = Self {
            file: Some(path.to_owned()),
            ..Self::defaults(places)
        };
        if let Some(service) = root.section("service")? {
            config.socket = service.path("socket")?;
            config.allow_users = service.allow_users()?;
            config.idle_exit_seconds = service
                .number("idle_exit_seconds", 0..=i64::from(u32::MAX))?
                .map(i64::unsigned_abs);
        }
        if let Some(device) = root.section("device")? {
            set(&mut config.device, device.text("device")?.map(Into::into));
            config.lanes = device.number("lanes", LANES)?.map(|n| n as u32);
            config.capacity_bytes = device.bytes("memory")?;
            config.host_bytes = device.bytes("host_memory")?;
            config.lapack = device.path("lapack")?;
            config.plugin_options = device.options()?;
        }
        if let Some(scheduling) = root.section("scheduling")? {
            set(&mut config.policy, scheduling.policy()?);
        }
        if let Some(limits) = root.section("limits")? {
            config.session_bytes_max = limits.bytes("memory_per_session")?;
            config.user_bytes_max = limits.bytes("memory_per_user")?;
            config.user_programs_bytes_max = limits.bytes("programs_per_user")?;
            let sessions = limits.number("sessions_per_user", 1..=i64::from(u32::MAX))?;
            config.user_sessions_max = sessions.map(|n| n as u32);
            let callback = limits.number("callback_seconds", 1..=i64::from(u32::MAX))?;
            set(
                &mut config.callback_seconds,
                callback.map(i64::unsigned_abs),
            );
            let compile = limits.number("compile_seconds", 1..=i64::from(u32::MAX))?;
            set(&mut config.compile_seconds, compile.map(i64::unsigned_abs));
            config.compile_bytes_max = limits.bytes("compile_memory")?;
            let first = limits.number("first_iteration_seconds", 1..=i64::from(u32::MAX))?;
            set(
                &mut config.first_iteration_seconds,
                first.map(i64::unsigned_abs),
            );
            let most = limits.number("iteration_seconds", 1..=i64::from(u32::MAX))?;
            config.iteration_seconds = most.map(i64::unsigned_abs);
        }
        if let Some(cache) = root.section("cache")? {
            set(&mut config.cache_dir, cache.path("directory")?);
            set(&mut config.cache_disk_bytes, cache.bytes("disk")?);
            set(&mut config.cache_memory_bytes, cache.bytes("memory")?);
            let programs = cache.number("memory_programs", 0..=i64::from(u32::MAX))?;
            set(
                &mut config.cache_memory_programs,
                programs.map(|n| n as u32),
            );
        }
        if let Some(compilers) = root.section("compilers")? {
            let count = compilers.number("count", COMPILERS)?;
            set(&mut config.compilers, count.map(|n| n as u32));
        }
        Ok(config)
    }

    /// What the children of the service are told.
    pub fn host_settings(&self, plugin: PathBuf, lapack: Option<PathBuf>) -> HostSettings {
        HostSettings {
            device: self.device.clone(),
            plugin,
            lapack,
            policy: self.policy.name().into(),
            lanes: self.lanes,
            capacity_bytes: self.capacity_bytes,
            host_bytes: self.host_bytes,
            session_bytes_max: self.session_bytes_max,
            user_bytes_max: self.user_bytes_max,
            user_programs_bytes_max: self.user_programs_bytes_max,
            user_sessions_max: self.user_sessions_max,
            several_users: self.allow_users.several(),
            callback_seconds: self.callback_seconds,
            compile_seconds: self.compile_seconds,
            compile_bytes_max: self.compile_bytes_max,
            first_iteration_seconds: self.first_iteration_seconds,
            iteration_seconds: self.iteration_seconds,
            cache_dir: self.cache_dir.clone(),
            cache_disk_bytes: self.cache_disk_bytes,
            cache_memory_programs: self.cache_memory_programs,
            cache_memory_bytes: self.cache_memory_bytes,
            compilers: self.compilers,
            plugin_options: self.plugin_options.clone(),
        }
    }
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

/// `16GiB`, `512 MiB`, `1.5GiB`, `2GB`, `4096`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    const UNITS: &[(&str, u64)] = &[
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("B", 1),
    ];
    let text = text.trim();
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .unwrap_or((text, 1));
    let number = number.trim_end();
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 6 {
        return None;
    }
    let mut bytes = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if !part.is_empty() {
        let scale = 10u64.pow(part.len() as u32);
        let part = u128::from(part.parse::<u64>().ok()?) * u128::from(unit) / u128::from(scale);
        bytes = bytes.checked_add(u64::try_from(part).ok()?)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
