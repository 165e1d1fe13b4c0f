//! Generates traces with the statistics of the original's: many short jobs, a few long ones that make
//! up most of the work, and more of both than one device can serve as they come.
//!
//! Jobs come independently of each other, one per 30 s on average, which at a mean of 3.03 min of
//! device time is a load of 6. Lengths follow [`LENGTHS`]. Each job draws its workload among those of
//! the table that train and whose iteration time is known, each equally likely.
//!
//! Promise: equal generators give equal traces, to the byte.

use salus_engine::{Duration, Time};

use super::workloads::{Kind, Workload, Workloads};
use super::{Iterations, Step, Trace, TraceJob};
use crate::random::Random;
use crate::scenario::job_items::AHEAD;

const MINUTE: u64 = 60_000_000_000;

/// How long jobs run alone, in minutes, and how many in a thousand are that long. The lengths of 1, 5
/// and 10 min are those of the original's tooling; the shares are chosen such that the mean is its
/// 3.03 min, and that under an ideal SRTF completion times are distributed as it reports them for its
/// SRTF (median 18 min, p75 73, p90 158). The tail is what the Tiresias mix has: the longest 12 % of the
/// jobs are half of all work.
const LENGTHS: [(u64, u64); 4] = [(1, 725), (5, 160), (10, 80), (20, 35)];

/// What to generate.
#[derive(Debug, Clone, Copy)]
pub struct Generator {
    pub jobs: u64,
    pub seed: u64,
    /// How much work comes, of what one device can do, in thousandths.
    pub load: u64,
}

impl Default for Generator {
    fn default() -> Self {
        Self {
            jobs: 100,
            seed: 0,
            load: 6050,
        }
    }
}

impl Generator {
    /// `None` if the table has no workload that trains and whose iteration time is known.
    pub fn trace(&self, workloads: &Workloads) -> Option<Trace> {
        let is_known = |w: &&Workload| w.kind == Kind::Training && w.iteration.is_some();
        let choices: Vec<&Workload> = workloads.all().iter().filter(is_known).collect();
        if choices.is_empty() {
            return None;
        }
        let mut random = Random::new(self.seed);
        let between = Duration(mean_length().0 * 1000 / self.load.max(1));
        let mut now = Time(0);
        let mut jobs = Vec::new();
        for number in 1..=self.jobs {
            now = now + random.exponential(between);
            // Whole milliseconds, which people can read.
            now = Time(now.0 / 1_000_000 * 1_000_000);
            let choice = random.below(choices.len() as u64);
            let length = draw_length(&mut random);
            jobs.push(job(number, choice, choices[choice as usize], now, length));
        }
        Some(Trace::new(jobs))
    }
}

/// Of all jobs, on average.
fn mean_length() -> Duration {
    let minutes = LENGTHS.iter().map(|(minutes, share)| minutes * share);
    Duration(minutes.sum::<u64>() * MINUTE / 1000)
}

fn draw_length(random: &mut Random) -> Duration {
    let mut draw = random.below(1000);
    for (minutes, share) in LENGTHS {
        if draw < share {
            return Duration(minutes * MINUTE);
        }
        draw -= share;
    }
    unreachable!("the shares are a thousand")
}

fn job(number: u64, program: u64, workload: &Workload, at: Time, length: Duration) -> TraceJob {
    let each = workload.iteration.expect("only those that are known");
    let count = ((length.0 + each.0 / 2) / each.0).max(1);
    TraceJob {
        name: number.to_string(),
        model: workload.name.clone(),
        submitted: at,
        memory_bytes: workload.memory_bytes,
        scratch_bytes: workload.scratch_bytes,
        iterations: Iterations::Equal {
            count,
            step: Step {
                device: each,
                ..Step::default()
            },
        },
        ahead: AHEAD,
        program,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generate(generator: Generator) -> Trace {
        let trace = generator.trace(&Workloads::p100());
        trace.expect("the table has such workloads")
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_does_not() {
        let [one, same, other] = [3, 3, 4].map(|seed| {
            let generator = Generator {
                seed,
                ..Generator::default()
            };
            generate(generator).to_csv()
        });
        assert_eq!(one, same);
        assert_ne!(one, other);
    }

    #[test]
    fn what_is_written_reads_as_the_same_trace() {
        let text = generate(Generator::default()).to_csv();
        let read = Trace::parse(&text, &Workloads::p100()).expect("it is a trace");
        assert_eq!(read.to_csv(), text);
    }

    #[test]
    fn the_statistics_are_the_original_s() {
        assert_eq!(LENGTHS.iter().map(|(_, share)| share).sum::<u64>(), 1000);
        let trace = generate(Generator {
            jobs: 20_000,
            ..Generator::default()
        });
        let jobs = trace.jobs();
        let service: u64 = jobs.iter().map(|job| job.service().0).sum();
        let mean_seconds = service / jobs.len() as u64 / 1_000_000_000;
        assert!(
            (177..=187).contains(&mean_seconds),
            "{mean_seconds} s, not 3.03 min"
        );
        let last = jobs.last().expect("there are some").submitted;
        let between = last.0 / jobs.len() as u64 / 1_000_000;
        assert!((29_400..=30_600).contains(&between), "one per {between} ms");
    }

    #[test]
    fn a_load_is_kept() {
        let trace = generate(Generator {
            jobs: 20_000,
            load: 800,
            ..Generator::default()
        });
        let service: u64 = trace.jobs().iter().map(|job| job.service().0).sum();
        let last = trace.jobs().last().expect("there are some").submitted;
        let load = service / (last.0 / 1000);
        assert!((770..=830).contains(&load), "{load}");
    }

    #[test]
    fn a_table_without_iteration_times_gives_no_trace() {
        let table = "model,batch_size,kind,iteration_ms,persistent_mib,ephemeral_mib\n\
                     a,1,training,,1,1\nb,1,inference,3,1,1\n";
        let table = Workloads::parse(table).expect("it is a table");
        assert!(Generator::default().trace(&table).is_none());
        assert_eq!(mean_length(), Duration(181_500_000_000));
    }
}
