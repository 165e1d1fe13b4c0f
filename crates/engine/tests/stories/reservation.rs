//! Reservation and backfill: what is kept for the first request that does not fit, and what may go
//! ahead of it.

use salus_engine::{SessionId, Why};
use salus_sim::Needs;

use crate::story::{
    MARGIN, MIB, NOTHING, PageOut, Start, Story, arguments, scratch, two_hold_forty,
};

#[test]
fn what_is_freed_for_the_reservation_is_not_taken_by_younger_ones() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    // 20 are free, and 3 counts on them.
    assert_eq!(s.upload(4, 20), []);
    assert_eq!(
        s.launch(
            2,
            Needs {
                scratch: 1,
                ..arguments(40)
            }
        ),
        []
    );
    // A first part does not suffice, and is kept.
    assert_eq!(s.paged_out(1, 20, 0), [PageOut(1, 10 * MIB + MARGIN)]);
    // Only then is anybody evicted for 4.
    let next = [Start(3), PageOut(2, 10 * MIB + MARGIN)];
    assert_eq!(s.paged_out(1, 20, 0), next);
}

#[test]
fn what_takes_nothing_from_the_reservation_is_backfilled() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.launch(2, arguments(40)), [Start(2)]);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
}

#[test]
fn an_older_request_that_gets_its_turn_comes_before_the_one_that_waits_for_memory() {
    let mut s = Story::new(100, 0, 2, 1..=3);
    // 1 and 3 share a lane, which is full; 2 is alone in its own, and needs 10 too much.
    assert_eq!(s.launch(1, scratch(30)), [Start(1)]);
    assert_eq!(s.launch(1, scratch(30)), [Start(1)]);
    let needs = Needs { new: 80, ..NOTHING };
    assert_eq!(s.launch(3, needs), []);
    assert_eq!(s.launch(2, needs), []);
    let first = |s: &Story, n| match s.why(n) {
        Why::Memory { holder: first, .. } => first,
        why => panic!("{why:?}"),
    };
    assert_eq!(first(&s, 2), None);
    assert_eq!(s.ran(1), []);
    assert_eq!(first(&s, 3), None);
    assert_eq!(first(&s, 2), Some(SessionId(3)));
    assert_eq!(s.ran(1), [Start(3)]);
}

#[test]
fn an_older_request_that_fits_starts_before_the_reservation_holder() {
    let mut s = Story::new(100, 200, 1, 1..=2);
    s.holds(1, 60);
    assert_eq!(s.at(200).upload(2, 50), [PageOut(1, 10 * MIB + MARGIN)]);
    assert_eq!(s.launch(1, arguments(60)), []);
    assert_eq!(s.withdraw(2), []);
    assert_eq!(s.upload(2, 70), []);
    // Both fit now, but not together, and 1 asked first.
    assert_eq!(s.paged_out(1, 60, 60), [Start(1)]);
}

#[test]
fn younger_requests_are_served_once_the_oldest_is() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.upload(4, 20), []);
    let next = [Start(3), PageOut(2, 10 * MIB + MARGIN)];
    assert_eq!(s.paged_out(1, 40, 0), next);
    assert_eq!(s.paged_out(2, 40, 0), [Start(4)]);
}

#[test]
fn younger_ones_that_fit_are_backfilled_while_nobody_may_be_evicted() {
    let mut s = Story::new(100, 100, 2, 1..=3);
    s.holds(1, 30);
    s.holds(2, 30);
    assert_eq!(s.at(10).upload(3, 50), []);
    assert_eq!(s.launch(1, scratch(20)), [Start(1)]);
    assert_eq!(s.launch(2, scratch(20)), [Start(2)]);
    assert_eq!(s.at(20).ran(1), []);
    assert_eq!(s.upload(1, 20), [Start(1)]);
}

#[test]
fn nobody_is_evicted_where_the_end_of_what_runs_is_enough() {
    for host in [0, 200] {
        let mut s = Story::new(100, host, 2, 1..=3);
        s.holds(1, 20);
        s.holds(2, 20);
        s.at(200);
        let needs = Needs {
            scratch: 40,
            ..arguments(20)
        };
        assert_eq!(s.launch(1, needs), [Start(1)]);
        assert_eq!(s.launch(2, needs), []);
        // 1 would be in its way once more, 3 is not.
        assert_eq!(s.launch(1, needs), []);
        assert_eq!(s.launch(3, scratch(10)), [Start(3)]);
        assert_eq!(s.ran(1), [Start(2)]);
    }
}

#[test]
fn nobody_starves_for_want_of_scratch() {
    for host in [0, 200] {
        let mut s = Story::new(100, host, 3, 1..=3);
        let needs = |n: u64| scratch([0, 40, 35, 30][n as usize]);
        s.holds(3, 25);
        for n in [1, 1, 1, 2, 2, 2] {
            let _ = s.launch(n, needs(n));
        }
        assert_eq!(s.launch(3, needs(3)), []);
        // 1 and 2 are always one ahead in their lanes.
        let mut told = Vec::new();
        for step in 1..=8 {
            for n in [1, 2] {
                s.at(100 * step);
                if s.account(n).running > 0 {
                    told.extend(s.ran(n));
                }
                if s.waits_since(n).is_none() {
                    told.extend(s.launch(n, needs(n)));
                }
            }
        }
        assert!(told.contains(&Start(3)), "{told:?}");
    }
}
