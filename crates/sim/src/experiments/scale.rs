//! What a simulation costs: the same kind of trace with more and more jobs, on as many more devices.
//!
//! Each step has the load of the whole: a tenth of the jobs come to a tenth of the devices. The time of an
//! event should stay nearly the same.

use std::time::Duration;

use salus_engine::Policy;

use crate::cluster::Setup;
use crate::trace::{Generator, Workloads};

/// What is run.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Of the largest step.
    pub jobs: u64,
    pub devices: u32,
    pub seed: u64,
    /// How much work comes to each device, of what it can do, in thousandths.
    pub load: u64,
    pub policy: Policy,
}

impl Default for Scale {
    fn default() -> Self {
        Self {
            jobs: 10_000,
            devices: 1000,
            seed: 1,
            load: 900,
            policy: Policy::Fair,
        }
    }
}

/// The largest step, divided by these.
const PARTS: [u64; 5] = [100, 30, 10, 3, 1];

/// One step's cost.
#[derive(Debug, Clone, Copy)]
pub struct ScaleStep {
    pub jobs: u64,
    pub devices: u32,
    pub iterations: u64,
    pub events: u64,
    pub took: Duration,
    /// What the processor worked for it: on a busy machine less than it took.
    pub worked: Duration,
}

/// Two times since any moment.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    pub wall: Duration,
    /// For which the processor worked for this thread.
    pub work: Duration,
}

impl ScaleStep {
    /// Of the processor's work.
    pub fn ns_per_event(&self) -> f64 {
        self.worked.as_nanos() as f64 / self.events.max(1) as f64
    }
}

impl Scale {
    /// Runs all steps on this thread, the smallest first. `begins` is told the place of each step and
    /// how many there are. `None` if the table has no workload that can be generated.
    pub fn run(
        &self,
        workloads: &Workloads,
        clocks: &dyn Fn() -> Clocks,
        begins: &dyn Fn(usize, usize),
    ) -> Option<Vec<ScaleStep>> {
        let mut sizes: Vec<(u64, u32)> = PARTS.map(|part| self.part(part)).to_vec();
        sizes.dedup();
        let mut steps = Vec::new();
        for (place, (jobs, devices)) in sizes.iter().enumerate() {
            begins(place, sizes.len());
            steps.push(self.step(*jobs, *devices, workloads, clocks)?);
        }
        Some(steps)
    }

    fn part(&self, part: u64) -> (u64, u32) {
        let devices = (u64::from(self.devices) / part).max(1);
        ((self.jobs / part).max(1), devices as u32)
    }

    fn step(
        &self,
        jobs: u64,
        devices: u32,
        workloads: &Workloads,
        clocks: &dyn Fn() -> Clocks,
    ) -> Option<ScaleStep> {
        let generator = Generator {
            jobs,
            seed: self.seed,
            load: self.load * u64::from(devices),
        };
        let trace = generator.trace(workloads)?;
        let setup = Setup {
            policy: self.policy,
            devices,
            ..Setup::default()
        };
        let began = clocks();
        let report = trace.run(&setup);
        let ended = clocks();
        Some(ScaleStep {
            jobs,
            devices,
            iterations: report.jobs.iter().map(|job| job.iterations).sum(),
            events: report.events,
            took: ended.wall.saturating_sub(began.wall),
            worked: ended.work.saturating_sub(began.work),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn steps_grow_to_the_whole_and_are_timed_by_the_clock() {
        let table = "model,batch_size,kind,iteration_ms,persistent_mib,ephemeral_mib\n\
                     a,1,training,20000,100,100\n";
        let table = Workloads::parse(table).expect("it is a table");
        let scale = Scale {
            jobs: 100,
            devices: 10,
            ..Scale::default()
        };
        let reads = Cell::new(0);
        let clocks = || {
            reads.set(reads.get() + 1);
            Clocks {
                wall: Duration::from_secs(2 * reads.get()),
                work: Duration::from_secs(reads.get()),
            }
        };
        let steps = scale.run(&table, &clocks, &|_, _| {}).expect("it runs");
        let sizes: Vec<(u64, u32)> = steps.iter().map(|step| (step.jobs, step.devices)).collect();
        assert_eq!(sizes, [(1, 1), (3, 1), (10, 1), (33, 3), (100, 10)]);
        let two_and_one = |step: &ScaleStep| (step.took.as_secs(), step.worked.as_secs()) == (2, 1);
        assert!(steps.iter().all(two_and_one), "{steps:?}");
        let last = steps.last().expect("there are some");
        assert!(
            last.events > last.iterations && last.iterations > 300,
            "{last:?}"
        );
    }
}
