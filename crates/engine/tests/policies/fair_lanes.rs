//! Fair: changed weights, and shares over several lanes.

use crate::trial::{ENDLESS, Trial, ms, start};

#[test]
fn a_changed_weight_holds_from_then_on() {
    let mut run = start(&format!(
        "policy fair\na: {ENDLESS} x 10ms\nb: {ENDLESS} x 10ms\nat 1s: change a weight 3"
    ));
    run.until_ms(3_000);
    assert!(run.used_ms("a", 0, 1_000).abs_diff(500) <= 20);
    assert!(run.used_ms("a", 1_000, 3_000).abs_diff(1_500) <= 20);
}

#[test]
fn shares_are_of_time_and_not_of_iterations() {
    let mut run = start(&format!(
        "policy fair\nshort: {ENDLESS} x 10ms\nlong: {ENDLESS} x 70ms"
    ));
    run.until_ms(2_400);
    // Once both are known: one iteration of long for every seven of short.
    let used = ["short", "long"].map(|job| run.used_ms(job, 280, 1_680));
    assert_eq!(used, [700, 700]);
}

#[test]
fn who_is_alone_in_its_lane_does_not_put_others_behind() {
    // One of the first two has a lane for itself, the other shares one with c, which is not always
    // ready: it must not come back at the time of the lane that is faster.
    let mut run = start(&format!(
        "policy fair\nlanes 2\na: {ENDLESS} x 10ms\nb: {ENDLESS} x 10ms\n\
         c: {ENDLESS} x 10ms, wait 5ms, ahead 1"
    ));
    run.until_ms(20_000);
    let longest = run.longest_wait_ms("c");
    assert!(longest <= 30, "{longest}");
}

#[test]
fn who_was_alone_in_a_lane_is_not_behind_in_another() {
    // b is alone after c has ended, while a and d share the other lane. Then e and g come to its
    // lane and f to the other, which a and d leave; b moves there.
    let mut run = start(&format!(
        "policy fair\nlanes 2\na: 510 x 10ms\nb: {ENDLESS} x 10ms, wait 1ms, ahead 1\nc: 1 x 10ms\n\
         d: 510 x 10ms\ne: from 10000ms, {ENDLESS} x 10ms\nf: from 10001ms, {ENDLESS} x 10ms\n\
         g: from 10002ms, {ENDLESS} x 10ms"
    ));
    run.until_ms(15_000);
    let lane = |job: &str, at: u64| {
        let mut later = run.history_of(job).filter(|ran| ran.began >= ms(at));
        later.next().map(|ran| ran.lane)
    };
    assert_ne!(lane("b", 9_000), lane("a", 9_000));
    assert_eq!(lane("b", 14_000), lane("f", 14_000));
    let longest = run.longest_wait_ms("b");
    assert!(longest <= 60, "{longest}");
}
