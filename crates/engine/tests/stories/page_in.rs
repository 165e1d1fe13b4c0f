//! Page-ins ahead of a turn, where copies to the device wait for what was handed over before.

use salus_engine::{Policy, Why};
use salus_sim::{Opening, Simulation};

use crate::story::{AGING_LIMIT, MIB, PageIn, PageOut, Start, Story, arguments, paged, scratch};

/// 1 was paged out, with 40; 2 has 40 on the device, runs two iterations, and asks for a third after
/// 1 has asked.
fn one_waits_to_be_paged_in(mut s: Story) -> Story {
    for n in 1..=3 {
        s.opens(n, Opening::default());
    }
    s.holds(1, 40);
    s.at(10).holds(2, 40);
    let asked = s.at(200).upload(3, 40);
    assert!(matches!(asked[..], [PageOut(1, _)]), "{asked:?}");
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
    assert_eq!(s.releases(3, 40, 0), []);
    assert_eq!(s.launch(2, arguments(40)), [Start(2)]);
    assert_eq!(s.launch(2, arguments(40)), [Start(2)]);
    assert_eq!(s.launch(1, paged(40)), []);
    assert_eq!(s.launch(2, arguments(40)), []);
    s.at(300);
    s
}

fn own_memory() -> Story {
    Story::with_own_memory(Policy::Fifo, 100, 200)
}

#[test]
fn it_is_copied_while_another_computes() {
    let mut s = one_waits_to_be_paged_in(own_memory());
    // Its copies go before the next iteration of 2, which goes before its own.
    assert_eq!(s.ran(2), [PageIn(1)]);
    assert_eq!(s.held(1), (40, 0));
    assert!(matches!(s.why(2), Why::Turn { ahead: 1, .. }));
    assert_eq!(s.at(301).paged_in(1), [Start(2)]);
    assert_eq!(s.launch(2, arguments(40)), []);
    assert!(matches!(s.why(1), Why::Turn { ahead: 2, .. }));
    // Once: then it is its turn.
    assert_eq!(s.at(310).ran(2), [Start(1)]);
    assert_eq!(s.at(320).ran(2), [Start(2)]);
}

#[test]
fn nothing_changes_where_memory_is_the_hosts() {
    let room = salus_engine::Room {
        device_bytes: 100 * MIB,
        host_bytes: 200 * MIB,
        user_max: None,
    };
    let simulation = Simulation::new(Policy::Fifo, room, 1, 1);
    let mut s = one_waits_to_be_paged_in(Story::of(simulation));
    assert_eq!(s.ran(2), [Start(1)]);
}

#[test]
fn nobody_waits_for_copies_when_the_lane_runs_dry() {
    let mut s = one_waits_to_be_paged_in(own_memory());
    assert_eq!(s.ran(2), [PageIn(1)]);
    // It has not answered yet, and the device would have nothing to do.
    assert_eq!(s.at(305).ran(2), [Start(2)]);
    assert_eq!(s.at(306).paged_in(1), [Start(1)]);
}

#[test]
fn it_is_started_at_once_where_nobody_else_is_ready() {
    let mut s = one_waits_to_be_paged_in(own_memory());
    assert_eq!(s.withdraw(2), []);
    assert_eq!(s.ran(2), [Start(1)]);
}

#[test]
fn it_is_started_at_once_where_both_do_not_fit() {
    let mut s = one_waits_to_be_paged_in(own_memory());
    assert_eq!(s.withdraw(2), []);
    // Beside 40 of 2 and 40 of 1 there are 20.
    assert_eq!(s.launch(2, scratch(21)), []);
    assert_eq!(s.ran(2), [Start(1)]);
}

#[test]
fn it_is_started_at_once_when_it_has_aged() {
    let mut s = one_waits_to_be_paged_in(own_memory());
    assert_eq!(s.at(300 + AGING_LIMIT).wake(), []);
    assert_eq!(s.ran(2), [Start(1)]);
}

#[test]
fn who_gives_up_holds_nobody_back() {
    let mut s = one_waits_to_be_paged_in(own_memory());
    assert_eq!(s.ran(2), [PageIn(1)]);
    assert_eq!(s.withdraw(1), [Start(2)]);
    assert_eq!(s.paged_in(1), []);
    let mut s = one_waits_to_be_paged_in(own_memory());
    assert_eq!(s.ran(2), [PageIn(1)]);
    assert_eq!(s.close(1), [Start(2)]);
}

#[test]
fn a_deadline_is_not_missed_for_it() {
    let s = Story::with_own_memory(Policy::Deadline, 100, 200);
    let mut s = one_waits_to_be_paged_in(s);
    let settings = crate::story::by_age().settings;
    s.change_settings(1, settings);
    assert_eq!(s.ran(2), [Start(1)]);
}
