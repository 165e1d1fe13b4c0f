//! Pack: side by side where that helps.

use salus_engine::Why;
use salus_sim::{Ran, Run};

use crate::trial::{ENDLESS, Trial, ms, parse, start};

/// Thousandths of its time that an iteration takes beside another: two side by side get more done.
const HELPS: u64 = 1_250;
/// Two side by side get less done than one after the other.
const HINDERS: u64 = 2_222;
const HELPS_MUCH: u64 = 1_111;

/// Two jobs on two lanes, each in a lane of its own.
fn side_by_side(thousandths: u64) -> Run {
    let mut run = start(&format!(
        "policy pack\nlanes 2\na: {ENDLESS} x 10ms\nb: {ENDLESS} x 15ms"
    ));
    run.slow_down_all(thousandths);
    run
}

#[test]
fn lanes_that_help_run_side_by_side() {
    let mut run = side_by_side(HELPS);
    run.until_ms(20_000);
    // Nearly always: they were measured apart, too.
    let overlap = run.overlap(0, 20_000);
    assert!(overlap > 95, "{overlap}");
}

#[test]
fn lanes_that_hinder_each_other_take_turns() {
    let mut run = side_by_side(HINDERS);
    run.until_ms(20_000);
    assert!(run.overlap(0, 1_000) > 0, "it was tried");
    assert_eq!(run.overlap(1_000, 20_000), 0);
    // Equal shares, nobody waits for long, and no time is lost between the two.
    let used = ["a", "b"].map(|job| run.used_ms(job, 1_000, 20_000));
    assert!(used.iter().sum::<u64>() >= 18_980, "{used:?}");
    assert!(used[0].abs_diff(used[1]) <= 30, "{used:?}");
    for job in ["a", "b"] {
        let longest = run.longest_wait_ms(job);
        assert!(longest <= 100, "{longest}");
    }
}

#[test]
fn it_says_that_it_keeps_lanes_apart() {
    let mut run = side_by_side(HINDERS);
    run.until_ms(5_000);
    let why = ["a", "b"].map(|job| run.why(job).expect("it is open"));
    assert!(why.contains(&Why::Interference), "{why:?}");
}

#[test]
fn it_looks_again_after_a_while() {
    let mut run = side_by_side(HINDERS);
    run.until_ms(20_000);
    assert_eq!(run.overlap(1_000, 20_000), 0);
    run.slow_down_all(HELPS_MUCH);
    run.until_ms(60_000);
    assert_eq!(run.overlap(20_000, 29_000), 0, "it was not looked at again");
    let overlap = run.overlap(33_000, 60_000);
    assert!(overlap > 95, "{overlap}");
    run.slow_down_all(HINDERS);
    run.until_ms(120_000);
    let overlap = run.overlap(64_000, 120_000);
    assert!(overlap < 50, "{overlap}");
    let overlap = run.overlap(95_000, 120_000);
    assert!(overlap < 5, "{overlap}");
}

#[test]
fn who_leaves_while_it_is_tried_does_not_keep_others_from_it() {
    let mut run = start(&format!(
        "policy pack\nlanes 2\na: {ENDLESS} x 10ms\nb: 20 x 10ms\nc: from 1s, {ENDLESS} x 10ms"
    ));
    run.slow_down_all(HINDERS);
    run.until_ms(20_000);
    assert!(run.done_at("b") < 1_000);
    assert!(run.overlap(1_000, 10_000) > 0, "it was tried");
    assert_eq!(run.overlap(10_000, 20_000), 0);
}

#[test]
fn one_lane_alone_tells_nothing_of_two() {
    // All run one program. b ends while it is tried, and a goes on alone.
    let mut scenario = parse(&format!(
        "policy pack\nlanes 2\na: {ENDLESS} x 10ms\nb: 20 x 10ms\nc: from 5s, {ENDLESS} x 10ms"
    ));
    for job in ["b", "c"] {
        scenario.share_program(job, "a");
    }
    let mut run = Run::recorded(&scenario);
    run.slow_down_all(HINDERS);
    run.until_ms(20_000);
    assert!(run.done_at("b") < 1_000);
    assert!(run.overlap(5_000, 7_000) > 0, "it was tried again");
    assert_eq!(run.overlap(8_000, 20_000), 0);
}

#[test]
fn it_tells_programs_apart() {
    // a and c share a lane; b runs well beside a, and not beside c.
    let mut run = start(&format!(
        "policy pack\nlanes 2\na: {ENDLESS} x 10ms\nb: {ENDLESS} x 10ms\nc: {ENDLESS} x 11ms"
    ));
    run.slow_down_all(HELPS_MUCH);
    run.slow_down("b", "c", 2_500);
    run.until_ms(20_000);
    let beside = |job: &str| {
        let overlap = |one: &Ran| {
            let others = run.history_of(job);
            let parts = others.map(|other| one.time_beside(other, ms(5_000), ms(20_000)).0);
            parts.sum::<u64>()
        };
        run.history_of("b").map(overlap).sum::<u64>() / 1_000_000
    };
    let (a, c) = (beside("a"), beside("c"));
    assert!(a > 10 * c, "{a} ms beside a, {c} ms beside c");
    let used = ["a", "b", "c"].map(|job| run.used_ms(job, 1_000, 20_000));
    assert!(used.iter().all(|used| *used > 5_000), "{used:?}");
}

#[test]
fn who_got_less_in_another_lane_does_not_keep_others_out() {
    // a has a weight of three: for 20 s both ran all the time, and b got three times its share.
    let mut run = start(&format!(
        "policy pack\nlanes 2\na: {ENDLESS} x 10ms, weight 3\nb: {ENDLESS} x 15ms"
    ));
    run.slow_down_all(HELPS_MUCH);
    run.until_ms(20_000);
    assert!(run.overlap(0, 20_000) > 90);
    run.slow_down_all(HINDERS);
    run.until_ms(60_000);
    assert!(run.overlap(35_000, 60_000) < 5);
    let longest = run.longest_wait_ms("b");
    assert!(longest <= 500, "{longest}");
}
