//! Who is served: the first in order, and those beside it that are in nobody's way.
//!
//! Cost: O(log n) in the sessions and O(lanes²) for each that is started; at most [`LOOK_BACK`]
//! requests of each lane are looked at beyond the first.
//! Not here: what the order is (`policies/`), what happens for the first where it does not fit
//! (`claim.rs`).

use std::ops::Bound;

use crate::engine::{Engine, Order};
use crate::lanes::{Iteration, Waiting};
use crate::time::{Duration, Time};
use crate::{Decision, SessionId};

/// How many later requests are looked at for one that fits where the first does not.
const LOOK_BACK: usize = 16;

/// A request in the queue of a lane.
pub(crate) struct Placed<'a> {
    pub(crate) lane: usize,
    /// Among those of all lanes.
    pub(crate) order: Order,
    pub(crate) waiting: &'a Waiting,
}

impl Engine {
    pub(crate) fn schedule(&mut self, now: Time, out: &mut Vec<Decision>) {
        self.wake_at = None;
        self.heed_age(now);
        self.balance(now, out);
        loop {
            self.serve(now, out);
            // Whoever is refused gives way to the next, for whom it may leave.
            if !self.make_room(now, out) {
                break;
            }
        }
        self.go_ahead(now, out);
        // Where nothing else happens, the order changes when somebody has waited for long.
        let times = [self.wake_at, self.next_age()];
        self.wake_at = times.into_iter().flatten().min();
    }

    /// Starts requests in order, up to the first that does not fit.
    pub(crate) fn serve(&mut self, now: Time, out: &mut Vec<Decision>) {
        while let Some(next) = self.first(now) {
            if self.need(next) <= self.allowance(next) && !self.would_be_in_the_way(next) {
                self.start(now, next, out);
                continue;
            }
            let claim = self.earlier(self.claim, next);
            if self.claim == claim {
                break;
            }
            // As the claimant it may fit: nothing is kept from it any more.
            let before = std::mem::replace(&mut self.claim, claim);
            self.claimed_at = self.starts;
            for id in [before, claim].into_iter().flatten() {
                self.restate(now, id);
            }
        }
    }

    /// The first request in order that has a place in its lane.
    pub(crate) fn first(&self, now: Time) -> Option<SessionId> {
        let array = self.arrays.first_key_value();
        let mut first = array.map(|(order, waiting)| (*order, waiting.session));
        if self.policy.packs() {
            let launch = self.first_that_helps(now);
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
    pub(crate) fn heads(&self) -> impl Iterator<Item = Placed<'_>> {
        let lanes = self.lanes.iter().enumerate();
        let lanes = lanes.filter(|(_, lane)| !lane.is_full());
        lanes.flat_map(move |(index, lane)| {
            let resident = lane.resident.first_key_value();
            let heads = [resident, lane.absent.first_key_value()];
            let heads = heads.into_iter().flatten();
            let heads = heads.filter(|(order, waiting)| {
                lane.lets_in(waiting.calls_back, self.depth(order.rank))
            });
            heads.map(move |(order, waiting)| Placed {
                lane: index,
                order: self.among_all(index, *order),
                waiting,
            })
        })
    }

    /// Which of two is served before the other.
    pub(crate) fn earlier(&self, claim: Option<SessionId>, other: SessionId) -> Option<SessionId> {
        match claim {
            Some(claimant) if self.order_of(claimant) <= self.order_of(other) => claim,
            _ => Some(other),
        }
    }

    /// What the session's request takes beyond what is there.
    pub(crate) fn need(&self, id: SessionId) -> u64 {
        self.session(id).need(&self.lanes)
    }

    pub(crate) fn start(&mut self, now: Time, id: SessionId, out: &mut Vec<Decision>) {
        let request = self.session(id).request.as_ref();
        let demand = request.map(|request| request.demand);
        let Some((order, demand)) = self.order_of(id).zip(demand) else {
            panic!("{id} asked for nothing")
        };
        self.forget(id);
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
        if let Some(program) = demand.program() {
            self.advance_clock(id);
            let expected = self.estimates.median(program).unwrap_or(Duration(0));
            let session = self.session_mut(id);
            session.account.running += 1;
            session.share.started(expected);
            self.starts += 1;
            let (before, after) = self.lanes[lane.0 as usize].start(Iteration {
                session: id,
                program,
                order,
                nth: self.starts,
                started_at: now,
                scratch_bytes: demand.scratch_bytes(),
                expected,
                calling: demand.calling(),
                used: Duration(0),
            });
            self.ledger.resize_lane(before, after);
        }
        self.replace(id);
        self.restate(now, id);
        if demand.absent_bytes > 0 {
            self.host_has_more();
        }
        out.push(Decision::Start { session: id, lane });
    }

    /// Starts later requests that fit beside the claimant's.
    pub(crate) fn go_ahead(&mut self, now: Time, out: &mut Vec<Decision>) {
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
                let (mut after, mut looked) = (None, 0);
                while let Some((order, id)) =
                    self.next_within(now, left, lane, absent, after, &mut looked)
                {
                    after = Some(order);
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
    pub(crate) fn next_within(
        &self,
        now: Time,
        left: u64,
        lane: usize,
        absent: bool,
        after: Option<Order>,
        looked: &mut usize,
    ) -> Option<(Order, SessionId)> {
        let (queue, size_bytes) = match self.lanes.get(lane) {
            Some(lane) if lane.is_full() => return None,
            Some(lane) if absent => (&lane.absent, lane.size_bytes()),
            Some(lane) => (&lane.resident, lane.size_bytes()),
            None => (&self.arrays, 0),
        };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = queue.range((from, Bound::Unbounded));
        let (order, waiting) = range.take(LOOK_BACK - *looked).find(|(order, waiting)| {
            *looked += 1;
            let Some(state) = self.lanes.get(lane) else {
                return waiting.need(0) <= left;
            };
            waiting.need(size_bytes) <= left
                && state.lets_in(waiting.calls_back, self.depth(order.rank))
                && self.helps(now, lane, order, waiting)
        })?;
        Some((*order, waiting.session))
    }

    /// Sends sessions away from lanes that are no longer used, and one of a crowded lane to one that
    /// has nothing to do. Before others are served, because one that is always ready is between two
    /// iterations only now.
    fn balance(&mut self, now: Time, out: &mut Vec<Decision>) {
        let (open, closed) = self.lanes.split_at(self.open_lanes());
        let stray = closed.iter().flat_map(|lane| lane.resident.values());
        let mut moving: Vec<SessionId> = stray.take(LOOK_BACK).map(|w| w.session).collect();
        let idle = open.iter().filter(|lane| lane.is_idle());
        let fewest = idle.map(|lane| lane.members).min();
        if let Some(fewest) = fewest.filter(|_| self.claim.is_none()) {
            // Where it would not move when it has left (see `move_to`), it would leave for nothing.
            let mut crowded = open.iter().filter(|lane| lane.members > fewest + 1);
            let waiting = crowded.find_map(|lane| lane.resident.last_key_value());
            moving.extend(waiting.map(|(_, waiting)| waiting.session));
        }
        for id in moving {
            let session = self.session(id);
            let resident = self.ledger.holding(id).map_or(0, |h| h.resident_bytes);
            let may = session.may_leave() && session.stays_until.max(session.lane_until) <= now;
            if may && resident > 0 && resident <= self.host_room() {
                self.send_away(now, id, resident, out);
            }
        }
    }
}
