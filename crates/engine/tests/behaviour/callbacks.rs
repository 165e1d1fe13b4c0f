//! Iterations that call back into their jobs: what happens to their lane, their time and their
//! memory while they wait.

use super::*;
use salus_engine::{Calling, State};

/// Of session `n`, the programs of its iterations that call back: one for each number.
fn program(calling: u64) -> Program {
    Program(1_000 + calling)
}

impl Story {
    /// Asks for an iteration that calls back; of scratch it has its own, like an array.
    fn calls(&mut self, n: u64, calling: u64, needs: Needs) -> Vec<Told> {
        assert_eq!(needs.scratch, 0, "the lane has none for it");
        let demand = Demand {
            kind: Kind::CallsBack {
                program: program(calling),
                calling: Calling(calling),
            },
            new_bytes: needs.new * MIB,
            argument_bytes: needs.arguments * MIB,
            absent_bytes: needs.absent * MIB,
        };
        self.on(Event::Ready {
            session: SessionId(n),
            demand,
        })
    }

    /// It waits for its job.
    fn leaves(&mut self, n: u64, calling: u64) -> Vec<Told> {
        self.on(Event::CallbackBegan {
            session: SessionId(n),
            calling: Calling(calling),
        })
    }

    fn comes_back(&mut self, n: u64, calling: u64) -> Vec<Told> {
        self.on(Event::CallbackEnded {
            session: SessionId(n),
            calling: Calling(calling),
        })
    }

    /// One that called back has ended.
    fn returned(&mut self, n: u64, calling: u64) -> Vec<Told> {
        self.on(Event::Ran {
            session: SessionId(n),
            calling: Some(Calling(calling)),
        })
    }

    fn state(&self, n: u64) -> State {
        self.account(n).state()
    }

    fn device_ms(&self, n: u64) -> u64 {
        self.account(n).device_time.0 / 1_000_000
    }

    /// What iterations of a program take.
    fn estimate_ms(&self, program: Program) -> Option<u64> {
        let (median, _) = self.engine.estimates().of(program)?;
        Some(median.0 / 1_000_000)
    }
}

// The lane.

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
fn it_is_not_overtaken_either_when_it_must_be_brought_back() {
    let mut s = Story::new(100, 100, 1, 1..=3);
    s.holds(1, 40);
    s.holds(2, 80 - 40);
    assert_eq!(s.at(STAY).upload(3, 60), [PageOut(1, 40 * MIB)]);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
    assert_eq!(s.released(3, 60, 0), []);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.calls(1, 1, absent(40)), []);
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
    assert_eq!(s.at(10).leaves(1, 1), [Start(2)]);
    assert_eq!(s.launch(3, NOTHING), [Start(3)]);
    assert_eq!(s.launch(4, NOTHING), []);
    assert_eq!(s.at(20).ran(2), [Start(4)]);
}

#[test]
fn it_goes_on_at_once_and_nothing_more_is_handed_over() {
    for waits_again in [true, false] {
        let mut s = Story::new(100, 0, 1, 1..=5);
        assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
        assert_eq!(s.at(10).leaves(1, 1), []);
        assert_eq!(s.launch(2, NOTHING), [Start(2)]);
        assert_eq!(s.launch(3, NOTHING), [Start(3)]);
        assert_eq!(s.launch(4, NOTHING), []);
        assert_eq!(s.at(20).comes_back(1, 1), []);
        // It runs although 2 runs as well.
        assert_eq!((s.state(1), s.state(2)), (State::Running, State::Running));
        assert_eq!(s.at(30).ran(2), []);
        assert_eq!(s.at(40).ran(3), []);
        assert_eq!(s.launch(5, NOTHING), []);
        let told = match waits_again {
            true => s.at(50).leaves(1, 1),
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
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.calls(2, 1, NOTHING), [Start(2)]);
    assert_eq!(s.at(1).comes_back(1, 1), []);
    assert_eq!(s.launch(3, NOTHING), []);
    assert_eq!(s.launch(4, NOTHING), []);
    // 2 runs on.
    assert_eq!(s.at(2).leaves(1, 1), [Start(3)]);
    assert_eq!((s.state(2), s.state(3)), (State::Running, State::Running));
    assert_eq!(s.at(3).comes_back(1, 1), []);
    assert_eq!(s.at(4).leaves(2, 1), [Start(4)]);
    assert_eq!(s.at(5).comes_back(2, 1), []);
    // No more are handed over in order than to any lane.
    assert_eq!(s.launch(5, NOTHING), []);
    assert_eq!(s.at(6).leaves(1, 1), []);
    assert_eq!(s.at(7).ran(3), [Start(5)]);
    assert_eq!(s.at(8).comes_back(1, 1), []);
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
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.calls(2, 1, NOTHING), [Start(2)]);
    assert_eq!(s.at(1).comes_back(1, 1), []);
    assert_eq!(s.calls(3, 1, NOTHING), []);
    assert_eq!(s.at(2).leaves(2, 1), [Start(3)]);
}

#[test]
fn what_leaves_an_empty_lane_owes_it_nothing() {
    let mut s = Story::new(100, 0, 1, 1..=4);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.calls(2, 1, NOTHING), [Start(2)]);
    assert_eq!(s.comes_back(1, 1), []);
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.leaves(2, 1), []);
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
    assert_eq!(s.at(10).leaves(1, 1), [Start(3)]);
    assert_eq!(s.at(20).ran(2), [Start(4)]);
    assert_eq!(s.launch(2, NOTHING), []);
    assert_eq!(s.at(30).comes_back(1, 1), []);
    assert_eq!(s.at(40).returned(4, 1), [Start(2)]);
    assert_eq!(s.at(50).returned(1, 1), []);
}

#[test]
fn a_session_stays_in_its_lane_while_it_waits() {
    let mut s = Story::new(100, 100, 2, 1..=1);
    let lane = s.engine.lane(SessionId(1));
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    // Its lane is fuller than the other now.
    for n in 2..=5 {
        s.open(n, None);
    }
    for n in [2, 4] {
        assert_eq!(s.closed(n), []);
    }
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.engine.lane(SessionId(1)), lane);
    assert_eq!(s.comes_back(1, 1), []);
    assert_eq!(s.returned(1, 1), []);
    assert_eq!(s.ran(1), []);
}

// Time.

#[test]
fn the_time_that_it_waits_is_not_charged() {
    let mut s = Story::new(100, 0, 1, 1..=3);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.at(10).leaves(1, 1), []);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.launch(3, NOTHING), [Start(3)]);
    assert_eq!(s.at(30).ran(2), []);
    assert_eq!(s.at(55).comes_back(1, 1), []);
    // Of another lane's doing nothing is charged to it, and nothing of its doing to others.
    assert_eq!(s.at(57).leaves(1, 1), []);
    assert_eq!(s.at(60).comes_back(1, 1), []);
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
    assert_eq!(s.at(8).leaves(1, 1), []);
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
    assert_eq!(s.at(50).comes_back(1, 1), []);
    assert_eq!((s.state(1), s.why(1)), (State::Running, Why::Running));
    assert_eq!(s.at(60).returned(1, 1), []);
    assert_eq!((s.state(1), s.why(1)), (State::Host, Why::AtWork));
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
    let started = |told: Vec<Told>| {
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
            while s.engine.waits_since(SessionId(n)).is_none() {
                running.extend(started(s.launch(n, NOTHING)));
            }
        }
    }
    // What is left is not waited for.
    for &n in sessions {
        assert_eq!(s.withdrew(n), []);
    }
    for n in running {
        assert_eq!(s.ran(n), []);
    }
    ran
}

#[test]
fn waiting_for_its_job_earns_a_session_no_credit() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    s.engine
        .on(
            Time(0),
            Event::Ordered {
                policy: Policy::Fair,
            },
        )
        .clear();
    assert_eq!(share(&mut s, 0, 20, &[1, 2]), [10, 10]);
    assert_eq!(s.at(1_000).calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.at(1_001).leaves(1, 1), []);
    // Its callback works for ten seconds, and then begins to train.
    assert_eq!(share(&mut s, 1_001, 1_000, &[2]), [1_000]);
    let ran = share(&mut s, 12_000, 100, &[1, 2]);
    // What it is owed between two iterations, and no more.
    assert!((50..=60).contains(&ran[0]), "{ran:?}");
    assert_eq!(s.at(14_000).comes_back(1, 1), []);
    assert_eq!(s.at(14_001).returned(1, 1), []);
}

// Nested.

#[test]
fn a_callback_may_run_iterations_of_its_session() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.at(5).leaves(1, 1), []);
    assert_eq!(s.at(10).launch(1, scratch(10)), [Start(1)]);
    assert_eq!(s.at(20).ran(1), []);
    assert_eq!(s.at(30).comes_back(1, 1), []);
    assert_eq!(s.at(33).returned(1, 1), []);
    let account = s.account(1);
    assert_eq!((account.iterations, account.running), (2, 0));
    assert_eq!(s.device_ms(1), 8 + 10);
    assert_eq!(s.estimate_ms(program(1)), Some(8));
    assert_eq!(s.estimate_ms(Program(0)), Some(10));
    assert_eq!(s.used(), (0, 0, 0));
    assert_eq!(s.closed(1), []);
}

#[test]
fn a_callback_may_run_what_calls_back_itself() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.at(5).leaves(1, 1), []);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    // It waits for an empty lane like any.
    assert_eq!(s.calls(1, 2, NOTHING), []);
    assert_eq!(s.at(10).ran(2), [Start(1)]);
    assert_eq!(s.at(12).leaves(1, 2), []);
    assert_eq!(s.state(1), State::Callback);
    assert_eq!(s.at(20).comes_back(1, 2), []);
    assert_eq!(s.at(24).returned(1, 2), []);
    assert_eq!(s.state(1), State::Callback);
    assert_eq!(s.at(30).comes_back(1, 1), []);
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
    assert_eq!(s.at(10).leaves(1, 1), []);
    assert_eq!(s.calls(1, 2, NOTHING), [Start(1)]);
    assert_eq!(s.at(30).leaves(1, 2), []);
    // The first to leave is the first to come back, and the last to end.
    assert_eq!(s.at(40).comes_back(1, 1), []);
    assert_eq!(s.at(50).comes_back(1, 2), []);
    assert_eq!(s.at(53).returned(1, 2), []);
    assert_eq!(s.at(60).returned(1, 1), []);
    assert_eq!(s.estimate_ms(program(1)), Some(10 + 20));
    assert_eq!(s.estimate_ms(program(2)), Some(20 + 3));
}

#[test]
fn what_ends_beside_an_older_one_that_calls_back_is_not_taken_for_that() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.calls(2, 1, NOTHING), [Start(2)]);
    assert_eq!(s.comes_back(1, 1), []);
    assert_eq!(s.leaves(2, 1), []);
    // Another thread of the job asks for it.
    assert_eq!(s.launch(1, scratch(10)), [Start(1)]);
    assert_eq!(s.at(10).ran(1), []);
    assert_eq!(s.used(), (0, 0, 0));
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.estimate_ms(Program(0)), Some(10));
}

#[test]
fn what_a_callback_left_behind_keeps_its_scratch() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    // Nobody waits for it in the callback.
    assert_eq!(s.launch(1, scratch(60)), [Start(1)]);
    assert_eq!(s.at(10).comes_back(1, 1), []);
    assert_eq!(s.at(20).returned(1, 1), []);
    assert_eq!(s.used(), (0, 60, 0));
    assert_eq!(s.state(1), State::Running);
    assert_eq!(s.upload(2, 50), []);
    assert_eq!(s.at(30).ran(1), [Start(2)]);
    assert_eq!(s.used(), (50, 0, 0));
    assert_eq!(s.device_ms(1), 10 + 30);
}

#[test]
fn a_turn_of_a_callback_that_was_not_used_is_not_taken_for_the_iteration_that_calls() {
    let mut s = Story::new(100, 0, 1, 1..=1);
    let session = SessionId(1);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.launch(1, scratch(10)), [Start(1)]);
    assert_eq!(s.comes_back(1, 1), []);
    let calling = None;
    assert_eq!(s.on(Event::DidNotRun { session, calling }), []);
    assert_eq!(s.used(), (0, 0, 0));
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.calls(1, 2, NOTHING), [Start(1)]);
    assert_eq!(s.comes_back(1, 1), []);
    let calling = Some(Calling(2));
    assert_eq!(s.on(Event::DidNotRun { session, calling }), []);
    assert_eq!(s.at(9).returned(1, 1), []);
    assert_eq!(s.account(1).iterations, 1);
    assert_eq!(s.device_ms(1), 9);
}

// Memory.

#[test]
fn its_arrays_stay_while_it_waits() {
    let mut s = Story::new(100, 100, 1, 1..=2);
    s.holds(1, 60);
    assert_eq!(s.calls(1, 1, arguments(60)), [Start(1)]);
    assert_eq!(s.at(10).leaves(1, 1), []);
    assert_eq!(s.at(20).upload(2, 60), []);
    assert_eq!((s.state(2), s.held(1)), (State::Memory, (60, 0)));
    for at in [STAY, 1_000, PATIENCE, 2 * PATIENCE] {
        assert_eq!(s.at(at).woke(), []);
    }
    assert_eq!(s.at(2 * PATIENCE + 1).comes_back(1, 1), []);
    let told = s.at(2 * PATIENCE + 2).returned(1, 1);
    assert_eq!(told, [PageOut(1, 20 * MIB + MARGIN)]);
}

#[test]
fn others_leave_for_whoever_would_wait_for_it() {
    let mut s = Story::new(100, 100, 1, 1..=3);
    s.holds(1, 40);
    s.holds(3, 40);
    assert_eq!(s.calls(1, 1, arguments(40)), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.at(STAY).upload(2, 60), [PageOut(3, 40 * MIB)]);
    assert_eq!(s.paged_out(3, 40, 0), [Start(2)]);
}

#[test]
fn those_that_fit_go_on_while_somebody_waits_for_its_memory() {
    let mut s = Story::new(100, 0, 1, 1..=3);
    s.holds(1, 60);
    assert_eq!(s.calls(1, 1, arguments(60)), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.upload(2, 60), []);
    for step in 0..100 {
        assert_eq!(s.at(step * 1_000).launch(3, scratch(20)), [Start(3)]);
        assert_eq!(s.at(step * 1_000 + 500).ran(3), []);
    }
    assert_eq!(s.at(100_000).comes_back(1, 1), []);
    assert_eq!(s.returned(1, 1), []);
    assert_eq!(s.released(1, 60, 0), [Start(2)]);
}

/// Neither can leave, and each callback ends only when its request is answered.
#[test]
fn callbacks_that_wait_for_each_others_memory_are_not_left_waiting() {
    let mut s = Story::new(100, 100, 2, 1..=2);
    for n in [1, 2] {
        s.holds(n, 40);
        assert_eq!(s.calls(n, 1, arguments(40)), [Start(n)]);
        assert_eq!(s.leaves(n, 1), []);
    }
    assert_eq!(s.at(10).upload(1, 30), []);
    assert_eq!(s.at(20).upload(2, 30), []);
    assert_eq!(s.engine.wake_at(), Some(ms(PATIENCE + 10)));
    assert_eq!(s.at(PATIENCE + 9).woke(), []);
    let why = Refusal::NoRoom {
        needs_bytes: 30 * MIB,
        free_bytes: 20 * MIB,
        host_free_bytes: 100 * MIB,
    };
    assert_eq!(s.at(PATIENCE + 10).woke(), [Refuse(1, why)]);
    // Its callback fails, and with it its iteration: now there is room.
    assert_eq!(s.comes_back(1, 1), []);
    assert_eq!(s.returned(1, 1), [PageOut(1, 10 * MIB + MARGIN)]);
    assert_eq!(s.released(1, 40, 0), [Start(2)]);
}

/// 3 asks as well, and the host has no room for what it holds.
#[test]
fn nor_are_those_that_wait_for_what_cannot_leave() {
    let mut s = Story::new(100, 0, 1, 1..=3);
    for n in [1, 2] {
        s.holds(n, 20);
        assert_eq!(s.calls(n, 1, arguments(20)), [Start(n)]);
        assert_eq!(s.leaves(n, 1), []);
    }
    s.holds(3, 40);
    assert_eq!(s.at(10).upload(1, 30), []);
    assert_eq!(s.at(20).upload(2, 30), []);
    assert_eq!(s.at(30).upload(3, 30), []);
    let told = s.at(PATIENCE + 10).woke();
    assert!(
        matches!(told[..], [Refuse(1, Refusal::NoRoom { .. })]),
        "{told:?}"
    );
    assert_eq!(s.comes_back(1, 1), []);
    assert_eq!(s.returned(1, 1), []);
    assert_eq!(s.released(1, 20, 0), [Start(2)]);
}

#[test]
fn a_callback_that_asks_for_what_its_own_iteration_holds_is_refused() {
    let mut s = Story::new(100, 100, 1, 1..=1);
    s.holds(1, 60);
    assert_eq!(s.calls(1, 1, arguments(60)), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.at(10).upload(1, 60), []);
    assert_eq!(s.at(PATIENCE + 9).woke(), []);
    let told = s.at(PATIENCE + 10).woke();
    assert!(
        matches!(told[..], [Refuse(1, Refusal::NoRoom { .. })]),
        "{told:?}"
    );
}

#[test]
fn it_is_refused_also_while_others_work() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    s.holds(1, 60);
    s.holds(2, 10);
    assert_eq!(s.calls(1, 1, arguments(60)), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.at(10).upload(1, 60), []);
    for step in 1..PATIENCE / 10 {
        assert_eq!(s.at(10 * step + 5).launch(2, arguments(10)), [Start(2)]);
        assert_eq!(s.at(10 * step + 10).ran(2), []);
    }
    assert_eq!(s.at(PATIENCE + 5).launch(2, arguments(10)), [Start(2)]);
    let told = s.at(PATIENCE + 10).woke();
    assert!(
        matches!(told[..], [Refuse(1, Refusal::NoRoom { .. })]),
        "{told:?}"
    );
}

#[test]
fn another_thread_of_the_job_may_give_the_memory_back_in_time() {
    let mut s = Story::new(100, 100, 1, 1..=1);
    s.holds(1, 60);
    assert_eq!(s.calls(1, 1, arguments(60)), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.at(10).upload(1, 60), []);
    assert_eq!(s.at(20_000).comes_back(1, 1), []);
    assert_eq!(s.at(20_001).returned(1, 1), [PageOut(1, 20 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 60, 0), [Start(1)]);
}

// What its user does meanwhile.

#[test]
fn a_pause_holds_back_what_its_callback_asks_for() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    let session = SessionId(1);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.on(Event::Paused { session }), []);
    assert_eq!(s.state(1), State::Callback);
    assert_eq!(s.launch(1, NOTHING), []);
    assert_eq!((s.state(1), s.why(1)), (State::Paused, Why::Paused));
    assert_eq!(s.on(Event::Resumed { session }), [Start(1)]);
    assert_eq!(s.ran(1), []);
    // What was started before the pause is not stopped by it.
    assert_eq!(s.on(Event::Paused { session }), []);
    assert_eq!(s.at(5).comes_back(1, 1), []);
    assert_eq!(s.state(1), State::Running);
    assert_eq!(s.at(7).returned(1, 1), []);
    assert_eq!(s.state(1), State::Paused);
}

#[test]
fn a_session_ends_when_its_iteration_has_come_back_and_ended() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.withdrew(1), []);
    assert_eq!(s.comes_back(1, 1), []);
    assert_eq!(s.returned(1, 1), []);
    assert_eq!(s.ran(1), []);
    assert_eq!(s.closed(1), []);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
}

#[test]
#[should_panic(expected = "closed while it ran")]
fn a_session_does_not_end_before_that() {
    let mut s = Story::new(100, 0, 1, 1..=1);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.leaves(1, 1), []);
    s.closed(1);
}
