//! Arrays in host memory that are no pages: they share the host's room with pages, never the device's.

use salus_engine::{Refusal, Why};
use salus_sim::{Needs, upload_to_host};

use crate::story::{
    AGING_LIMIT, MIB, NOTHING, PageOut, Refuse, Start, Story, arguments, limited, two_hold_forty,
};

fn no_host_room(needs: u64, free: u64, room: u64) -> Refusal {
    Refusal::NoHostRoom {
        needs_bytes: needs * MIB,
        free_bytes: free * MIB,
        room_bytes: room * MIB,
    }
}

fn to_host(mib: u64) -> salus_engine::Demand {
    upload_to_host(mib * MIB)
}

fn outputs_on_host(mib: u64) -> Needs {
    Needs {
        host: mib,
        ..NOTHING
    }
}

#[test]
fn more_than_the_device_has_fits_the_host() {
    let mut s = Story::new(64, 200, 1, 1..=1);
    s.holds(1, 60);
    assert_eq!(s.ready(1, to_host(100)), [Start(1)]);
    assert_eq!(s.launch(1, outputs_on_host(100)), [Start(1)]);
    assert_eq!(s.session(1).host_bytes, 200 * MIB);
    assert_eq!(s.held(1), (60, 0));
    assert_eq!(s.ran(1), []);
    assert_eq!(s.release_host(1, 150 * MIB), []);
    assert_eq!(s.ready(1, to_host(150)), [Start(1)]);
}

#[test]
fn what_the_host_will_never_have_is_refused_at_once() {
    let mut s = Story::new(64, 100, 1, 1..=2);
    assert_eq!(
        s.ready(1, to_host(101)),
        [Refuse(1, no_host_room(101, 100, 100))]
    );
    // Only its own arrays are there, and it asks for something else before it could drop them.
    assert_eq!(s.ready(1, to_host(60)), [Start(1)]);
    assert_eq!(
        s.ready(1, to_host(41)),
        [Refuse(1, no_host_room(41, 40, 100))]
    );
    // A launch of its own may end and free some.
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.ready(1, to_host(41)), []);
    assert_eq!(s.ran(1), [Refuse(1, no_host_room(41, 40, 100))]);
}

#[test]
fn it_counts_towards_the_limit_of_its_session() {
    let mut s = Story::new(64, 100, 1, 2..=2);
    s.opens(1, limited(50));
    s.holds(1, 20);
    assert_eq!(s.ready(1, to_host(30)), [Start(1)]);
    let why = Refusal::BeyondLimit {
        needs_bytes: 51 * MIB,
        memory_max: 50 * MIB,
    };
    assert_eq!(s.ready(1, to_host(1)), [Refuse(1, why)]);
}

#[test]
fn it_waits_for_what_others_hold_there_and_delays_nobody() {
    let mut s = Story::new(100, 100, 1, 1..=3);
    assert_eq!(s.ready(1, to_host(80)), [Start(1)]);
    assert_eq!(s.launch(2, outputs_on_host(30)), []);
    let why = Why::HostMemory {
        needs_bytes: 30 * MIB,
        free_bytes: 20 * MIB,
    };
    assert_eq!(s.why(2), why);
    // Later ones go on, also those whose arrays fit the host.
    assert_eq!(s.launch(3, outputs_on_host(20)), [Start(3)]);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.release_host(1, 30 * MIB), []);
    assert_eq!(s.ran(3), [Start(2)]);
}

#[test]
fn it_is_refused_when_it_has_waited_for_too_long() {
    let mut s = Story::new(100, 100, 1, 1..=2);
    assert_eq!(s.ready(1, to_host(80)), [Start(1)]);
    assert_eq!(s.at(5).ready(2, to_host(30)), []);
    let limit = 5 + AGING_LIMIT;
    assert_eq!(s.wake_at(), Some(crate::story::ms(limit)));
    assert_eq!(s.at(limit - 1).wake(), []);
    assert_eq!(s.at(limit).wake(), [Refuse(2, no_host_room(30, 20, 100))]);
    assert_eq!(s.ready(2, to_host(20)), [Start(2)]);
}

#[test]
fn room_that_pages_were_promised_is_not_given_away() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.ready(4, to_host(150)), [Start(4)]);
    // Of the 50 that are left, 20 and a margin are for what 1 pages out.
    let asked = s.at(300).upload(3, 40);
    assert!(matches!(asked[..], [PageOut(1, _)]), "{asked:?}");
    assert_eq!(s.ready(4, to_host(40)), []);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
    assert_eq!(s.ready(1, to_host(10)), [Start(1)]);
    assert_eq!(s.withdraw(4), []);
}

#[test]
fn a_session_that_pages_out_more_than_was_asked_is_promised_that_much() {
    let mut s = Story::new(100, 60, 1, 1..=4);
    s.holds(1, 50);
    s.holds(2, 50);
    let asked = s.at(200).upload(3, 10);
    assert!(matches!(asked[..], [PageOut(1, _)]), "{asked:?}");
    assert_eq!(s.may_page_out(1), 60 * MIB);
    // Its only array has 50.
    assert_eq!(s.paging_out(1, 50 * MIB), []);
    assert_eq!(s.ready(4, to_host(20)), []);
    assert_eq!(s.paged_out(1, 50, 0), [Start(3)]);
    assert_eq!(s.ledger().host_free_bytes(), 10 * MIB);
    // As soon as the pages are gone there is room for the other.
    assert_eq!(s.releases(1, 0, 50), [Start(4)]);
}

#[test]
fn arguments_in_host_memory_take_nothing_of_the_device() {
    let mut s = Story::new(64, 200, 1, 1..=1);
    assert_eq!(s.ready(1, to_host(100)), [Start(1)]);
    assert_eq!(s.launch(1, arguments(0)), [Start(1)]);
    assert_eq!(s.used(), (0, 0, 0));
}
