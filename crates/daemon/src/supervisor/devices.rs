//! The devices of the service: one device host each, and which of them a job gets.
//!
//! A device has everything that its device host's death may touch: the process, its compilers, its
//! policy, how often it died. Sessions know their device by its place in this list.
//!
//! Promise: the choice of a device depends on nothing but what is known here and now, so that the same
//! jobs on the same devices are placed alike.

use std::time::Instant;

use salus_wire::{Error, ErrorCode, Load};

use super::children::compilers::Compilers;
use super::children::device_host_process::{Deaths, Host};
use super::report::Sessions;
use super::{Service, Supervisor};
use crate::config::{HostSettings, Problem, is_path, split};

/// A session that wants the device all the time, and a device whose memory is full once: each weighs
/// as much as the other.
const WHOLE: u64 = 1000;

/// One device, and the process that has it.
pub(super) struct ServedDevice {
    /// As the device host gets them: with the policy that it has, or gets when it listens.
    pub(super) settings: HostSettings,
    /// What its device host said that it is; kept while there is none.
    platform: Option<String>,
    pub(super) host: Option<Host>,
    /// When to start the next device host; set while there is none.
    pub(super) start_host_at: Option<Instant>,
    pub(super) deaths: Deaths,
    /// Why the device host is being killed on request: the reason that its sessions get.
    pub(super) kill_now: Option<String>,
    pub(super) was_ready: bool,
    /// Why it is not served any more.
    pub(super) given_up: Option<Problem>,
    pub(super) compilers: Compilers,
    load: Option<Load>,
}

/// Where a job goes.
#[derive(Debug)]
pub(super) enum Choice {
    Device(usize),
    /// No device is ready for it yet.
    Wait,
    Refuse(Error),
}

impl ServedDevice {
    /// Those of a service, none of them started.
    pub(super) fn all(service: &Service, now: Instant) -> Vec<Self> {
        let indices = match service.devices.as_slice() {
            [] => &[None],
            some => some,
        };
        let of = u32::try_from(indices.len()).unwrap_or(u32::MAX);
        let one = |index: &Option<u32>| {
            let settings = service.host.for_device(*index, of);
            Self {
                compilers: Compilers::new(settings.compiler_processes()),
                settings,
                platform: None,
                host: None,
                start_host_at: Some(now),
                deaths: Deaths::default(),
                kill_now: None,
                was_ready: false,
                given_up: None,
                load: None,
            }
        };
        indices.iter().map(one).collect()
    }

    /// `cuda:1`; without a number if it was not chosen by one. A plugin that was given by its path is
    /// called by its platform, once that is known.
    pub(super) fn name(&self) -> String {
        let given = self.settings.device.name.as_str();
        let platform = self.platform.as_deref().filter(|_| is_path(given));
        let name = platform.unwrap_or(given);
        match self.settings.device_index {
            Some(index) => format!("{name}:{index}"),
            None => name.to_owned(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.host.as_ref().is_some_and(Host::is_open)
    }

    /// Its device host has opened it.
    pub(super) fn set_up(&mut self, description: salus_wire::Description) {
        self.platform = Some(description.platform_name.clone());
        self.load = None;
        if let Some(host) = &mut self.host {
            host.set_up(description);
        }
    }

    pub(super) fn set_load(&mut self, load: Load) {
        self.load = Some(load);
    }

    /// Whether it is meant by `cuda:1`, `cuda` or `cuda:0,cuda:1`; `None`: that is not known yet.
    fn is_meant(&self, wanted: &str) -> Option<bool> {
        let own = self.settings.device_index.unwrap_or(0);
        let mut known = true;
        for (plugin, index) in wanted.split(',').map(|one| split(one.trim())) {
            let is_own = index.is_none_or(|index| index == own);
            let is_named = plugin == self.settings.device.name;
            match &self.platform {
                _ if is_named && is_own => return Some(true),
                Some(platform) if platform == plugin && is_own => return Some(true),
                None if !is_named && self.given_up.is_none() => known = false,
                _ => {}
            }
        }
        known.then_some(false)
    }

    /// How much sessions make of it: the average number that want it, and the part of its memory that
    /// they hold, in thousandths. What it has not told yet is taken for sessions that always want it.
    fn weighs(&self, device: usize, sessions: &Sessions) -> (u64, usize) {
        let own = sessions.iter().filter(|(_, card)| card.device == device);
        let newest = self.load.as_ref().map_or(0, |load| load.newest);
        let (mut counted, mut new) = (0, 0);
        for (id, _) in own {
            match *id > newest {
                true => new += 1,
                false => counted += 1,
            }
        }
        let mut weight = WHOLE * new;
        if let (Some(load), Some(host)) = (&self.load, &self.host)
            && counted > 0
        {
            let capacity = host.description().map_or(0, |device| device.capacity_bytes);
            let held =
                u128::from(load.held_bytes) * u128::from(WHOLE) / u128::from(capacity.max(1));
            weight += load.wanting_milli.min(WHOLE * counted);
            weight += u64::try_from(held)
                .unwrap_or(u64::MAX / 2)
                .min(u64::MAX / 2);
        }
        (weight, usize::try_from(counted + new).unwrap_or(usize::MAX))
    }

    /// Why it takes no jobs, if it never will.
    pub(super) fn refusal(&self) -> Option<Error> {
        let problem = self.given_up.as_ref()?;
        let error = Error::new(ErrorCode::Unavailable, problem.what.clone());
        Some(match &problem.hint {
            Some(hint) => error.hint(hint.clone()),
            None => error,
        })
    }
}

impl Supervisor {
    /// Whether every device was opened once, or never will be.
    pub(super) fn all_settled(&self) -> bool {
        let settled = |device: &ServedDevice| device.was_ready || device.given_up.is_some();
        self.devices.iter().all(settled)
    }

    /// ` of cuda:1` where there are several.
    pub(super) fn of_device(&self, device: usize) -> String {
        match self.devices.len() {
            1 => String::new(),
            _ => format!(" of {}", self.devices[device].name()),
        }
    }

    /// The device that a job gets: the one it names, or the one that has least to do.
    pub(super) fn choose(&self, wanted: &str) -> Choice {
        let candidates = match self.meant(wanted) {
            Ok(Some(candidates)) => candidates,
            Ok(None) => return Choice::Wait,
            Err(error) => return Choice::Refuse(error),
        };
        let served = |device: &&usize| self.devices[**device].given_up.is_none();
        if candidates.iter().filter(served).count() == 0 {
            let gone = candidates.iter().find_map(|d| self.devices[*d].refusal());
            return gone.map_or(Choice::Wait, Choice::Refuse);
        }
        // At the start, all would go to the device that happens to be opened first.
        if candidates.len() > 1 && !self.all_settled() {
            return Choice::Wait;
        }
        let open = candidates.iter().filter(|d| self.devices[**d].is_open());
        let least = open.min_by_key(|d| (self.devices[**d].weighs(**d, &self.sessions), **d));
        least.map_or(Choice::Wait, |device| Choice::Device(*device))
    }

    /// The devices that are meant; all by an empty name. `None`: it is not known yet.
    pub(super) fn meant(&self, wanted: &str) -> Result<Option<Vec<usize>>, Error> {
        let all = 0..self.devices.len();
        if wanted.is_empty() {
            return Ok(Some(all.collect()));
        }
        let meant: Vec<_> = all.map(|d| (d, self.devices[d].is_meant(wanted))).collect();
        let found: Vec<usize> = meant
            .iter()
            .filter(|(_, is)| *is == Some(true))
            .map(|(device, _)| *device)
            .collect();
        if !found.is_empty() {
            return Ok(Some(found));
        }
        if meant.iter().any(|(_, is)| is.is_none()) {
            return Ok(None);
        }
        let names: Vec<String> = self.devices.iter().map(ServedDevice::name).collect();
        let why = format!(
            "this service has no device `{wanted}`; it has {}",
            names.join(", ")
        );
        Err(Error::new(ErrorCode::NotFound, why).hint(
            "`salus run --device NAME` and SALUS_DEVICE name one of these; without them a job gets \
             the one that has least to do",
        ))
    }
}
