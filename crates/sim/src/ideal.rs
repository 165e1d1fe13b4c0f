//! The best that could be done with a trace on one device, on which all jobs fit at once and changing
//! jobs takes no time: what policies are compared with.
//!
//! Of `srtf`: the job with the shortest remaining time runs, and a shorter one that comes takes over at
//! once. No order has a shorter average completion time. Of `fair`: processor sharing, in which all
//! jobs that are there run at once, each at an equal part of the device's speed.
//!
//! Each knows what jobs really need, whatever was estimated; one that fails needs the time until then.
//! Cost: O(jobs · log jobs).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use salus_engine::{Duration, Time};

use crate::cluster::{Summary, TraceReport};
use crate::output::report::Fate;

/// What would have happened to each job, in the order of the report.
#[derive(Debug, Clone)]
pub struct Ideal {
    pub jobs: Vec<IdealJob>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdealJob {
    pub submitted: Time,
    pub began_at: Time,
    pub ended_at: Time,
    /// Whether it counts: one that fails does not complete.
    pub finishes: bool,
}

impl TraceReport {
    /// Preemptive shortest remaining time first.
    pub fn ideal_srtf(&self) -> Ideal {
        self.ideal(shortest_remaining_first)
    }

    /// Processor sharing.
    pub fn ideal_fair(&self) -> Ideal {
        self.ideal(processor_sharing)
    }

    fn ideal(&self, best: fn(&[Work]) -> Vec<(Time, Time)>) -> Ideal {
        let work = self.jobs.iter().map(|job| Work {
            submitted: job.submitted,
            service: job.service,
        });
        let times = best(&work.collect::<Vec<_>>());
        let jobs = self.jobs.iter().zip(times);
        let jobs = jobs.map(|(job, (began_at, ended_at))| IdealJob {
            submitted: job.submitted,
            began_at,
            ended_at,
            finishes: matches!(job.fate, Fate::Finished(_)),
        });
        Ideal {
            jobs: jobs.collect(),
        }
    }
}

impl Ideal {
    /// From submission to end, of the jobs that finish.
    pub fn completion(&self) -> Summary {
        let finished = self.jobs.iter().filter(|job| job.finishes);
        Summary::of(finished.map(|job| job.ended_at - job.submitted))
    }

    /// From submission to the first iteration.
    pub fn to_first_iteration(&self) -> Summary {
        let jobs = self.jobs.iter();
        Summary::of(jobs.map(|job| job.began_at - job.submitted))
    }

    /// When the last job ended, since the first was submitted.
    pub fn makespan(&self) -> Duration {
        let first = self.jobs.iter().map(|job| job.submitted).min();
        let last = self.jobs.iter().map(|job| job.ended_at).max();
        last.unwrap_or_default() - first.unwrap_or_default()
    }
}

/// A job as the ideal sees it.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub submitted: Time,
    /// What it takes alone.
    pub service: Duration,
}

/// When each job begins and ends; the jobs are in order of submission.
pub fn shortest_remaining_first(jobs: &[Work]) -> Vec<(Time, Time)> {
    let mut began = vec![None; jobs.len()];
    let mut ended = vec![Time(0); jobs.len()];
    let mut there: BinaryHeap<Reverse<(Duration, usize)>> = BinaryHeap::new();
    let (mut now, mut next) = (Time(0), 0);
    loop {
        if there.is_empty() {
            let Some(job) = jobs.get(next) else { break };
            now = now.max(job.submitted);
        }
        while let Some(job) = jobs.get(next).filter(|job| job.submitted <= now) {
            there.push(Reverse((job.service, next)));
            next += 1;
        }
        let Some(Reverse((left, index))) = there.pop() else {
            continue;
        };
        began[index].get_or_insert(now);
        let end = now + left;
        match jobs.get(next).filter(|job| job.submitted < end) {
            Some(job) => {
                let done = job.submitted - now;
                there.push(Reverse((Duration(left.0 - done.0), index)));
                now = job.submitted;
            }
            None => {
                ended[index] = end;
                now = end;
            }
        }
    }
    let began = began.into_iter().map(Option::unwrap_or_default);
    began.zip(ended).collect()
}

/// When each begins, which is at once, and ends. Virtual time is what every job that is there has had
/// since the beginning; a job ends when it has grown by what the job needs.
fn processor_sharing(jobs: &[Work]) -> Vec<(Time, Time)> {
    let mut ended = vec![Time(0); jobs.len()];
    // In parts of a nanosecond, so that dividing by the number of jobs loses nothing that adds up.
    const PARTS: u128 = 1 << 32;
    let mut there: BTreeMap<(u128, usize), ()> = BTreeMap::new();
    let (mut now, mut had, mut next) = (0u128, 0u128, 0);
    loop {
        if there.is_empty() {
            let Some(job) = jobs.get(next) else { break };
            now = now.max(u128::from(job.submitted.0) * PARTS);
        }
        let comes_at = |job: &Work| u128::from(job.submitted.0) * PARTS;
        while let Some(job) = jobs.get(next).filter(|job| comes_at(job) <= now) {
            there.insert((had + u128::from(job.service.0) * PARTS, next), ());
            next += 1;
        }
        let Some((&(ends_at, index), ())) = there.first_key_value() else {
            continue;
        };
        let count = there.len() as u128;
        let end = now + (ends_at - had) * count;
        match jobs.get(next).map(comes_at).filter(|at| *at < end) {
            Some(at) => {
                had += (at - now) / count;
                now = at;
            }
            None => {
                there.remove(&(ends_at, index));
                had = ends_at;
                now = end;
                ended[index] = Time(u64::try_from(end / PARTS).unwrap_or(u64::MAX));
            }
        }
    }
    let begun = jobs.iter().map(|job| job.submitted);
    begun.zip(ended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn draw(random: &mut Random, count: u64) -> Vec<Work> {
        let mut jobs: Vec<Work> = (0..count)
            .map(|_| Work {
                submitted: Time(random.below(12)),
                service: Duration(random.below(8) + 1),
            })
            .collect();
        jobs.sort_by_key(|job| job.submitted);
        jobs
    }

    /// The least sum of completion times of all ways to give each unit of time to a job that is there.
    fn least(jobs: &[Work], now: u64, left: &mut [u64]) -> u64 {
        let mut best = None;
        for index in 0..jobs.len() {
            if left[index] == 0 || jobs[index].submitted.0 > now {
                continue;
            }
            left[index] -= 1;
            let ends = match left[index] {
                0 => now + 1 - jobs[index].submitted.0,
                _ => 0,
            };
            let sum = ends + least(jobs, now + 1, left);
            left[index] += 1;
            best = Some(best.map_or(sum, |best: u64| best.min(sum)));
        }
        match best {
            Some(best) => best,
            None if left.iter().all(|left| *left == 0) => 0,
            None => least(jobs, now + 1, left),
        }
    }

    #[test]
    fn no_order_is_better_than_the_shortest_remaining_first() {
        let mut random = Random::new(5);
        for _ in 0..60 {
            let mut jobs = draw(&mut random, 3);
            for job in &mut jobs {
                job.service = Duration(job.service.0.min(4));
            }
            let times = shortest_remaining_first(&jobs);
            let found = jobs.iter().zip(&times);
            let found: u64 = found.map(|(job, (_, end))| (*end - job.submitted).0).sum();
            let mut left: Vec<u64> = jobs.iter().map(|job| job.service.0).collect();
            assert_eq!(found, least(&jobs, 0, &mut left), "{jobs:?}");
        }
    }

    #[test]
    fn a_shorter_one_takes_over_and_each_begins_when_it_first_runs() {
        let job = |submitted, service| Work {
            submitted: Time(submitted),
            service: Duration(service),
        };
        let times = shortest_remaining_first(&[job(0, 10), job(2, 3), job(3, 9), job(30, 1)]);
        let times: Vec<(u64, u64)> = times.iter().map(|(a, b)| (a.0, b.0)).collect();
        assert_eq!(times, [(0, 13), (2, 5), (13, 22), (30, 31)]);
    }

    /// Small steps, in each of which every job that is there gets its part.
    fn shared_in_steps(jobs: &[Work]) -> Vec<f64> {
        const STEP: f64 = 0.001;
        let mut left: Vec<f64> = jobs.iter().map(|job| job.service.0 as f64).collect();
        let mut ended = vec![0.0; jobs.len()];
        let mut now = 0.0;
        while left.iter().any(|left| *left > 0.0) {
            let is_there = |i: &usize| left[*i] > 0.0 && jobs[*i].submitted.0 as f64 <= now;
            let there: Vec<usize> = (0..jobs.len()).filter(is_there).collect();
            now += STEP;
            for &i in &there {
                left[i] -= STEP / there.len() as f64;
                if left[i] <= 0.0 {
                    ended[i] = now;
                }
            }
        }
        ended
    }

    #[test]
    fn sharing_is_what_small_steps_give() {
        let mut random = Random::new(9);
        for _ in 0..20 {
            let jobs = draw(&mut random, 5);
            // A thousand times as long, because times are whole numbers.
            let scale = |job: &Work| Work {
                submitted: Time(job.submitted.0 * 1000),
                service: Duration(job.service.0 * 1000),
            };
            let scaled: Vec<Work> = jobs.iter().map(scale).collect();
            let found = processor_sharing(&scaled);
            for ((_, end), expected) in found.iter().zip(shared_in_steps(&jobs)) {
                let end = end.0 as f64 / 1000.0;
                assert!((end - expected).abs() < 0.05, "{jobs:?}: {end}, {expected}");
            }
        }
    }

    #[test]
    fn both_keep_the_device_busy_while_there_is_work() {
        let mut random = Random::new(1);
        for _ in 0..50 {
            let jobs = draw(&mut random, 40);
            let last = |times: Vec<(Time, Time)>| times.into_iter().map(|(_, end)| end).max();
            let (one, other) = (shortest_remaining_first(&jobs), processor_sharing(&jobs));
            assert_eq!(last(one), last(other));
        }
    }
}
