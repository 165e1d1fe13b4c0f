//! Aging: a request that has waited for long goes first, whatever the policy prefers.

use crate::trial::{AGING_LIMIT, ENDLESS, Trial, start};

#[test]
fn whoever_has_waited_for_long_goes_first_once() {
    // In front of it there is always one that the policy prefers.
    for (policy, rival) in [
        ("fifo", ""),
        ("srtf", ", iterations 1000000"),
        ("priority", ", priority high"),
        ("deadline", ", deadline 1ms"),
    ] {
        let mut run = start(&format!(
            "policy {policy}\nrival: {ENDLESS} x 50ms{rival}\n\
             waits: from 1ms, {ENDLESS} x 50ms, expect 1000h"
        ));
        run.until_ms(200_000);
        let waits = run.history_of("waits").map(|ran| ran.waited().0);
        let waits: Vec<u64> = waits.map(|ns| ns / 1_000_000).collect();
        assert_eq!(waits.len(), 6, "{policy}: {waits:?}");
        for waited in waits {
            // Two are handed over before it.
            let within = AGING_LIMIT..=AGING_LIMIT + 150;
            assert!(within.contains(&waited), "{policy}: {waited}");
        }
    }
}

#[test]
fn under_las_too_where_short_jobs_come_without_end() {
    // Each is done before it has had as much as the first.
    let mut text = format!("policy las\nlong: {ENDLESS} x 50ms\n");
    for nth in 0..90 {
        let from = 2_000 + 1_000 * nth;
        text.push_str(&format!("short{nth}: from {from}ms, 20 x 50ms\n"));
    }
    let mut run = start(&text);
    run.until_ms(80_000);
    let longest = run.longest_wait_ms("long");
    assert!(longest <= AGING_LIMIT + 150, "{longest}");
    assert!(longest >= AGING_LIMIT, "{longest}");
}
