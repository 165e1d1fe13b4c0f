//! Why a session waits.

use salus_engine::{SessionId, Why};
use salus_sim::Simulation;

use crate::story::{MARGIN, MIB, NOTHING, PageOut, Start, Story, two_hold_forty};

#[test]
fn a_session_that_asked_for_nothing_is_idle() {
    let mut s = Story::new(100, 0, 1, 1..=1);
    assert_eq!(s.why(1), Why::Idle);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.why(1), Why::Running);
    assert_eq!(s.ran(1), []);
    assert_eq!(s.why(1), Why::Idle);
    assert_eq!(Simulation::why(&s, 2), None);
}

#[test]
fn a_session_waits_for_its_turn() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.launch(2, NOTHING), []);
    assert_eq!(
        s.why(2),
        Why::Turn {
            ahead: 2,
            runs: Some(SessionId(1))
        }
    );
}

#[test]
fn a_session_waits_for_memory_and_knows_who_is_before_it() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.upload(4, 20), []);
    let waits = |mib, holder| Why::Memory {
        needs_bytes: mib * MIB,
        free_bytes: 20 * MIB,
        holder,
    };
    assert_eq!(s.why(3), waits(50, None));
    assert_eq!(s.why(4), waits(20, Some(SessionId(3))));
}

#[test]
fn a_session_is_evicted_for_another_or_for_a_better_lane() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    let holder = Some(SessionId(3));
    assert_eq!(s.why(1), Why::Evicting { holder });
    assert_eq!(s.withdraw(3), []);
    assert_eq!(s.why(1), Why::Evicting { holder: None });
}
