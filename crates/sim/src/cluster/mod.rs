//! A trace's run: devices with an engine each, among which jobs are placed as they come.
//!
//! Devices do not touch each other, so between two submissions each runs by itself, up to the next.
//! A job stays on its device to its end.
//!
//! Promise: equal traces and settings give equal reports, to the byte; every policy meets the same
//! estimates and failures.
//! Cost: O(log jobs) per event of a device, O(log devices) to find those that have something to do.
//! Placing a job costs O(log devices) under least-loaded; first-fit looks at one device after another.
//! Not here: what happens on a device (`run`), what is asked of the result (`report.rs`).

mod draw;
mod placement;
mod report;

use std::collections::BTreeSet;

use salus_engine::{Policy, Room, Time};

pub use draw::Estimates;
pub use placement::Placement;
pub use report::{Summary, TraceJobReport, TraceReport};

use crate::run::Run;
use crate::scenario::Scenario;
use crate::trace::{Trace, TraceJob};
use draw::Drawn;
use placement::Loads;

/// What a trace runs on, and what is made up beside it.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub policy: Policy,
    pub devices: u32,
    pub placement: Placement,
    /// Of each device, for arrays that are paged out, and moved in a second in each direction.
    pub memory_bytes: u64,
    pub host_bytes: u64,
    pub link_bytes: u64,
    /// Lanes of a device under `pack`; other policies use one.
    pub lanes: u32,
    /// How much longer an iteration takes while another lane works, too, in thousandths.
    pub beside: u64,
    pub estimates: Estimates,
    /// How many of a thousand jobs fail at a random point.
    pub failures: u64,
    /// Of wrong estimates and failures.
    pub seed: u64,
}

impl Default for Setup {
    /// One P100 of the original. Two lanes get as much more done as it measured for several resnet50_50
    /// at once: 1.07 times what one does.
    fn default() -> Self {
        Self {
            policy: Policy::Fair,
            devices: 1,
            placement: Placement::LeastLoaded,
            memory_bytes: 16 << 30,
            host_bytes: 64 << 30,
            link_bytes: 10 << 30,
            lanes: 2,
            beside: 1870,
            estimates: Estimates::Exact,
            failures: 0,
            seed: 0,
        }
    }
}

impl Trace {
    /// Runs it to the end of its last job.
    pub fn run(&self, setup: &Setup) -> TraceReport {
        let drawn = Drawn::new(self, setup);
        let mut cluster = Cluster::new(setup);
        let mut places = Vec::with_capacity(self.jobs().len());
        for (index, job) in self.jobs().iter().enumerate() {
            cluster.run_until(job.submitted);
            places.push(cluster.submit(job, &drawn, index));
        }
        cluster.run_until(END);
        cluster.report(self, setup, &places, &drawn)
    }
}

/// Later than any run: all that is left happens before.
const END: Time = Time(u64::MAX);

#[derive(Debug)]
struct Cluster {
    devices: Vec<Run>,
    /// Devices on which something will happen, by when.
    next: BTreeSet<(Time, usize)>,
    loads: Loads,
    beside: u64,
}

/// Where a job is.
#[derive(Debug, Clone, Copy)]
struct Place {
    device: usize,
    /// Among the jobs of its device.
    job: usize,
}

impl Cluster {
    fn new(setup: &Setup) -> Self {
        let room = Room {
            device_bytes: setup.memory_bytes,
            host_bytes: setup.host_bytes,
            user_max: None,
        };
        let device = Scenario {
            policy: setup.policy,
            lanes: setup.lanes.max(1),
            width: 1,
            room,
            link_bytes: setup.link_bytes.max(1),
            step: None,
            until: None,
            jobs: Vec::new(),
            commands: Vec::new(),
        };
        let count = setup.devices.max(1) as usize;
        Self {
            devices: (0..count).map(|_| Run::undrawn(&device)).collect(),
            next: BTreeSet::new(),
            loads: Loads::new(setup.placement, count, setup.memory_bytes),
            beside: setup.beside,
        }
    }

    /// All that happens before this time.
    fn run_until(&mut self, end: Time) {
        while let Some(&(at, index)) = self.next.first().filter(|(at, _)| *at < end) {
            self.next.remove(&(at, index));
            let device = &mut self.devices[index];
            device.until_before(end);
            self.next.extend(device.next().map(|at| (at, index)));
            self.loads.update(index, device);
        }
    }

    /// A job comes. All that happened before was done.
    fn submit(&mut self, job: &TraceJob, drawn: &Drawn, index: usize) -> Place {
        let at = self.loads.choose(job, &self.devices);
        let device = &mut self.devices[at];
        if let Some(next) = device.next() {
            self.next.remove(&(next, at));
        }
        let place = Place {
            device: at,
            job: device.actors.len(),
        };
        device.add(drawn.job(job, index, self.beside));
        self.next.extend(device.next().map(|next| (next, at)));
        self.loads.update(at, device);
        place
    }
}
