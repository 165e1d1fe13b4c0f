//! Settings that all processes of one service have: the device, its memory, limits and the cache.
//!
//! The supervisor has them from the configuration and the command line, its children get them as JSON
//! in their environment.
//!
//! Not here: the settings of the file and their defaults (`sections.rs`).

use std::num::NonZeroUsize;
use std::path::PathBuf;

use salus_device::machine;
use salus_engine::Room;
use salus_wire::Description;
use serde::{Deserialize, Serialize};

use super::sections::{Cache, Compilers, Device, Limits, Scheduling, Sections};
use crate::paths::{Places, absolute};

/// What all processes of one service need to know of the device and the cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSettings {
    /// The vendor's library that `device.name` stands for; empty until it was looked for.
    pub plugin: PathBuf,
    /// Which of the plugin's devices; `None`: the plugin has one, or the first is meant.
    pub device_index: Option<u32>,
    /// How many devices the service has: they share its host memory and its compilers.
    pub devices: u32,
    /// Whether somebody besides the service's own user and root may come in.
    pub several_users: bool,
    /// `[service] allow_raw_kernels`.
    pub allow_raw_kernels: bool,
    pub device: Device,
    pub scheduling: Scheduling,
    pub limits: Limits,
    pub cache: Cache,
    pub compilers: Compilers,
}

/// The part of a device that the ledger does not give away: what the plugin and its allocator take
/// beyond what programs declare.
const HEADROOM: u64 = 32;

/// Lanes that a policy which packs may use where nothing is said: more than a few side by side help
/// little, and on the CPU plugin each is a client with a thread for every core.
const LANES_PACKED: usize = 4;

/// Which part of the host's memory for arrays may be pinned where nothing is said: what is pinned cannot
/// be swapped, and most of it is pages.
const PINNED_PART: u64 = 2;

/// Which part of the machine's memory the programs of one user may take where nothing is said: far more
/// than jobs need, and others' are left room.
const PROGRAMS_PART: u64 = 4;

impl HostSettings {
    pub(super) fn new(sections: Sections, places: &Places) -> Self {
        let mut cache = sections.cache;
        if cache.directory.as_os_str().is_empty() {
            cache.directory = absolute(&places.default_cache_dir());
        }
        Self {
            plugin: PathBuf::new(),
            device_index: None,
            devices: 1,
            several_users: sections.service.allow_users.several(),
            allow_raw_kernels: sections.service.allow_raw_kernels,
            device: sections.device,
            scheduling: sections.scheduling,
            limits: sections.limits,
            cache,
            compilers: sections.compilers,
        }
    }

    /// How many lanes the device is opened with.
    pub fn device_lanes(&self) -> u32 {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.device.lanes.unwrap_or(cores.min(LANES_PACKED) as u32)
    }

    /// Whether arrays are copied out of the memory that a job shares with the service. A job could
    /// otherwise write to an array while a program computes with it, and so make the program read and
    /// write where it must not, in the process that all users share. A user's own jobs are trusted not to.
    pub fn copies_uploads(&self) -> bool {
        self.several_users
    }

    /// Whether programs with kernels of the job's own are refused: they can address the arrays of all
    /// jobs. A user's own jobs are trusted not to.
    pub fn refuses_raw_kernels(&self) -> bool {
        self.several_users && !self.allow_raw_kernels
    }

    /// The settings of one of several devices.
    #[must_use]
    pub fn for_device(&self, index: Option<u32>, devices: u32) -> Self {
        let mut settings = self.clone();
        settings.device_index = index;
        settings.devices = devices.max(1);
        let compilers = &mut settings.compilers.count;
        *compilers = compilers.div_ceil(settings.devices);
        settings
    }

    /// One more than may run for a single user, so that who has filled them does not keep others out.
    pub fn compilers_max(&self) -> u32 {
        self.compilers.count.max(1) + 1
    }

    /// Compiler processes of the service: those, and the one that tunes.
    pub fn compiler_processes(&self) -> u32 {
        self.compilers_max() + u32::from(self.compilers.tune)
    }

    pub fn user_programs_bytes(&self) -> u64 {
        let devices = u64::from(self.devices);
        let part = || machine::total_bytes().map_or(u64::MAX, |all| all / PROGRAMS_PART / devices);
        self.limits.programs_per_user.unwrap_or_else(part)
    }

    /// How many of the service's sessions one user may have.
    pub fn user_sessions(&self, sessions: usize) -> usize {
        let share = match self.several_users {
            true => (sessions / 2).max(1),
            false => sessions,
        };
        let said = self.limits.sessions_per_user.map(|most| most as usize);
        said.unwrap_or(share).min(sessions)
    }

    /// What holds of `[limits]`, under the names of the configuration and what is fixed; `null` is no
    /// limit.
    pub fn limits(&self, sessions: usize) -> serde_json::Value {
        let half = || machine::total_bytes().map(|bytes| bytes / 2);
        serde_json::json!({
            "memory_per_session": self.limits.memory_per_session,
            "memory_per_user": self.limits.memory_per_user,
            "programs_per_user": self.user_programs_bytes(),
            "sessions": sessions,
            "sessions_per_user": self.user_sessions(sessions),
            "launches_in_flight": salus_wire::limits::LAUNCHES,
            "callback_seconds": self.limits.callback_seconds,
            "compile_seconds": self.limits.compile_seconds,
            "compile_memory": self.limits.compile_memory.or_else(half),
            "first_iteration_seconds": self.limits.first_iteration_seconds,
            "iteration_seconds": self.limits.iteration_seconds,
        })
    }

    /// How much host memory may be pinned.
    pub fn pinned_bytes(&self, room: &Room) -> u64 {
        let said = self.device.pinned_memory;
        let said = said.map(|bytes| bytes / u64::from(self.devices));
        said.unwrap_or(room.host_bytes / PINNED_PART)
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
            host_bytes: self.device.host_memory.unwrap_or_else(pages) / u64::from(self.devices),
            user_max: self.limits.memory_per_user,
        }
    }
}
