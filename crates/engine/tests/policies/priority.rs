//! Priorities: the higher first, equal shares among equals.

use fastrand::Rng;

use crate::trial::{ENDLESS, Trial, length, start};

#[test]
fn whoever_is_of_a_higher_class_waits_for_one_iteration_at_most() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        // It is there before the others are.
        let (step, gap) = (random.u64(1..21), random.u64(..40));
        let mut text =
            format!("policy priority\nhigh: 50 x {step}ms, wait {gap}ms, ahead 1, priority high\n");
        let class = ["normal", "low"][random.usize(..2)];
        let mut longest = 0;
        for nth in 0..random.u64(1..5) {
            let (ms, each) = length(&mut random, 5, 60);
            longest = longest.max(ms);
            text.push_str(&format!("j{nth}: {ENDLESS} x {each}, priority {class}\n"));
        }
        let mut run = start(&text);
        run.until_ms(5_000);
        let waited = run.longest_wait_ms("high");
        assert!(waited <= longest, "seed {seed}: {waited} > {longest}");
    }
}

#[test]
fn who_was_preferred_is_not_behind_among_equals() {
    let mut run = start(&format!(
        "policy priority\na: {ENDLESS} x 10ms, priority high\nb: {ENDLESS} x 10ms\n\
         at 5s: change a priority normal"
    ));
    run.until_ms(7_000);
    let used = ["a", "b"].map(|job| run.used_ms(job, 5_100, 7_000));
    assert!(used[0].abs_diff(used[1]) <= 20, "{used:?}");
}

#[test]
fn what_a_higher_class_gets_puts_nobody_behind() {
    // c is not always ready; it must not come back at the time of a.
    let mut run = start(&format!(
        "policy priority\na: 500 x 10ms, wait 10ms, ahead 1, priority high\n\
         b: {ENDLESS} x 10ms\nc: {ENDLESS} x 10ms, wait 5ms, ahead 1"
    ));
    run.until_ms(20_000);
    let longest = run.longest_wait_ms("c");
    assert!(longest <= 100, "{longest}");
}
