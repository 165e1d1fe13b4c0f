//! Random scenarios, each under every policy: whatever the jobs are, all of them end.
//!
//! A failure prints its scenario, which `salus sim` then shows.

use std::fmt::Write as _;

use fastrand::Rng;
use salus_engine::Policy;
use salus_sim::{Fate, Report, Scenario};

const SEEDS: u64 = 300;

trait Chance {
    fn below(&mut self, n: u64) -> u64;

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl Chance for Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.u64(..n)
    }
}

/// Jobs that fit device and host together; each fits the device alone.
fn scenario(seed: u64) -> String {
    let mut random = Rng::with_seed(seed);
    let lanes = 1 + random.below(3);
    let mut text = format!("lanes {lanes}\nwidth {}\n", 1 + random.below(lanes));
    let jobs = 2 + random.below(6);
    let tight = random.one_in(2);
    if tight {
        text.push_str("device 1GiB\nhost 16GiB\n");
    }
    for job in 0..jobs {
        let from = random.below(300);
        let (count, each) = (1 + random.below(40), 1 + random.below(30));
        let _ = write!(text, "j{job}: from {from}ms, {count} x {each}ms");
        let mut item = |text: &mut String, one_in: u64, name: &str, below: u64, unit: &str| {
            if random.one_in(one_in) {
                let _ = write!(text, ", {name} {}{unit}", 1 + random.below(below));
            }
        };
        let memory = if tight { 2 } else { 9 };
        item(&mut text, memory, "memory", 700, "MiB");
        item(&mut text, memory, "scratch", 300, "MiB");
        item(&mut text, 3, "wait", 60, "ms");
        item(&mut text, 3, "ahead", 3, "");
        item(&mut text, 3, "weight", 4, "");
        item(&mut text, 4, "every", 60, "ms");
        item(&mut text, 4, "deadline", 50, "ms");
        item(&mut text, 4, "expect", 900, "ms");
        item(&mut text, 3, "beside", 3, "x");
        let class = ["high", "normal", "low"][random.below(3) as usize];
        let _ = writeln!(text, ", priority {class}");
    }
    for _ in 0..random.below(4) {
        let at = 300 + random.below(500);
        let job = random.below(jobs);
        match random.below(4) {
            0 => {
                let later = at + 1 + random.below(300);
                let _ = writeln!(text, "at {at}ms: pause j{job}\nat {later}ms: resume j{job}");
            }
            1 => {
                let _ = writeln!(text, "at {at}ms: kill j{job}");
            }
            2 => {
                let weight = 1 + random.below(5);
                let _ = writeln!(
                    text,
                    "at {at}ms: change j{job} weight {weight}, priority low"
                );
            }
            _ => {
                let policy = Policy::ALL[random.below(8) as usize].name();
                let _ = writeln!(text, "at {at}ms: policy {policy}");
            }
        }
    }
    text
}

fn check(report: &Report) {
    for job in &report.jobs {
        assert!(
            !matches!(job.fate, Fate::Unfinished | Fate::Refused(..)),
            "{} is {:?}, {:?}",
            job.name,
            job.fate,
            report.notes
        );
    }
    let device_time: u64 = report.jobs.iter().map(|job| job.device_time.0).sum();
    assert!(device_time >= report.busy.0);
    if report.lanes == 1 {
        assert_eq!(device_time, report.busy.0);
    }
}

#[test]
fn all_jobs_end_under_every_policy() {
    for seed in 0..SEEDS {
        let text = scenario(seed);
        let parsed = Scenario::parse(&text).unwrap_or_else(|p| panic!("{p}\n{text}"));
        let as_given = [parsed.clone()].into_iter();
        let under = Policy::ALL.into_iter().map(|policy| parsed.under(policy));
        for one in as_given.chain(under) {
            let run = std::panic::catch_unwind(|| check(&one.run()));
            run.unwrap_or_else(|panic| {
                eprintln!("seed {seed}, a scenario that fails:\n{text}");
                std::panic::resume_unwind(panic)
            });
        }
    }
}
