//! Which device a job gets when it comes.

use std::collections::BTreeSet;

use crate::run::Run;
use crate::trace::TraceJob;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// The first on which the arrays of all its jobs fit beside the largest scratch, as if nothing
    /// could be paged out; where there is none, the least loaded.
    FirstFit,
    /// As the service does: the one with the smallest sum of jobs, 1000 for each, and memory that they
    /// hold, in thousandths of what there is. Of equal ones the first.
    LeastLoaded,
}

impl Placement {
    pub const ALL: [Self; 2] = [Self::FirstFit, Self::LeastLoaded];

    pub fn name(self) -> &'static str {
        match self {
            Self::FirstFit => "first-fit",
            Self::LeastLoaded => "least-loaded",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|placement| placement.name() == name)
    }
}

#[derive(Debug)]
pub(super) struct Loads {
    placement: Placement,
    memory_bytes: u64,
    /// Of each device.
    loads: Vec<u64>,
    by_load: BTreeSet<(u64, usize)>,
}

impl Loads {
    pub(super) fn new(placement: Placement, devices: usize, memory_bytes: u64) -> Self {
        Self {
            placement,
            memory_bytes: memory_bytes.max(1),
            loads: vec![0; devices],
            by_load: (0..devices).map(|index| (0, index)).collect(),
        }
    }

    /// Something may have changed on a device.
    pub(super) fn update(&mut self, index: usize, device: &Run) {
        let held = device.held_bytes() as u128 * 1000 / self.memory_bytes as u128;
        let load = device.present() as u64 * 1000 + held as u64;
        let before = std::mem::replace(&mut self.loads[index], load);
        if before != load {
            self.by_load.remove(&(before, index));
            self.by_load.insert((load, index));
        }
    }

    pub(super) fn choose(&self, job: &TraceJob, devices: &[Run]) -> usize {
        let fits = |device: &Run| {
            let (arrays, scratch) = device.demand_bytes();
            let scratch = scratch.max(job.scratch_bytes);
            arrays + job.memory_bytes + scratch <= self.memory_bytes
        };
        let first_fit = match self.placement {
            Placement::FirstFit => devices.iter().position(fits),
            Placement::LeastLoaded => None,
        };
        let least = || self.by_load.first().map_or(0, |(_, index)| *index);
        first_fit.unwrap_or_else(least)
    }
}
