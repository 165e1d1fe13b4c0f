//! The result of a trace's run, in numbers: of every job, and over all of them.

use salus_engine::{Duration, Policy, Time};

use super::draw::Drawn;
use super::{Cluster, Place, Setup};
use crate::job::Actor;
use crate::output::report::Fate;
use crate::trace::{Trace, TraceJob};

#[derive(Debug, Clone)]
pub struct TraceReport {
    pub policy: Policy,
    pub devices: u32,
    /// In order of submission.
    pub jobs: Vec<TraceJobReport>,
    /// When the last job ended, since the first was submitted.
    pub makespan: Duration,
    /// How long devices ran anything, all together.
    pub busy: Duration,
    /// Paged out and in.
    pub moved_bytes: u64,
    /// Iterations that followed another job's in their lane.
    pub switches: u64,
    /// Things that happened in the simulation.
    pub events: u64,
}

#[derive(Debug, Clone)]
pub struct TraceJobReport {
    pub name: String,
    pub model: String,
    pub device: usize,
    pub submitted: Time,
    /// Iterations that it has run.
    pub iterations: u64,
    /// Device time that it needs alone: to its end, or where it fails to that point.
    pub service: Duration,
    /// When it was given memory for its arrays, and when the device began its first iteration.
    pub granted_at: Option<Time>,
    pub began_at: Option<Time>,
    pub fate: Fate,
}

/// What is said of many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    pub count: u64,
    pub mean: Duration,
    pub p50: Duration,
    pub p95: Duration,
    pub p99: Duration,
    pub max: Duration,
}

impl Cluster {
    pub(super) fn report(
        self,
        trace: &Trace,
        setup: &Setup,
        places: &[Place],
        drawn: &Drawn,
    ) -> TraceReport {
        let rows = trace.jobs().iter().zip(places).enumerate();
        let jobs: Vec<TraceJobReport> = rows
            .map(|(index, (job, place))| {
                let actor = &self.devices[place.device].actors[place.job];
                let ran = drawn.of(index).dies_after;
                let service = job.service_of(ran.unwrap_or(job.iterations.count()));
                TraceJobReport::of(job, actor, place.device, service)
            })
            .collect();
        let ends = jobs.iter().filter_map(TraceJobReport::ended_at);
        let first = trace.jobs().first().map(|job| job.submitted);
        let devices = self.devices.iter();
        TraceReport {
            policy: setup.policy,
            devices: setup.devices,
            makespan: ends.max().unwrap_or_default() - first.unwrap_or_default(),
            busy: Duration(devices.clone().map(|run| run.device.busy.0).sum()),
            moved_bytes: devices.clone().map(|run| run.moved_bytes).sum(),
            switches: devices.clone().map(|run| run.device.switches).sum(),
            events: devices.map(|run| run.events).sum(),
            jobs,
        }
    }
}

impl TraceReport {
    /// From submission to end, of jobs that finished.
    pub fn completion(&self) -> Summary {
        Summary::of(self.jobs.iter().filter_map(TraceJobReport::completion))
    }

    /// From submission to memory, of all jobs that were given some.
    pub fn to_memory(&self) -> Summary {
        let waits = self.jobs.iter();
        Summary::of(waits.filter_map(|job| Some(job.granted_at? - job.submitted)))
    }

    /// From submission to the first iteration, of all jobs that ran one.
    pub fn to_first_iteration(&self) -> Summary {
        let waits = self.jobs.iter();
        Summary::of(waits.filter_map(|job| Some(job.began_at? - job.submitted)))
    }

    /// Of the time of all devices until the last job ended, how long they ran anything, in thousandths.
    pub fn busy_share(&self) -> u64 {
        let whole = u128::from(self.makespan.0.max(1)) * u128::from(self.devices.max(1));
        ((u128::from(self.busy.0) * 1000 + whole / 2) / whole) as u64
    }

    /// How many jobs finished, failed, and were refused or did not end.
    pub fn fates(&self) -> (usize, usize, usize) {
        let count = |is_it: fn(&Fate) -> bool| {
            let jobs = self.jobs.iter().filter(|job| is_it(&job.fate));
            jobs.count()
        };
        let finished = count(|fate| matches!(fate, Fate::Finished(_)));
        let failed = count(|fate| matches!(fate, Fate::Killed(_)));
        (finished, failed, self.jobs.len() - finished - failed)
    }
}

impl TraceJobReport {
    fn of(job: &TraceJob, actor: &Actor, device: usize, service: Duration) -> Self {
        Self {
            name: job.name.clone(),
            model: job.model.clone(),
            device,
            submitted: job.submitted,
            iterations: actor.ended,
            service,
            granted_at: actor.granted_at,
            began_at: actor.began_at,
            fate: actor.fate,
        }
    }

    /// When its last iteration ended, or it failed, or was refused.
    pub fn ended_at(&self) -> Option<Time> {
        match self.fate {
            Fate::Finished(at) | Fate::Killed(at) | Fate::Refused(at, _) => Some(at),
            Fate::Unfinished => None,
        }
    }

    /// From submission to end, if it finished.
    pub fn completion(&self) -> Option<Duration> {
        match self.fate {
            Fate::Finished(at) => Some(at - self.submitted),
            _ => None,
        }
    }
}

impl Summary {
    pub fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        let Some(max) = times.last().copied() else {
            return Self::default();
        };
        let sum: u128 = times.iter().map(|time| u128::from(time.0)).sum();
        // The smallest that is at least as long as this many hundredths of them.
        let percentile = |p: usize| times[(times.len() * p).div_ceil(100).max(1) - 1];
        Self {
            count: times.len() as u64,
            mean: Duration((sum / times.len() as u128) as u64),
            p50: percentile(50),
            p95: percentile(95),
            p99: percentile(99),
            max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_are_there() {
        let summary = Summary::of((1..=200).rev().map(Duration));
        let found = [summary.p50, summary.p95, summary.p99, summary.max].map(|time| time.0);
        assert_eq!(found, [100, 190, 198, 200]);
        assert_eq!((summary.mean, summary.count), (Duration(100), 200));
        assert_eq!(Summary::of([Duration(7)].into_iter()).p50, Duration(7));
        assert_eq!(Summary::of(std::iter::empty()), Summary::default());
    }
}
