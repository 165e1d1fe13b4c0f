//! Iterations that call back into their jobs: their memory while they wait.

use salus_engine::{Refusal, State};

use crate::story::{
    AGING_LIMIT, MARGIN, MIB, MIN_RESIDENCY, NOTHING, PageOut, Refuse, Start, Story, arguments, ms,
    no_room, scratch,
};

#[test]
fn what_a_callback_left_behind_keeps_its_scratch() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.calls(1, 1, NOTHING), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    // Nobody waits for it in the callback.
    assert_eq!(s.launch(1, scratch(60)), [Start(1)]);
    assert_eq!(s.at(10).callback_ended(1, 1), []);
    assert_eq!(s.at(20).returned(1, 1), []);
    assert_eq!(s.used(), (0, 60, 0));
    assert_eq!(s.state(1), State::Running);
    assert_eq!(s.upload(2, 50), []);
    assert_eq!(s.at(30).ran(1), [Start(2)]);
    assert_eq!(s.used(), (50, 0, 0));
    assert_eq!(s.device_ms(1), 10 + 30);
}

#[test]
fn its_arrays_stay_while_it_waits() {
    let mut s = Story::new(100, 100, 1, 1..=2);
    s.holds(1, 60);
    assert_eq!(s.calls(1, 1, arguments(60)), [Start(1)]);
    assert_eq!(s.at(10).callback_began(1, 1), []);
    assert_eq!(s.at(20).upload(2, 60), []);
    assert_eq!((s.state(2), s.held(1)), (State::Memory, (60, 0)));
    for at in [MIN_RESIDENCY, 1_000, AGING_LIMIT, 2 * AGING_LIMIT] {
        assert_eq!(s.at(at).wake(), []);
    }
    assert_eq!(s.at(2 * AGING_LIMIT + 1).callback_ended(1, 1), []);
    let told = s.at(2 * AGING_LIMIT + 2).returned(1, 1);
    assert_eq!(told, [PageOut(1, 20 * MIB + MARGIN)]);
}

#[test]
fn others_are_evicted_for_who_would_wait_for_it() {
    let mut s = Story::new(100, 100, 1, 1..=3);
    s.holds(1, 40);
    s.holds(3, 40);
    assert_eq!(s.calls(1, 1, arguments(40)), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.at(MIN_RESIDENCY).upload(2, 60), [PageOut(3, 40 * MIB)]);
    assert_eq!(s.paged_out(3, 40, 0), [Start(2)]);
}

#[test]
fn those_that_fit_go_on_while_somebody_waits_for_its_memory() {
    let mut s = Story::new(100, 0, 1, 1..=3);
    s.holds(1, 60);
    assert_eq!(s.calls(1, 1, arguments(60)), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.upload(2, 60), []);
    for step in 0..100 {
        assert_eq!(s.at(step * 1_000).launch(3, scratch(20)), [Start(3)]);
        assert_eq!(s.at(step * 1_000 + 500).ran(3), []);
    }
    assert_eq!(s.at(100_000).callback_ended(1, 1), []);
    assert_eq!(s.returned(1, 1), []);
    assert_eq!(s.releases(1, 60, 0), [Start(2)]);
}

/// Neither can be evicted, and each callback ends only when its request is answered.
#[test]
fn callbacks_that_wait_for_each_others_memory_are_not_left_waiting() {
    let mut s = Story::new(100, 100, 2, 1..=2);
    for n in [1, 2] {
        s.holds(n, 40);
        assert_eq!(s.calls(n, 1, arguments(40)), [Start(n)]);
        assert_eq!(s.callback_began(n, 1), []);
    }
    assert_eq!(s.at(10).upload(1, 30), []);
    assert_eq!(s.at(20).upload(2, 30), []);
    assert_eq!(s.wake_at(), Some(ms(AGING_LIMIT + 10)));
    assert_eq!(s.at(AGING_LIMIT + 9).wake(), []);
    let why = no_room(30, 20, 100);
    assert_eq!(s.at(AGING_LIMIT + 10).wake(), [Refuse(1, why)]);
    // Its callback fails, and with it its iteration: now there is room.
    assert_eq!(s.callback_ended(1, 1), []);
    assert_eq!(s.returned(1, 1), [PageOut(1, 10 * MIB + MARGIN)]);
    assert_eq!(s.releases(1, 40, 0), [Start(2)]);
}

/// 3 asks as well, and the host has no room for what it holds.
#[test]
fn nor_are_those_that_wait_for_what_cannot_be_moved() {
    let mut s = Story::new(100, 0, 1, 1..=3);
    for n in [1, 2] {
        s.holds(n, 20);
        assert_eq!(s.calls(n, 1, arguments(20)), [Start(n)]);
        assert_eq!(s.callback_began(n, 1), []);
    }
    s.holds(3, 40);
    assert_eq!(s.at(10).upload(1, 30), []);
    assert_eq!(s.at(20).upload(2, 30), []);
    assert_eq!(s.at(30).upload(3, 30), []);
    let told = s.at(AGING_LIMIT + 10).wake();
    assert!(
        matches!(told[..], [Refuse(1, Refusal::NoRoom { .. })]),
        "{told:?}"
    );
    assert_eq!(s.callback_ended(1, 1), []);
    assert_eq!(s.returned(1, 1), []);
    assert_eq!(s.releases(1, 20, 0), [Start(2)]);
}

#[test]
fn a_callback_that_asks_for_what_its_own_iteration_holds_is_refused() {
    let mut s = Story::new(100, 100, 1, 1..=1);
    s.holds(1, 60);
    assert_eq!(s.calls(1, 1, arguments(60)), [Start(1)]);
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.at(10).upload(1, 60), []);
    assert_eq!(s.at(AGING_LIMIT + 9).wake(), []);
    let told = s.at(AGING_LIMIT + 10).wake();
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
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.at(10).upload(1, 60), []);
    for step in 1..AGING_LIMIT / 10 {
        assert_eq!(s.at(10 * step + 5).launch(2, arguments(10)), [Start(2)]);
        assert_eq!(s.at(10 * step + 10).ran(2), []);
    }
    assert_eq!(s.at(AGING_LIMIT + 5).launch(2, arguments(10)), [Start(2)]);
    let told = s.at(AGING_LIMIT + 10).wake();
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
    assert_eq!(s.callback_began(1, 1), []);
    assert_eq!(s.at(10).upload(1, 60), []);
    assert_eq!(s.at(20_000).callback_ended(1, 1), []);
    assert_eq!(s.at(20_001).returned(1, 1), [PageOut(1, 20 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 60, 0), [Start(1)]);
}
