//! The engine: sessions ask, lanes and memory are given out, arrays are sent away for others.
//!
//! Sessions are served in the order in which they asked. The oldest that does not fit is the
//! *claimant*. If it fits as soon as what runs has ended, it waits for that, and nothing younger
//! starts that would be in its way. Else others are paged out for it, and as soon as that is under
//! way nobody younger may take the room. Until then, younger ones that fit may go ahead.
//!
//! Promise: after every event arrays and lanes fit the device (asserted in the ledger). A request
//! waits for bounded time as long as what all sessions hold fits device and host: the claimant is
//! the oldest, everybody's stay ends, and what leaves for it is kept for it.
//! Cost: an event is O(log n) in the sessions and O(lanes).
//! Not here: who is first in order by other rules than age, preempting what runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::accounts::Account;
use crate::lanes::{LaneState, Waiting};
use crate::ledger::{Ledger, Room};
use crate::residency::{Place, Residency};
use crate::time::Time;
use crate::{Decision, Demand, Event, Kind, Lane, Refusal, SessionId};

#[derive(Debug)]
pub struct Engine {
    pub(crate) ledger: Ledger,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) lanes: Vec<LaneState>,
    /// Requests that need no lane, by age.
    pub(crate) arrays: BTreeMap<u64, Waiting>,
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
    pub(crate) last_request: u64,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) account: Account,
    pub(crate) lane: Lane,
    pub(crate) request: Option<Request>,
    /// Asked to page out so many bytes, and when.
    pub(crate) leaving: Option<(u64, Time)>,
    /// Asked, and nothing could leave: not asked again before something changes.
    pub(crate) fixed: bool,
    pub(crate) stays_until: Time,
    pub(crate) quiet_since: Time,
    /// Under which it stands in `residency`.
    pub(crate) place: Option<Place>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// Grows with each request: its age.
    pub(crate) number: u64,
    pub(crate) demand: Demand,
}

impl Engine {
    pub fn new(room: Room, lanes: u32) -> Self {
        Self {
            ledger: Ledger::new(room),
            sessions: BTreeMap::new(),
            lanes: (0..lanes.max(1)).map(|_| LaneState::default()).collect(),
            arrays: BTreeMap::new(),
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

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn account(&self, session: SessionId) -> Option<&Account> {
        self.sessions.get(&session).map(|s| &s.account)
    }

    /// Size of each lane and iterations in it.
    pub fn lanes(&self) -> impl Iterator<Item = (u64, usize)> {
        self.lanes.iter().map(|l| (l.size_bytes(), l.in_flight()))
    }

    /// When to send [`Event::Woke`], if nothing else happens before.
    pub fn wake_at(&self) -> Option<Time> {
        self.wake_at
    }

    /// Takes one event; the decisions are to be carried out in order.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Decision> {
        let mut decisions = Vec::new();
        match event {
            Event::Opened {
                session,
                user,
                memory_max,
            } => {
                self.ledger.open(session, user, memory_max);
                self.open(now, session);
            }
            Event::Ready { session, demand } => self.ready(now, session, demand, &mut decisions),
            Event::Ran { session } => self.ran(now, session),
            Event::Withdrew { session } => self.withdraw(session),
            Event::Released {
                session,
                resident_bytes,
                paged_bytes,
            } => {
                // The last arrays of a session may go after it was closed, which gave them back.
                if self.sessions.contains_key(&session) {
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
            Event::Closed { session } => self.close(session),
            Event::Woke => {}
        }
        self.schedule(now, &mut decisions);
        decisions
    }

    fn open(&mut self, now: Time, id: SessionId) {
        let lane = self.emptiest_lane();
        self.lanes[lane.0 as usize].members += 1;
        let session = Session {
            account: Account::default(),
            lane,
            request: None,
            leaving: None,
            fixed: false,
            stays_until: Time(0),
            quiet_since: now,
            place: None,
        };
        self.sessions.insert(id, session);
    }

    fn close(&mut self, id: SessionId) {
        self.withdraw(id);
        let Some(session) = self.sessions.remove(&id) else {
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
    }

    fn ready(&mut self, now: Time, id: SessionId, demand: Demand, out: &mut Vec<Decision>) {
        let room_bytes = self.ledger.room().device_bytes;
        let holding = *self.ledger.holding(id).expect("open sessions hold");
        assert!(
            demand.absent_bytes <= holding.paged_bytes,
            "{id} misses more than it has paged out"
        );
        let user_bytes = self.ledger.user_bytes(holding.user);
        let beyond = |held: u64, max: Option<u64>| {
            let would_hold = held.saturating_add(demand.new_bytes);
            max.filter(|&max| demand.new_bytes > 0 && would_hold > max)
                .map(|max| (would_hold, max))
        };
        let refusal = if demand.total() > room_bytes {
            Some(Refusal::TooLarge {
                needs_bytes: demand.total(),
                room_bytes,
            })
        } else if let Some((needs_bytes, memory_max)) = beyond(holding.total(), holding.memory_max)
        {
            Some(Refusal::BeyondLimit {
                needs_bytes,
                memory_max,
            })
        } else {
            let user_max = self.ledger.room().user_max;
            beyond(user_bytes, user_max).map(|(needs_bytes, user_max)| Refusal::BeyondUserLimit {
                needs_bytes,
                user_max,
            })
        };
        if let Some(why) = refusal {
            out.push(Decision::Refuse { session: id, why });
            return;
        }
        // Without arrays on the device it may go to any lane.
        if holding.resident_bytes == 0 && self.session(id).account.running == 0 {
            self.move_to(id, self.emptiest_lane());
        }
        self.last_request += 1;
        let number = self.last_request;
        let session = self.session_mut(id);
        assert!(session.request.is_none(), "{id} was ready already");
        session.request = Some(Request { number, demand });
        session.account.waiting_since = Some(now);
        self.enqueue(id);
        self.replace(id);
    }

    fn ran(&mut self, now: Time, id: SessionId) {
        // A session's iterations are all in the lane of its arrays.
        let lane = self.session(id).lane;
        let ended = self.lanes[lane.0 as usize].end(id, now);
        let ended = ended.unwrap_or_else(|| panic!("{id} was not started"));
        let (before, after) = ended.resized;
        self.ledger.resize_lane(before, after);
        let session = self.session_mut(id);
        session.account.running -= 1;
        session.account.iterations += 1;
        session.account.device_time = session.account.device_time + (now - ended.began);
        session.account.waiting = session.account.waiting + (ended.began - ended.ready_at);
        session.fixed = false;
        session.quiet_since = now;
        self.replace(id);
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
        if bytes > 0 {
            self.residency.moved(now - since);
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
        self.enqueue(id);
        self.replace(id);
    }

    pub(crate) fn withdraw(&mut self, id: SessionId) {
        self.dequeue(id);
        let session = self.session_mut(id);
        session.request = None;
        session.account.waiting_since = None;
        if self.claim == Some(id) {
            self.claim = None;
        }
        self.replace(id);
    }

    fn enqueue(&mut self, id: SessionId) {
        let session = self.session(id);
        let lane = session.lane;
        if let Some(request) = session.request
            && session.leaving.is_none()
        {
            let queue = self.queue(lane, &request.demand);
            let earlier = queue.insert(request.number, Waiting::new(id, &request.demand));
            assert!(earlier.is_none());
        }
    }

    pub(crate) fn dequeue(&mut self, id: SessionId) {
        let session = self.session(id);
        let lane = session.lane;
        // One that sends arrays away is in no queue until that is done.
        if let Some(request) = session.request
            && session.leaving.is_none()
        {
            let found = self.queue(lane, &request.demand).remove(&request.number);
            assert!(found.is_some_and(|waiting| waiting.session == id));
        }
    }

    fn queue(&mut self, lane: Lane, demand: &Demand) -> &mut BTreeMap<u64, Waiting> {
        let lane = &mut self.lanes[lane.0 as usize];
        match demand.kind {
            Kind::Array => &mut self.arrays,
            Kind::Launch { .. } if demand.absent_bytes > 0 => &mut lane.absent,
            Kind::Launch { .. } => &mut lane.resident,
        }
    }

    /// The session goes to another lane; nothing of it is on the device or queued.
    fn move_to(&mut self, id: SessionId, lane: Lane) {
        let from = self.session(id).lane;
        // The lane it is in counts it.
        let gain = self.lanes[from.0 as usize].members > self.lanes[lane.0 as usize].members + 1;
        if gain {
            self.lanes[from.0 as usize].members -= 1;
            self.lanes[lane.0 as usize].members += 1;
            self.session_mut(id).lane = lane;
        }
    }

    fn emptiest_lane(&self) -> Lane {
        let lanes = self.lanes.iter().enumerate();
        let emptiest = lanes.min_by_key(|(_, lane)| (lane.members, lane.in_flight()));
        Lane(emptiest.map_or(0, |(index, _)| index as u32))
    }

    /// What found no room on the host may find it now.
    pub(crate) fn host_has_more(&mut self) {
        while let Some(id) = self.cramped.pop_first() {
            self.session_mut(id).fixed = false;
            self.replace(id);
        }
    }

    /// Puts the session where `residency` should find it.
    pub(crate) fn replace(&mut self, id: SessionId) {
        let resident = self.ledger.holding(id).map_or(0, |h| h.resident_bytes);
        let session = self.session_mut(id);
        let place = (resident > 0 && session.may_leave()).then(|| match session.request {
            None => Place::Quiet {
                since: session.quiet_since.max(session.stays_until),
            },
            Some(_) => Place::Waiting {
                stays_until: session.stays_until,
            },
        });
        let before = std::mem::replace(&mut session.place, place);
        if before != place {
            if let Some(before) = before {
                self.residency.remove(id, before);
            }
            if let Some(place) = place {
                self.residency.add(id, place);
            }
        }
    }

    pub(crate) fn session(&self, id: SessionId) -> &Session {
        self.sessions
            .get(&id)
            .unwrap_or_else(|| panic!("{id} is not open"))
    }

    pub(crate) fn session_mut(&mut self, id: SessionId) -> &mut Session {
        self.sessions
            .get_mut(&id)
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
}
