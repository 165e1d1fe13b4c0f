//! The study: generated traces of many seeds under several policies, each beside its ideal.
//!
//! A policy's gain is the average completion time of one job at a time (`exclusive`) divided by its own;
//! an ideal's gain is that divided by the ideal's. The part of the ideal's gain that a policy reaches is
//! the one divided by the other: the ideal's average divided by the policy's.
//!
//! Promise: equal settings give equal studies, however many threads run them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use salus_engine::{Duration, Policy};

use crate::cluster::{Setup, TraceReport};
use crate::trace::{Generator, Workloads};

/// What is studied.
#[derive(Debug, Clone, Copy)]
pub struct Study {
    /// Traces are generated from as many seeds, beginning with this one.
    pub seeds: u64,
    pub first_seed: u64,
    pub jobs: u64,
    pub setup: Setup,
}

impl Default for Study {
    fn default() -> Self {
        Self {
            seeds: 30,
            first_seed: 1,
            jobs: 100,
            setup: Setup::default(),
        }
    }
}

/// One job at a time, then what is compared with it.
pub const STUDIED: [Policy; 5] = [
    Policy::Exclusive,
    Policy::Srtf,
    Policy::Fair,
    Policy::Pack,
    Policy::Las,
];

/// What a study found.
#[derive(Debug, Clone)]
pub struct StudyReport {
    pub jobs: u64,
    /// By seed.
    pub traces: Vec<StudiedTrace>,
}

/// One trace under all policies.
#[derive(Debug, Clone)]
pub struct StudiedTrace {
    pub seed: u64,
    /// In the order of [`STUDIED`].
    pub policies: Vec<StudiedPolicy>,
}

#[derive(Debug, Clone, Copy)]
pub struct StudiedPolicy {
    pub policy: Policy,
    /// Averages over the jobs, and of the waits for memory the 95th percentile.
    pub completion: Duration,
    pub to_memory_p95: Duration,
    pub to_first_iteration: Duration,
    pub makespan: Duration,
    /// Of the policy's ideal, if it has one: that of srtf and las is the shortest remaining time first,
    /// that of fair and pack processor sharing.
    pub ideal: Option<IdealTimes>,
}

#[derive(Debug, Clone, Copy)]
pub struct IdealTimes {
    pub completion: Duration,
    pub to_first_iteration: Duration,
}

/// The median over traces, and between what eight of ten are.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spread {
    pub median: f64,
    pub p10: f64,
    pub p90: f64,
}

/// What the study should show.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub what: &'static str,
    pub found: Spread,
    /// At least, or at most.
    pub wanted: f64,
    pub at_least: bool,
}

impl Study {
    /// Runs all seeds on this many threads. After each run `progress` is told how many are done, and of
    /// how many. `None` if the table has no workload that can be generated.
    pub fn run(
        &self,
        workloads: &Workloads,
        threads: usize,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Option<StudyReport> {
        let runs = self.seeds * STUDIED.len() as u64;
        let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let found: Mutex<Vec<(u64, StudiedPolicy)>> = Mutex::new(Vec::new());
        let work = || {
            loop {
                let run = next.fetch_add(1, Ordering::Relaxed);
                if run >= runs {
                    break;
                }
                if let Some(studied) = self.one(run, workloads) {
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.push((run, studied));
                }
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, runs);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.max(1) {
                scope.spawn(work);
            }
            work();
        });
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_unstable_by_key(|(run, _)| *run);
        let policies: Vec<StudiedPolicy> = found.into_iter().map(|(_, policy)| policy).collect();
        let traces = (self.first_seed..).zip(policies.chunks(STUDIED.len()));
        let traces = traces.map(|(seed, policies)| StudiedTrace {
            seed,
            policies: policies.to_vec(),
        });
        (policies.len() as u64 == runs).then(|| StudyReport {
            jobs: self.jobs,
            traces: traces.collect(),
        })
    }

    fn one(&self, run: u64, workloads: &Workloads) -> Option<StudiedPolicy> {
        let count = STUDIED.len() as u64;
        let generator = Generator {
            jobs: self.jobs,
            seed: self.first_seed + run / count,
            ..Generator::default()
        };
        let policy = STUDIED[(run % count) as usize];
        let setup = Setup {
            policy,
            ..self.setup
        };
        Some(StudiedPolicy::of(&generator.trace(workloads)?.run(&setup)))
    }
}

impl StudiedPolicy {
    fn of(report: &TraceReport) -> Self {
        let ideal = match report.policy {
            Policy::Srtf | Policy::Las => Some(report.ideal_srtf()),
            Policy::Fair | Policy::Pack => Some(report.ideal_fair()),
            _ => None,
        };
        Self {
            policy: report.policy,
            completion: report.completion().mean,
            to_memory_p95: report.to_memory().p95,
            to_first_iteration: report.to_first_iteration().mean,
            makespan: report.makespan,
            ideal: ideal.map(|ideal| IdealTimes {
                completion: ideal.completion().mean,
                to_first_iteration: ideal.to_first_iteration().mean,
            }),
        }
    }
}

impl StudiedTrace {
    pub fn of(&self, policy: Policy) -> &StudiedPolicy {
        let found = self
            .policies
            .iter()
            .find(|studied| studied.policy == policy);
        found.expect("every studied policy is there")
    }

    /// How much shorter the average completion is than one at a time.
    pub fn gain(&self, policy: Policy) -> f64 {
        ratio(
            self.of(Policy::Exclusive).completion,
            self.of(policy).completion,
        )
    }

    /// The same of the policy's ideal.
    pub fn ideal_gain(&self, policy: Policy) -> Option<f64> {
        let ideal = self.of(policy).ideal?;
        Some(ratio(
            self.of(Policy::Exclusive).completion,
            ideal.completion,
        ))
    }

    /// The part of the ideal's gain that the policy reaches.
    pub fn part_of_ideal(&self, policy: Policy) -> Option<f64> {
        let studied = self.of(policy);
        Some(ratio(studied.ideal?.completion, studied.completion))
    }

    /// Average time to the first iteration, against the ideal's.
    pub fn first_iteration_ratio(&self, policy: Policy) -> Option<f64> {
        let studied = self.of(policy);
        let ideal = studied.ideal?.to_first_iteration;
        (ideal.0 > 0).then(|| ratio(studied.to_first_iteration, ideal))
    }
}

impl StudyReport {
    /// Of a number of each trace, over those that have it.
    pub fn spread(&self, number: impl Fn(&StudiedTrace) -> Option<f64>) -> Spread {
        let mut numbers: Vec<f64> = self.traces.iter().filter_map(number).collect();
        numbers.sort_by(f64::total_cmp);
        let Some(last) = numbers.len().checked_sub(1) else {
            return Spread::default();
        };
        // The nearest that is there; of an even number the median is between two.
        let at = |part: f64| numbers[(last as f64 * part).round() as usize];
        Spread {
            median: (numbers[last / 2] + numbers[last.div_ceil(2)]) / 2.0,
            p10: at(0.1),
            p90: at(0.9),
        }
    }

    pub fn targets(&self) -> Vec<Target> {
        let srtf = |number: fn(&StudiedPolicy) -> f64| {
            self.spread(move |trace| Some(number(trace.of(Policy::Srtf))))
        };
        vec![
            Target {
                what: "srtf, part of the ideal's gain",
                found: self.spread(|trace| trace.part_of_ideal(Policy::Srtf)),
                wanted: 0.92,
                at_least: true,
            },
            Target {
                what: "fair, part of the ideal's gain",
                found: self.spread(|trace| trace.part_of_ideal(Policy::Fair)),
                wanted: 0.93,
                at_least: true,
            },
            Target {
                what: "srtf, submission to memory, p95 in seconds",
                found: srtf(|studied| seconds(studied.to_memory_p95)),
                wanted: 60.0,
                at_least: false,
            },
            Target {
                what: "srtf, average to first iteration, of the ideal's",
                found: self.spread(|trace| trace.first_iteration_ratio(Policy::Srtf)),
                wanted: 1.1,
                at_least: false,
            },
        ]
    }
}

impl Target {
    pub fn is_met(&self) -> bool {
        match self.at_least {
            true => self.found.median >= self.wanted,
            false => self.found.median <= self.wanted,
        }
    }
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.0 as f64 / other.0.max(1) as f64
}

fn seconds(time: Duration) -> f64 {
    time.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Study {
        Study {
            seeds: 2,
            first_seed: 5,
            jobs: 2,
            ..Study::default()
        }
    }

    #[test]
    fn threads_do_not_change_what_is_found() {
        let table = "model,batch_size,kind,iteration_ms,persistent_mib,ephemeral_mib\n\
                     a,1,training,5000,100,100\nb,1,training,3000,100,8000\n";
        let table = Workloads::parse(table).expect("it is a table");
        let told = AtomicU64::new(0);
        let progress = |_: u64, of: u64| {
            told.fetch_add(of, Ordering::Relaxed);
        };
        let run = |threads| small().run(&table, threads, &progress).expect("it runs");
        let (one, three) = (run(1), run(3));
        assert_eq!(format!("{one:?}"), format!("{three:?}"));
        assert_eq!(told.into_inner(), 2 * 10 * 10);
        assert_eq!(one.traces.len(), 2);
        assert_eq!(one.traces[1].seed, 6);
        let part = one.traces[0]
            .part_of_ideal(Policy::Srtf)
            .expect("it has an ideal");
        assert!((0.5..=1.0).contains(&part), "{part}");
    }

    #[test]
    fn a_spread_is_of_numbers_that_are_there() {
        let trace = |seed| StudiedTrace {
            seed,
            policies: Vec::new(),
        };
        let report = StudyReport {
            jobs: 1,
            traces: (0..=10).map(trace).collect(),
        };
        let spread = report.spread(|trace| Some(trace.seed as f64));
        assert_eq!((spread.median, spread.p10, spread.p90), (5.0, 1.0, 9.0));
        let even = report.spread(|trace| (trace.seed > 0).then_some(trace.seed as f64));
        assert!((even.median - 5.5).abs() < 1e-9);
        assert_eq!(report.spread(|_| None), Spread::default());
    }
}
