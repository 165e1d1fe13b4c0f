//! The claimant: the first request in order that does not fit, and what is done for it.
//!
//! Promise: what leaves for the claimant is kept for it; nobody leaves for one that fits as soon as
//! what runs has ended; one that would wait for ever is refused, also where it and others would wait
//! for each other.

use crate::engine::{Engine, Session};
use crate::lanes::LaneState;
use crate::time::Time;
use crate::{Decision, Refusal, SessionId};

/// Asked for beyond what is lacking, so that the small outputs of others do not make it fall short.
const MARGIN_BYTES: u64 = 256 << 10;

impl Engine {
    /// Has others page out for the claimant. Returns whether it was refused instead.
    pub(crate) fn make_room(&mut self, now: Time, out: &mut Vec<Decision>) -> bool {
        let Some(claimant) = self.claim else {
            return false;
        };
        // What runs will end sooner than anybody can leave and come back.
        if self.fits_after(claimant, None) {
            return false;
        }
        if self.waits_in_a_circle(claimant) {
            self.refuse(now, claimant, out);
            return true;
        }
        while !self.is_covered(claimant) {
            let lack = self.lack(claimant) - self.leaving_bytes;
            let host = self.host_room();
            let leaver = self.residency.victim(now, claimant);
            let leaver = leaver.or_else(|| self.itself(claimant));
            let Some(leaver) = leaver.filter(|_| host > 0) else {
                return self.wait_for_room(now, claimant, host, out);
            };
            let resident = self.ledger.holding(leaver).map_or(0, |h| h.resident_bytes);
            let bytes = (lack + MARGIN_BYTES).min(resident).min(host);
            self.send_away(now, leaver, bytes, out);
        }
        false
    }

    /// The claimant, if nobody else will leave and it has arrays that its request does not name.
    pub(crate) fn itself(&self, claimant: SessionId) -> Option<SessionId> {
        let session = self.session(claimant);
        let demand = session.request.as_ref().map(|r| r.demand)?;
        let resident = self.ledger.holding(claimant)?.resident_bytes;
        let others = resident.saturating_sub(demand.argument_bytes - demand.absent_bytes);
        let may = others > 0 && session.may_leave();
        (may && self.residency.next(claimant).is_none()).then_some(claimant)
    }

    /// Nobody may leave now. Somebody will, or somebody works and may free something; else the
    /// claimant would wait for ever.
    pub(crate) fn wait_for_room(
        &mut self,
        now: Time,
        claimant: SessionId,
        host: u64,
        out: &mut Vec<Decision>,
    ) -> bool {
        if host > 0 {
            self.wake_at = self.residency.next(claimant);
        }
        let at_work = |id: SessionId, s: &Session| {
            // A paused one may free something when it goes on.
            let asks = s.request.is_some() && !s.paused;
            id != claimant && (!asks || self.works_for(id))
        };
        // A callback may return, unless it waits for what its job asks for here.
        let aged = self.session(claimant).request.is_some_and(|r| r.aged);
        let hope = self.wake_at.is_some()
            || self.leaving_bytes > 0
            || self.lanes.iter().any(|lane| lane.in_flight() > 0)
            || (!aged && self.lanes.iter().any(LaneState::awaits_jobs))
            || self.others_fit(claimant)
            || self.sessions.iter().any(|(id, s)| at_work(id, s));
        if !hope {
            self.refuse(now, claimant, out);
        }
        !hope
    }

    fn refuse(&mut self, now: Time, claimant: SessionId, out: &mut Vec<Decision>) {
        let why = Refusal::NoRoom {
            needs_bytes: self.need(claimant),
            free_bytes: self.ledger.free_bytes(),
            host_free_bytes: self.host_room(),
        };
        self.withdraw(now, claimant);
        out.push(Decision::Refuse {
            session: claimant,
            why,
        });
    }

    /// Whether it has waited for long and would not fit if all had left but those whose iterations
    /// wait for callbacks while the callbacks wait for memory. Such a callback returns only when its
    /// request is answered, its iteration holds its arrays until then, and so they could wait for
    /// each other for ever. Before that, one may return: it may not wait for that request.
    fn waits_in_a_circle(&self, claimant: SessionId) -> bool {
        let request = self.session(claimant).request.as_ref();
        let Some(request) = request.filter(|request| request.aged) else {
            return false;
        };
        if !self.lanes.iter().any(LaneState::awaits_jobs) {
            return false;
        }
        let demand = &request.demand;
        let needs = demand.new_bytes + demand.absent_bytes + demand.scratch_bytes();
        let waits = |id: SessionId, s: &Session| {
            let is_away = s.account.running > 0 && !self.works_for(id);
            is_away && (id == claimant || (s.request.is_some() && self.lack(id) > 0))
        };
        let waiting = self.sessions.iter().filter(|(id, s)| waits(*id, s));
        let held = waiting.filter_map(|(id, _)| self.ledger.holding(id));
        let held: u64 = held.map(|holding| holding.resident_bytes).sum();
        needs > self.ledger.room().device_bytes - held
    }

    pub(crate) fn others_fit(&self, claimant: SessionId) -> bool {
        let mut others = self.sessions.iter();
        others.any(|(id, s)| {
            let asks = s.request.is_some() && !self.is_held(id, s);
            id != claimant && asks && self.lack(id) == 0
        })
    }

    pub(crate) fn send_away(
        &mut self,
        now: Time,
        id: SessionId,
        bytes: u64,
        out: &mut Vec<Decision>,
    ) {
        self.leaving_bytes += bytes;
        self.dequeue(id);
        self.session_mut(id).leaving = Some((bytes, now));
        self.replace(id);
        self.restate(now, id);
        out.push(Decision::PageOut { session: id, bytes });
    }

    /// Room for pages that is not promised to any.
    pub(crate) fn host_room(&self) -> u64 {
        let free = self.ledger.host_free_bytes();
        free.saturating_sub(self.leaving_bytes)
    }

    /// What is free for this session: all, or what is left beyond the claimant's share.
    pub(crate) fn allowance(&self, id: SessionId) -> u64 {
        match self.claim {
            Some(claimant) if claimant != id => self.left_beside(claimant),
            _ => self.ledger.free_bytes(),
        }
    }

    /// What is free for others: all, until the claimant's share is under way.
    pub(crate) fn left_beside(&self, claimant: SessionId) -> u64 {
        let free = self.ledger.free_bytes();
        if !self.is_covered(claimant) {
            return free;
        }
        let kept = self.need(claimant).saturating_sub(self.leaving_bytes);
        free.saturating_sub(kept)
    }

    /// Whether what is free and what leaves is enough for it.
    pub(crate) fn is_covered(&self, claimant: SessionId) -> bool {
        self.lack(claimant) <= self.leaving_bytes
    }

    pub(crate) fn lack(&self, id: SessionId) -> u64 {
        self.need(id).saturating_sub(self.ledger.free_bytes())
    }

    /// Where the claimant waits for what runs, nothing later in order may be started that it would
    /// have to wait for as well.
    pub(crate) fn would_be_in_the_way(&self, id: SessionId) -> bool {
        let Some(claimant) = self.claim.filter(|claimant| *claimant != id) else {
            return false;
        };
        let later = self.earlier(Some(claimant), id) == Some(claimant);
        later && self.fits_after(claimant, None) && !self.fits_after(claimant, Some(id))
    }

    /// Whether the claimant fits as soon as what ran when it became the claimant, and what comes
    /// before it, has ended, even if what else was started since never ends; `with` is one that would
    /// be started now.
    pub(crate) fn fits_after(&self, claimant: SessionId, with: Option<SessionId>) -> bool {
        let asked = |id: SessionId| self.session(id).request.as_ref();
        let Some(request) = asked(claimant) else {
            return true;
        };
        let order = self.order_of(claimant);
        let own = self.session(claimant).lane.0 as usize;
        let with = with.and_then(|id| Some((self.session(id).lane.0 as usize, asked(id)?.demand)));
        let mut kept = request.demand.new_bytes + request.demand.absent_bytes;
        kept += with.map_or(0, |(_, demand)| demand.new_bytes + demand.absent_bytes);
        for (index, lane) in self.lanes.iter().enumerate() {
            let mut size = lane.size_since(self.claimed_at, order);
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
}
