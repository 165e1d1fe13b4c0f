//! Iterations that call back into their jobs: what happens to their lane while they wait.

use salus_engine::{SessionId, State, Why};

use crate::story::{MIB, MIN_RESIDENCY, NOTHING, PageOut, Start, Story, by_age, paged, scratch};

#[test]
fn what_calls_back_has_its_lane_for_itself() {
    let mut s = Story::new(100, 0, 1, 1..=3);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.launch(2, NOTHING), []);
    assert_eq!(s.launch(3, NOTHING), []);
    let turn = Why::Turn {
        ahead: 1,
        runs: Some(SessionId(1)),
    };
    assert_eq!((s.why(2), s.why(3)), (turn, turn));
    assert_eq!(s.at(10).returned(1, 1), [Start(2), Start(3)]);
}

#[test]
fn what_calls_back_is_handed_only_to_an_empty_lane() {
    let mut s = Story::new(100, 0, 1, 1..=3);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.calls(2, 1, NOTHING), []);
    assert_eq!(s.calls(3, 1, NOTHING), []);
    assert_eq!(s.at(10).ran(1), [Start(2)]);
    assert_eq!(s.at(20).returned(2, 1), [Start(3)]);
}

#[test]
fn whoever_is_first_and_calls_back_is_not_overtaken() {
    let mut s = Story::new(100, 0, 1, 1..=4);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.launch(3, NOTHING), [Start(3)]);
    assert_eq!(s.calls(2, 1, NOTHING), []);
    // There would be a place in the lane for each of these.
    assert_eq!(s.launch(4, NOTHING), []);
    assert_eq!(s.at(10).ran(1), []);
    assert_eq!(s.launch(1, NOTHING), []);
    assert!(matches!(s.why(4), Why::Turn { ahead: 1, .. }));
    assert_eq!(s.at(20).ran(3), [Start(2)]);
    assert_eq!(s.at(30).returned(2, 1), [Start(4), Start(1)]);
}

#[test]
fn it_is_not_overtaken_either_when_it_must_be_paged_in() {
    let mut s = Story::new(100, 100, 1, 1..=3);
    s.holds(1, 40);
    s.holds(2, 80 - 40);
    assert_eq!(s.at(MIN_RESIDENCY).upload(3, 60), [PageOut(1, 40 * MIB)]);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
    assert_eq!(s.releases(3, 60, 0), []);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.calls(1, 1, paged(40)), []);
    assert_eq!(s.launch(3, NOTHING), []);
    assert_eq!(s.at(60).ran(2), [Start(1)]);
}

#[test]
fn nor_does_it_go_ahead_of_others_beside_what_runs() {
    let mut s = Story::new(100, 0, 1, 1..=4);
    s.holds(4, 60);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    // It waits for memory, and those that fit may go ahead.
    assert_eq!(s.launch(2, scratch(50)), []);
    assert_eq!(s.calls(3, 1, NOTHING), []);
    assert_eq!(s.launch(4, NOTHING), [Start(4)]);
    assert_eq!(s.at(10).ran(1), []);
    assert_eq!(s.at(20).ran(4), [Start(3)]);
}

#[test]
fn while_it_waits_its_lane_serves_others() {
    let mut s = Story::new(100, 0, 1, 1..=4);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.launch(2, NOTHING), []);
    assert_eq!(s.at(10).callback_began(1, 1), [Start(2)]);
    assert_eq!(s.launch(3, NOTHING), [Start(3)]);
    assert_eq!(s.launch(4, NOTHING), []);
    assert_eq!(s.at(20).ran(2), [Start(4)]);
}

#[test]
fn it_goes_on_at_once_and_nothing_more_is_handed_over() {
    for waits_again in [true, false] {
        let mut s = Story::new(100, 0, 1, 1..=5);
        assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
        assert_eq!(s.at(10).callback_began(1, 1), []);
        assert_eq!(s.launch(2, NOTHING), [Start(2)]);
        assert_eq!(s.launch(3, NOTHING), [Start(3)]);
        assert_eq!(s.launch(4, NOTHING), []);
        assert_eq!(s.at(20).callback_ended(1, 1), []);
        // It runs although 2 runs as well.
        assert_eq!((s.state(1), s.state(2)), (State::Running, State::Running));
        assert_eq!(s.at(30).ran(2), []);
        assert_eq!(s.at(40).ran(3), []);
        assert_eq!(s.launch(5, NOTHING), []);
        let told = match waits_again {
            true => s.at(50).callback_began(1, 1),
            false => s.at(50).returned(1, 1),
        };
        assert_eq!(told, [Start(4), Start(5)]);
    }
}

/// Two that are hardly ever away never leave the lane empty.
#[test]
fn of_several_that_went_on_each_that_waits_again_lets_one_in() {
    let mut s = Story::new(100, 0, 1, 1..=5);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.calls(2, 1, NOTHING), [Start(2)]);
    assert_eq!(s.at(1).callback_ended(1, 1), []);
    assert_eq!(s.launch(3, NOTHING), []);
    assert_eq!(s.launch(4, NOTHING), []);
    // 2 runs on.
    assert_eq!(s.at(2).callback_began(1, 1), [Start(3)]);
    assert_eq!((s.state(2), s.state(3)), (State::Running, State::Running));
    assert_eq!(s.at(3).callback_ended(1, 1), []);
    assert_eq!(s.at(4).callback_began(2, 1), [Start(4)]);
    assert_eq!(s.at(5).callback_ended(2, 1), []);
    // No more are handed over in order than to any lane.
    assert_eq!(s.launch(5, NOTHING), []);
    assert_eq!(s.at(6).callback_began(1, 1), []);
    assert_eq!(s.at(7).ran(3), [Start(5)]);
    assert_eq!(s.at(8).callback_ended(1, 1), []);
    assert_eq!(s.at(9).returned(2, 1), []);
    assert_eq!(s.at(10).returned(1, 1), []);
    assert_eq!(s.at(11).ran(4), []);
    assert_eq!(s.at(12).ran(5), []);
    assert!((1..=5).all(|n| s.account(n).running == 0));
}

#[test]
fn those_that_call_back_are_let_in_for_each_other_too() {
    let mut s = Story::new(100, 0, 1, 1..=3);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.calls(2, 1, NOTHING), [Start(2)]);
    assert_eq!(s.at(1).callback_ended(1, 1), []);
    assert_eq!(s.calls(3, 1, NOTHING), []);
    assert_eq!(s.at(2).callback_began(2, 1), [Start(3)]);
}

#[test]
fn what_leaves_an_empty_lane_owes_it_nothing() {
    let mut s = Story::new(100, 0, 1, 1..=4);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.calls(2, 1, NOTHING), [Start(2)]);
    assert_eq!(s.callback_ended(1, 1), []);
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.callback_began(2, 1), []);
    // Two have left, and still one that calls back is alone.
    assert_eq!(s.calls(3, 1, NOTHING), [Start(3)]);
    assert_eq!(s.launch(4, NOTHING), []);
    assert_eq!(s.at(5).returned(3, 1), [Start(4)]);
}

#[test]
fn other_lanes_are_not_concerned() {
    let mut s = Story::new(100, 0, 2, 1..=4);
    // 1 and 3 share a lane, 2 and 4 the other.
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.launch(3, NOTHING), []);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.calls(4, 1, NOTHING), []);
    assert_eq!(s.at(10).callback_began(1, 1), [Start(3)]);
    assert_eq!(s.at(20).ran(2), [Start(4)]);
    assert_eq!(s.launch(2, NOTHING), []);
    assert_eq!(s.at(30).callback_ended(1, 1), []);
    assert_eq!(s.at(40).returned(4, 1), [Start(2)]);
    assert_eq!(s.at(50).returned(1, 1), []);
}

#[test]
fn a_session_stays_in_its_lane_while_it_waits() {
    let mut s = Story::new(100, 100, 2, 1..=1);
    let lane = s.lane(1);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    // Its lane is fuller than the other now.
    for n in 2..=5 {
        s.opens(n, by_age());
    }
    for n in [2, 4] {
        assert_eq!(s.close(n), []);
    }
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.lane(1), lane);
    assert_eq!(s.callback_ended(1, 1), []);
    assert_eq!(s.returned(1, 1), []);
    assert_eq!(s.ran(1), []);
}
