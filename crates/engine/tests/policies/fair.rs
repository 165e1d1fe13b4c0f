//! Fair: how near the shares of random jobs are to the ideal, over any time.

use fastrand::Rng;
use salus_engine::Policy;

use crate::trial::{ALL_THERE, ENDLESS, Trial, all_at_once, length, ms};

#[test]
fn shares_are_within_one_iteration_of_the_ideal_over_any_time() {
    let mut worst: f64 = 0.0;
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let equal = seed % 2 == 0;
        let (mut jobs, mut weights, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..random.u64(2..8) {
            let weight = if equal { 1 } else { random.u64(1..6) };
            let (length, each) = length(&mut random, 1, 50);
            jobs.push((each, format!("weight {weight}, {ENDLESS}")));
            weights.push(weight as f64);
            lengths.push((length * 1_000_000) as f64);
        }
        let n = jobs.len();
        // Virtual time of one iteration of each.
        let steps: Vec<f64> = lengths.iter().zip(&weights).map(|(l, w)| l / w).collect();
        let longest = lengths.iter().copied().fold(0.0, f64::max);
        let mut run = all_at_once(Policy::Fair, &jobs);
        run.until_ms(110_000);
        let mut times = vec![0.0; n];
        let mut extremes = vec![vec![(0.0_f64, 0.0_f64); n]; n];
        let history = run.history().iter();
        for ran in history.filter(|ran| ran.began >= ms(ALL_THERE)) {
            // Those before and the first one come before them.
            let i = ran.job - n - 1;
            times[i] += (ran.ended - ran.began).0 as f64 / weights[i];
            for j in 0..n {
                for (i, j) in [(i, j), (j, i)] {
                    let ahead: f64 = times[i] - times[j];
                    let (least, most) = &mut extremes[i][j];
                    (*least, *most) = (least.min(ahead), most.max(ahead));
                }
            }
            // Since all are there, with equal weights.
            let ideal = (ran.ended - ms(ALL_THERE)).0 as f64 / n as f64;
            let off = times.iter().map(|time| (time - ideal).abs());
            let off = off.fold(0.0, f64::max);
            assert!(
                !equal || off <= longest + 1.0,
                "seed {seed}: {off}, {longest}"
            );
        }
        assert!(times.iter().all(|time| *time > 0.0), "all ran: {times:?}");
        for (i, row) in extremes.iter().enumerate() {
            for (j, (least, most)) in row.iter().enumerate() {
                // Between any two moments one gets ahead of the other by this much.
                let (gained, bound) = (most - least, steps[i] + steps[j]);
                worst = worst.max(gained / bound);
                assert!(gained <= bound + 1.0, "seed {seed}: {gained} > {bound}");
            }
        }
    }
    eprintln!("fair: at worst {worst:.2} of one iteration of each");
}

#[test]
fn shares_hold_also_where_iterations_vary() {
    let mut worst: f64 = 0.0;
    for seed in 0..100 {
        let mut random = Rng::with_seed(seed);
        let (mut jobs, mut longest) = (Vec::new(), Vec::new());
        for nth in 0..random.u64(2..6) {
            let length = random.u64(10..50);
            let (low, high) = (length * 500, length * 1_500);
            jobs.push((format!("{low}us..{high}us seed {nth}"), ENDLESS.to_string()));
            longest.push(high * 1_000);
        }
        let mut run = all_at_once(Policy::Fair, &jobs);
        run.until_ms(160_000);
        let used = (0..jobs.len()).map(|nth| {
            let job = format!("j{nth}");
            run.used(&job, ms(ALL_THERE), ms(160_000)).0
        });
        let used: Vec<u64> = used.collect();
        for i in 0..used.len() {
            for j in 0..i {
                let bound = 2 * (longest[i] + longest[j]);
                let off = used[i].abs_diff(used[j]);
                worst = worst.max(off as f64 / bound as f64);
                assert!(off <= bound, "seed {seed}: {off} > {bound}");
            }
        }
    }
    eprintln!("fair, where iterations vary: at worst {worst:.2} of two iterations of each");
}
