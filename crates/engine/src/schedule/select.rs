//! Selection: the first request in order is started, and those beside it that delay nobody.
//!
//! One pass per event: promote aged requests, balance the lanes, start requests in order up to the
//! first that does not fit (it gets the reservation), make room for that one, and backfill: start
//! later requests that fit and cannot delay it.
//!
//! Cost: O(log n) in the sessions and O(lanes²) for each that is started; at most [`LOOK_BACK`]
//! requests of each lane are looked at beyond the first.
//! Not here: what the order is (`policies/`), what is done for the first request where it does not
//! fit (`memory/reservation.rs`).

use std::ops::Bound;

use super::lanes::{Iteration, Waiting};
use super::queues::Order;
use crate::engine::Engine;
use crate::event::{Decision, Kind, Lane, SessionId};
use crate::time::Duration;

/// How many later requests of a queue are looked at for one to backfill: it bounds what an event
/// costs where most do not fit.
const LOOK_BACK: usize = 16;

/// A request in the queue of a lane.
pub(super) struct Placed<'a> {
    pub(super) lane: Lane,
    /// Among those of all lanes.
    pub(super) order: Order,
    pub(super) waiting: &'a Waiting,
}

impl Engine {
    pub(crate) fn schedule(&mut self, out: &mut Vec<Decision>) {
        self.wake_at = None;
        self.promote_aged();
        self.balance(out);
        loop {
            self.serve_host_queue(out);
            self.serve(out);
            // After a refusal the next in order gets the reservation, and the refused one may be
            // evicted for it.
            if self.make_room(out) {
                continue;
            }
            self.backfill(out);
            // What was paged in has left room on the host.
            if !self.host_queue_may_go() {
                break;
            }
        }
        // Where nothing else happens, the order changes when a request has aged.
        let times = [
            self.wake_at,
            self.queues.next_aging_at(),
            self.next_host_refusal_at(),
        ];
        self.wake_at = times.into_iter().flatten().min();
    }

    /// Requests that have waited for long enough go before all others.
    fn promote_aged(&mut self) {
        while let Some(id) = self.queues.next_aged(self.now) {
            let mut launches = None;
            if let Some(request) = &mut self.touch(id).request {
                request.aged = true;
                if let Kind::Launch { program, .. } = request.demand.kind {
                    launches = Some(program);
                }
            }
            if let Some(program) = launches {
                let expected = self.estimates.median(program).unwrap_or(Duration(0));
                self.queues.charge_aged(self.now, expected);
            }
            self.settle();
        }
    }

    /// Starts requests in order, up to the first that does not fit, which gets the reservation.
    fn serve(&mut self, out: &mut Vec<Decision>) {
        while let Some(next) = self.first() {
            if self.lacks_host_room(next) {
                self.wait_for_host_room(next, out);
                continue;
            }
            if self.need(next) <= self.free_for(next) && !self.would_delay_holder(next) {
                match self.is_paged_in_ahead(next) {
                    true => self.page_in_ahead(next, out),
                    false => self.start(next, out),
                }
                continue;
            }
            let holder = self.memory.reservation().holder();
            if holder.is_some_and(|holder| holder == next || self.is_before(holder, next)) {
                break;
            }
            // As the holder it may fit: nothing is kept from it any more.
            let before = self.memory.reservation_mut().pass_to(next, self.starts);
            for id in [before, Some(next)].into_iter().flatten() {
                self.touch(id);
            }
            self.settle();
        }
    }

    /// The first request in order that has a place in its lane.
    fn first(&self) -> Option<SessionId> {
        let array = self.queues.arrays().first_key_value();
        let mut first = array.map(|(order, waiting)| (*order, waiting.session));
        if self.queues.arrangement().co_runs {
            let launch = self.first_without_interference();
            first = launch.into_iter().chain(first).min();
        } else {
            for head in self.heads() {
                if first.is_none_or(|(order, _)| head.order < order) {
                    first = Some((head.order, head.waiting.session));
                }
            }
        }
        first.map(|(_, session)| session)
    }

    /// The first requests of each lane that has a place for them, whatever runs in the others.
    pub(super) fn heads(&self) -> impl Iterator<Item = Placed<'_>> {
        let lanes = self.queues.lanes().iter().enumerate();
        let lanes = lanes.filter(|(_, lane)| !lane.is_full());
        lanes.flat_map(move |(index, lane)| {
            let resident = match lane.lets_pass() {
                None => lane.resident.first_key_value(),
                Some(session) => self.first_beside(Lane(index as u32), session),
            };
            let heads = [resident, lane.paged.first_key_value()];
            let heads = heads.into_iter().flatten();
            let heads = heads.filter(|(order, waiting)| {
                lane.lets_in(waiting.calls_back, self.queues.depth(self.now, order.rank))
            });
            let lane = Lane(index as u32);
            heads.map(move |(order, waiting)| Placed {
                lane,
                order: self.queues.among_all(lane, *order),
                waiting,
            })
        })
    }

    /// The lane's first resident request where the session, which was paged in ahead of its turn, lets
    /// another go first.
    fn first_beside(&self, lane: Lane, session: SessionId) -> Option<(&Order, &Waiting)> {
        let resident = &self.queues.lane(lane).resident;
        match self.goes_between(lane, session) {
            Some(other) => resident.iter().find(|(_, w)| w.session == other.session),
            None => resident.first_key_value(),
        }
    }

    /// The order of a session's request among all.
    pub(crate) fn order_of(&self, id: SessionId) -> Option<Order> {
        let session = self.session(id);
        let request = session.request.as_ref()?;
        Some(match request.demand.kind {
            Kind::Array => request.order,
            _ => self.queues.among_all(session.lane, request.order),
        })
    }

    /// Whether the first session's request comes before the other's.
    pub(crate) fn is_before(&self, id: SessionId, other: SessionId) -> bool {
        self.order_of(id) <= self.order_of(other)
    }

    /// What the session's request takes beyond what it has.
    pub(crate) fn need(&self, id: SessionId) -> u64 {
        let session = self.session(id);
        session.need(self.queues.lane(session.lane))
    }

    fn start(&mut self, id: SessionId, out: &mut Vec<Decision>) {
        let (now, order) = (self.now, self.order_of(id));
        let request = self.session_mut(id).request.take();
        let Some((order, request)) = order.zip(request) else {
            panic!("{id} asked for nothing")
        };
        let demand = request.demand;
        self.memory.reservation_mut().give_up(id);
        let is_paged_in = demand.paged_bytes > 0 || self.memory.resident_bytes(id) == 0;
        self.memory.take(id, &demand);
        let resident_until = self.memory.resident_until(now);
        let session = self.touch(id);
        if is_paged_in {
            session.resident_until = resident_until;
        }
        session.quiet_since = now;
        // What is paged in can perhaps be paged out.
        session.unevictable = false;
        let lane = session.lane;
        if let Some(program) = demand.program() {
            let at = session.virtual_time.at(session.settings.weight);
            let settings = session.settings;
            self.queues.advance_clock(lane, &settings, at);
            let expected = self.estimates.median(program).unwrap_or(Duration(0));
            let session = self.session_mut(id);
            session.account.running += 1;
            session.virtual_time.started(expected);
            self.starts += 1;
            let nth = self.starts;
            let resized = self.queues.lane_mut(lane).start(Iteration {
                session: id,
                program,
                order,
                nth,
                started_at: now,
                scratch_bytes: demand.scratch_bytes(),
                expected,
                calling: demand.calling(),
                used: Duration(0),
            });
            self.memory.resize_lane(resized);
        }
        if demand.paged_bytes > 0 {
            self.host_has_more();
        }
        self.settle();
        out.push(Decision::Start { session: id, lane });
    }

    /// Backfill: starts later requests that fit beside the reservation and cannot delay its holder.
    fn backfill(&mut self, out: &mut Vec<Decision>) {
        let Some(holder) = self.memory.reservation().holder() else {
            return;
        };
        // A session past its minimum residency that could be evicted runs no further iteration until
        // somebody was evicted: else one that is always one ahead would never be between two. But
        // where nobody can be evicted, now or when what runs has ended, holding others back would
        // stop all.
        let prospect = self.memory.evicting_bytes() > 0
            || self.queues.lanes().iter().any(|lane| lane.in_flight() > 0)
            || self.memory.next_victim_at(holder).is_some();
        let drain = prospect
            && !self.fits_after(holder, None)
            && !self.is_covered(holder)
            && self.memory.host_room() > 0;
        let mut free = self.free_beside(holder);
        for lane in 0..=self.queues.lanes().len() {
            // What must be paged in is backfilled only if nobody waits for the room in vain.
            for paged in [false, true]
                .into_iter()
                .filter(|paged| !paged || !prospect)
            {
                let (mut after, mut looked) = (None, 0);
                while let Some((order, id)) =
                    self.next_within(free, lane, paged, after, &mut looked)
                {
                    after = Some(order);
                    let session = self.session(id);
                    let drains =
                        drain && session.resident_until <= self.now && !session.unevictable;
                    let waits = drains || self.lacks_host_room(id);
                    if id != holder && !waits && !self.would_delay_holder(id) {
                        self.start(id, out);
                        free = self.free_beside(holder);
                    }
                }
            }
        }
    }

    /// The lane's first request, or the first that needs no lane, that takes at most `free` bytes.
    /// Where one does not fit most do not, so the queue itself says what they need.
    fn next_within(
        &self,
        free: u64,
        lane: usize,
        paged: bool,
        after: Option<Order>,
        looked: &mut usize,
    ) -> Option<(Order, SessionId)> {
        let state = self.queues.lanes().get(lane);
        let (queue, size_bytes) = match state {
            Some(lane) if lane.is_full() => return None,
            Some(lane) if paged => (&lane.paged, lane.size_bytes()),
            Some(lane) => (&lane.resident, lane.size_bytes()),
            None => (self.queues.arrays(), 0),
        };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = queue.range((from, Bound::Unbounded));
        let (order, waiting) = range.take(LOOK_BACK - *looked).find(|(order, waiting)| {
            *looked += 1;
            let Some(state) = state else {
                return waiting.need(0) <= free;
            };
            waiting.need(size_bytes) <= free
                && state.lets_in(waiting.calls_back, self.queues.depth(self.now, order.rank))
                && self.may_co_run(Lane(lane as u32), order, waiting)
        })?;
        Some((*order, waiting.session))
    }

    /// Evicts sessions from lanes that are closed, and one of a crowded lane for one that has nothing
    /// to do: they are paged in in another lane. Before others are served, because a session that is
    /// always ready is between two iterations only now.
    fn balance(&mut self, out: &mut Vec<Decision>) {
        let lanes = self.queues.lanes();
        let (open, closed) = lanes.split_at(self.queues.open_lanes());
        let stray = closed.iter().flat_map(|lane| lane.resident.values());
        let mut moving: Vec<SessionId> = stray.take(LOOK_BACK).map(|w| w.session).collect();
        let idle = open.iter().filter(|lane| lane.is_idle());
        let fewest = idle.map(|lane| lane.members).min();
        let is_reserved = self.memory.reservation().holder().is_some();
        if let Some(fewest) = fewest.filter(|_| !is_reserved) {
            // Where it would not move once it is paged out (`should_move`), that would be for nothing.
            let mut crowded = open.iter().filter(|lane| lane.members > fewest + 1);
            let waiting = crowded.find_map(|lane| lane.resident.last_key_value());
            moving.extend(waiting.map(|(_, waiting)| waiting.session));
        }
        for id in moving {
            let session = self.session(id);
            let resident = self.memory.resident_bytes(id);
            let is_free = session.resident_until.max(session.lane_until) <= self.now;
            let may = session.may_be_evicted() && is_free;
            if may && resident > 0 && resident <= self.memory.host_room() {
                self.evict(id, resident, out);
            }
        }
    }
}
