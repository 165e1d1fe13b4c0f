//! Nobody starves, and no lane is idle while somebody waits, under every policy.

use fastrand::Rng;
use salus_engine::Policy;
use salus_sim::{Ran, Run};

use crate::trial::{AGING_LIMIT, ENDLESS, Trial, length, parse};

/// Jobs of all kinds, some of them endless, and settings of all kinds. Returns the longest
/// iteration, in ms, and which jobs end.
fn mixed_jobs(random: &mut Rng, lanes: u64) -> (String, u64, Vec<bool>) {
    let mut text = format!("lanes {lanes}\n");
    let (mut longest, mut ends) = (0, Vec::new());
    for nth in 0..random.u64(3..8) {
        let (length, each) = length(random, 5, 80);
        let (from, weight) = (random.u64(..2_000), random.u64(1..5));
        let class = ["high", "normal", "low"][random.usize(..3)];
        let is_endless = random.u64(..3) == 0;
        let iterations = if is_endless {
            ENDLESS
        } else {
            random.u64(1..61)
        };
        text.push_str(&format!(
            "j{nth}: from {from}ms, weight {weight}, priority {class}, {iterations} x {each}"
        ));
        if random.u64(..3) == 0 {
            text.push_str(&format!(", wait {}ms, ahead 1", random.u64(..60)));
        }
        if random.u64(..3) == 0 {
            text.push_str(&format!(", deadline {}ms", random.u64(1..100)));
        }
        if random.bool() {
            text.push_str(&format!(", iterations {}", random.u64(1..100)));
        }
        text.push('\n');
        longest = longest.max(length);
        ends.push(!is_endless);
    }
    (text, longest, ends)
}

#[test]
fn nobody_starves_and_no_lane_is_idle_while_somebody_waits() {
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let lanes = random.u64(1..4);
        let (text, longest, ends) = mixed_jobs(&mut random, lanes);
        let turns = ends.len() as u64 * 5 * longest;
        for policy in Policy::ALL {
            if policy == Policy::Exclusive {
                continue;
            }
            let shares = matches!(policy, Policy::Fair | Policy::Pack);
            let bound = match shares {
                true => 2 * turns,
                false => AGING_LIMIT + turns,
            };
            let mut run = Run::recorded(&parse(&text).under(policy));
            run.until_ms(100_000);
            for (nth, ends) in ends.iter().enumerate() {
                let job = format!("j{nth}");
                let waited = run.longest_wait_ms(&job);
                assert!(
                    waited <= bound,
                    "seed {seed}, {policy:?}: {job} waited {waited} ms, {bound} is the bound"
                );
                let ended = run.finished_at(&job).is_some();
                assert!(!shares || !ends || ended, "{job} never ended\n{text}");
            }
            // Where lanes run side by side only if that helps, they are also measured alone.
            if policy != Policy::Pack || lanes == 1 {
                check_work_is_conserved(&run, lanes);
            }
        }
    }
}

/// Whenever a lane was idle, nobody had asked who ran there later.
fn check_work_is_conserved(run: &Run, lanes: u64) {
    for lane in 0..lanes {
        let history = run.history().iter();
        let there = history.filter(|ran| u64::from(ran.lane.0) == lane);
        let there: Vec<&Ran> = there.collect();
        let mut asked_first = None;
        for pair in there.windows(2).rev() {
            let (before, next) = (pair[0], pair[1]);
            let first = asked_first.map_or(next.asked_at, |first| next.asked_at.min(first));
            asked_first = Some(first);
            let idle = before.ended < next.began;
            assert!(!idle || first >= next.began, "{before:?}, {next:?}");
        }
    }
}
