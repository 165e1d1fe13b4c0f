//! Lanes: their size, and which session lives in which.

use salus_engine::Lane;

use crate::story::{MIB, MIN_RESIDENCY, NOTHING, PageOut, Start, Story, arguments, scratch};

#[test]
fn two_lanes_run_side_by_side() {
    let mut s = Story::new(100, 0, 2, 1..=2);
    for (n, lane) in [(1, Lane(0)), (2, Lane(1))] {
        assert_eq!(s.launch(n, scratch(10)), [Start(n)]);
        assert_eq!(s.lane(n), lane);
    }
    assert_eq!(s.lane_sizes(), [10, 10]);
}

#[test]
fn a_lane_is_as_large_as_the_largest_scratch_in_it_and_lanes_add_up() {
    let mut s = Story::new(100, 0, 2, 1..=3);
    // 1 and 3 share a lane.
    assert_eq!(s.launch(1, scratch(10)), [Start(1)]);
    assert_eq!(s.launch(2, scratch(20)), [Start(2)]);
    assert_eq!(s.launch(3, scratch(30)), [Start(3)]);
    assert_eq!(s.lane_sizes(), [30, 20]);
    assert_eq!(s.used(), (0, 50, 0));
    assert_eq!(s.ran(1), []);
    assert_eq!(s.lane_sizes(), [30, 20]);
    assert_eq!(s.launch(1, scratch(10)), [Start(1)]);
    assert_eq!(s.ran(3), []);
    assert_eq!(s.lane_sizes(), [10, 20]);
    assert_eq!(s.ran(1), []);
    assert_eq!(s.ran(2), []);
    assert_eq!(s.lane_sizes(), [0, 0]);
    assert_eq!(s.ledger().peak_bytes(), 50 * MIB);
}

#[test]
fn a_lane_needs_only_what_it_must_grow_by() {
    let mut s = Story::new(100, 0, 2, 1..=3);
    s.holds(1, 40);
    assert_eq!(s.launch(1, scratch(50)), [Start(1)]);
    // 60 in the same lane is 10 more, and 1 in the other is then 1 too much.
    assert_eq!(s.launch(3, scratch(60)), [Start(3)]);
    assert_eq!(s.used(), (40, 60, 0));
    assert_eq!(s.launch(2, scratch(1)), []);
    assert_eq!(s.ran(1), []);
    assert_eq!(s.ran(3), [Start(2)]);
}

#[test]
fn a_session_on_a_crowded_lane_moves_to_one_that_has_nothing_to_do() {
    let mut s = Story::new(100, 100, 2, 1..=4);
    for n in 1..=4 {
        s.holds(n, 10);
    }
    // 1 and 3 share a lane; those of the other go.
    assert_eq!(s.close(2), []);
    assert_eq!(s.close(4), []);
    assert_eq!(s.launch(1, arguments(10)), [Start(1)]);
    assert_eq!(s.launch(1, arguments(10)), [Start(1)]);
    assert_eq!(s.at(10).launch(3, arguments(10)), []);
    // Its minimum residency comes first.
    assert_eq!(s.at(MIN_RESIDENCY + 10).wake(), [PageOut(3, 10 * MIB)]);
    assert_eq!(s.at(MIN_RESIDENCY + 15).paged_out(3, 10, 10), [Start(3)]);
    assert_eq!(s.lane(3), Lane(1));
    assert_eq!(s.used(), (20, 0, 0));
}

#[test]
fn a_session_is_not_paged_out_where_it_would_stay_in_its_lane() {
    let mut s = Story::new(100, 100, 2, 1..=3);
    for n in 1..=3 {
        s.holds(n, 10);
    }
    // The other lane has nothing to do, but 2 lives in it.
    assert_eq!(s.launch(1, arguments(10)), [Start(1)]);
    assert_eq!(s.launch(1, arguments(10)), [Start(1)]);
    assert_eq!(s.at(MIN_RESIDENCY + 10).launch(3, arguments(10)), []);
    assert_eq!(s.ran(1), [Start(3)]);
}

#[test]
fn a_session_on_a_crowded_lane_stays_there_where_the_host_has_no_room() {
    let mut s = Story::new(100, 9, 2, 1..=3);
    for n in 1..=3 {
        s.holds(n, 10);
    }
    assert_eq!(s.close(2), []);
    assert_eq!(s.launch(1, arguments(10)), [Start(1)]);
    assert_eq!(s.launch(1, arguments(10)), [Start(1)]);
    assert_eq!(s.at(2 * MIN_RESIDENCY).launch(3, arguments(10)), []);
    assert_eq!(s.ran(1), [Start(3)]);
}

#[test]
fn sessions_without_arrays_spread_over_the_lanes() {
    let mut s = Story::new(100, 0, 2, 1..=3);
    // 1 and 3 share a lane until 2 has left the other.
    assert_eq!(s.close(2), []);
    let mut lanes = Vec::new();
    for n in [1, 3] {
        assert_eq!(s.launch(n, NOTHING), [Start(n)]);
        lanes.push(s.lane(n));
    }
    assert_eq!(lanes, [Lane(1), Lane(0)]);
}
