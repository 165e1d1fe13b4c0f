//! Pausing, under every policy.

use salus_engine::{Policy, Why};

use crate::trial::{AGING_LIMIT, ENDLESS, Trial, start};

#[test]
fn a_pause_takes_effect_at_the_next_boundary() {
    for policy in Policy::ALL.map(Policy::name) {
        let mut run = start(&format!(
            "policy {policy}\na: 8 x 10ms\nat 25ms: pause a\nat 80ms: resume a"
        ));
        run.until_ms(60);
        assert_eq!(run.why("a"), Some(Why::Paused), "{policy}");
        run.finish();
        // One runs, and one was handed over.
        let used = [(0, 40), (40, 80), (80, 120)].map(|(from, to)| run.used_ms("a", from, to));
        assert_eq!(used, [40, 0, 40], "{policy}");
    }
}

#[test]
fn others_run_during_a_pause() {
    for policy in Policy::ALL.map(Policy::name) {
        let mut run = start(&format!(
            "policy {policy}\na: 8 x 10ms\nb: from 1ms, 8 x 10ms\n\
             at 5ms: pause a\nat 305ms: resume a"
        ));
        run.finish();
        let done = (run.done_at("b"), run.done_at("a"));
        assert_eq!(done, (100, 365), "{policy}");
    }
}

#[test]
fn who_was_paused_did_not_wait() {
    let mut run = start(&format!(
        "policy priority\na: {ENDLESS} x 10ms, priority high\nb: 5 x 10ms, priority low\n\
         at 5ms: pause b\nat 40s: resume b"
    ));
    run.until_ms(80_000);
    // The one that was handed over before the pause has run.
    let after = run.history_of("b").find(|ran| ran.began.0 > 40_000_000_000);
    let waited = after.expect("it ran").began.0 / 1_000_000 - 40_000;
    assert!(
        (AGING_LIMIT..AGING_LIMIT + 20).contains(&waited),
        "{waited}"
    );
}

#[test]
fn who_was_away_comes_back_without_credit() {
    let mut run = start(&format!(
        "policy fair\na: {ENDLESS} x 10ms\nb: 400 x 10ms\nat 500ms: pause b\nat 1500ms: resume b"
    ));
    run.until_ms(2_000);
    let used = ["a", "b"].map(|job| run.used_ms(job, 1_520, 2_000));
    // It was owed half a second, and is given a tenth of one.
    assert!(used[1] <= 240 + 60, "{used:?}");
    assert!(used[1] >= 230, "{used:?}");
}

#[test]
fn what_one_policy_gave_another_does_not_take_back() {
    let mut run = start(&format!(
        "policy fifo\na: {ENDLESS} x 10ms\nb: {ENDLESS} x 10ms\nat 5s: policy fair"
    ));
    run.until_ms(7_000);
    let used = ["a", "b"].map(|job| run.used_ms(job, 5_100, 7_000));
    assert!(used[0].abs_diff(used[1]) <= 20, "{used:?}");
}
