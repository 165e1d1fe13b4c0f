//! Minimum residency: how long a session that was paged in is not evicted.

use salus_sim::Needs;

use crate::story::{
    AGING_LIMIT, MARGIN, MIB, MIN_RESIDENCY, PageOut, Start, Story, arguments, by_age, ms, paged,
    two_hold_forty,
};

#[test]
fn a_session_is_evicted_after_its_minimum_residency() {
    let mut s = Story::new(100, 100, 1, 1..=2);
    s.holds(1, 60);
    assert_eq!(s.at(10).upload(2, 50), []);
    assert_eq!(s.wake_at(), Some(ms(MIN_RESIDENCY)));
    assert_eq!(s.at(MIN_RESIDENCY - 1).wake(), []);
    assert_eq!(s.wake_at(), Some(ms(MIN_RESIDENCY)));
    assert_eq!(s.at(MIN_RESIDENCY).wake(), [PageOut(1, 10 * MIB + MARGIN)]);
    assert_eq!(s.wake_at(), Some(ms(10 + AGING_LIMIT)));
}

#[test]
fn a_session_that_is_paged_in_has_its_residency_again() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
    // Both 2 and 3 would be in the way of 1, and 3 only just came.
    assert_eq!(s.launch(1, paged(40)), [PageOut(2, 30 * MIB + MARGIN)]);
    assert_eq!(s.at(205).paged_out(2, 40, 0), [Start(1)]);
    assert_eq!(s.held(1), (40, 0));
    assert_eq!(s.at(210).ran(1), []);
    assert_eq!(s.launch(2, paged(40)), []);
    assert_eq!(s.wake_at(), Some(ms(200 + MIN_RESIDENCY)));
    let evicted = [PageOut(3, 30 * MIB + MARGIN)];
    assert_eq!(s.at(200 + MIN_RESIDENCY).wake(), evicted);
}

#[test]
fn a_session_that_is_paged_in_in_part_has_its_residency_again() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 31, 0), [Start(3)]);
    assert_eq!(s.close(3), []);
    let needs = Needs {
        paged: 31,
        ..arguments(40)
    };
    assert_eq!(s.at(300).launch(1, needs), [Start(1)]);
    assert_eq!(s.close(2), []);
    assert_eq!(s.ran(1), []);
    s.opens(4, by_age());
    assert_eq!(s.upload(4, 80), []);
    assert_eq!(s.wake_at(), Some(ms(300 + MIN_RESIDENCY)));
}

#[test]
fn minimum_residency_is_ten_times_what_moving_takes_and_at_most_a_second() {
    for (took, stay) in [(1, MIN_RESIDENCY), (40, 200), (10_000, 1_000)] {
        let mut s = two_hold_forty(1..=3);
        assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
        let came = 200 + took;
        assert_eq!(s.at(came).paged_out(1, 40, 0), [Start(3)]);
        assert_eq!(s.close(2), []);
        // Half of what moving took is believed at first; only 3 could be evicted.
        assert_eq!(
            s.launch(
                1,
                Needs {
                    new: 20,
                    ..paged(40)
                }
            ),
            []
        );
        assert_eq!(s.wake_at(), Some(ms(came + stay)));
    }
}

#[test]
fn a_session_that_always_asks_is_drained_after_its_minimum_residency() {
    let mut s = Story::new(100, 200, 1, 1..=2);
    s.holds(1, 60);
    assert_eq!(s.launch(1, arguments(60)), [Start(1)]);
    assert_eq!(s.launch(1, arguments(60)), [Start(1)]);
    assert_eq!(s.launch(1, arguments(60)), []);
    assert_eq!(s.at(10).upload(2, 50), []);
    assert_eq!(s.at(MIN_RESIDENCY - 1).ran(1), [Start(1)]);
    assert_eq!(s.launch(1, arguments(60)), []);
    // One more has begun, and after it nothing does.
    assert_eq!(s.at(MIN_RESIDENCY + 10).ran(1), []);
    let evicted = [PageOut(1, 10 * MIB + MARGIN)];
    assert_eq!(s.at(MIN_RESIDENCY + 20).ran(1), evicted);
    assert_eq!(s.at(MIN_RESIDENCY + 30).paged_out(1, 60, 60), [Start(2)]);
    // Its turn comes again after the minimum residency of 2.
    assert_eq!(s.wake_at(), Some(ms(MIN_RESIDENCY + 30 + MIN_RESIDENCY)));
    let evicted = [PageOut(2, 10 * MIB + MARGIN)];
    assert_eq!(s.at(MIN_RESIDENCY + 30 + MIN_RESIDENCY).wake(), evicted);
    assert_eq!(s.paged_out(2, 50, 0), [Start(1)]);
}
