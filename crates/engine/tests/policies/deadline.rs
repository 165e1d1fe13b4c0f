//! Deadlines: whatever any order meets is met.

use fastrand::Rng;
use salus_engine::Policy;

use crate::trial::{ALL_THERE, Trial, all_at_once, arrives_at};

#[test]
fn it_meets_all_that_any_order_meets_on_one_lane() {
    let (mut could, mut could_not) = (0, 0);
    for seed in 0..1_000 {
        let mut random = Rng::with_seed(seed);
        // Of each: what it takes, and how long after all are there it must have ended.
        let drawn = |_| (random.u64(1..21), random.u64(..80));
        let drawn: Vec<(u64, u64)> = (0..2 + seed % 5).map(drawn).collect();
        let feasible = any_order_meets(&drawn, 0);
        match feasible {
            true => could += 1,
            false => could_not += 1,
        }
        // One without a deadline is there as well, and always ready.
        let mut jobs = vec![("30ms".into(), "20".into())];
        for (nth, (length, end)) in (1..).zip(&drawn) {
            let deadline = ALL_THERE + end - arrives_at(nth);
            jobs.push((format!("{length}ms"), format!("deadline {deadline}ms, 1")));
        }
        let mut run = all_at_once(Policy::Deadline, &jobs);
        run.finish();
        let met = (1..)
            .zip(&drawn)
            .all(|(nth, (_, end))| run.done_at(&format!("j{nth}")) <= ALL_THERE + end);
        assert_eq!(met, feasible, "seed {seed}: {drawn:?}");
    }
    assert!(could > 100 && could_not > 100, "{could}, {could_not}");
}

fn any_order_meets(jobs: &[(u64, u64)], now: u64) -> bool {
    jobs.is_empty()
        || (0..jobs.len()).any(|first| {
            let mut rest = jobs.to_vec();
            let (length, end) = rest.remove(first);
            now + length <= end && any_order_meets(&rest, now + length)
        })
}
