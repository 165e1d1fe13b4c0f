//! How often threads are woken for a step: each wake-up takes tens of microseconds on a small
//! virtual machine, and takes a core from the device.
//!
//! Counted is how often threads went to sleep by themselves (the kernel's voluntary context switches),
//! of the job and of all processes of the service. The plugin's own threads are among them on both
//! sides (`tf_XLAEigen` and those without a name of their own, which have their process's), so the
//! same job directly on the plugin stands beside it.

use std::collections::BTreeMap;
use std::fs;

use salus_daemon::config::Problem;
use serde_json::{Value, json};

use crate::contenders::{DIRECT, SALUS, Sides};
use crate::measure::rounds::Rounds;
use crate::measure::statistics::{Spread, Verdict, median};
use crate::report::{Finding, number};
use crate::rows::row_table::Row;
use crate::rows::run::Run;

const NAMES: [&str; 2] = ["direct", "salus"];
const JOB: &str = "job";
const SERVICE: &str = "service";
const ALL: &str = "all";

pub(crate) fn measure(
    run: &mut Run<'_>,
    row: &'static Row,
    steps: &str,
) -> Result<Vec<Finding>, Problem> {
    let (block, count) = (run.pace.block(), run.pace.rounds(row));
    let warm = run.pace.warm();
    let (sides, progress) = run.sides()?;
    sides.prepare(steps, warm)?;
    let mut threads = Threads::default();
    let rounds = Rounds::take(
        count,
        NAMES.len(),
        |done| progress.rounds(done, count),
        |side| {
            let before = counts(sides, side);
            let said = sides.block(side, steps, block)?;
            let sleeps = counts(sides, side).since(&before);
            let number = |key: &str| number(&said[key]);
            let steps = number("steps") + number("warm_steps");
            if side == SALUS {
                threads.add(&sleeps, steps);
            }
            Ok(sleeps.by_step(steps))
        },
    )?;
    sides.drop_row(steps)?;
    let salus = Spread::of(&rounds.column(SALUS, ALL)?);
    let direct = Spread::of(&rounds.column(DIRECT, ALL)?);
    let middle =
        |key: &str| -> Result<f64, Problem> { Ok(median(rounds.column(SALUS, key)?.into_iter())) };
    let (job, service) = (middle(JOB)?, middle(SERVICE)?);
    Ok(vec![Finding {
        measured: format!("{:.2}", salus.median),
        floor: format!("{:.2}", direct.median),
        verdict: Verdict::NoTarget,
        detail: format!(
            "{job:.2} of the job, {service:.2} of the service (p15–p85 of both {:.2}–{:.2}), direct \
             {:.2} (p15–p85 {:.2}–{:.2}); by thread {}; {}",
            salus.p15,
            salus.p85,
            direct.median,
            direct.p15,
            direct.p85,
            threads.shown(),
            rounds.remark(),
        ),
        numbers: json!({
            "unit": "wake-ups a step",
            "measured": salus.interval.json(),
            "job": job,
            "service": service,
            "direct": direct.json(),
            "threads": threads.by_step(),
            "rounds": rounds.json(&NAMES),
        }),
        ..Finding::of(row)
    }])
}

/// How often threads went to sleep, by their names.
#[derive(Default)]
struct Sleeps {
    job: BTreeMap<String, u64>,
    service: BTreeMap<String, u64>,
}

fn counts(sides: &Sides, side: usize) -> Sleeps {
    let mut counts = Sleeps::default();
    add(sides.job(side), &mut counts.job);
    if side == SALUS {
        for pid in sides.service() {
            add(pid, &mut counts.service);
        }
    }
    counts
}

fn add(pid: u32, counts: &mut BTreeMap<String, u64>) {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        let status = fs::read_to_string(thread.path().join("status"));
        if let Some((name, sleeps)) = of_thread(&status.unwrap_or_default()) {
            *counts.entry(name).or_default() += sleeps;
        }
    }
}

/// Reads `/proc/<pid>/task/<tid>/status`.
fn of_thread(status: &str) -> Option<(String, u64)> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim)
    };
    let sleeps = field("voluntary_ctxt_switches:")?.parse().ok()?;
    // Threads of a pool are told apart by a number at the end.
    let name = field("Name:")?.trim_end_matches(|c: char| c.is_ascii_digit());
    Some((name.to_owned(), sleeps))
}

impl Sleeps {
    fn since(self, before: &Self) -> Self {
        let less = |now: BTreeMap<String, u64>, then: &BTreeMap<String, u64>| {
            let now = now.into_iter().map(|(name, sleeps)| {
                let before = then.get(&name).copied().unwrap_or(0);
                (name, sleeps.saturating_sub(before))
            });
            now.collect()
        };
        Self {
            job: less(self.job, &before.job),
            service: less(self.service, &before.service),
        }
    }

    fn by_step(&self, steps: f64) -> Value {
        let sum = |all: &BTreeMap<String, u64>| all.values().sum::<u64>() as f64 / steps;
        let (job, service) = (sum(&self.job), sum(&self.service));
        json!({ ALL: job + service, JOB: job, SERVICE: service })
    }
}

/// The same over all rounds, by thread.
#[derive(Default)]
struct Threads {
    sleeps: BTreeMap<(&'static str, String), u64>,
    steps: f64,
}

impl Threads {
    fn add(&mut self, sleeps: &Sleeps, steps: f64) {
        self.steps += steps;
        for (process, threads) in [(JOB, &sleeps.job), (SERVICE, &sleeps.service)] {
            for (name, sleeps) in threads {
                *self.sleeps.entry((process, name.clone())).or_default() += sleeps;
            }
        }
    }

    fn by_step(&self) -> Value {
        let mut all = json!({ JOB: {}, SERVICE: {} });
        for ((process, name), sleeps) in &self.sleeps {
            all[process][name] = json!(*sleeps as f64 / self.steps);
        }
        all
    }

    /// Those that matter, the job's first.
    fn shown(&self) -> String {
        let each = self.sleeps.iter().filter_map(|((_, name), &sleeps)| {
            let sleeps = sleeps as f64 / self.steps;
            (sleeps >= 0.05).then(|| format!("{name} {sleeps:.2}"))
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_a_name_and_sleeps() {
        let status = "Name:\tsession-12\nState:\tS\nvoluntary_ctxt_switches:\t42\n\
                      nonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(of_thread(status), Some(("session-".into(), 42)));
        assert_eq!(of_thread("Name:\tx\n"), None);
    }

    #[test]
    fn sleeps_are_counted_by_step() {
        let of = |n| Sleeps {
            job: BTreeMap::from([("python".into(), n)]),
            service: BTreeMap::from([("session-".into(), 2 * n)]),
        };
        let sleeps = of(30).since(&of(10));
        assert_eq!(sleeps.by_step(10.0)[ALL], 6.0);
        let mut threads = Threads::default();
        threads.add(&sleeps, 10.0);
        threads.add(&sleeps, 30.0);
        assert_eq!(threads.by_step()[JOB]["python"], 1.0);
        assert_eq!(threads.shown(), "python 1.00, session- 2.00");
    }
}
