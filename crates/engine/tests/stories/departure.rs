//! Departures: requests that are withdrawn and sessions that close in the middle of something.

use salus_sim::Simulation;

use crate::story::{
    AGING_LIMIT, MARGIN, MIB, PageOut, Start, Story, arguments, ms, paged, two_hold_forty,
};

#[test]
fn a_request_that_is_withdrawn_gives_way_to_the_next() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.upload(4, 20), []);
    assert_eq!(s.withdraw(3), [Start(4)]);
    assert_eq!(s.paged_out(1, 40, 0), []);
    assert_eq!(s.used(), (60, 0, 40));
    assert_eq!(s.close(3), []);
}

#[test]
fn the_oldest_request_may_close_while_others_are_evicted_for_it() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.upload(4, 20), []);
    assert_eq!(s.close(3), [Start(4)]);
    assert_eq!(s.paged_out(1, 40, 0), []);
    assert_eq!(Simulation::why(&s, 3), None);
}

#[test]
fn a_session_that_closes_while_it_is_paged_out_gives_everything_back() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.launch(1, arguments(40)), []);
    assert_eq!(s.close(1), [Start(3)]);
    assert_eq!(s.used(), (90, 0, 0));
    // Nothing is on its way any more: the next must ask for all that it lacks.
    assert_eq!(s.upload(4, 40), [PageOut(2, 30 * MIB + MARGIN)]);
}

#[test]
fn a_session_may_withdraw_while_it_is_paged_out() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.launch(1, arguments(40)), []);
    assert_eq!(s.withdraw(1), []);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
    assert_eq!(s.launch(1, paged(40)), [PageOut(2, 30 * MIB + MARGIN)]);
}

#[test]
fn pages_of_one_that_closes_make_room_on_the_host() {
    let mut s = Story::new(100, 40, 1, 1..=3);
    s.holds(1, 40);
    s.holds(2, 40);
    assert_eq!(s.at(100).upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
    // The host is full: 2 cannot be paged out.
    assert_eq!(s.at(200).upload(3, 20), []);
    assert_eq!(s.wake_at(), Some(ms(200 + AGING_LIMIT)));
    assert_eq!(s.close(1), [PageOut(2, 10 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(2, 40, 0), [Start(3)]);
}

#[test]
fn pages_that_are_dropped_make_room_on_the_host() {
    let mut s = Story::new(100, 40, 1, 1..=3);
    s.holds(1, 40);
    s.holds(2, 40);
    assert_eq!(s.at(100).upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
    assert_eq!(s.at(200).upload(3, 20), []);
    assert_eq!(s.releases(1, 0, 40), [PageOut(2, 10 * MIB + MARGIN)]);
    assert_eq!(s.used(), (90, 0, 0));
    assert_eq!(s.ledger().host_free_bytes(), 40 * MIB);
}

#[test]
fn arrays_may_be_given_back_after_their_session_closed() {
    let mut s = Story::new(100, 0, 1, 1..=1);
    s.holds(1, 40);
    assert_eq!(s.close(1), []);
    assert_eq!(s.releases(1, 40, 0), []);
    assert_eq!(s.used(), (0, 0, 0));
}
