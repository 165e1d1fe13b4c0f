//! The engine's promises as stories: who asks for what, and what it answers.
//!
//! Sizes are in MiB and times in ms. Moving takes no time unless a story says so; then a session
//! that comes in stays for [`STAY`].

#[path = "behaviour/callbacks.rs"]
mod callbacks;

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use salus_engine::{
    Account, Decision, Demand, Duration, Engine, Event, Holding, Kind, Lane, Policy, Program,
    Refusal, Room, SessionId, Time, Why, Wishes,
};

use Told::{PageOut, Refuse, Start};

const MIB: u64 = 1 << 20;
/// What is asked for beyond what is lacking.
const MARGIN: u64 = 256 << 10;
/// In ns.
const SECOND: u64 = 1_000_000_000;
/// The shortest stay, in ms.
const STAY: u64 = 50;

/// Whoever has waited so long goes before all others, in ms.
const PATIENCE: u64 = 30_000;

/// A decision, without the lane, which few stories are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Start(u64),
    PageOut(u64, u64),
    Refuse(u64, Refusal),
}

/// A launch, in MiB.
#[derive(Debug, Clone, Copy, Default)]
struct Needs {
    arguments: u64,
    absent: u64,
    new: u64,
    scratch: u64,
}

struct Story {
    engine: Engine,
    now: Time,
}

/// Of sessions that are served in the order in which they ask.
fn by_age() -> Wishes {
    Wishes {
        latency: Some(Duration(1)),
        ..Wishes::default()
    }
}

fn ms(n: u64) -> Time {
    Time(n * 1_000_000)
}

impl Story {
    fn new(device_mib: u64, host_mib: u64, lanes: u32, sessions: RangeInclusive<u64>) -> Self {
        let room = Room {
            device_bytes: device_mib * MIB,
            host_bytes: host_mib * MIB,
            user_max: None,
        };
        let mut story = Self {
            engine: Engine::new(Policy::Deadline, room, lanes, lanes),
            now: Time(0),
        };
        for n in sessions {
            story.open(n, None);
        }
        story
    }

    fn at(&mut self, n: u64) -> &mut Self {
        self.now = ms(n);
        self
    }

    fn decide(&mut self, event: Event) -> Vec<Decision> {
        self.engine.on(self.now, event)
    }

    fn on(&mut self, event: Event) -> Vec<Told> {
        let decisions = self.decide(event);
        let told = decisions.iter().map(|decision| match *decision {
            Decision::Start { session, .. } => Start(session.0),
            Decision::PageOut { session, bytes } => PageOut(session.0, bytes),
            Decision::Refuse { session, why } => Refuse(session.0, why),
        });
        told.collect()
    }

    fn open(&mut self, n: u64, memory_max: Option<u64>) {
        let session = SessionId(n);
        let told = self.on(Event::Opened {
            session,
            user: salus_engine::User(0),
            memory_max,
            wishes: by_age(),
        });
        assert_eq!(told, []);
    }

    fn upload(&mut self, n: u64, mib: u64) -> Vec<Told> {
        let demand = Demand {
            kind: Kind::Array,
            new_bytes: mib * MIB,
            argument_bytes: 0,
            absent_bytes: 0,
        };
        self.on(Event::Ready {
            session: SessionId(n),
            demand,
        })
    }

    /// Uploads where there is room.
    #[track_caller]
    fn holds(&mut self, n: u64, mib: u64) {
        assert_eq!(self.upload(n, mib), [Start(n)], "there is room");
    }

    fn launch(&mut self, n: u64, needs: Needs) -> Vec<Told> {
        self.on(launch(n, needs))
    }

    fn ran(&mut self, n: u64) -> Vec<Told> {
        let session = SessionId(n);
        self.on(Event::Ran {
            session,
            calling: None,
        })
    }

    /// All that it moved is now on the host; `absent` of it are arguments of what it waits for.
    fn paged_out(&mut self, n: u64, mib: u64, absent: u64) -> Vec<Told> {
        self.on(Event::PagedOut {
            session: SessionId(n),
            bytes: mib * MIB,
            absent_bytes: absent * MIB,
        })
    }

    fn released(&mut self, n: u64, resident: u64, paged: u64) -> Vec<Told> {
        self.on(Event::Released {
            session: SessionId(n),
            resident_bytes: resident * MIB,
            paged_bytes: paged * MIB,
        })
    }

    fn withdrew(&mut self, n: u64) -> Vec<Told> {
        let session = SessionId(n);
        self.on(Event::Withdrew { session })
    }

    fn closed(&mut self, n: u64) -> Vec<Told> {
        let session = SessionId(n);
        self.on(Event::Closed { session })
    }

    fn woke(&mut self) -> Vec<Told> {
        self.on(Event::Woke)
    }

    fn account(&self, n: u64) -> Account {
        *self.engine.account(SessionId(n)).expect("it is open")
    }

    /// What it holds on the device and on the host, in MiB.
    fn held(&self, n: u64) -> (u64, u64) {
        let holding: &Holding = self.engine.ledger().holding(SessionId(n)).expect("open");
        (holding.resident_bytes / MIB, holding.paged_bytes / MIB)
    }

    /// Arrays on the device, scratch, and arrays on the host, in MiB.
    fn used(&self) -> (u64, u64, u64) {
        let ledger = self.engine.ledger();
        (
            ledger.resident_bytes() / MIB,
            ledger.scratch_bytes() / MIB,
            ledger.paged_bytes() / MIB,
        )
    }

    fn lane_sizes(&self) -> Vec<u64> {
        self.engine
            .lanes()
            .map(|(_, bytes, _)| bytes / MIB)
            .collect()
    }

    fn why(&self, n: u64) -> Why {
        self.engine.why(SessionId(n)).expect("it is open")
    }
}

fn launch(n: u64, needs: Needs) -> Event {
    let demand = Demand {
        kind: Kind::Launch {
            scratch_bytes: needs.scratch * MIB,
            program: Program(0),
        },
        new_bytes: needs.new * MIB,
        argument_bytes: needs.arguments * MIB,
        absent_bytes: needs.absent * MIB,
    };
    Event::Ready {
        session: SessionId(n),
        demand,
    }
}

fn scratch(mib: u64) -> Needs {
    Needs {
        scratch: mib,
        ..Needs::default()
    }
}

/// Of arrays on the device.
fn arguments(mib: u64) -> Needs {
    Needs {
        arguments: mib,
        ..Needs::default()
    }
}

/// Of arrays that were paged out.
fn absent(mib: u64) -> Needs {
    Needs {
        arguments: mib,
        absent: mib,
        ..Needs::default()
    }
}

const NOTHING: Needs = Needs {
    arguments: 0,
    absent: 0,
    new: 0,
    scratch: 0,
};

// Turns.

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
    let mut running: VecDeque<Told> = order.iter().copied().collect();
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
    assert_eq!(s.engine.waits_since(SessionId(2)), Some(ms(2)));
    assert_eq!(s.at(10).ran(1), [Start(2)]);
    assert_eq!(s.engine.waits_since(SessionId(2)), None);
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
    assert_eq!(s.at(1).closed(2), []);
    assert_eq!(s.at(10).ran(1), [Start(3)]);
}

// Lanes.

#[test]
fn two_lanes_run_side_by_side() {
    let mut s = Story::new(100, 0, 2, 1..=2);
    for (n, lane) in [(1, Lane(0)), (2, Lane(1))] {
        let session = SessionId(n);
        let decisions = s.decide(launch(n, scratch(10)));
        assert_eq!(decisions, [Decision::Start { session, lane }]);
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
    assert_eq!(s.engine.ledger().peak_bytes(), 50 * MIB);
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
    assert_eq!(s.closed(2), []);
    assert_eq!(s.closed(4), []);
    assert_eq!(s.launch(1, arguments(10)), [Start(1)]);
    assert_eq!(s.launch(1, arguments(10)), [Start(1)]);
    assert_eq!(s.at(10).launch(3, arguments(10)), []);
    // Its stay comes first.
    assert_eq!(s.at(STAY + 10).woke(), [PageOut(3, 10 * MIB)]);
    let decisions = s.at(STAY + 15).decide(Event::PagedOut {
        session: SessionId(3),
        bytes: 10 * MIB,
        absent_bytes: 10 * MIB,
    });
    let (session, lane) = (SessionId(3), Lane(1));
    assert_eq!(decisions, [Decision::Start { session, lane }]);
    assert_eq!(s.used(), (20, 0, 0));
}

#[test]
fn a_session_does_not_leave_where_it_would_come_back_to_the_same_lane() {
    let mut s = Story::new(100, 100, 2, 1..=3);
    for n in 1..=3 {
        s.holds(n, 10);
    }
    // The other lane has nothing to do, but 2 lives in it.
    assert_eq!(s.launch(1, arguments(10)), [Start(1)]);
    assert_eq!(s.launch(1, arguments(10)), [Start(1)]);
    assert_eq!(s.at(STAY + 10).launch(3, arguments(10)), []);
    assert_eq!(s.ran(1), [Start(3)]);
}

#[test]
fn a_session_on_a_crowded_lane_stays_there_where_the_host_has_no_room() {
    let mut s = Story::new(100, 9, 2, 1..=3);
    for n in 1..=3 {
        s.holds(n, 10);
    }
    assert_eq!(s.closed(2), []);
    assert_eq!(s.launch(1, arguments(10)), [Start(1)]);
    assert_eq!(s.launch(1, arguments(10)), [Start(1)]);
    assert_eq!(s.at(2 * STAY).launch(3, arguments(10)), []);
    assert_eq!(s.ran(1), [Start(3)]);
}

#[test]
fn sessions_without_arrays_spread_over_the_lanes() {
    let mut s = Story::new(100, 0, 2, 1..=3);
    // 1 and 3 share a lane until 2 has left the other.
    assert_eq!(s.closed(2), []);
    let mut lanes = Vec::new();
    for n in [1, 3] {
        for decision in s.decide(launch(n, NOTHING)) {
            let Decision::Start { lane, .. } = decision else {
                panic!("{decision:?}")
            };
            lanes.push(lane);
        }
    }
    assert_eq!(lanes, [Lane(1), Lane(0)]);
}

// Memory.

/// 1 and 2 hold 40 each since 0 and 10 ms, and 20 are free; it is 200 ms.
fn two_hold_forty(sessions: RangeInclusive<u64>) -> Story {
    let mut s = Story::new(100, 200, 1, sessions);
    s.holds(1, 40);
    s.at(10).holds(2, 40);
    s.at(200);
    s
}

#[test]
fn the_longest_quiet_session_leaves_for_a_request_that_does_not_fit() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.at(210).paged_out(1, 40, 0), [Start(3)]);
    assert_eq!(s.held(1), (0, 40));
    assert_eq!(s.used(), (90, 0, 40));
}

#[test]
fn a_quiet_session_leaves_before_one_that_waits() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.launch(4, NOTHING), [Start(4)]);
    assert_eq!(s.launch(4, NOTHING), [Start(4)]);
    assert_eq!(s.launch(1, arguments(40)), []);
    assert_eq!(s.upload(3, 50), [PageOut(2, 30 * MIB + MARGIN)]);
}

#[test]
fn a_session_that_works_becomes_the_last_to_leave() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.launch(1, arguments(40)), [Start(1)]);
    assert_eq!(s.ran(1), []);
    assert_eq!(s.upload(3, 50), [PageOut(2, 30 * MIB + MARGIN)]);
}

#[test]
fn several_leave_where_one_is_not_enough() {
    let mut s = two_hold_forty(1..=3);
    let all = [PageOut(1, 40 * MIB), PageOut(2, 20 * MIB + MARGIN)];
    assert_eq!(s.upload(3, 80), all);
    assert_eq!(s.paged_out(2, 40, 0), []);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
}

#[test]
fn the_host_is_not_promised_more_than_it_has_room_for() {
    let mut s = Story::new(100, 50, 1, 1..=3);
    s.holds(1, 40);
    s.at(1).holds(2, 40);
    let all = [PageOut(1, 40 * MIB), PageOut(2, 10 * MIB)];
    assert_eq!(s.at(200).upload(3, 80), all);
    assert_eq!(s.paged_out(1, 40, 0), []);
    assert_eq!(s.paged_out(2, 10, 0), []);
    assert_eq!(s.used(), (30, 0, 50));
    assert_eq!(s.released(2, 30, 0), [Start(3)]);
}

#[test]
fn somebody_else_leaves_where_one_moved_too_little() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 0, 0), [PageOut(2, 30 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(2, 40, 0), [Start(3)]);
    assert_eq!(s.held(1), (40, 0));
}

#[test]
fn what_leaves_for_the_oldest_is_not_taken_by_younger_ones() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    // 20 are free, and 3 counts on them.
    assert_eq!(s.upload(4, 20), []);
    assert_eq!(
        s.launch(
            2,
            Needs {
                scratch: 1,
                ..arguments(40)
            }
        ),
        []
    );
    // A first part does not suffice, and is kept.
    assert_eq!(s.paged_out(1, 20, 0), [PageOut(1, 10 * MIB + MARGIN)]);
    // Only then does anybody leave for 4.
    let next = [Start(3), PageOut(2, 10 * MIB + MARGIN)];
    assert_eq!(s.paged_out(1, 20, 0), next);
}

#[test]
fn what_takes_nothing_from_the_oldest_goes_ahead() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.launch(2, arguments(40)), [Start(2)]);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
}

#[test]
fn an_older_request_that_gets_its_turn_comes_before_the_one_that_waits_for_memory() {
    let mut s = Story::new(100, 0, 2, 1..=3);
    // 1 and 3 share a lane, which is full; 2 is alone in its own, and needs 10 too much.
    assert_eq!(s.launch(1, scratch(30)), [Start(1)]);
    assert_eq!(s.launch(1, scratch(30)), [Start(1)]);
    let needs = Needs { new: 80, ..NOTHING };
    assert_eq!(s.launch(3, needs), []);
    assert_eq!(s.launch(2, needs), []);
    let first = |s: &Story, n| match s.why(n) {
        Why::Memory { first, .. } => first,
        why => panic!("{why:?}"),
    };
    assert_eq!(first(&s, 2), None);
    assert_eq!(s.ran(1), []);
    assert_eq!(first(&s, 3), None);
    assert_eq!(first(&s, 2), Some(SessionId(3)));
    assert_eq!(s.ran(1), [Start(3)]);
}

#[test]
fn an_older_request_that_fits_starts_before_the_one_that_waited_for_memory() {
    let mut s = Story::new(100, 200, 1, 1..=2);
    s.holds(1, 60);
    assert_eq!(s.at(200).upload(2, 50), [PageOut(1, 10 * MIB + MARGIN)]);
    assert_eq!(s.launch(1, arguments(60)), []);
    assert_eq!(s.withdrew(2), []);
    assert_eq!(s.upload(2, 70), []);
    // Both fit now, but not together, and 1 asked first.
    assert_eq!(s.paged_out(1, 60, 60), [Start(1)]);
}

#[test]
fn younger_requests_are_served_once_the_oldest_is() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.upload(4, 20), []);
    let next = [Start(3), PageOut(2, 10 * MIB + MARGIN)];
    assert_eq!(s.paged_out(1, 40, 0), next);
    assert_eq!(s.paged_out(2, 40, 0), [Start(4)]);
}

#[test]
fn younger_ones_that_fit_go_ahead_while_nobody_may_leave() {
    let mut s = Story::new(100, 100, 2, 1..=3);
    s.holds(1, 30);
    s.holds(2, 30);
    assert_eq!(s.at(10).upload(3, 50), []);
    assert_eq!(s.launch(1, scratch(20)), [Start(1)]);
    assert_eq!(s.launch(2, scratch(20)), [Start(2)]);
    assert_eq!(s.at(20).ran(1), []);
    assert_eq!(s.upload(1, 20), [Start(1)]);
}

#[test]
fn a_session_that_came_in_stays_its_time_and_then_leaves() {
    let mut s = Story::new(100, 100, 1, 1..=2);
    s.holds(1, 60);
    assert_eq!(s.at(10).upload(2, 50), []);
    assert_eq!(s.engine.wake_at(), Some(ms(STAY)));
    assert_eq!(s.at(STAY - 1).woke(), []);
    assert_eq!(s.engine.wake_at(), Some(ms(STAY)));
    assert_eq!(s.at(STAY).woke(), [PageOut(1, 10 * MIB + MARGIN)]);
    assert_eq!(s.engine.wake_at(), Some(ms(10 + PATIENCE)));
}

#[test]
fn a_session_that_is_brought_back_stays_again() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
    // Both 2 and 3 would be in the way of 1, and 3 only just came.
    assert_eq!(s.launch(1, absent(40)), [PageOut(2, 30 * MIB + MARGIN)]);
    assert_eq!(s.at(205).paged_out(2, 40, 0), [Start(1)]);
    assert_eq!(s.held(1), (40, 0));
    assert_eq!(s.at(210).ran(1), []);
    assert_eq!(s.launch(2, absent(40)), []);
    assert_eq!(s.engine.wake_at(), Some(ms(200 + STAY)));
    let leave = [PageOut(3, 30 * MIB + MARGIN)];
    assert_eq!(s.at(200 + STAY).woke(), leave);
}

#[test]
fn a_session_that_is_brought_back_in_part_stays_again() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 31, 0), [Start(3)]);
    assert_eq!(s.closed(3), []);
    let needs = Needs {
        absent: 31,
        ..arguments(40)
    };
    assert_eq!(s.at(300).launch(1, needs), [Start(1)]);
    assert_eq!(s.closed(2), []);
    assert_eq!(s.ran(1), []);
    s.open(4, None);
    assert_eq!(s.upload(4, 80), []);
    assert_eq!(s.engine.wake_at(), Some(ms(300 + STAY)));
}

#[test]
fn a_stay_is_ten_times_as_long_as_moving_takes_but_not_longer_than_a_second() {
    for (took, stay) in [(1, STAY), (40, 200), (10_000, 1_000)] {
        let mut s = two_hold_forty(1..=3);
        assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
        let came = 200 + took;
        assert_eq!(s.at(came).paged_out(1, 40, 0), [Start(3)]);
        assert_eq!(s.closed(2), []);
        // Half of what moving took is believed at first; 3 is the only one that could leave.
        assert_eq!(
            s.launch(
                1,
                Needs {
                    new: 20,
                    ..absent(40)
                }
            ),
            []
        );
        assert_eq!(s.engine.wake_at(), Some(ms(came + stay)));
    }
}

#[test]
fn a_session_that_always_asks_is_drained_at_the_end_of_its_stay() {
    let mut s = Story::new(100, 200, 1, 1..=2);
    s.holds(1, 60);
    assert_eq!(s.launch(1, arguments(60)), [Start(1)]);
    assert_eq!(s.launch(1, arguments(60)), [Start(1)]);
    assert_eq!(s.launch(1, arguments(60)), []);
    assert_eq!(s.at(10).upload(2, 50), []);
    assert_eq!(s.at(STAY - 1).ran(1), [Start(1)]);
    assert_eq!(s.launch(1, arguments(60)), []);
    // One more has begun, and after it nothing does.
    assert_eq!(s.at(STAY + 10).ran(1), []);
    let leave = [PageOut(1, 10 * MIB + MARGIN)];
    assert_eq!(s.at(STAY + 20).ran(1), leave);
    assert_eq!(s.at(STAY + 30).paged_out(1, 60, 60), [Start(2)]);
    // Its turn comes again when 2 has stayed.
    assert_eq!(s.engine.wake_at(), Some(ms(STAY + 30 + STAY)));
    let leave = [PageOut(2, 10 * MIB + MARGIN)];
    assert_eq!(s.at(STAY + 30 + STAY).woke(), leave);
    assert_eq!(s.paged_out(2, 50, 0), [Start(1)]);
}

#[test]
fn nobody_leaves_where_the_end_of_what_runs_is_enough() {
    for host in [0, 200] {
        let mut s = Story::new(100, host, 2, 1..=3);
        s.holds(1, 20);
        s.holds(2, 20);
        s.at(200);
        let needs = Needs {
            scratch: 40,
            ..arguments(20)
        };
        assert_eq!(s.launch(1, needs), [Start(1)]);
        assert_eq!(s.launch(2, needs), []);
        // 1 would be in its way once more, 3 is not.
        assert_eq!(s.launch(1, needs), []);
        assert_eq!(s.launch(3, scratch(10)), [Start(3)]);
        assert_eq!(s.ran(1), [Start(2)]);
    }
}

#[test]
fn nobody_starves_for_want_of_scratch() {
    for host in [0, 200] {
        let mut s = Story::new(100, host, 3, 1..=3);
        let needs = |n: u64| scratch([0, 40, 35, 30][n as usize]);
        s.holds(3, 25);
        for n in [1, 1, 1, 2, 2, 2] {
            let _ = s.launch(n, needs(n));
        }
        assert_eq!(s.launch(3, needs(3)), []);
        // 1 and 2 are always one ahead in their lanes.
        let mut told = Vec::new();
        for step in 1..=8 {
            for n in [1, 2] {
                s.at(100 * step);
                if s.account(n).running > 0 {
                    told.extend(s.ran(n));
                }
                if s.engine.waits_since(SessionId(n)).is_none() {
                    told.extend(s.launch(n, needs(n)));
                }
            }
        }
        assert!(told.contains(&Start(3)), "{told:?}");
    }
}

#[test]
fn a_session_that_leaves_does_not_run() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.launch(1, arguments(40)), []);
    assert_eq!(s.woke(), []);
    // Now it waits for what left, and is the next for which somebody leaves.
    let next = [Start(3), PageOut(2, 30 * MIB + MARGIN)];
    assert_eq!(s.paged_out(1, 30, 30), next);
    assert_eq!(s.held(1), (10, 30));
    assert_eq!(s.paged_out(2, 40, 0), [Start(1)]);
    assert_eq!(s.held(1), (40, 0));
}

#[test]
fn a_session_that_waits_and_leaves_asks_for_what_left() {
    let mut s = Story::new(100, 100, 1, 1..=3);
    s.holds(1, 60);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.launch(2, NOTHING), [Start(2)]);
    assert_eq!(s.at(60).launch(1, arguments(60)), []);
    assert_eq!(s.upload(3, 50), [PageOut(1, 10 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 60, 60), [Start(3)]);
    // There is a place in the lane, but 60 do not fit beside 50.
    assert_eq!(s.ran(2), []);
    assert_eq!(s.released(3, 50, 0), [Start(1)]);
    assert_eq!(s.used(), (60, 0, 0));
}

#[test]
fn its_own_other_arrays_leave_as_a_last_resort() {
    let mut s = Story::new(100, 100, 1, 1..=1);
    s.holds(1, 50);
    s.holds(1, 40);
    let needs = Needs {
        arguments: 50,
        new: 20,
        scratch: 10,
        ..NOTHING
    };
    assert_eq!(s.at(1).launch(1, needs), [PageOut(1, 20 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 40, 0), [Start(1)]);
    assert_eq!(s.used(), (70, 10, 40));
}

#[test]
fn its_own_arrays_stay_as_long_as_another_will_leave() {
    let mut s = Story::new(100, 100, 1, 1..=2);
    s.holds(1, 80);
    s.holds(2, 10);
    assert_eq!(s.upload(1, 20), []);
    assert_eq!(s.engine.wake_at(), Some(ms(STAY)));
    let leave = [PageOut(2, 10 * MIB)];
    assert_eq!(s.at(STAY).woke(), leave);
    assert_eq!(s.paged_out(2, 10, 0), [Start(1)]);
}

// Refusals.

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
    let why = Refusal::TooLarge {
        needs_bytes: 101 * MIB,
        room_bytes: 100 * MIB,
    };
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
    s.open(1, Some(50 * MIB));
    s.holds(1, 40);
    let why = Refusal::BeyondLimit {
        needs_bytes: 51 * MIB,
        memory_max: 50 * MIB,
    };
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
    let session = SessionId(1);
    let memory_max = Some(30 * MIB);
    let told = s.on(Event::Limited {
        session,
        memory_max,
    });
    assert_eq!(told, []);
    let why = Refusal::BeyondLimit {
        needs_bytes: 41 * MIB,
        memory_max: 30 * MIB,
    };
    assert_eq!(s.upload(1, 1), [Refuse(1, why)]);
    // What it holds already stays, and it may work with it.
    assert_eq!(s.launch(1, arguments(40)), [Start(1)]);
    let memory_max = None;
    let told = s.on(Event::Limited {
        session,
        memory_max,
    });
    assert_eq!(told, []);
    assert_eq!(s.upload(1, 1), [Start(1)]);
}

#[test]
fn pages_count_towards_the_limit() {
    let mut s = Story::new(100, 100, 1, 2..=2);
    s.open(1, Some(60 * MIB));
    s.holds(1, 60);
    assert_eq!(s.at(100).upload(2, 80), [PageOut(1, 40 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 60, 0), [Start(2)]);
    let why = Refusal::BeyondLimit {
        needs_bytes: 61 * MIB,
        memory_max: 60 * MIB,
    };
    assert_eq!(s.upload(1, 1), [Refuse(1, why)]);
    assert_eq!(s.released(1, 0, 1), []);
    assert_eq!(s.upload(1, 1), [Start(1)]);
    assert_eq!(s.held(1), (1, 59));
}

#[test]
fn a_refusal_disturbs_nobody() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    let why = Refusal::TooLarge {
        needs_bytes: 101 * MIB,
        room_bytes: 100 * MIB,
    };
    let before = (s.used(), s.why(1), s.why(3), s.account(4));
    assert_eq!(s.upload(4, 101), [Refuse(4, why)]);
    assert_eq!((s.used(), s.why(1), s.why(3), s.account(4)), before);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
}

#[test]
fn what_nobody_can_make_room_for_is_refused() {
    let mut s = Story::new(100, 0, 1, 1..=1);
    s.holds(1, 60);
    let why = Refusal::NoRoom {
        needs_bytes: 50 * MIB,
        free_bytes: 40 * MIB,
        host_free_bytes: 0,
    };
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
    let why = Refusal::NoRoom {
        needs_bytes: 20 * MIB,
        free_bytes: 10 * MIB,
        host_free_bytes: 0,
    };
    assert_eq!(s.ran(2), [Refuse(1, why)]);
    assert_eq!(s.closed(1), [Start(2)]);
}

#[test]
fn who_waits_for_another_to_end_cannot_make_room_for_it() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    s.holds(1, 40);
    s.holds(2, 40);
    let policy = Policy::Exclusive;
    assert_eq!(s.on(Event::Ordered { policy }), []);
    // 2 may be served when 1 has ended, and holds what 1 lacks.
    assert_eq!(s.launch(2, NOTHING), []);
    let why = Refusal::NoRoom {
        needs_bytes: 30 * MIB,
        free_bytes: 20 * MIB,
        host_free_bytes: 0,
    };
    assert_eq!(s.upload(1, 30), [Refuse(1, why)]);
    assert_eq!(s.closed(1), [Start(2)]);
}

#[test]
fn who_is_paused_may_make_room_when_it_goes_on() {
    let mut s = Story::new(100, 0, 1, 1..=2);
    s.holds(1, 40);
    s.holds(2, 40);
    let session = SessionId(2);
    assert_eq!(s.on(Event::Paused { session }), []);
    assert_eq!(s.launch(2, NOTHING), []);
    assert_eq!(s.upload(1, 30), []);
    assert_eq!(s.on(Event::Resumed { session }), [Start(2)]);
    assert_eq!(s.released(2, 10, 0), [Start(1)]);
}

#[test]
fn what_cannot_be_moved_is_not_asked_for_again_until_something_changes() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.closed(2), []);
    assert_eq!(s.upload(3, 70), [PageOut(1, 10 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 0, 0), []);
    assert_eq!(s.at(300).woke(), []);
    assert_eq!(s.launch(1, arguments(40)), [Start(1)]);
    assert_eq!(s.ran(1), [PageOut(1, 10 * MIB + MARGIN)]);
}

#[test]
fn what_came_in_since_then_may_leave() {
    let mut s = Story::new(100, 100, 1, 1..=2);
    s.holds(1, 10);
    assert_eq!(s.at(200).upload(2, 95), [PageOut(1, 5 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 0, 0), []);
    assert_eq!(s.withdrew(2), []);
    assert_eq!(s.upload(1, 60), [Start(1)]);
    assert_eq!(s.at(300).upload(2, 60), [PageOut(1, 30 * MIB + MARGIN)]);
}

#[test]
fn what_found_no_room_on_the_host_leaves_when_there_is_some() {
    let mut s = Story::new(100, 40, 1, 1..=3);
    s.holds(1, 20);
    s.at(1).holds(2, 60);
    assert_eq!(s.at(200).upload(3, 30), [PageOut(1, 10 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 20, 0), [Start(3)]);
    let needs = Needs {
        new: 30,
        ..arguments(30)
    };
    assert_eq!(s.at(220).launch(3, needs), [PageOut(2, 20 * MIB)]);
    // Its arrays are larger than that.
    assert_eq!(s.paged_out(2, 0, 0), []);
    assert_eq!(s.closed(1), [PageOut(2, 20 * MIB + MARGIN)]);
}

/// 1 asks for more than is free, and 2, the only other, holds 50 that cannot be moved; 20 are free.
fn one_waits_for_what_cannot_leave() -> Story {
    let mut s = Story::new(100, 100, 1, 1..=3);
    s.holds(1, 30);
    s.holds(2, 50);
    let needs = Needs {
        new: 40,
        ..arguments(30)
    };
    let told = s.at(200).launch(1, needs);
    assert_eq!(told, [PageOut(2, 20 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(2, 0, 0), []);
    s
}

#[test]
fn whoever_is_refused_gives_way_to_the_next() {
    let mut s = one_waits_for_what_cannot_leave();
    assert_eq!(s.closed(3), []);
    let needs = Needs {
        new: 30,
        ..arguments(50)
    };
    let why = Refusal::NoRoom {
        needs_bytes: 40 * MIB,
        free_bytes: 20 * MIB,
        host_free_bytes: 100 * MIB,
    };
    let next = [Refuse(1, why), PageOut(1, 10 * MIB + MARGIN)];
    assert_eq!(s.launch(2, needs), next);
}

#[test]
fn a_newcomer_that_fits_starts_where_nobody_can_leave() {
    let mut s = one_waits_for_what_cannot_leave();
    assert_eq!(s.upload(3, 10), [Start(3)]);
}

#[test]
fn one_that_was_paged_out_comes_back_where_nobody_can_leave() {
    let mut s = Story::new(100, 100, 1, 1..=4);
    s.holds(3, 10);
    s.at(60).holds(1, 30);
    s.holds(2, 50);
    let needs = Needs {
        new: 40,
        ..arguments(30)
    };
    // 3 leaves for the sake of 1, but 2 cannot.
    let both = [PageOut(3, 10 * MIB), PageOut(2, 20 * MIB + MARGIN)];
    assert_eq!(s.at(200).launch(1, needs), both);
    assert_eq!(s.paged_out(3, 10, 0), []);
    assert_eq!(s.paged_out(2, 0, 0), []);
    assert_eq!(s.launch(3, absent(10)), [Start(3)]);
}

// Going away in the middle.

#[test]
fn a_request_that_is_withdrawn_gives_way_to_the_next() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.upload(4, 20), []);
    assert_eq!(s.withdrew(3), [Start(4)]);
    assert_eq!(s.paged_out(1, 40, 0), []);
    assert_eq!(s.used(), (60, 0, 40));
    assert_eq!(s.closed(3), []);
}

#[test]
fn the_oldest_request_may_close_while_others_leave_for_it() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.upload(4, 20), []);
    assert_eq!(s.closed(3), [Start(4)]);
    assert_eq!(s.paged_out(1, 40, 0), []);
    assert_eq!(s.engine.why(SessionId(3)), None);
}

#[test]
fn a_session_that_closes_while_it_leaves_gives_everything_back() {
    let mut s = two_hold_forty(1..=4);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.launch(1, arguments(40)), []);
    assert_eq!(s.closed(1), [Start(3)]);
    assert_eq!(s.used(), (90, 0, 0));
    // Nothing is on its way any more: the next must ask for all that it lacks.
    assert_eq!(s.upload(4, 40), [PageOut(2, 30 * MIB + MARGIN)]);
}

#[test]
fn a_session_may_withdraw_while_it_leaves() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.launch(1, arguments(40)), []);
    assert_eq!(s.withdrew(1), []);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
    assert_eq!(s.launch(1, absent(40)), [PageOut(2, 30 * MIB + MARGIN)]);
}

#[test]
fn pages_of_one_that_closes_make_room_on_the_host() {
    let mut s = Story::new(100, 40, 1, 1..=3);
    s.holds(1, 40);
    s.holds(2, 40);
    assert_eq!(s.at(100).upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
    // The host is full: 2 cannot leave.
    assert_eq!(s.at(200).upload(3, 20), []);
    assert_eq!(s.engine.wake_at(), Some(ms(200 + PATIENCE)));
    assert_eq!(s.closed(1), [PageOut(2, 10 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(2, 40, 0), [Start(3)]);
}

#[test]
fn pages_that_are_dropped_make_room_on_the_host() {
    let mut s = Story::new(100, 40, 1, 1..=3);
    s.holds(1, 40);
    s.holds(2, 40);
    assert_eq!(s.at(100).upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    assert_eq!(s.paged_out(1, 40, 0), [Start(3)]);
    assert_eq!(s.at(200).upload(3, 20), []);
    assert_eq!(s.released(1, 0, 40), [PageOut(2, 10 * MIB + MARGIN)]);
    assert_eq!(s.used(), (90, 0, 0));
    assert_eq!(s.engine.ledger().host_free_bytes(), 40 * MIB);
}

#[test]
fn arrays_may_be_given_back_after_their_session_closed() {
    let mut s = Story::new(100, 0, 1, 1..=1);
    s.holds(1, 40);
    assert_eq!(s.closed(1), []);
    assert_eq!(s.released(1, 40, 0), []);
    assert_eq!(s.used(), (0, 0, 0));
}

// Why.

#[test]
fn a_session_that_asked_for_nothing_is_at_work() {
    let mut s = Story::new(100, 0, 1, 1..=1);
    assert_eq!(s.why(1), Why::AtWork);
    assert_eq!(s.launch(1, NOTHING), [Start(1)]);
    assert_eq!(s.why(1), Why::Running);
    assert_eq!(s.ran(1), []);
    assert_eq!(s.why(1), Why::AtWork);
    assert_eq!(s.engine.why(SessionId(2)), None);
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
    let waits = |mib, first| Why::Memory {
        needs_bytes: mib * MIB,
        free_bytes: 20 * MIB,
        first,
    };
    assert_eq!(s.why(3), waits(50, None));
    assert_eq!(s.why(4), waits(20, Some(SessionId(3))));
}

#[test]
fn a_session_leaves_for_another_or_for_a_better_lane() {
    let mut s = two_hold_forty(1..=3);
    assert_eq!(s.upload(3, 50), [PageOut(1, 30 * MIB + MARGIN)]);
    let claimant = Some(SessionId(3));
    assert_eq!(s.why(1), Why::Leaving { claimant });
    assert_eq!(s.withdrew(3), []);
    assert_eq!(s.why(1), Why::Leaving { claimant: None });
}

#[test]
fn equal_events_at_equal_times_give_equal_decisions() {
    let tell = || {
        let mut s = two_hold_forty(1..=4);
        let mut told = s.upload(3, 50);
        told.extend(s.upload(4, 20));
        told.extend(s.paged_out(1, 40, 0));
        (told, s.engine.wake_at(), format!("{:?}", s.engine))
    };
    assert_eq!(tell(), tell());
}

#[test]
fn a_users_sessions_share_one_limit() {
    let room = Room {
        device_bytes: 100 * MIB,
        host_bytes: 100 * MIB,
        user_max: Some(50 * MIB),
    };
    let mut story = Story {
        engine: Engine::new(Policy::Deadline, room, 1, 1),
        now: Time(0),
    };
    for (session, user) in [(1, 7), (2, 7), (3, 8)] {
        let told = story.on(Event::Opened {
            session: SessionId(session),
            user: salus_engine::User(user),
            memory_max: None,
            wishes: by_age(),
        });
        assert_eq!(told, []);
    }
    story.holds(1, 30);
    let why = Refusal::BeyondUserLimit {
        needs_bytes: 55 * MIB,
        user_max: 50 * MIB,
    };
    assert_eq!(story.upload(2, 25), [Refuse(2, why)]);
    story.holds(3, 45);
    story.holds(2, 20);
    let gone = Event::Released {
        session: SessionId(1),
        resident_bytes: 30 * MIB,
        paged_bytes: 0,
    };
    assert_eq!(story.on(gone), []);
    story.holds(2, 30);
}

#[test]
fn a_turn_that_was_not_used_is_given_back_and_tells_nothing() {
    let mut story = Story::new(100, 0, 1, 1..=2);
    let needs = |scratch| Needs {
        scratch,
        ..Needs::default()
    };
    assert_eq!(story.launch(1, needs(20)), [Start(1)]);
    assert_eq!(story.launch(1, needs(60)), [Start(1)]);
    assert_eq!(story.launch(2, needs(10)), []);
    assert_eq!(story.engine.ledger().scratch_bytes(), 60 * MIB);
    // The second could not be started; the first still runs.
    let session = SessionId(1);
    assert_eq!(
        story.at(5).on(Event::DidNotRun {
            session,
            calling: None
        }),
        [Start(2)]
    );
    assert_eq!(story.engine.ledger().scratch_bytes(), 20 * MIB);
    story.at(10).ran(1);
    let account = story.engine.account(session).expect("open");
    assert_eq!((account.iterations, account.running), (1, 0));
    assert_eq!(account.device_time, Duration(10_000_000));
}

#[test]
fn a_turn_that_was_not_used_is_not_charged() {
    let mut story = Story::new(100, 0, 1, 1..=2);
    story.on(Event::Ordered {
        policy: Policy::Fair,
    });
    let session = SessionId(1);
    // Each has had an iteration of 10 ms, so that the next is expected to take as long.
    assert_eq!(story.launch(1, Needs::default()), [Start(1)]);
    assert_eq!(story.at(10).ran(1), []);
    assert_eq!(story.launch(2, Needs::default()), [Start(2)]);
    assert_eq!(story.at(20).ran(2), []);
    for _ in 0..5 {
        assert_eq!(story.launch(1, Needs::default()), [Start(1)]);
        assert_eq!(
            story.on(Event::DidNotRun {
                session,
                calling: None
            }),
            []
        );
    }
    assert_eq!(story.launch(2, Needs::default()), [Start(2)]);
    assert_eq!(story.launch(2, Needs::default()), [Start(2)]);
    assert_eq!(story.launch(2, Needs::default()), []);
    assert_eq!(story.launch(1, Needs::default()), []);
    assert_eq!(story.at(30).ran(2), [Start(1)]);
}

#[test]
fn a_tight_target_that_is_gone_keeps_nothing_from_being_handed_over() {
    // The target of 1 is as tight as can be.
    let mut story = Story::new(100, 0, 1, 1..=1);
    for n in [2, 3] {
        story.on(Event::Opened {
            session: SessionId(n),
            user: salus_engine::User(0),
            memory_max: None,
            wishes: Wishes {
                latency: Some(Duration(SECOND)),
                ..Wishes::default()
            },
        });
    }
    assert_eq!(story.launch(2, Needs::default()), [Start(2)]);
    assert_eq!(story.launch(3, Needs::default()), []);
    let session = SessionId(1);
    assert_eq!(story.on(Event::Closed { session }), [Start(3)]);
}

#[test]
fn what_runs_long_runs_since_it_began_whatever_ends_beside_it() {
    let mut story = Story::new(100, 0, 1, 1..=2);
    let policy = Policy::Fair;
    assert_eq!(story.on(Event::Ordered { policy }), []);
    assert_eq!(story.launch(1, scratch(1)), [Start(1)]);
    // A device that runs small programs at once ends what was handed over second before the first.
    for n in 1..100 {
        assert_eq!(story.at(n * 10).launch(2, scratch(1)), [Start(2)]);
        assert_eq!(story.at(n * 10 + 1).ran(2), []);
    }
    let running: Vec<_> = story.engine.running().map(|(s, _, at)| (s.0, at)).collect();
    assert_eq!(running, [(1, ms(0))]);
    // Where it is handed over early, it runs since the first has ended.
    assert_eq!(story.at(1000).launch(2, scratch(1)), [Start(2)]);
    assert_eq!(story.at(1500).ran(1), []);
    let running: Vec<_> = story.engine.running().map(|(s, _, at)| (s.0, at)).collect();
    assert_eq!(running, [(2, ms(1500))]);
}
