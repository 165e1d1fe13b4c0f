//! Estimates that are wrong: the shortest remaining time first is still better than without.

use std::collections::BTreeMap;

use fastrand::Rng;
use salus_sim::Scenario;

use crate::trial::parse;

const SEEDS: u64 = 12;

/// A job of the workload: when it comes, and the length and the number of its iterations, in ms.
#[derive(Clone, Copy)]
struct Job {
    from: u64,
    length: u64,
    iterations: u64,
}

/// Jobs whose lengths differ much, of which the device has nearly as much as it can do.
fn workload(random: &mut Rng) -> Vec<Job> {
    let mut from = 0;
    let draw = |_| {
        // Equally many of each order of magnitude, from half a second to half a minute.
        let length = 10 + random.u64(..80);
        let total = 500 << random.u64(..7);
        from += random.u64(..16_000);
        Job {
            from,
            length,
            iterations: total / length,
        }
    };
    (0..40).map(draw).collect()
}

/// What users say of their jobs, in hundredths of what is true.
type Said<'a> = &'a dyn Fn(&mut Rng) -> Option<u64>;

fn scenario(policy: &str, seed: u64, said: Said<'_>) -> Scenario {
    let mut random = Rng::with_seed(seed + 100);
    let mut text = format!("policy {policy}\n");
    for (nth, job) in workload(&mut Rng::with_seed(seed)).iter().enumerate() {
        let Job {
            from,
            length,
            iterations,
        } = job;
        text.push_str(&format!("j{nth}: from {from}ms, {iterations} x {length}ms"));
        if let Some(percent) = said(&mut random) {
            // A hundredth of a millisecond is 10 µs.
            let total_us = iterations * length * percent * 10;
            text.push_str(&format!(", expect {total_us}us"));
        }
        text.push('\n');
    }
    parse(&text)
}

/// Average completion time of all seeds.
fn average(policy: &str, said: Said<'_>) -> f64 {
    let times = (0..SEEDS).map(|seed| {
        let report = scenario(policy, seed, said).run();
        assert!(report.makespan.is_some(), "all jobs finish");
        report.average_completion.expect("some finish").0 as f64
    });
    times.sum::<f64>() / SEEDS as f64
}

#[test]
fn srtf_with_wrong_estimates_is_still_better_than_without() {
    let best = average("srtf", &|_| Some(100));
    // Each estimate is off by a factor of its own, up to this one, too low or too high.
    let off = |most: u64| {
        move |random: &mut Rng| {
            let factor = 100 + random.u64(..=100 * (most - 1));
            match random.bool() {
                true => Some(factor),
                false => Some(10_000 / factor),
            }
        }
    };
    let relative = |policy: &str, said: Said<'_>| average(policy, said) / best;
    let rows = [
        ("srtf, true", 1.0),
        ("srtf, off by up to 2", relative("srtf", &off(2))),
        ("srtf, off by up to 3", relative("srtf", &off(3))),
        ("srtf, off by up to 5", relative("srtf", &off(5))),
        ("srtf, all 0.2 x", relative("srtf", &|_| Some(20))),
        ("srtf, all 5 x", relative("srtf", &|_| Some(500))),
        ("srtf, unknown", relative("srtf", &|_| None)),
        ("las", relative("las", &|_| None)),
        ("fair", relative("fair", &|_| None)),
        ("fifo", relative("fifo", &|_| None)),
    ];
    let mut times = BTreeMap::new();
    eprintln!("average completion time, relative to that with true estimates");
    for (what, time) in rows {
        eprintln!("  {what:22} {time:5.2}");
        times.insert(what, time);
    }
    // Errors that differ cost a third; if all are wrong alike, as much as if nothing were known.
    assert!(times["srtf, off by up to 5"] <= 1.5);
    assert!(times["srtf, off by up to 2"] <= 1.15);
    for (what, time) in &times {
        assert!(*time >= 0.99, "{what} is better than the best");
        let worst = what.starts_with("srtf") && *time > times["fair"] * 0.95;
        assert!(!worst, "{what} is no better than fair");
    }
    assert!(times["srtf, off by up to 5"] < times["las"]);
}
