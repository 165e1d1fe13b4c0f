//! The engine: sessions make requests, and get lanes and memory, for which others may be evicted.
//!
//! Sessions are served in the order of the policy (`policies/`). The first request that does not fit
//! gets the reservation (`memory/reservation.rs`): it waits for what runs if that is enough, otherwise
//! others are evicted for it. Later requests that cannot delay it are backfilled.
//!
//! An event is handled in three steps: its handler changes records of sessions, what follows from
//! them is settled (`settle.rs`), and what can be started is selected (`schedule/select.rs`).
//!
//! Promise: after every event arrays and lanes fit the device (asserted in the ledger). A request
//! waits for bounded time as long as what all sessions hold fits device and host: aged requests go
//! first, every minimum residency ends, and what is evicted for the reservation is kept for it.
//! Cost: an event is O(log n) in the sessions and O(lanes).
//! Not here: preempting what runs.

use std::num::NonZeroU64;

use salus_wire::JobSettings;

use crate::event::{Calling, Decision, Demand, Event, Lane, Refusal, SessionId, User};
use crate::memory::{Memory, Room};
use crate::policies::{Policy, Rank};
use crate::schedule::{CoRun, Estimates, LaneState, Order, Queues};
use crate::session::{Request, Session};
use crate::session_table::SessionTable;
use crate::time::{Duration, Time};

#[derive(Debug)]
pub struct Engine {
    pub(crate) sessions: SessionTable<Session>,
    pub(crate) memory: Memory,
    pub(crate) queues: Queues,
    pub(crate) co_run: CoRun,
    pub(crate) estimates: Estimates,
    /// Copies to the device wait for what was handed to it before: it has memory of its own.
    pub(crate) own_memory: bool,
    /// Under a policy that serves one session alone: that one.
    pub(crate) owner: Option<SessionId>,
    /// The time of the event that is handled.
    pub(crate) now: Time,
    pub(crate) wake_at: Option<Time>,
    /// Sessions to be settled.
    pub(crate) touched: Vec<SessionId>,
    /// A lane in which another iteration may run now: its session's state is settled.
    pub(crate) vacated: Option<Lane>,
    /// Iterations started so far.
    pub(crate) starts: u64,
    /// Requests made so far.
    requests: u64,
}

impl Engine {
    /// `width` of the device's `lanes` are open, unless the policy opens all.
    pub fn new(policy: Policy, room: Room, lanes: u32, width: u32) -> Self {
        Self {
            sessions: SessionTable::default(),
            memory: Memory::new(room),
            queues: Queues::new(policy, lanes, width),
            co_run: CoRun::default(),
            estimates: Estimates::default(),
            own_memory: false,
            owner: None,
            now: Time(0),
            wake_at: None,
            touched: Vec::new(),
            vacated: None,
            starts: 0,
            requests: 0,
        }
    }

    /// Takes one event; the decisions are to be carried out in order.
    #[must_use = "a decision that is not carried out leaves its session waiting forever"]
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Decision> {
        let mut decisions = Vec::new();
        self.now = now;
        self.handle(event, &mut decisions);
        self.settle();
        self.schedule(&mut decisions);
        decisions
    }

    /// Changes the records of those concerned.
    fn handle(&mut self, event: Event, out: &mut Vec<Decision>) {
        match event {
            Event::Opened {
                session,
                user,
                settings,
            } => self.open(session, user, settings),
            Event::Ready { session, demand } => self.ready(session, demand, out),
            Event::Ran { session, calling } => self.ran(session, calling),
            Event::DidNotRun { session, calling } => self.did_not_run(session, calling),
            Event::CallbackBegan { session, calling } => {
                self.call_back(session, calling, LaneState::callback_began);
            }
            Event::CallbackEnded { session, calling } => {
                self.call_back(session, calling, LaneState::callback_ended);
            }
            Event::Withdrew { session } => self.withdraw(session),
            Event::Released {
                session,
                resident_bytes,
                paged_bytes,
                host_bytes,
            } => self.released(session, resident_bytes, paged_bytes, host_bytes),
            Event::PagingOut { session, bytes } => self.paging_out(session, bytes),
            Event::PagedIn { session } => self.paged_in(session),
            Event::PagedOut {
                session,
                bytes,
                paged_bytes,
            } => self.paged_out(session, bytes, paged_bytes),
            Event::SettingsChanged { session, settings } => {
                self.change_settings(session, settings);
            }
            Event::Paused { session } => self.pause(session),
            Event::Resumed { session } => self.resume(session),
            Event::CompileStarted { session } => {
                let session = self.touch(session);
                session.compiling = session.compiling.saturating_add(1);
            }
            Event::CompileEnded { session } => {
                let session = self.touch(session);
                session.compiling = session.compiling.saturating_sub(1);
            }
            Event::EstimatedFromHistory { session, total } => {
                let session = self.touch(session);
                session.estimate.set_history(total);
                session.rerank = true;
            }
            Event::PolicyChanged { policy } => self.change_policy(policy),
            Event::Closed { session } => self.close(session),
            Event::Woke => {}
        }
    }

    fn open(&mut self, id: SessionId, user: User, settings: JobSettings) {
        self.memory.open(id, user);
        let lane = self.queues.emptiest_lane();
        self.queues.join(lane);
        let mut session = Session::new(self.now, settings, lane);
        let clock = self.queues.clock(lane, &settings);
        session.virtual_time.moved(0, clock);
        self.sessions.insert(id, session);
        self.touch(id);
    }

    fn close(&mut self, id: SessionId) {
        self.withdraw(id);
        self.index(id, None, None, None);
        self.index_host_wait(id, None);
        let Some(session) = self.sessions.remove(id) else {
            panic!("{id} is not open")
        };
        assert_eq!(session.account.running, 0, "{id} closed while it ran");
        self.queues.leave(session.lane);
        self.memory.close(id, session.evicting);
        self.host_has_more();
    }

    fn ready(&mut self, id: SessionId, demand: Demand, out: &mut Vec<Decision>) {
        if let Some(why) = self.refusal(id, &demand) {
            out.push(Decision::Refuse { session: id, why });
            return;
        }
        self.move_if_empty(id);
        // While it waits for a callback of its own it asks for nothing, as between two iterations.
        if !self.works_for(id) {
            self.rejoin(id);
        }
        let (now, number) = (self.now, self.next_request());
        let session = self.touch(id);
        assert!(session.request.is_none(), "{id} was ready already");
        session.request = Some(Request {
            // Ranked when it is settled.
            order: Order {
                rank: Rank::AGED,
                number,
            },
            demand,
            ready_at: now,
            aged: false,
            lacks_host_since: None,
            awaits_host: false,
        });
    }

    /// Why the demand can be met neither now nor later, if so.
    fn refusal(&self, id: SessionId, demand: &Demand) -> Option<Refusal> {
        let room_bytes = self.memory.ledger().room().device_bytes;
        let holding = *self
            .memory
            .ledger()
            .holding(id)
            .expect("open sessions hold");
        assert!(
            demand.paged_bytes <= holding.paged_bytes,
            "{id} misses more than it has paged out"
        );
        let memory_max = self.session(id).settings.memory_max.map(NonZeroU64::get);
        let new_bytes = demand.new_bytes.saturating_add(demand.new_host_bytes);
        let beyond = |held: u64, max: Option<u64>| {
            let would_hold = held.saturating_add(new_bytes);
            max.filter(|&max| new_bytes > 0 && would_hold > max)
                .map(|max| (would_hold, max))
        };
        if demand.total() > room_bytes {
            return Some(Refusal::TooLarge {
                needs_bytes: demand.total(),
                room_bytes,
            });
        }
        if demand.new_host_bytes > self.memory.ledger().room().host_bytes {
            return Some(self.no_host_room(demand.new_host_bytes));
        }
        if let Some((needs_bytes, memory_max)) = beyond(holding.total(), memory_max) {
            return Some(Refusal::BeyondLimit {
                needs_bytes,
                memory_max,
            });
        }
        let user_bytes = self.memory.ledger().user_bytes(holding.user);
        beyond(user_bytes, self.memory.ledger().room().user_max).map(|(needs_bytes, user_max)| {
            Refusal::BeyondUserLimit {
                needs_bytes,
                user_max,
            }
        })
    }

    /// The number of a request that is made now.
    pub(crate) fn next_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    fn ran(&mut self, id: SessionId, calling: Option<Calling>) {
        // A session's iterations are all in the lane of its arrays.
        let (now, lane) = (self.now, self.session(id).lane);
        let ended = self.queues.lane_mut(lane).end(id, calling, now);
        let ended = ended.unwrap_or_else(|| panic!("{id} was not started"));
        self.memory.resize_lane(ended.resized);
        let took = ended.took;
        if ended.aged && calling.is_none() {
            self.queues.correct_aged(ended.expected, took);
        }
        self.estimates.ran(ended.program, took);
        self.learn_interference(lane, ended.program, took);
        let session = self.ended(id);
        session.account.iterations += 1;
        session.account.switches += u64::from(ended.switched);
        session.account.device_time = session.account.device_time + took;
        session.estimate.ran(ended.program, took);
        let weight = session.settings.weight;
        session.virtual_time.ran(ended.expected, took, weight);
    }

    /// The turn was not used, and tells nothing of the program.
    fn did_not_run(&mut self, id: SessionId, calling: Option<Calling>) {
        let lane = self.session(id).lane;
        let given_back = self.queues.lane_mut(lane).did_not_run(id, calling);
        let (expected, resized) = given_back.unwrap_or_else(|| panic!("{id} was not started"));
        self.memory.resize_lane(resized);
        let session = self.ended(id);
        let weight = session.settings.weight;
        session.virtual_time.ran(expected, Duration(0), weight);
    }

    /// One iteration less of the session is in flight.
    fn ended(&mut self, id: SessionId) -> &mut Session {
        let now = self.now;
        self.vacated = Some(self.session(id).lane);
        let session = self.touch(id);
        session.account.running -= 1;
        session.rerank = true;
        session.unevictable = false;
        session.quiet_since = now;
        session
    }

    /// An iteration that calls back gives its lane up until the job has answered, or takes it again.
    /// Its arrays stay, and whatever else it holds.
    fn call_back(
        &mut self,
        id: SessionId,
        calling: Calling,
        moves: fn(&mut LaneState, SessionId, Calling, Time) -> Option<()>,
    ) {
        let (now, lane) = (self.now, self.session(id).lane);
        let moved = moves(self.queues.lane_mut(lane), id, calling, now);
        assert!(moved.is_some(), "{id} has no such iteration: {calling:?}");
        self.vacated = Some(lane);
        self.touch(id).quiet_since = now;
    }

    fn released(&mut self, id: SessionId, resident_bytes: u64, paged_bytes: u64, host_bytes: u64) {
        // The last arrays of a session may be released after it was closed, which freed them.
        if self.sessions.get(id).is_none() {
            return;
        }
        let memory = &mut self.memory;
        memory.release(id, resident_bytes, paged_bytes, host_bytes);
        self.touch(id).unevictable = false;
        if paged_bytes + host_bytes > 0 {
            self.host_has_more();
        }
    }

    fn paged_out(&mut self, id: SessionId, bytes: u64, paged_bytes: u64) {
        let now = self.now;
        let session = self.touch(id);
        session.unevictable = bytes == 0;
        let asked = session.evicting.take();
        let asked = asked.unwrap_or_else(|| panic!("{id} was not asked to page out"));
        // Arguments of its request may be paged out now.
        if let Some(request) = &mut session.request {
            request.demand.paged_bytes = paged_bytes;
        }
        self.memory.eviction_ended(now, id, asked, bytes);
        if bytes == 0 {
            // It cannot change lanes, so it is not asked again soon.
            self.session_mut(id).lane_until = self.memory.resident_until(now);
        }
        self.move_if_empty(id);
    }

    /// Host memory became free: what could not be paged out for lack of it may be now.
    pub(crate) fn host_has_more(&mut self) {
        while let Some(id) = self.memory.next_cramped() {
            self.touch(id).unevictable = false;
        }
    }

    /// Nothing is to be done any more for the session's request.
    pub(crate) fn withdraw(&mut self, id: SessionId) {
        let session = self.touch(id);
        session.request = None;
        let lane = session.lane;
        self.queues.lane_mut(lane).withdraw(id);
        self.memory.reservation_mut().give_up(id);
    }

    /// A session without arrays on the device may change to the emptiest lane.
    fn move_if_empty(&mut self, id: SessionId) {
        let session = self.session(id);
        if session.account.running > 0 || self.memory.resident_bytes(id) > 0 {
            return;
        }
        let (from, to) = (session.lane, self.queues.emptiest_lane());
        if self.queues.should_move(from, to) {
            let before = self.queues.clock(from, &session.settings);
            let clock = self.queues.clock(to, &session.settings);
            self.queues.leave(from);
            self.queues.join(to);
            let session = self.session_mut(id);
            session.lane = to;
            session.virtual_time.moved(before, clock);
        }
    }

    /// The session has a request again, after it had none or was paused.
    pub(crate) fn rejoin(&mut self, id: SessionId) {
        let now = self.now;
        let session = self.session(id);
        let clock = self.queues.clock(session.lane, &session.settings);
        let session = self.session_mut(id);
        let away = now - session.quiet_since;
        session
            .virtual_time
            .ready(away, clock, session.settings.weight);
    }

    /// Whether an iteration of the session runs or is about to: not if all wait for callbacks.
    pub(crate) fn works_for(&self, id: SessionId) -> bool {
        let session = self.session(id);
        session.account.running > 0 && self.queues.lane(session.lane).holds(id)
    }

    pub(crate) fn session(&self, id: SessionId) -> &Session {
        self.sessions
            .get(id)
            .unwrap_or_else(|| panic!("{id} is not open"))
    }

    /// To change what nothing follows from; otherwise `touch`.
    pub(crate) fn session_mut(&mut self, id: SessionId) -> &mut Session {
        self.sessions
            .get_mut(id)
            .unwrap_or_else(|| panic!("{id} is not open"))
    }
}
