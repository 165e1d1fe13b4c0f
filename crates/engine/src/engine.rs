//! The engine: sessions ask, lanes and memory are given out, arrays are sent away for others.
//!
//! Sessions are served in the order of the policy (`policies/`). The first that does not fit is the
//! *claimant*. If it fits as soon as what runs has ended, it waits for that, and nothing later in
//! order starts that would be in its way. Else others are paged out for it, and as soon as that is
//! under way nobody later may take the room. Until then, later ones that fit may go ahead.
//!
//! Promise: after every event arrays and lanes fit the device (asserted in the ledger). A request
//! waits for bounded time as long as what all sessions hold fits device and host: whoever has waited
//! long enough is served by age, everybody's stay ends, and what leaves for the claimant is kept for
//! it.
//! Cost: an event is O(log n) in the sessions and O(lanes).
//! Not here: preempting what runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::accounts::Account;
use crate::lanes::{LaneState, Waiting};
use crate::ledger::{Ledger, Room};
use crate::pairing::Pairing;
use crate::policies::{Policy, Rank};
use crate::progress::{Estimates, Progress};
use crate::residency::{Place, Residency};
use crate::shares::Share;
use crate::table::Table;
use crate::time::{Duration, Time};
use crate::{Calling, Decision, Demand, Event, Lane, Program, Refusal, SessionId, Wishes};

#[derive(Debug)]
pub struct Engine {
    pub(crate) policy: Policy,
    pub(crate) ledger: Ledger,
    pub(crate) sessions: Table<Session>,
    pub(crate) lanes: Vec<LaneState>,
    /// How many of the lanes sessions are sent to.
    pub(crate) width: usize,
    /// Requests that need no lane, in order.
    pub(crate) arrays: BTreeMap<Order, Waiting>,
    /// Queued requests that have not waited for long, by age, each with when it was ready.
    pub(crate) ages: BTreeMap<u64, (SessionId, Time)>,
    /// How many sessions that may run there are of each of the policy's classes.
    pub(crate) classes: BTreeMap<u8, u32>,
    /// The same by what they want an iteration to take at most.
    pub(crate) latencies: BTreeMap<Duration, u32>,
    /// When the last event was.
    pub(crate) now: Time,
    /// Under a policy that serves one session only: that one.
    pub(crate) owner: Option<SessionId>,
    pub(crate) estimates: Estimates,
    pub(crate) pairing: Pairing,
    pub(crate) residency: Residency,
    /// Of those that are fixed, those for whose arrays the host had too little room.
    pub(crate) cramped: BTreeSet<SessionId>,
    /// Bytes that sessions were asked to page out and have not yet.
    pub(crate) leaving_bytes: u64,
    pub(crate) claim: Option<SessionId>,
    /// How many iterations had been started when it became the claimant.
    pub(crate) claimed_at: u64,
    pub(crate) starts: u64,
    pub(crate) wake_at: Option<Time>,
    last_request: u64,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) account: Account,
    pub(crate) wishes: Wishes,
    pub(crate) share: Share,
    pub(crate) progress: Progress,
    pub(crate) lane: Lane,
    pub(crate) request: Option<Request>,
    /// Whether the request stands in a queue: not while it is held, or its arrays leave.
    pub(crate) queued: bool,
    /// Asked to page out so many bytes, and when.
    pub(crate) leaving: Option<(u64, Time)>,
    /// Asked, and nothing could leave: not asked again before something changes.
    pub(crate) fixed: bool,
    pub(crate) stays_until: Time,
    /// Not asked to change lanes before.
    pub(crate) lane_until: Time,
    pub(crate) quiet_since: Time,
    /// Under which it stands in `residency`.
    pub(crate) place: Option<Place>,
    pub(crate) paused: bool,
    pub(crate) compiling: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) order: Order,
    pub(crate) demand: Demand,
    pub(crate) ready_at: Time,
    /// It has waited so long that its age alone counts.
    pub(crate) aged: bool,
}

/// Who is served before whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    pub(crate) rank: Rank,
    /// Grows with each request: its age.
    pub(crate) number: u64,
}

impl Engine {
    /// `width` of the device's `lanes` are used, unless the policy uses all.
    pub fn new(policy: Policy, room: Room, lanes: u32, width: u32) -> Self {
        let lanes = lanes.max(1);
        Self {
            policy,
            ledger: Ledger::new(room),
            sessions: Table::default(),
            lanes: (0..lanes).map(|_| LaneState::default()).collect(),
            width: width.clamp(1, lanes) as usize,
            arrays: BTreeMap::new(),
            ages: BTreeMap::new(),
            classes: BTreeMap::new(),
            latencies: BTreeMap::new(),
            now: Time(0),
            owner: None,
            estimates: Estimates::default(),
            pairing: Pairing::default(),
            residency: Residency::default(),
            cramped: BTreeSet::new(),
            leaving_bytes: 0,
            claim: None,
            claimed_at: 0,
            starts: 0,
            wake_at: None,
            last_request: 0,
        }
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn estimates(&self) -> &Estimates {
        &self.estimates
    }

    pub fn account(&self, session: SessionId) -> Option<&Account> {
        self.sessions.get(session).map(|s| &s.account)
    }

    pub fn wishes(&self, session: SessionId) -> Option<&Wishes> {
        self.sessions.get(session).map(|s| &s.wishes)
    }

    /// Where the session's arrays live.
    pub fn lane(&self, session: SessionId) -> Option<Lane> {
        self.sessions.get(session).map(|s| s.lane)
    }

    /// Since when a request of the session waits.
    pub fn waits_since(&self, session: SessionId) -> Option<Time> {
        let request = self.sessions.get(session)?.request.as_ref()?;
        Some(request.ready_at)
    }

    pub fn is_paused(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some_and(|s| s.paused)
    }

    /// Device time that the session will still need, if anybody knows.
    pub fn remaining(&self, session: SessionId) -> Option<Duration> {
        let session = self.sessions.get(session)?;
        let attained = session.account.device_time;
        session.progress.remaining(session.wishes.work, attained)
    }

    /// The program that has taken most of the session's time.
    pub fn main_program(&self, session: SessionId) -> Option<Program> {
        self.sessions.get(session)?.progress.main()
    }

    /// Each lane that is used, its size, and the iterations in it.
    pub fn lanes(&self) -> impl Iterator<Item = (Lane, u64, usize)> {
        let used =
            |(index, lane): &(usize, &LaneState)| *index < self.open_lanes() || lane.members > 0;
        let lanes = self.lanes.iter().enumerate().filter(used);
        lanes.map(|(index, l)| (Lane(index as u32), l.size_bytes(), l.in_flight()))
    }

    /// When to send [`Event::Woke`], if nothing else happens before.
    /// Iterations that the device runs now, and since when.
    pub fn running(&self) -> impl Iterator<Item = (SessionId, Program, Time)> {
        let all = self.lanes.iter().flat_map(LaneState::running);
        all.map(|(iteration, since)| (iteration.session, iteration.program, since))
    }

    pub fn wake_at(&self) -> Option<Time> {
        self.wake_at
    }

    /// Takes one event; the decisions are to be carried out in order.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Decision> {
        let mut decisions = Vec::new();
        self.now = now;
        match event {
            Event::Opened {
                session,
                user,
                memory_max,
                wishes,
            } => {
                self.ledger.open(session, user, memory_max);
                self.open(now, session, wishes);
            }
            Event::Ready { session, demand } => self.ready(now, session, demand, &mut decisions),
            Event::Ran { session, calling } => self.ran(now, session, calling),
            Event::DidNotRun { session, calling } => self.did_not_run(now, session, calling),
            Event::CallbackBegan { session, calling } => {
                self.call_back(now, session, calling, LaneState::leave);
            }
            Event::CallbackEnded { session, calling } => {
                self.call_back(now, session, calling, LaneState::come_back);
            }
            Event::Withdrew { session } => self.withdraw(now, session),
            Event::Released {
                session,
                resident_bytes,
                paged_bytes,
            } => {
                // The last arrays of a session may go after it was closed, which gave them back.
                if self.sessions.get(session).is_some() {
                    self.ledger.release(session, resident_bytes, paged_bytes);
                    self.session_mut(session).fixed = false;
                    self.replace(session);
                    if paged_bytes > 0 {
                        self.host_has_more();
                    }
                }
            }
            Event::PagedOut {
                session,
                bytes,
                absent_bytes,
            } => self.paged_out(now, session, bytes, absent_bytes),
            Event::Limited {
                session,
                memory_max,
            } => self.ledger.set_memory_max(session, memory_max),
            Event::Wished { session, wishes } => self.wish(now, session, wishes),
            Event::Paused { session } => self.pause(now, session, true),
            Event::Resumed { session } => self.pause(now, session, false),
            Event::Compiling { session } => self.compiling(now, session, 1),
            Event::Compiled { session } => self.compiling(now, session, -1),
            Event::Recalled { session, total } => {
                self.session_mut(session).progress.recalled = Some(total);
                self.requeue(now, session);
            }
            Event::Ordered { policy } => self.order(now, policy),
            Event::Closed { session } => self.close(now, session),
            Event::Woke => {}
        }
        self.schedule(now, &mut decisions);
        decisions
    }

    fn open(&mut self, now: Time, id: SessionId, wishes: Wishes) {
        let lane = self.emptiest_lane();
        self.lanes[lane.0 as usize].members += 1;
        let mut session = Session {
            account: Account::new(now),
            wishes,
            share: Share::default(),
            progress: Progress::default(),
            lane,
            request: None,
            queued: false,
            leaving: None,
            fixed: false,
            stays_until: Time(0),
            lane_until: Time(0),
            quiet_since: now,
            place: None,
            paused: false,
            compiling: 0,
        };
        session.share.moved(0, self.clock(&session));
        self.sessions.insert(id, session);
        self.count(id, true);
        self.choose_owner(now);
    }

    fn close(&mut self, now: Time, id: SessionId) {
        self.withdraw(now, id);
        self.count(id, false);
        let Some(session) = self.sessions.remove(id) else {
            panic!("{id} is not open")
        };
        assert_eq!(session.account.running, 0, "{id} closed while it ran");
        if let Some((bytes, _)) = session.leaving {
            self.leaving_bytes -= bytes;
        }
        if let Some(place) = session.place {
            self.residency.remove(id, place);
        }
        self.lanes[session.lane.0 as usize].members -= 1;
        self.ledger.close(id);
        self.cramped.remove(&id);
        self.host_has_more();
        self.choose_owner(now);
    }

    fn ready(&mut self, now: Time, id: SessionId, demand: Demand, out: &mut Vec<Decision>) {
        if let Some(why) = self.refusal(id, &demand) {
            out.push(Decision::Refuse { session: id, why });
            return;
        }
        let session = self.session(id);
        let resident = self.ledger.holding(id).map_or(0, |h| h.resident_bytes);
        // Without arrays on the device it may go to any lane.
        if session.account.running == 0 && resident == 0 {
            self.move_to(id, self.emptiest_lane());
        }
        // While it waits for a callback of its own it asks for nothing, as between two iterations.
        if !self.works_for(id) {
            self.rejoin(now, id);
        }
        let number = self.next_request();
        let session = self.session_mut(id);
        assert!(session.request.is_none(), "{id} was ready already");
        session.request = Some(Request {
            order: Order {
                rank: Rank::FIRST,
                number,
            },
            demand,
            ready_at: now,
            aged: false,
        });
        self.enqueue(now, id);
        self.replace(id);
    }

    /// Why the demand cannot be met, now or ever.
    fn refusal(&self, id: SessionId, demand: &Demand) -> Option<Refusal> {
        let room_bytes = self.ledger.room().device_bytes;
        let holding = *self.ledger.holding(id).expect("open sessions hold");
        assert!(
            demand.absent_bytes <= holding.paged_bytes,
            "{id} misses more than it has paged out"
        );
        let beyond = |held: u64, max: Option<u64>| {
            let would_hold = held.saturating_add(demand.new_bytes);
            max.filter(|&max| demand.new_bytes > 0 && would_hold > max)
                .map(|max| (would_hold, max))
        };
        if demand.total() > room_bytes {
            return Some(Refusal::TooLarge {
                needs_bytes: demand.total(),
                room_bytes,
            });
        }
        if let Some((needs_bytes, memory_max)) = beyond(holding.total(), holding.memory_max) {
            return Some(Refusal::BeyondLimit {
                needs_bytes,
                memory_max,
            });
        }
        let user_bytes = self.ledger.user_bytes(holding.user);
        beyond(user_bytes, self.ledger.room().user_max).map(|(needs_bytes, user_max)| {
            Refusal::BeyondUserLimit {
                needs_bytes,
                user_max,
            }
        })
    }

    /// The number of a request that is made now.
    pub(crate) fn next_request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    fn ran(&mut self, now: Time, id: SessionId, calling: Option<Calling>) {
        // A session's iterations are all in the lane of its arrays.
        let lane = self.session(id).lane;
        let ended = self.lanes[lane.0 as usize].end(id, calling, now);
        let ended = ended.unwrap_or_else(|| panic!("{id} was not started"));
        let (before, after) = ended.resized;
        self.ledger.resize_lane(before, after);
        let took = ended.took;
        self.estimates.ran(ended.program, took);
        self.learn_pairs(now, lane, ended.program, took);
        let session = self.session_mut(id);
        session.account.running -= 1;
        session.account.iterations += 1;
        session.account.switches += u64::from(ended.switched);
        session.account.device_time = session.account.device_time + took;
        session.progress.ran(ended.program, took);
        let weight = session.wishes.weight;
        session.share.ran(ended.expected, took, weight);
        self.ended(now, id);
    }

    /// An iteration that calls back leaves its lane for the job's answer, or comes back to it. Its
    /// arrays stay, and whatever else it holds.
    fn call_back(
        &mut self,
        now: Time,
        id: SessionId,
        calling: Calling,
        moves: fn(&mut LaneState, SessionId, Calling, Time) -> Option<()>,
    ) {
        let lane = self.session(id).lane.0 as usize;
        let moved = moves(&mut self.lanes[lane], id, calling, now);
        assert!(moved.is_some(), "{id} has no such iteration: {calling:?}");
        self.session_mut(id).quiet_since = now;
        self.restate(now, id);
        if let Some(next) = self.lanes[lane].head() {
            self.restate(now, next);
        }
    }

    /// The turn was not used, and tells nothing of the program.
    fn did_not_run(&mut self, now: Time, id: SessionId, calling: Option<Calling>) {
        let lane = self.session(id).lane;
        let given_back = self.lanes[lane.0 as usize].give_back(id, calling);
        let (expected, (before, after)) =
            given_back.unwrap_or_else(|| panic!("{id} was not started"));
        self.ledger.resize_lane(before, after);
        let session = self.session_mut(id);
        session.account.running -= 1;
        let weight = session.wishes.weight;
        session.share.ran(expected, Duration(0), weight);
        self.ended(now, id);
    }

    /// One iteration less of the session is in flight.
    fn ended(&mut self, now: Time, id: SessionId) {
        let session = self.session_mut(id);
        session.fixed = false;
        session.quiet_since = now;
        let lane = session.lane;
        self.requeue(now, id);
        self.replace(id);
        if let Some(next) = self.lanes[lane.0 as usize].head() {
            self.restate(now, next);
        }
    }

    fn paged_out(&mut self, now: Time, id: SessionId, bytes: u64, absent_bytes: u64) {
        self.ledger.page_out(id, bytes);
        let (asked, since) = {
            let session = self.session_mut(id);
            session.fixed = bytes == 0;
            let leaving = session.leaving.take();
            leaving.unwrap_or_else(|| panic!("{id} was not asked to page out"))
        };
        self.leaving_bytes -= asked;
        match bytes {
            // It cannot change lanes, so it is not asked again soon.
            0 => self.session_mut(id).lane_until = self.residency.stay(now),
            _ => self.residency.moved(now - since),
        }
        // What it waits for may now be absent.
        if let Some(request) = &mut self.session_mut(id).request {
            request.demand.absent_bytes = absent_bytes;
        }
        let resident = self.ledger.holding(id).map_or(0, |h| h.resident_bytes);
        if bytes == 0 && self.ledger.host_free_bytes() < resident {
            self.cramped.insert(id);
        }
        if resident == 0 && self.session(id).account.running == 0 {
            self.move_to(id, self.emptiest_lane());
        }
        self.enqueue(now, id);
        self.replace(id);
    }

    pub(crate) fn withdraw(&mut self, now: Time, id: SessionId) {
        self.forget(id);
        self.replace(id);
        self.restate(now, id);
    }

    /// Nothing is to be done any more for the session's request.
    pub(crate) fn forget(&mut self, id: SessionId) {
        self.dequeue(id);
        self.session_mut(id).request = None;
        if self.claim == Some(id) {
            self.claim = None;
        }
    }

    fn compiling(&mut self, now: Time, id: SessionId, more: i32) {
        let session = self.session_mut(id);
        session.compiling = session.compiling.saturating_add_signed(more);
        self.restate(now, id);
    }

    /// Whether an iteration of the session runs or is about to: not if all wait for their job.
    pub(crate) fn works_for(&self, id: SessionId) -> bool {
        let session = self.session(id);
        let lane = &self.lanes[session.lane.0 as usize];
        session.account.running > 0 && lane.holds(id)
    }

    pub(crate) fn session(&self, id: SessionId) -> &Session {
        self.sessions
            .get(id)
            .unwrap_or_else(|| panic!("{id} is not open"))
    }

    pub(crate) fn session_mut(&mut self, id: SessionId) -> &mut Session {
        self.sessions
            .get_mut(id)
            .unwrap_or_else(|| panic!("{id} is not open"))
    }
}

impl Session {
    pub(crate) fn may_leave(&self) -> bool {
        self.account.running == 0 && self.leaving.is_none() && !self.fixed
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// What its request takes beyond what is there.
    pub(crate) fn need(&self, lanes: &[LaneState]) -> u64 {
        let Some(request) = &self.request else {
            return 0;
        };
        let demand = &request.demand;
        let lane = &lanes[self.lane.0 as usize];
        demand.new_bytes + demand.absent_bytes + lane.growth(demand.scratch_bytes())
    }
}
