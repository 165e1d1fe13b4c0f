//! Turns: what is handed to a lane, in which order, and what is charged for it.

use std::collections::VecDeque;

use salus_engine::{Duration, Policy};
use salus_sim::Decided;

use crate::story::{MIB, NOTHING, Start, Story, ms, scratch, two_hold_forty, with_deadline};

#[test]
fn one_session_alone_is_always_one_ahead() {
    let mut s = Story::new(100, 0, 1, 1..=1);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.launch(1, NOTHING), []);
    assert_eq!(s.at(10).ran(1), [Start(1)]);
}

#[test]
fn sessions_take_turns_however_fast_one_asks() {
    let mut s = Story::new(100, 0, 1, 1..=3);
    let mut order = s.launch(1, NOTHING);
    for n in [1, 2, 3] {
        order.extend(s.launch(n, NOTHING));
    }
    let mut running: VecDeque<Decided> = order.iter().copied().collect();
    for step in 1..=7 {
        let Some(Start(ended)) = running.pop_front() else {
            panic!("two run")
        };
        for next in s.at(step * 10).ran(ended) {
            order.push(next);
            running.push_back(next);
            let Start(n) = next else { panic!("{next:?}") };
            running.extend(s.launch(n, NOTHING));
        }
    }
    assert_eq!(order, [1, 1, 2, 3, 2, 3, 2, 3, 2].map(Start));
}

#[test]
fn sessions_that_lanes_have_room_for_start_in_the_order_of_asking() {
    let mut s = Story::new(100, 0, 2, 1..=6);
    for n in 1..=4 {
        assert_eq!(s.launch(n, NOTHING), [Start(n)]);
    }
    assert_eq!(s.launch(6, NOTHING), []);
    assert_eq!(s.launch(5, NOTHING), []);
    // 5 shares a lane with 1 and 3, 6 with 2 and 4.
    assert_eq!(s.ran(1), [Start(5)]);
    assert_eq!(s.ran(2), [Start(6)]);
}

#[test]
fn device_time_and_waiting_are_told_apart() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.at(2).launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.at(10).ran(1), []);
    assert_eq!(s.at(15).ran(2), []);
    let account = s.account(2);
    assert_eq!(account.device_time, ms(5) - ms(0));
    assert_eq!(account.waiting(ms(15)), ms(8) - ms(0));
    assert_eq!(account.iterations, 1);
    assert_eq!(account.running, 0);
}

#[test]
fn waiting_for_memory_counts_as_waiting() {
    let mut s = Story::new(100, 0, 2, 1..=2);
    assert_eq!(s.launch(1, scratch(60)), [Start(1)]);
    assert_eq!(s.at(2).launch(2, scratch(60)), []);
    assert_eq!(s.waits_since(2), Some(ms(2)));
    assert_eq!(s.at(10).ran(1), [Start(2)]);
    assert_eq!(s.waits_since(2), None);
    assert_eq!(s.at(30).ran(2), []);
    assert_eq!(s.account(2).waiting(ms(30)), ms(8) - ms(0));
    assert_eq!(s.account(2).device_time, ms(20) - ms(0));
}

#[test]
fn a_job_that_goes_away_gives_its_turn_up() {
    let mut s = Story::new(100, 0, 1, 1..=3);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.launch(2, NOTHING), []);
    assert_eq!(s.launch(3, NOTHING), []);
    assert_eq!(s.at(1).close(2), []);
    assert_eq!(s.at(10).ran(1), [Start(3)]);
}

#[test]
fn a_turn_that_was_not_used_is_given_back_and_tells_nothing() {
    let mut story = Story::new(100, 0, 1, 1..=2);
    assert_eq!(story.launch(1, scratch(20)), [Start(1)]);
    assert_eq!(story.launch(1, scratch(60)), [Start(1)]);
    assert_eq!(story.launch(2, scratch(10)), []);
    assert_eq!(story.ledger().scratch_bytes(), 60 * MIB);
    // The second could not be started; the first still runs.
    assert_eq!(story.at(5).did_not_run(1), [Start(2)]);
    assert_eq!(story.ledger().scratch_bytes(), 20 * MIB);
    story.at(10).ran(1);
    let account = story.account(1);
    assert_eq!((account.iterations, account.running), (1, 0));
    assert_eq!(account.device_time, Duration(10_000_000));
}

#[test]
fn a_turn_that_was_not_used_is_not_charged() {
    let mut story = Story::new(100, 0, 1, 1..=2);
    assert_eq!(story.change_policy(Policy::Fair), []);
    // Each has had an iteration of 10 ms, so that the next is expected to take as long.
    assert_eq!(story.launch(1, NOTHING), [Start(1)]);
    assert_eq!(story.at(10).ran(1), []);
    assert_eq!(story.launch(2, NOTHING), [Start(2)]);
    assert_eq!(story.at(20).ran(2), []);
    for _ in 0..5 {
        assert_eq!(story.launch(1, NOTHING), [Start(1)]);
        assert_eq!(story.did_not_run(1), []);
    }
    assert_eq!(story.launch(2, NOTHING), [Start(2)]);
    assert_eq!(story.launch(2, NOTHING), [Start(2)]);
    assert_eq!(story.launch(2, NOTHING), []);
    assert_eq!(story.launch(1, NOTHING), []);
    assert_eq!(story.at(30).ran(2), [Start(1)]);
}

#[test]
fn a_tight_deadline_that_is_gone_keeps_nothing_from_being_handed_over() {
    // The deadline of 1 is as tight as can be.
    let mut story = Story::new(100, 0, 1, 1..=1);
    for n in [2, 3] {
        story.opens(n, with_deadline(1_000_000_000));
    }
    assert_eq!(story.launch(2, NOTHING), [Start(2)]);
    assert_eq!(story.launch(3, NOTHING), []);
    assert_eq!(story.close(1), [Start(3)]);
}

#[test]
fn what_runs_long_runs_since_it_began_whatever_ends_beside_it() {
    let mut story = Story::new(100, 0, 1, 1..=2);
    let policy = Policy::Fair;
    assert_eq!(story.change_policy(policy), []);
    assert_eq!(story.launch(1, scratch(1)), [Start(1)]);
    // A device that runs small programs at once ends what was handed over second before the first.
    for n in 1..100 {
        assert_eq!(story.at(n * 10).launch(2, scratch(1)), [Start(2)]);
        assert_eq!(story.at(n * 10 + 1).ran(2), []);
    }
    let running: Vec<_> = story
        .engine()
        .running()
        .map(|(s, _, at)| (s.0, at))
        .collect();
    assert_eq!(running, [(1, ms(0))]);
    // Where it is handed over early, it runs since the first has ended.
    assert_eq!(story.at(1000).launch(2, scratch(1)), [Start(2)]);
    assert_eq!(story.at(1500).ran(1), []);
    let running: Vec<_> = story
        .engine()
        .running()
        .map(|(s, _, at)| (s.0, at))
        .collect();
    assert_eq!(running, [(2, ms(1500))]);
}

#[test]
fn equal_events_at_equal_times_give_equal_decisions() {
    let tell = || {
        let mut s = two_hold_forty(1..=4);
        let mut told = s.upload(3, 50);
        told.extend(s.upload(4, 20));
        told.extend(s.paged_out(1, 40, 0));
        (told, s.wake_at(), format!("{:?}", s.engine()))
    };
    assert_eq!(tell(), tell());
}
