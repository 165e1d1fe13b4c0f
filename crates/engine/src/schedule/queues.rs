//! The queues: in which one a request waits, at which place, and what else the order depends on.
//!
//! Each lane has two queues of launches, and requests that need no lane have one of their own.
//! Requests of a lane are compared with each other; those of different lanes only where they want
//! the same memory or should not run side by side.
//!
//! Promise: an aged request is before all that are not.
//! Cost: O(log n) in the sessions and O(lanes).
//! Not here: what comes before what (`policies/`), virtual time (`virtual_time.rs`), which sessions
//! are where (`settle.rs` keeps that up to date).

use std::collections::BTreeMap;

use salus_wire::JobSettings;

use super::aging::Ages;
use super::lanes::{DEPTH, LaneState, Waiting};
use super::virtual_time::OWED_TO_A_LANE;
use crate::event::{Demand, Kind, Lane, SessionId};
use crate::policies::{Arrangement, CLASSES, Policy, Rank};
use crate::session::Request;
use crate::time::{Duration, Time};

#[derive(Debug)]
pub(crate) struct Queues {
    policy: Policy,
    /// The policy's; it is read many times for each decision.
    arrangement: Arrangement,
    lanes: Vec<LaneState>,
    /// How many lanes are open, unless the policy opens all.
    width: usize,
    /// Requests that need no lane, in order.
    arrays: BTreeMap<Order, Waiting>,
    ages: Ages,
    /// How many sessions that may run there are of each of the policy's classes.
    classes: BTreeMap<u8, u32>,
    /// How many of them have each deadline.
    deadlines: BTreeMap<Duration, u32>,
}

/// Who is served before whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    pub(crate) rank: Rank,
    /// Grows with each request: its age.
    pub(crate) number: u64,
}

/// Where a queued request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) queue: Queue,
    pub(crate) order: Order,
    /// What was added to the rank to compare it with those of other lanes.
    pub(crate) shift: u128,
    pub(crate) aged: bool,
}

impl Place {
    /// The order among requests of the same lane.
    pub(crate) fn own(&self) -> Order {
        let mut order = self.order;
        order.rank.key -= self.shift;
        order
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Requests of all lanes that need none.
    Arrays,
    /// Launches whose arguments are all on the device.
    Resident(Lane),
    /// Launches with paged-out arguments.
    Paged(Lane),
}

impl Queue {
    pub(crate) fn of(lane: Lane, demand: &Demand) -> Self {
        match demand.kind {
            Kind::Array => Self::Arrays,
            _ if demand.paged_bytes > 0 => Self::Paged(lane),
            _ => Self::Resident(lane),
        }
    }
}

/// As what a session that may run is counted: what is handed to the device early depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) class: u8,
    pub(crate) deadline: Option<Duration>,
}

impl Queues {
    pub(crate) fn new(policy: Policy, lanes: u32, width: u32) -> Self {
        let lanes = lanes.max(1);
        Self {
            policy,
            arrangement: policy.arrangement(),
            lanes: (0..lanes).map(|_| LaneState::default()).collect(),
            width: width.clamp(1, lanes) as usize,
            arrays: BTreeMap::new(),
            ages: Ages::default(),
            classes: BTreeMap::new(),
            deadlines: BTreeMap::new(),
        }
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    pub(crate) fn arrangement(&self) -> &Arrangement {
        &self.arrangement
    }

    /// Another policy's clocks begin anew: nobody is owed for what the last one gave to others.
    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.arrangement = policy.arrangement();
        for lane in &mut self.lanes {
            lane.clocks = Default::default();
            lane.shifts = Default::default();
        }
    }

    pub(crate) fn lanes(&self) -> &[LaneState] {
        &self.lanes
    }

    pub(crate) fn lane(&self, lane: Lane) -> &LaneState {
        &self.lanes[lane.index()]
    }

    pub(crate) fn lane_mut(&mut self, lane: Lane) -> &mut LaneState {
        &mut self.lanes[lane.index()]
    }

    /// Requests that need no lane, in order.
    pub(crate) fn arrays(&self) -> &BTreeMap<Order, Waiting> {
        &self.arrays
    }

    /// How many lanes are open: sessions are sent to these.
    pub(crate) fn open_lanes(&self) -> usize {
        match self.arrangement.co_runs {
            true => self.lanes.len(),
            false => self.width,
        }
    }

    /// The same, where the policy does not open all.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn emptiest_lane(&self) -> Lane {
        let lanes = self.lanes.iter().take(self.open_lanes()).enumerate();
        let emptiest = lanes.min_by_key(|(_, lane)| (lane.members, lane.in_flight()));
        Lane(emptiest.map_or(0, |(index, _)| index as u32))
    }

    pub(crate) fn join(&mut self, lane: Lane) {
        self.lane_mut(lane).members += 1;
    }

    pub(crate) fn leave(&mut self, lane: Lane) {
        self.lane_mut(lane).members -= 1;
    }

    /// Whether a session should change from one lane to another.
    pub(crate) fn should_move(&self, from: Lane, to: Lane) -> bool {
        // The lane that it is in counts it.
        let is_fuller = self.lane(from).members > self.lane(to).members + 1;
        is_fuller || from.index() >= self.open_lanes()
    }

    /// A request is queued, moves to another place, or is no longer queued.
    pub(crate) fn update_place(
        &mut self,
        session: SessionId,
        before: Option<Place>,
        after: Option<Place>,
        request: Option<&Request>,
    ) {
        if let Some(before) = before {
            let found = self.queue_mut(before.queue).remove(&before.order);
            assert!(
                found.is_some_and(|waiting| waiting.session == session),
                "{session} is not in its queue"
            );
        }
        if let Some((after, request)) = after.zip(request) {
            let waiting = Waiting::new(session, &request.demand);
            let earlier = self.queue_mut(after.queue).insert(after.order, waiting);
            assert!(earlier.is_none(), "{session} is queued where another is");
        }
        let young = |place: Option<Place>| Some(place.filter(|place| !place.aged)?.order.number);
        let (before, after) = (young(before), young(after));
        if before != after {
            if let Some(number) = before {
                self.ages.remove(number);
            }
            if let Some((number, request)) = after.zip(request) {
                let (ready_at, demand) = (request.ready_at, &request.demand);
                self.ages.insert(number, session, ready_at, demand);
            }
        }
    }

    fn queue_mut(&mut self, queue: Queue) -> &mut BTreeMap<Order, Waiting> {
        match queue {
            Queue::Arrays => &mut self.arrays,
            Queue::Resident(lane) => &mut self.lane_mut(lane).resident,
            Queue::Paged(lane) => &mut self.lane_mut(lane).paged,
        }
    }

    /// The session of the oldest request that is not aged, if it has waited for long enough.
    pub(crate) fn next_aged(&self, now: Time) -> Option<SessionId> {
        self.ages.aged(now)
    }

    /// When the next request will have waited for long enough.
    pub(crate) fn next_aging_at(&self) -> Option<Time> {
        self.ages.next()
    }

    /// A launch has aged that is expected to take this long.
    pub(crate) fn charge_aged(&mut self, now: Time, expected: Duration) {
        self.ages.charge(now, expected);
    }

    /// An aged launch took another time than was expected.
    pub(crate) fn correct_aged(&mut self, expected: Duration, took: Duration) {
        self.ages.correct(expected, took);
    }

    /// A session counts as another than before, or no longer.
    pub(crate) fn update_counted(&mut self, before: Option<Counted>, after: Option<Counted>) {
        for (counted, is_there) in [(before, false), (after, true)] {
            let Some(Counted { class, deadline }) = counted else {
                continue;
            };
            count(&mut self.classes, class, is_there);
            if let Some(deadline) = deadline {
                count(&mut self.deadlines, deadline, is_there);
            }
        }
    }

    /// How many iterations a lane may have with one of this rank: one runs and the next follows
    /// without a gap, unless what should run before that could become ready meanwhile.
    pub(crate) fn depth(&self, now: Time, rank: Rank) -> usize {
        let lowest = self.classes.first_key_value().map(|(class, _)| *class);
        let tightest = self.deadlines.first_key_value();
        // The earliest deadline of a request that is not ready yet.
        let earliest = tightest.map(|(deadline, _)| u128::from((now + *deadline).0));
        let is_deadline = self.arrangement.is_deadline(rank.class);
        let overtaken = lowest.is_some_and(|lowest| lowest < rank.class)
            || (is_deadline && earliest.is_some_and(|earliest| earliest < rank.key));
        match overtaken {
            true => 1,
            false => DEPTH,
        }
    }

    /// The virtual time of the session of the same class that was served last in the lane.
    pub(crate) fn clock(&self, lane: Lane, settings: &JobSettings) -> u128 {
        let class = self.policy.class(settings);
        self.lane(lane).clocks[usize::from(class)]
    }

    /// A session of the lane, which is at this virtual time, is served next.
    pub(crate) fn advance_clock(&mut self, lane: Lane, settings: &JobSettings, at: u128) {
        let class = usize::from(self.policy.class(settings));
        let lanes = self.lanes.iter();
        let clocks = lanes.map(|lane| lane.clocks[class] + lane.shifts[class]);
        let first = clocks.max().unwrap_or(0);
        let lane = self.lane_mut(lane);
        lane.clocks[class] = at.max(lane.clocks[class]);
        let behind = first.saturating_sub(lane.clocks[class] + lane.shifts[class]);
        lane.shifts[class] += behind.saturating_sub(OWED_TO_A_LANE);
    }

    /// No lane is behind another any more: what they got side by side is not held against them when
    /// they take turns.
    pub(crate) fn level_lanes(&mut self) {
        for class in 0..CLASSES {
            let at = |lane: &LaneState| lane.clocks[class] + lane.shifts[class];
            let first = self.lanes.iter().map(at).max().unwrap_or(0);
            for lane in &mut self.lanes {
                lane.shifts[class] = first - lane.clocks[class];
            }
        }
    }

    /// The order of a lane's request among those of all lanes. What its sessions got counts, but a
    /// lane is never far behind: others got more because they had fewer to share with.
    pub(crate) fn among_all(&self, lane: Lane, mut order: Order) -> Order {
        let class = order.rank.class;
        if self.arrangement.is_virtual_time(class) {
            order.rank.key += self.lane(lane).shifts[usize::from(class)];
        }
        order
    }
}

fn count<K: Ord + Copy>(counts: &mut BTreeMap<K, u32>, key: K, is_there: bool) {
    let count = counts.entry(key).or_default();
    match is_there {
        true => *count += 1,
        false => *count -= 1,
    }
    if *count == 0 {
        counts.remove(&key);
    }
}
