//! Iterations that call back into their jobs: their time, what their callbacks run, and what their
//! users do meanwhile.

use std::collections::VecDeque;

use salus_engine::{Duration, Policy, Program, State, Why};
use salus_sim::Decided;

use crate::story::{NOTHING, Start, Story, ms, program, scratch};

#[test]
fn the_time_that_it_waits_is_not_charged() {
    let mut s = Story::new(100, 0, 1, 1..=3);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.at(10).callback_began(1, 1), []);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.launch(3, NOTHING), [Start(3)]);
    assert_eq!(s.at(30).ran(2), []);
    assert_eq!(s.at(55).callback_ended(1, 1), []);
    // Of another lane's doing nothing is charged to it, and nothing of its doing to others.
    assert_eq!(s.at(57).callback_began(1, 1), []);
    assert_eq!(s.at(60).callback_ended(1, 1), []);
    assert_eq!(s.at(70).ran(3), []);
    assert_eq!(s.at(73).returned(1, 1), []);
    assert_eq!([1, 2, 3].map(|n| s.device_ms(n)), [10 + 2 + 13, 20, 40]);
    assert_eq!(s.estimate_ms(program(1)), Some(25));
    assert_eq!(s.estimate_ms(Program(0)), Some(40));
}

#[test]
fn its_states_say_what_it_waits_for_and_add_up() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.at(1).calls(1, 1, NOTHING), []);
    assert_eq!(s.state(1), State::Turn);
    assert_eq!(s.at(3).ran(2), [Start(1)]);
    assert_eq!((s.state(1), s.why(1)), (State::Running, Why::Running));
    assert_eq!(s.at(8).callback_began(1, 1), []);
    assert_eq!((s.state(1), s.why(1)), (State::Callback, Why::Callback));
    // What its callback asks for is what it waits for.
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.at(20).launch(1, NOTHING), []);
    assert_eq!(s.state(1), State::Turn);
    assert!(matches!(s.why(1), Why::Turn { ahead: 2, .. }));
    assert_eq!(s.at(30).ran(2), [Start(1)]);
    assert_eq!(s.state(1), State::Turn);
    assert_eq!(s.at(34).ran(2), []);
    assert_eq!(s.state(1), State::Running);
    assert_eq!(s.at(40).ran(1), []);
    assert_eq!(s.state(1), State::Callback);
    assert_eq!(s.at(50).callback_ended(1, 1), []);
    assert_eq!((s.state(1), s.why(1)), (State::Running, Why::Running));
    assert_eq!(s.at(60).returned(1, 1), []);
    assert_eq!((s.state(1), s.why(1)), (State::Host, Why::Idle));
    let account = s.account(1);
    let spent = |state| account.time_in(state, ms(65)).0 / 1_000_000;
    assert_eq!(spent(State::Host), 1 + 5);
    assert_eq!(spent(State::Turn), 2 + 14);
    assert_eq!(spent(State::Running), 5 + 6 + 10);
    assert_eq!(spent(State::Callback), 12 + 10);
    assert_eq!(State::ALL.map(spent).iter().sum::<u64>(), 65);
    assert_eq!(account.waiting(ms(65)), Duration(16_000_000));
}

/// Runs sessions that always ask, each iteration for 10 ms, and returns how often each ran.
fn share(s: &mut Story, from_ms: u64, turns: u64, sessions: &[u64]) -> Vec<u64> {
    let mut ran = vec![0; sessions.len()];
    let mut running = VecDeque::new();
    let started = |told: Vec<Decided>| {
        told.into_iter().map(|told| match told {
            Start(n) => n,
            other => panic!("{other:?}"),
        })
    };
    for turn in 0..=turns {
        s.at(from_ms + 10 * turn);
        if let Some(n) = running.pop_front() {
            running.extend(started(s.ran(n)));
            let at = sessions.iter().position(|other| *other == n);
            ran[at.expect("one of them")] += 1;
        }
        for &n in sessions {
            while s.waits_since(n).is_none() {
                running.extend(started(s.launch(n, NOTHING)));
            }
        }
    }
    // What is left is not waited for.
    for &n in sessions {
        assert_eq!(s.withdraw(n), []);
    }
    for n in running {
        assert_eq!(s.ran(n), []);
    }
    ran
}

#[test]
fn waiting_for_its_job_earns_a_session_no_credit() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.change_policy(Policy::Fair), []);
    assert_eq!(share(&mut s, 0, 20, &[1, 2]), [10, 10]);
    assert_eq!(s.at(1_000).calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.at(1_001).callback_began(1, 1), []);
    // Its callback works for ten seconds, and then begins to train.
    assert_eq!(share(&mut s, 1_001, 1_000, &[2]), [1_000]);
    let ran = share(&mut s, 12_000, 100, &[1, 2]);
    // What it is owed between two iterations, and no more.
    assert!((50..=60).contains(&ran[0]), "{ran:?}");
    assert_eq!(s.at(14_000).callback_ended(1, 1), []);
    assert_eq!(s.at(14_001).returned(1, 1), []);
}

#[test]
fn a_callback_may_run_iterations_of_its_session() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.at(5).callback_began(1, 1), []);
    assert_eq!(s.at(10).launch(1, scratch(10)), [Start(1)]);
    assert_eq!(s.at(20).ran(1), []);
    assert_eq!(s.at(30).callback_ended(1, 1), []);
    assert_eq!(s.at(33).returned(1, 1), []);
    let account = s.account(1);
    assert_eq!((account.iterations, account.running), (2, 0));
    assert_eq!(s.device_ms(1), 8 + 10);
    assert_eq!(s.estimate_ms(program(1)), Some(8));
    assert_eq!(s.estimate_ms(Program(0)), Some(10));
    assert_eq!(s.used(), (0, 0, 0));
    assert_eq!(s.close(1), []);
}

#[test]
fn a_callback_may_run_what_calls_back_itself() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.at(5).callback_began(1, 1), []);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    // It waits for an empty lane like any.
    assert_eq!(s.calls(1, 2, NOTHING), []);
    assert_eq!(s.at(10).ran(2), [Start(1)]);
    assert_eq!(s.at(12).callback_began(1, 2), []);
    assert_eq!(s.state(1), State::Callback);
    assert_eq!(s.at(20).callback_ended(1, 2), []);
    assert_eq!(s.at(24).returned(1, 2), []);
    assert_eq!(s.state(1), State::Callback);
    assert_eq!(s.at(30).callback_ended(1, 1), []);
    assert_eq!(s.at(31).returned(1, 1), []);
    assert_eq!(s.estimate_ms(program(1)), Some(6));
    assert_eq!(s.estimate_ms(program(2)), Some(6));
    assert_eq!(s.device_ms(1), 12);
    assert_eq!(s.account(1).running, 0);
}

/// Threads of a job each run a program that calls back: whichever returns first.
#[test]
fn iterations_of_one_session_are_told_apart() {
    let mut s = Story::new(100, 0, 1, 1..=1);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.at(10).callback_began(1, 1), []);
    assert_eq!(s.calls(1, 2, NOTHING), [Start(1)]);
    assert_eq!(s.at(30).callback_began(1, 2), []);
    // The first to leave is the first to come back, and the last to end.
    assert_eq!(s.at(40).callback_ended(1, 1), []);
    assert_eq!(s.at(50).callback_ended(1, 2), []);
    assert_eq!(s.at(53).returned(1, 2), []);
    assert_eq!(s.at(60).returned(1, 1), []);
    assert_eq!(s.estimate_ms(program(1)), Some(10 + 20));
    assert_eq!(s.estimate_ms(program(2)), Some(20 + 3));
}

#[test]
fn what_ends_beside_an_older_one_that_calls_back_is_not_taken_for_that() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.calls(2, 1, NOTHING), [Start(2)]);
    assert_eq!(s.callback_ended(1, 1), []);
    assert_eq!(s.callback_began(2, 1), []);
    // Another thread of the job asks for it.
    assert_eq!(s.launch(1, scratch(10)), [Start(1)]);
    assert_eq!(s.at(10).ran(1), []);
    assert_eq!(s.used(), (0, 0, 0));
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.estimate_ms(Program(0)), Some(10));
}

#[test]
fn a_turn_of_a_callback_that_was_not_used_is_not_taken_for_the_iteration_that_calls() {
    let mut s = Story::new(100, 0, 1, 1..=1);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.launch(1, scratch(10)), [Start(1)]);
    assert_eq!(s.callback_ended(1, 1), []);
    assert_eq!(s.did_not_run(1), []);
    assert_eq!(s.used(), (0, 0, 0));
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.calls(1, 2, NOTHING), [Start(1)]);
    assert_eq!(s.callback_ended(1, 1), []);
    assert_eq!(s.did_not_return(1, 2), []);
    assert_eq!(s.at(9).returned(1, 1), []);
    assert_eq!(s.account(1).iterations, 1);
    assert_eq!(s.device_ms(1), 9);
}

#[test]
fn a_pause_holds_back_what_its_callback_asks_for() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.pause(1), []);
    assert_eq!(s.state(1), State::Callback);
    assert_eq!(s.launch(1, NOTHING), []);
    assert_eq!((s.state(1), s.why(1)), (State::Paused, Why::Paused));
    assert_eq!(s.resume(1), [Start(1)]);
    assert_eq!(s.ran(1), []);
    // What was started before the pause is not stopped by it.
    assert_eq!(s.pause(1), []);
    assert_eq!(s.at(5).callback_ended(1, 1), []);
    assert_eq!(s.state(1), State::Running);
    assert_eq!(s.at(7).returned(1, 1), []);
    assert_eq!(s.state(1), State::Paused);
}

#[test]
fn a_session_ends_when_its_iteration_has_come_back_and_ended() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.withdraw(1), []);
    assert_eq!(s.callback_ended(1, 1), []);
    assert_eq!(s.returned(1, 1), []);
    assert_eq!(s.ran(1), []);
    assert_eq!(s.close(1), []);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
}

#[test]
#[should_panic(expected = "closed while it ran")]
fn a_session_does_not_end_before_that() {
    let mut s = Story::new(100, 0, 1, 1..=1);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    s.close(1);
}
