//! Sixteen jobs of very different lengths that come at once: a part of `salus bench policies`.
//!
//! Each policy gets the same jobs in the same random order, as new processes that have compiled and
//! wait; then all start. Durations alone follow from the run under `exclusive`, where one follows the
//! other; the best average that any order could have is computed from them.

use std::time::{Duration, Instant};

use salus_console::output;
use salus_daemon::config::Problem;
use serde_json::{Value, json};

use crate::contenders::jobs::Jobs;
use crate::contenders::setup::Setup;
use crate::measure::statistics::median;
use crate::report::number;

const JOBS: usize = 16;
/// The jobs from the shortest to the longest, in the order in which they come: drawn once, because
/// what `exclusive` takes depends on it.
const ORDER: [usize; JOBS] = [11, 6, 9, 13, 12, 2, 14, 0, 15, 8, 4, 10, 7, 1, 3, 5];
/// How many times longer the longest is than the shortest.
const SPREAD: f64 = 50.0;
const SHORTEST_STEPS: f64 = 12.0;
/// What a job runs when it is prepared.
const WARM_STEPS: u32 = 10;
const TARGET: f64 = 0.85;
/// The machine's speed changes between runs: what counts is the median of this many.
const ROUNDS: usize = 3;
const FIGURES: [&str; 9] = [
    "exclusive_s",
    "srtf_s",
    "las_s",
    "ideal_s",
    "srtf_gain",
    "las_gain",
    "ideal_gain",
    "srtf_of_ideal",
    "las_of_ideal",
];
const ANSWER_POLL: Duration = Duration::from_millis(1);
const TIME_LIMIT: Duration = Duration::from_secs(600);
const ROW: &str = "count_3ms";

pub(crate) fn burst(setup: &Setup, quick: bool) -> Result<Value, Problem> {
    let (count, rounds) = if quick { (4, 1) } else { (JOBS, ROUNDS) };
    let steps = lengths(count);
    let mut all = Vec::new();
    for round in 1..=rounds {
        output::say(&format!("burst: round {round} of {rounds}"));
        all.push(all_policies(setup, &steps)?);
    }
    let figure = |key: &str| median(all.iter().filter_map(|round| round[key].as_f64()));
    let mut found = json!({ "steps": steps, "target_of_ideal": TARGET });
    for key in FIGURES {
        found[key] = json!(figure(key));
    }
    found["rounds"] = json!(all);
    Ok(found)
}

fn all_policies(setup: &Setup, steps: &[u32]) -> Result<Value, Problem> {
    let exclusive = run(setup, "exclusive", steps)?;
    let srtf = run(setup, "srtf", steps)?;
    let las = run(setup, "las", steps)?;
    let alone = differences(&exclusive);
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let ideal = best(&alone);
    let gain = |times: &[f64]| mean(&exclusive) / mean(times);
    let ideal_gain = mean(&exclusive) / ideal;
    Ok(json!({
        "alone_s": alone,
        "exclusive_s": mean(&exclusive),
        "srtf_s": mean(&srtf),
        "las_s": mean(&las),
        "ideal_s": ideal,
        "srtf_gain": gain(&srtf),
        "las_gain": gain(&las),
        "ideal_gain": ideal_gain,
        "srtf_of_ideal": gain(&srtf) / ideal_gain,
        "las_of_ideal": gain(&las) / ideal_gain,
    }))
}

/// Steps of each job: heavy-tailed (each a constant factor above the last), in the order of `ORDER`.
fn lengths(count: usize) -> Vec<u32> {
    let factor = SPREAD.powf(1.0 / (count.max(2) - 1) as f64);
    let steps = |n: &usize| (SHORTEST_STEPS * factor.powi(*n as i32)).round() as u32;
    let order = ORDER.iter().filter(|n| **n < count);
    order.map(steps).collect()
}

/// When each job was done, in seconds after all were told to start.
fn run(setup: &Setup, policy: &str, steps: &[u32]) -> Result<Vec<f64>, Problem> {
    output::say(&format!("burst: {} jobs under {policy}", steps.len()));
    let mut jobs = Jobs::start(setup, &[])?;
    for steps in steps {
        let terms = [(
            salus_wire::env::ITERATIONS,
            (steps + WARM_STEPS).to_string(),
        )];
        jobs.add_prepared(setup, ROW, &terms)?;
    }
    jobs.set_policy(policy)?;
    let begun = Instant::now();
    for (job, steps) in jobs.all.iter_mut().zip(steps) {
        job.tell(&json!({ "do": "block", "row": ROW, "seconds": steps }))?;
    }
    let mut waiting: Vec<_> = jobs.all.drain(..).map(Some).collect();
    let mut done = vec![f64::NAN; steps.len()];
    while waiting.iter().any(Option::is_some) {
        if begun.elapsed() > TIME_LIMIT {
            return Err(Problem::new("the jobs of the burst do not end"));
        }
        for (n, slot) in waiting.iter_mut().enumerate() {
            let Some(job) = slot else { continue };
            if job.try_hear()?.is_some() {
                done[n] = begun.elapsed().as_secs_f64();
                // Its process ends, and so its session: the next may have the device.
                *slot = None;
            }
        }
        std::thread::sleep(ANSWER_POLL);
    }
    Ok(done)
}

/// What each took, where one followed the other.
fn differences(done: &[f64]) -> Vec<f64> {
    let mut before = 0.0;
    done.iter()
        .map(|&at| {
            let took = at - before;
            before = at;
            took
        })
        .collect()
}

/// The best average completion time: the shortest first.
fn best(alone: &[f64]) -> f64 {
    let mut sorted = alone.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut end = 0.0;
    let ends = sorted.iter().map(|took| {
        end += took;
        end
    });
    ends.sum::<f64>() / alone.len() as f64
}

pub(crate) fn table(burst: &Value) -> String {
    let number = |key: &str| number(&burst[key]);
    let met = number("srtf_of_ideal") >= TARGET;
    format!(
        "\nburst of {} jobs, average completion time: exclusive {:.2} s, srtf {:.2} s, las {:.2} s, \
         the best order {:.2} s\nsrtf gains {:.2} x of at most {:.2} x: {:.2} of it (at least \
         {TARGET}, {}); las, which knows nothing, {:.2} x\n",
        burst["steps"].as_array().map_or(0, Vec::len),
        number("exclusive_s"),
        number("srtf_s"),
        number("las_s"),
        number("ideal_s"),
        number("srtf_gain"),
        number("ideal_gain"),
        number("srtf_of_ideal"),
        if met { "met" } else { "missed" },
        number("las_gain"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_spread_over_the_factor_and_are_not_sorted() {
        let steps = lengths(16);
        let (shortest, longest) = (steps.iter().min(), steps.iter().max());
        assert_eq!((shortest, longest), (Some(&12), Some(&600)));
        assert!(!steps.is_sorted());
        assert_eq!(steps, lengths(16));
    }

    #[test]
    fn the_best_order_is_the_shortest_first() {
        assert_eq!(differences(&[3.0, 4.0]), [3.0, 1.0]);
        assert_eq!(best(&[3.0, 1.0]), 2.5);
    }
}
