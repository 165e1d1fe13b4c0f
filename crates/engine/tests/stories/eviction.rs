//! Eviction: who is paged out for a request that does not fit, and how much of it.

use salus_sim::Needs;

use crate::story::{
    MARGIN, MIB, MIN_RESIDENCY, NOTHING, PageOut, Refuse, Start, Story, arguments, ms, no_room,
    paged, two_hold_forty,
};

#[test]
fn the_longest_quiet_session_is_evicted_for_a_request_that_does_not_fit() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.at(210).paged_out(1, 40, 0), [Start(3)]);
    assert_eq!(s.held(1), (0, 40));
    assert_eq!(s.used(), (90, 0, 40));
}

#[test]
fn a_quiet_session_is_evicted_before_one_that_waits() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.launch(4, NOTHING), [Start(4)]);
    assert_eq!(s.launch(4, NOTHING), [Start(4)]);
    assert_eq!(s.launch(1, arguments(40)), []);
    assert_eq!(s.upload(3, 50), [PageOut(2, 30 * MIB + MARGIN)]);
}

#[test]
fn a_session_that_works_becomes_the_last_victim() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.launch(1, arguments(40)), [Start(1)]);
    assert_eq!(s.ran(1), []);
    assert_eq!(s.upload(3, 50), [PageOut(2, 30 * MIB + MARGIN)]);
}

#[test]
fn several_are_evicted_where_one_is_not_enough() {
    let mut s = two_hold_forty(1..=3);
    let all = [PageOut(1, 40 * MIB), PageOut(2, 20 * MIB + MARGIN)];
    assert_eq!(s.upload(3, 80), all);
    assert_eq!(s.paged_out(2, 40, 0), []);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
}

#[test]
fn the_host_is_not_promised_more_than_it_has_room_for() {
    let mut s = Story::new(100, 50, 1, 1..=3);
    s.holds(1, 40);
    s.at(1).holds(2, 40);
    let all = [PageOut(1, 40 * MIB), PageOut(2, 10 * MIB)];
    assert_eq!(s.at(200).upload(3, 80), all);
    assert_eq!(s.paged_out(1, 40, 0), []);
    assert_eq!(s.paged_out(2, 10, 0), []);
    assert_eq!(s.used(), (30, 0, 50));
    assert_eq!(s.releases(2, 30, 0), [Start(3)]);
}

#[test]
fn somebody_else_is_evicted_where_one_moved_too_little() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 0, 0), [PageOut(2, 30 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(2, 40, 0), [Start(3)]);
    assert_eq!(s.held(1), (40, 0));
}

#[test]
fn a_session_that_is_paged_out_does_not_run() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.launch(1, arguments(40)), []);
    assert_eq!(s.wake(), []);
    // Now it waits for what was paged out, and is the next for which somebody is evicted.
    let next = [Start(3), PageOut(2, 30 * MIB + MARGIN)];
    assert_eq!(s.paged_out(1, 30, 30), next);
    assert_eq!(s.held(1), (10, 30));
    assert_eq!(s.paged_out(2, 40, 0), [Start(1)]);
    assert_eq!(s.held(1), (40, 0));
}

#[test]
fn a_session_that_waits_and_is_evicted_asks_for_what_was_paged_out() {
    let mut s = Story::new(100, 100, 1, 1..=3);
    s.holds(1, 60);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.at(60).launch(1, arguments(60)), []);
    assert_eq!(s.upload(3, 50), [PageOut(1, 10 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 60, 60), [Start(3)]);
    // There is a place in the lane, but 60 do not fit beside 50.
    assert_eq!(s.ran(2), []);
    assert_eq!(s.releases(3, 50, 0), [Start(1)]);
    assert_eq!(s.used(), (60, 0, 0));
}

#[test]
fn its_own_other_arrays_are_paged_out_as_a_last_resort() {
    let mut s = Story::new(100, 100, 1, 1..=1);
    s.holds(1, 50);
    s.holds(1, 40);
    let needs = Needs {
        arguments: 50,
        new: 20,
        scratch: 10,
        ..NOTHING
    };
    assert_eq!(s.at(1).launch(1, needs), [PageOut(1, 20 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 40, 0), [Start(1)]);
    assert_eq!(s.used(), (70, 10, 40));
}

#[test]
fn its_own_arrays_stay_as_long_as_another_can_be_evicted() {
    let mut s = Story::new(100, 100, 1, 1..=2);
    s.holds(1, 80);
    s.holds(2, 10);
    assert_eq!(s.upload(1, 20), []);
    assert_eq!(s.wake_at(), Some(ms(MIN_RESIDENCY)));
    let evicted = [PageOut(2, 10 * MIB)];
    assert_eq!(s.at(MIN_RESIDENCY).wake(), evicted);
    assert_eq!(s.paged_out(2, 10, 0), [Start(1)]);
}

#[test]
fn what_cannot_be_moved_is_not_asked_for_again_until_something_changes() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.close(2), []);
    assert_eq!(s.upload(3, 70), [PageOut(1, 10 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 0, 0), []);
    assert_eq!(s.at(300).wake(), []);
    assert_eq!(s.launch(1, arguments(40)), [Start(1)]);
    assert_eq!(s.ran(1), [PageOut(1, 10 * MIB + MARGIN)]);
}

#[test]
fn what_was_uploaded_since_then_may_be_evicted() {
    let mut s = Story::new(100, 100, 1, 1..=2);
    s.holds(1, 10);
    assert_eq!(s.at(200).upload(2, 95), [PageOut(1, 5 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 0, 0), []);
    assert_eq!(s.withdraw(2), []);
    assert_eq!(s.upload(1, 60), [Start(1)]);
    assert_eq!(s.at(300).upload(2, 60), [PageOut(1, 30 * MIB + MARGIN)]);
}

#[test]
fn what_found_no_room_on_the_host_is_evicted_when_there_is_some() {
    let mut s = Story::new(100, 40, 1, 1..=3);
    s.holds(1, 20);
    s.at(1).holds(2, 60);
    assert_eq!(s.at(200).upload(3, 30), [PageOut(1, 10 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 20, 0), [Start(3)]);
    let needs = Needs {
        new: 30,
        ..arguments(30)
    };
    assert_eq!(s.at(220).launch(3, needs), [PageOut(2, 20 * MIB)]);
    // Its arrays are larger than that.
    assert_eq!(s.paged_out(2, 0, 0), []);
    assert_eq!(s.close(1), [PageOut(2, 20 * MIB + MARGIN)]);
}

/// 1 asks for more than is free, and 2, the only other, holds 50 that cannot be moved; 20 are free.
fn one_waits_for_what_cannot_be_moved() -> Story {
    let mut s = Story::new(100, 100, 1, 1..=3);
    s.holds(1, 30);
    s.holds(2, 50);
    let needs = Needs {
        new: 40,
        ..arguments(30)
    };
    let told = s.at(200).launch(1, needs);
    assert_eq!(told, [PageOut(2, 20 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(2, 0, 0), []);
    s
}

#[test]
fn whoever_is_refused_gives_way_to_the_next() {
    let mut s = one_waits_for_what_cannot_be_moved();
    assert_eq!(s.close(3), []);
    let needs = Needs {
        new: 30,
        ..arguments(50)
    };
    let why = no_room(40, 20, 100);
    let next = [Refuse(1, why), PageOut(1, 10 * MIB + MARGIN)];
    assert_eq!(s.launch(2, needs), next);
}

#[test]
fn a_newcomer_that_fits_starts_where_nobody_can_be_evicted() {
    let mut s = one_waits_for_what_cannot_be_moved();
    assert_eq!(s.upload(3, 10), [Start(3)]);
}

#[test]
fn one_that_was_paged_out_is_paged_in_where_nobody_can_be_evicted() {
    let mut s = Story::new(100, 100, 1, 1..=4);
    s.holds(3, 10);
    s.at(60).holds(1, 30);
    s.holds(2, 50);
    let needs = Needs {
        new: 40,
        ..arguments(30)
    };
    // 3 is paged out for 1, but 2 cannot be.
    let both = [PageOut(3, 10 * MIB), PageOut(2, 20 * MIB + MARGIN)];
    assert_eq!(s.at(200).launch(1, needs), both);
    assert_eq!(s.paged_out(3, 10, 0), []);
    assert_eq!(s.paged_out(2, 0, 0), []);
    assert_eq!(s.launch(3, paged(10)), [Start(3)]);
}
