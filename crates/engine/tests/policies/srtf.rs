//! The shortest remaining time first: what is known of a job, and how near it is to the best order.

use std::collections::BTreeMap;

use fastrand::Rng;
use salus_engine::{Duration, Policy};
use salus_sim::Run;

use crate::trial::{ALL_THERE, Trial, all_at_once, length, parse, start};

#[test]
fn iterations_are_enough_to_know_what_remains() {
    // a has run for long enough to be known: four iterations of it are left.
    let mut run = start(
        "policy srtf\na: 8 x 10ms, iterations 8\nb: from 45ms, 4 x 10ms, expect 40ms\n\
         c: from 45ms, 3 x 10ms, iterations 3",
    );
    run.until_ms(45);
    let remaining = |job: &str| {
        let session = run.session(job).expect("it is open");
        run.simulation().remaining(session)
    };
    assert_eq!(remaining("a"), Some(Duration(40_000_000)));
    assert_eq!(remaining("c"), None);
}

#[test]
fn who_goes_on_after_its_end_gives_way() {
    let began_and_done = |said: &str, rival: u64| {
        let mut run = start(&format!(
            "policy srtf\na: 30 x 10ms, {said}\nb: from 105ms, {rival} x 10ms, expect {}ms",
            rival * 10
        ));
        run.finish();
        (run.began_at("b"), run.done_at("b"))
    };
    // What it has exceeded that by is taken to be before it again: 50 ms, then more than that.
    for said in ["iterations 8", "expect 80ms"] {
        assert_eq!(began_and_done(said, 5), (140, 190), "{said}");
    }
    // It had more than twice what was said: it may need much more.
    for said in ["iterations 4", "expect 40ms"] {
        assert_eq!(began_and_done(said, 20), (120, 320), "{said}");
    }
}

#[test]
fn it_is_optimal_on_one_lane_with_true_estimates() {
    for seed in 0..400 {
        let mut random = Rng::with_seed(seed);
        let (mut jobs, mut drawn) = (Vec::new(), Vec::new());
        for _ in 0..random.u64(2..5) {
            let iterations = random.u64(1..5);
            let (length, each) = length(&mut random, 1, 40);
            let total = iterations * length;
            jobs.push((each, format!("expect {total}ms, {iterations}")));
            drawn.push((length, iterations));
        }
        let best = best_sum(&drawn, &mut vec![0; drawn.len()], 0, &mut BTreeMap::new());
        let mut run = all_at_once(Policy::Srtf, &jobs);
        run.finish();
        let ends = (0..jobs.len()).map(|nth| run.done_at(&format!("j{nth}")) - ALL_THERE);
        assert_eq!(ends.sum::<u64>(), best, "seed {seed}");
    }
}

/// The least that the times at which jobs end can add up to, over all orders of their iterations.
/// Jobs are the length and the number of their iterations.
fn best_sum(
    jobs: &[(u64, u64)],
    done: &mut Vec<u64>,
    now: u64,
    known: &mut BTreeMap<Vec<u64>, u64>,
) -> u64 {
    if let Some(sum) = known.get(done) {
        return *sum;
    }
    let mut best = None;
    for (nth, (length, iterations)) in jobs.iter().enumerate() {
        if done[nth] < *iterations {
            let end = now + length;
            done[nth] += 1;
            let own = if done[nth] == *iterations { end } else { 0 };
            let sum = own + best_sum(jobs, done, end, known);
            done[nth] -= 1;
            best = Some(best.map_or(sum, |best: u64| best.min(sum)));
        }
    }
    let best = best.unwrap_or(0);
    known.insert(done.clone(), best);
    best
}

#[test]
fn it_is_within_one_iteration_of_the_best_also_if_jobs_come_later() {
    // All iterations take 10 ms. Who knew what comes could start a newcomer at the next boundary;
    // here one iteration was handed over before.
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        // Of each: when it comes, in ms, and how many iterations it has.
        let mut jobs = vec![(0, 12)];
        for _ in 0..random.u64(2..4) {
            let iterations = random.u64(1..5);
            jobs.push((5 + 10 * random.u64(..8), iterations));
        }
        jobs.sort_by_key(|(from, _)| *from);
        let arrivals: Vec<u64> = jobs.iter().map(|(from, _)| from.div_ceil(10)).collect();
        let left: Vec<u64> = jobs.iter().map(|(_, iterations)| *iterations).collect();
        let best = 10 * best_with_arrivals(&arrivals, &left, 0, &mut BTreeMap::new());
        let mut text = String::from("policy srtf\n");
        for (nth, (from, iterations)) in jobs.iter().enumerate() {
            let total = iterations * 10;
            text.push_str(&format!(
                "j{nth}: from {from}ms, {iterations} x 10ms, expect {total}ms\n"
            ));
        }
        let mut scenario = parse(&text);
        for nth in 1..jobs.len() {
            // What an iteration takes is known before they come.
            scenario.share_program(&format!("j{nth}"), "j0");
        }
        let mut run = Run::recorded(&scenario);
        run.finish();
        let ends = (0..jobs.len()).map(|nth| run.done_at(&format!("j{nth}")));
        let (sum, n) = (ends.sum::<u64>(), jobs.len() as u64);
        assert!(sum <= best + n * 10, "seed {seed}: {sum}, {best}");
    }
}

/// The same with equal iterations and jobs that come later, in iterations.
fn best_with_arrivals(
    arrivals: &[u64],
    left: &[u64],
    now: u64,
    known: &mut BTreeMap<(u64, Vec<u64>), u64>,
) -> u64 {
    if left.iter().all(|left| *left == 0) {
        return 0;
    }
    if let Some(sum) = known.get(&(now, left.to_vec())) {
        return *sum;
    }
    let there = (0..left.len()).filter(|&nth| left[nth] > 0 && arrivals[nth] <= now);
    let sums = there.map(|nth| {
        let mut left = left.to_vec();
        left[nth] -= 1;
        let own = if left[nth] == 0 { now + 1 } else { 0 };
        own + best_with_arrivals(arrivals, &left, now + 1, known)
    });
    // If nobody is there, time passes.
    let best = sums.min();
    let best = best.unwrap_or_else(|| best_with_arrivals(arrivals, left, now + 1, known));
    known.insert((now, left.to_vec()), best);
    best
}
