//! Who is served: the oldest first, and those beside it that are in nobody's way.
//!
//! Cost: O(log n) in the sessions and O(lanes) for each that is started; at most [`LOOK_BACK`]
//! requests of each lane are looked at beyond the oldest.
//! Not here: what happens for the oldest where it does not fit (`claim.rs`).

use crate::engine::{Engine, Session};
use crate::lanes::Iteration;
use crate::time::Time;
use crate::{Decision, Kind, SessionId};

/// How many younger requests are looked at for one that fits where the oldest does not.
const LOOK_BACK: usize = 16;

impl Engine {
    pub(crate) fn schedule(&mut self, now: Time, out: &mut Vec<Decision>) {
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
    pub(crate) fn serve(&mut self, now: Time, out: &mut Vec<Decision>) {
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
    pub(crate) fn oldest(&self) -> Option<SessionId> {
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

    pub(crate) fn older(&self, claim: Option<SessionId>, other: SessionId) -> Option<SessionId> {
        let age = |id: SessionId| self.session(id).request.map(|r| r.number);
        match claim {
            Some(claimant) if age(claimant) <= age(other) => claim,
            _ => Some(other),
        }
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

    pub(crate) fn start(&mut self, now: Time, id: SessionId, out: &mut Vec<Decision>) {
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

    /// Starts younger requests that fit beside the claimant's.
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
    pub(crate) fn next_within(
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
    pub(crate) fn balance(&mut self, now: Time, out: &mut Vec<Decision>) {
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
}
