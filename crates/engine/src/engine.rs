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
use crate::lanes::{Iteration, LaneState, Waiting};
use crate::ledger::{Ledger, Room};
use crate::residency::{Place, Residency};
use crate::time::Time;
use crate::{Decision, Demand, Event, Kind, Lane, Refusal, SessionId};

/// How many younger requests are looked at for one that fits where the oldest does not.
const LOOK_BACK: usize = 16;
/// Asked for beyond what is lacking, so that the small outputs of others do not make it fall short.
const MARGIN_BYTES: u64 = 256 << 10;

#[derive(Debug)]
pub struct Engine {
    pub(crate) ledger: Ledger,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) lanes: Vec<LaneState>,
    /// Requests that need no lane, by age.
    arrays: BTreeMap<u64, Waiting>,
    residency: Residency,
    /// Of those that are fixed, those for whose arrays the host had too little room.
    cramped: BTreeSet<SessionId>,
    /// Bytes that sessions were asked to page out and have not yet.
    leaving_bytes: u64,
    pub(crate) claim: Option<SessionId>,
    /// How many iterations had been started when it became the claimant.
    claimed_at: u64,
    starts: u64,
    wake_at: Option<Time>,
    last_request: u64,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) account: Account,
    pub(crate) lane: Lane,
    pub(crate) request: Option<Request>,
    /// Asked to page out so many bytes, and when.
    leaving: Option<(u64, Time)>,
    /// Asked, and nothing could leave: not asked again before something changes.
    fixed: bool,
    stays_until: Time,
    quiet_since: Time,
    /// Under which it stands in `residency`.
    place: Option<Place>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// Grows with each request: its age.
    number: u64,
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
                memory_max,
            } => self.open(now, session, memory_max),
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

    fn open(&mut self, now: Time, id: SessionId, memory_max: Option<u64>) {
        self.ledger.open(id, memory_max);
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
        let would_hold = holding.total().saturating_add(demand.new_bytes);
        let refusal = if demand.total() > room_bytes {
            Some(Refusal::TooLarge {
                needs_bytes: demand.total(),
                room_bytes,
            })
        } else {
            let over = holding.memory_max.filter(|&max| would_hold > max);
            over.filter(|_| demand.new_bytes > 0)
                .map(|memory_max| Refusal::BeyondLimit {
                    needs_bytes: would_hold,
                    memory_max,
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

    fn schedule(&mut self, now: Time, out: &mut Vec<Decision>) {
        self.wake_at = None;
        loop {
            self.serve(now, out);
            // Whoever is refused gives way to the next, for whom it may leave.
            if !self.make_room(now, out) {
                break;
            }
        }
        self.go_ahead(now, out);
        self.balance(now, out);
    }

    /// Starts requests in the order of their age, up to the first that does not fit.
    fn serve(&mut self, now: Time, out: &mut Vec<Decision>) {
        while let Some(next) = self.oldest() {
            if self.need(next) <= self.allowance(next) && !self.would_be_in_the_way(next) {
                self.start(now, next, out);
                continue;
            }
            let claim = self.older(self.claim, next);
            if self.claim == claim {
                break;
            }
            // As the claimant it may fit: nothing is kept from it any more.
            (self.claim, self.claimed_at) = (claim, self.starts);
        }
    }

    /// The oldest request that has a place in its lane.
    fn oldest(&self) -> Option<SessionId> {
        let lanes = self.lanes.iter().filter(|lane| lane.has_place());
        let heads = lanes.flat_map(|lane| {
            let resident = lane.resident.first_key_value();
            resident.into_iter().chain(lane.absent.first_key_value())
        });
        heads
            .chain(self.arrays.first_key_value())
            .min_by_key(|(number, _)| **number)
            .map(|(_, waiting)| waiting.session)
    }

    fn older(&self, claim: Option<SessionId>, other: SessionId) -> Option<SessionId> {
        let age = |id: SessionId| self.session(id).request.map(|r| r.number);
        match claim {
            Some(claimant) if age(claimant) <= age(other) => claim,
            _ => Some(other),
        }
    }

    /// What is free for this session: all, or what is left beyond the claimant's share.
    fn allowance(&self, id: SessionId) -> u64 {
        match self.claim {
            Some(claimant) if claimant != id => self.left_beside(claimant),
            _ => self.ledger.free_bytes(),
        }
    }

    /// What is free for others: all, until the claimant's share is under way.
    fn left_beside(&self, claimant: SessionId) -> u64 {
        let free = self.ledger.free_bytes();
        if !self.is_covered(claimant) {
            return free;
        }
        let kept = self.need(claimant).saturating_sub(self.leaving_bytes);
        free.saturating_sub(kept)
    }

    /// Whether what is free and what leaves is enough for it.
    fn is_covered(&self, claimant: SessionId) -> bool {
        self.lack(claimant) <= self.leaving_bytes
    }

    /// What the session's request takes beyond what is there.
    pub(crate) fn need(&self, id: SessionId) -> u64 {
        let session = self.session(id);
        let Some(request) = &session.request else {
            return 0;
        };
        let demand = &request.demand;
        let lane = &self.lanes[session.lane.0 as usize];
        demand.new_bytes + demand.absent_bytes + lane.growth(demand.scratch_bytes())
    }

    /// Where the claimant waits for what runs, nothing younger may be started that it would have to
    /// wait for as well.
    fn would_be_in_the_way(&self, id: SessionId) -> bool {
        let Some(claimant) = self.claim.filter(|claimant| *claimant != id) else {
            return false;
        };
        let younger = self.older(Some(claimant), id) == Some(claimant);
        younger && self.fits_after(claimant, None) && !self.fits_after(claimant, Some(id))
    }

    /// Whether the claimant fits as soon as what ran when it became the claimant, and what is older
    /// than it, has ended, even if what else was started since never ends; `with` is one that would
    /// be started now.
    fn fits_after(&self, claimant: SessionId, with: Option<SessionId>) -> bool {
        let asked = |id: SessionId| self.session(id).request.as_ref();
        let Some(request) = asked(claimant) else {
            return true;
        };
        let own = self.session(claimant).lane.0 as usize;
        let with = with.and_then(|id| Some((self.session(id).lane.0 as usize, asked(id)?.demand)));
        let mut kept = request.demand.new_bytes + request.demand.absent_bytes;
        kept += with.map_or(0, |(_, demand)| demand.new_bytes + demand.absent_bytes);
        for (index, lane) in self.lanes.iter().enumerate() {
            let mut size = lane.size_since(self.claimed_at, request.number);
            if index == own {
                size = size.max(request.demand.scratch_bytes());
            }
            if let Some((_, demand)) = with.filter(|(at, _)| *at == index) {
                size = size.max(demand.scratch_bytes());
            }
            kept += size;
        }
        kept <= self.ledger.free_bytes() + self.ledger.scratch_bytes()
    }

    fn lack(&self, id: SessionId) -> u64 {
        self.need(id).saturating_sub(self.ledger.free_bytes())
    }

    fn start(&mut self, now: Time, id: SessionId, out: &mut Vec<Decision>) {
        let (number, demand, ready_at) = match self.session(id) {
            Session {
                request: Some(request),
                account,
                ..
            } => {
                let ready_at = account.waiting_since.unwrap_or(now);
                (request.number, request.demand, ready_at)
            }
            _ => panic!("{id} asked for nothing"),
        };
        self.withdraw(id);
        let before = self.ledger.holding(id).map_or(0, |h| h.resident_bytes);
        self.ledger.take(
            id,
            demand.new_bytes + demand.absent_bytes,
            demand.absent_bytes,
        );
        let stay = self.residency.stay(now);
        let session = self.session_mut(id);
        if before == 0 || demand.absent_bytes > 0 {
            session.stays_until = stay;
        }
        session.quiet_since = now;
        // What comes in may perhaps leave.
        session.fixed = false;
        let lane = session.lane;
        if let Kind::Launch { scratch_bytes } = demand.kind {
            session.account.running += 1;
            self.starts += 1;
            let (before, after) = self.lanes[lane.0 as usize].start(Iteration {
                session: id,
                number,
                nth: self.starts,
                ready_at,
                started_at: now,
                scratch_bytes,
            });
            self.ledger.resize_lane(before, after);
        }
        self.replace(id);
        if demand.absent_bytes > 0 {
            self.host_has_more();
        }
        out.push(Decision::Start { session: id, lane });
    }

    /// Has others page out for the claimant. Returns whether it was refused instead.
    fn make_room(&mut self, now: Time, out: &mut Vec<Decision>) -> bool {
        let Some(claimant) = self.claim else {
            return false;
        };
        // What runs will end sooner than anybody can leave and come back.
        if self.fits_after(claimant, None) {
            return false;
        }
        while !self.is_covered(claimant) {
            let lack = self.lack(claimant) - self.leaving_bytes;
            let host = self.host_room();
            let leaver = self.residency.victim(now, claimant);
            let leaver = leaver.or_else(|| self.itself(claimant));
            let Some(leaver) = leaver.filter(|_| host > 0) else {
                return self.wait_for_room(claimant, host, out);
            };
            let resident = self.ledger.holding(leaver).map_or(0, |h| h.resident_bytes);
            let bytes = (lack + MARGIN_BYTES).min(resident).min(host);
            self.send_away(now, leaver, bytes, out);
        }
        false
    }

    /// Room for pages that is not promised to any.
    fn host_room(&self) -> u64 {
        let free = self.ledger.host_free_bytes();
        free.saturating_sub(self.leaving_bytes)
    }

    fn send_away(&mut self, now: Time, id: SessionId, bytes: u64, out: &mut Vec<Decision>) {
        self.leaving_bytes += bytes;
        self.dequeue(id);
        self.session_mut(id).leaving = Some((bytes, now));
        self.replace(id);
        out.push(Decision::PageOut { session: id, bytes });
    }

    /// The claimant, if nobody else will leave and it has arrays that its request does not name.
    fn itself(&self, claimant: SessionId) -> Option<SessionId> {
        let session = self.session(claimant);
        let demand = session.request.as_ref().map(|r| r.demand)?;
        let resident = self.ledger.holding(claimant)?.resident_bytes;
        let others = resident.saturating_sub(demand.argument_bytes - demand.absent_bytes);
        let may = others > 0 && session.may_leave();
        (may && self.residency.next(claimant).is_none()).then_some(claimant)
    }

    /// Nobody may leave now. Somebody will, or somebody works and may free something; else the
    /// claimant would wait for ever.
    fn wait_for_room(&mut self, claimant: SessionId, host: u64, out: &mut Vec<Decision>) -> bool {
        if host > 0 {
            self.wake_at = self.residency.next(claimant);
        }
        let at_work = |id: &SessionId, s: &Session| {
            *id != claimant && (s.request.is_none() || s.account.running > 0)
        };
        let hope = self.wake_at.is_some()
            || self.leaving_bytes > 0
            || self.lanes.iter().any(|lane| lane.in_flight() > 0)
            || self.others_fit(claimant)
            || self.sessions.iter().any(|(id, s)| at_work(id, s));
        if !hope {
            let why = Refusal::NoRoom {
                needs_bytes: self.need(claimant),
                free_bytes: self.ledger.free_bytes(),
                host_free_bytes: host,
            };
            self.withdraw(claimant);
            out.push(Decision::Refuse {
                session: claimant,
                why,
            });
        }
        !hope
    }

    fn others_fit(&self, claimant: SessionId) -> bool {
        let mut others = self.sessions.iter();
        others.any(|(id, s)| *id != claimant && s.request.is_some() && self.lack(*id) == 0)
    }

    /// Starts younger requests that fit beside the claimant's.
    fn go_ahead(&mut self, now: Time, out: &mut Vec<Decision>) {
        let Some(claimant) = self.claim else { return };
        // Whoever has stayed its time and could leave runs no further iteration until somebody has
        // left: else a session that is always one ahead would never be between two. But where nobody
        // can leave, now or when what runs has ended, holding others back would stop all.
        let prospect = self.leaving_bytes > 0
            || self.lanes.iter().any(|lane| lane.in_flight() > 0)
            || self.residency.next(claimant).is_some();
        let drain = prospect
            && !self.fits_after(claimant, None)
            && !self.is_covered(claimant)
            && self.host_room() > 0;
        let mut left = self.left_beside(claimant);
        for lane in 0..=self.lanes.len() {
            // Those that must be brought back go ahead only if nobody waits for the room in vain.
            for absent in [false, true]
                .into_iter()
                .filter(|absent| !absent || !prospect)
            {
                let (mut after, mut looked) = (0, 0);
                while let Some((number, id)) =
                    self.next_within(left, lane, absent, after, &mut looked)
                {
                    after = number + 1;
                    let session = self.session(id);
                    let drains = drain && session.stays_until <= now && !session.fixed;
                    if id != claimant && !drains && !self.would_be_in_the_way(id) {
                        self.start(now, id, out);
                        left = self.left_beside(claimant);
                    }
                }
            }
        }
    }

    /// The lane's first request, or the first that needs no lane, that takes no more than `left`.
    /// Where one does not fit most do not, so the queue itself says what they need.
    fn next_within(
        &self,
        left: u64,
        lane: usize,
        absent: bool,
        after: u64,
        looked: &mut usize,
    ) -> Option<(u64, SessionId)> {
        let (queue, size_bytes) = match self.lanes.get(lane) {
            Some(lane) if !lane.has_place() => return None,
            Some(lane) if absent => (&lane.absent, lane.size_bytes()),
            Some(lane) => (&lane.resident, lane.size_bytes()),
            None => (&self.arrays, 0),
        };
        let mut queue = queue.range(after..).take(LOOK_BACK - *looked);
        let (number, waiting) = queue.find(|(_, waiting)| {
            *looked += 1;
            waiting.need(size_bytes) <= left
        })?;
        Some((*number, waiting.session))
    }

    /// Sends a session of a crowded lane to one that has nothing to do.
    fn balance(&mut self, now: Time, out: &mut Vec<Decision>) {
        let idle = self.lanes.iter().filter(|lane| lane.is_idle());
        let Some(fewest) = idle.map(|lane| lane.members).min() else {
            return;
        };
        if self.claim.is_some() {
            return;
        }
        // Where it would not move when it has left (see `move_to`), it would leave for nothing.
        let crowded = self.lanes.iter().filter(|lane| lane.members > fewest + 1);
        let waiting = crowded.filter_map(|lane| lane.resident.last_key_value());
        let Some(id) = waiting.map(|(_, waiting)| waiting.session).next() else {
            return;
        };
        let session = self.session(id);
        let resident = self.ledger.holding(id).map_or(0, |h| h.resident_bytes);
        let may = session.may_leave() && session.stays_until <= now;
        if may && resident > 0 && resident <= self.host_room() {
            self.send_away(now, id, resident, out);
        }
    }

    fn withdraw(&mut self, id: SessionId) {
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

    fn dequeue(&mut self, id: SessionId) {
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
    fn host_has_more(&mut self) {
        while let Some(id) = self.cramped.pop_first() {
            self.session_mut(id).fixed = false;
            self.replace(id);
        }
    }

    /// Puts the session where `residency` should find it.
    fn replace(&mut self, id: SessionId) {
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

    fn session_mut(&mut self, id: SessionId) -> &mut Session {
        self.sessions
            .get_mut(&id)
            .unwrap_or_else(|| panic!("{id} is not open"))
    }
}

impl Session {
    fn may_leave(&self) -> bool {
        self.account.running == 0 && self.leaving.is_none() && !self.fixed
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }
}
