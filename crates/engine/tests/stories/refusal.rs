//! Refusals: what cannot be done, now or later.

use salus_engine::{Policy, Refusal, Room};
use salus_sim::{Needs, Opening};

use crate::story::{
    MARGIN, MIB, NOTHING, PageOut, Refuse, Start, Story, arguments, beyond_limit, by_age, limited,
    no_room, too_large, two_hold_forty,
};

#[test]
fn what_would_not_fit_alone_is_refused() {
    let mut s = Story::new(100, 100, 1, 1..=1);
    s.holds(1, 40);
    let needs = Needs {
        arguments: 40,
        new: 30,
        scratch: 31,
        ..NOTHING
    };
    let why = too_large(101, 100);
    assert_eq!(s.launch(1, needs), [Refuse(1, why)]);
    let fits = Needs {
        scratch: 30,
        ..needs
    };
    assert_eq!(s.launch(1, fits), [Start(1)]);
}

#[test]
fn what_exceeds_the_sessions_limit_is_refused() {
    let mut s = Story::new(100, 100, 1, 2..=2);
    s.opens(1, limited(50));
    s.holds(1, 40);
    let why = beyond_limit(51, 50);
    assert_eq!(s.upload(1, 11), [Refuse(1, why)]);
    // Scratch is the lane's, not the session's.
    let needs = Needs {
        arguments: 40,
        new: 10,
        scratch: 50,
        ..NOTHING
    };
    assert_eq!(s.launch(1, needs), [Start(1)]);
}

#[test]
fn a_changed_limit_holds_for_what_is_asked_next() {
    let mut s = Story::new(100, 100, 1, 1..=1);
    s.holds(1, 40);
    assert_eq!(s.limit(1, Some(30 * MIB)), []);
    let why = beyond_limit(41, 30);
    assert_eq!(s.upload(1, 1), [Refuse(1, why)]);
    // What it holds already stays, and it may work with it.
    assert_eq!(s.launch(1, arguments(40)), [Start(1)]);
    assert_eq!(s.limit(1, None), []);
    assert_eq!(s.upload(1, 1), [Start(1)]);
}

#[test]
fn pages_count_towards_the_limit() {
    let mut s = Story::new(100, 100, 1, 2..=2);
    s.opens(1, limited(60));
    s.holds(1, 60);
    assert_eq!(s.at(100).upload(2, 80), [PageOut(1, 40 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 60, 0), [Start(2)]);
    let why = beyond_limit(61, 60);
    assert_eq!(s.upload(1, 1), [Refuse(1, why)]);
    assert_eq!(s.releases(1, 0, 1), []);
    assert_eq!(s.upload(1, 1), [Start(1)]);
    assert_eq!(s.held(1), (1, 59));
}

#[test]
fn a_users_sessions_share_one_limit() {
    let room = Room {
        device_bytes: 100 * MIB,
        host_bytes: 100 * MIB,
        user_max: Some(50 * MIB),
    };
    let mut story = Story::in_room(room, 1);
    for (session, user) in [(1, 7), (2, 7), (3, 8)] {
        story.opens(session, Opening { user, ..by_age() });
    }
    story.holds(1, 30);
    let why = Refusal::BeyondUserLimit {
        needs_bytes: 55 * MIB,
        user_max: 50 * MIB,
    };
    assert_eq!(story.upload(2, 25), [Refuse(2, why)]);
    story.holds(3, 45);
    story.holds(2, 20);
    assert_eq!(story.releases(1, 30, 0), []);
    story.holds(2, 30);
}

#[test]
fn a_refusal_disturbs_nobody() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    let why = too_large(101, 100);
    let before = (s.used(), s.why(1), s.why(3), s.account(4));
    assert_eq!(s.upload(4, 101), [Refuse(4, why)]);
    assert_eq!((s.used(), s.why(1), s.why(3), s.account(4)), before);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
}

#[test]
fn what_nobody_can_make_room_for_is_refused() {
    let mut s = Story::new(100, 0, 1, 1..=1);
    s.holds(1, 60);
    let why = no_room(50, 40, 0);
    assert_eq!(s.upload(1, 50), [Refuse(1, why)]);
    assert_eq!(s.upload(1, 40), [Start(1)]);
}

#[test]
fn a_request_waits_as_long_as_somebody_may_give_something_back() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    s.holds(1, 60);
    s.holds(2, 30);
    // 2 is at work: it may drop its array.
    assert_eq!(s.upload(1, 20), []);
    // It computes: its scratch and perhaps its array come back.
    assert_eq!(s.launch(2, arguments(30)), [Start(2)]);
    assert_eq!(s.upload(2, 20), []);
    // Now both wait for each other.
    let why = no_room(20, 10, 0);
    assert_eq!(s.ran(2), [Refuse(1, why)]);
    assert_eq!(s.close(1), [Start(2)]);
}

#[test]
fn who_waits_for_another_to_end_cannot_make_room_for_it() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    s.holds(1, 40);
    s.holds(2, 40);
    let policy = Policy::Exclusive;
    assert_eq!(s.change_policy(policy), []);
    // 2 may be served when 1 has ended, and holds what 1 lacks.
    assert_eq!(s.launch(2, NOTHING), []);
    let why = no_room(30, 20, 0);
    assert_eq!(s.upload(1, 30), [Refuse(1, why)]);
    assert_eq!(s.close(1), [Start(2)]);
}

#[test]
fn who_is_paused_may_make_room_when_it_goes_on() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    s.holds(1, 40);
    s.holds(2, 40);
    assert_eq!(s.pause(2), []);
    assert_eq!(s.launch(2, NOTHING), []);
    assert_eq!(s.upload(1, 30), []);
    assert_eq!(s.resume(2), [Start(2)]);
    assert_eq!(s.releases(2, 10, 0), [Start(1)]);
}
