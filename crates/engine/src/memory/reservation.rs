//! The reservation: the first request in order that does not fit, and what is done for its holder.
//!
//! If the request fits as soon as what runs has ended, it waits for that, and nothing later in order
//! starts that would delay it. Otherwise others are evicted for it. Once enough is free or on its way
//! out, that much is kept for the holder; until then, later requests that fit may be backfilled
//! (`schedule/select.rs`).
//!
//! Promise: what is evicted for the holder is kept for it; nobody is evicted for a request that fits
//! as soon as what runs has ended; a request that would wait forever is refused, also where it and
//! others would wait for each other.

use crate::engine::Engine;
use crate::event::{Decision, Refusal, SessionId};
use crate::memory::Evicting;
use crate::schedule::LaneState;
use crate::session::Session;

/// Evicted beyond what is lacking, so that small outputs of others do not make it fall short.
pub const EVICTION_MARGIN_BYTES: u64 = 256 << 10;

#[derive(Debug, Default)]
pub(crate) struct Reservation {
    holder: Option<SessionId>,
    /// How many iterations had been started when the holder got it.
    starts_before: u64,
}

impl Reservation {
    pub(crate) fn holder(&self) -> Option<SessionId> {
        self.holder
    }

    pub(crate) fn is_held_by(&self, session: SessionId) -> bool {
        self.holder == Some(session)
    }

    /// Who has to wait for it: any holder but the session itself.
    pub(crate) fn other_holder(&self, session: SessionId) -> Option<SessionId> {
        self.holder.filter(|holder| *holder != session)
    }

    /// Returns who held it before.
    pub(crate) fn pass_to(&mut self, session: SessionId, starts: u64) -> Option<SessionId> {
        self.starts_before = starts;
        self.holder.replace(session)
    }

    /// Gives it up, if the session holds it.
    pub(crate) fn give_up(&mut self, session: SessionId) {
        if self.is_held_by(session) {
            self.holder = None;
        }
    }
}

impl Engine {
    /// Evicts others for the reservation's holder. Returns whether it was refused instead.
    pub(crate) fn make_room(&mut self, out: &mut Vec<Decision>) -> bool {
        let Some(holder) = self.memory.reservation().holder() else {
            return false;
        };
        // What runs will end sooner than anybody can be paged out and in again.
        if self.fits_after(holder, None) {
            return false;
        }
        if self.is_deadlocked(holder) {
            self.refuse(holder, out);
            return true;
        }
        while !self.is_covered(holder) {
            let lack = self.lack(holder) - self.memory.evicting_bytes();
            let host = self.memory.host_room();
            let victim = self.memory.victim(self.now, holder);
            let victim = victim.or_else(|| self.holder_as_victim(holder));
            let Some(victim) = victim.filter(|_| host > 0) else {
                return self.wait_for_room(holder, host, out);
            };
            let resident = self.memory.resident_bytes(victim);
            let bytes = (lack + EVICTION_MARGIN_BYTES).min(resident).min(host);
            self.evict(victim, bytes, out);
        }
        false
    }

    /// The holder itself, if nobody else will be evicted and it has arrays that its request does not
    /// name.
    fn holder_as_victim(&self, holder: SessionId) -> Option<SessionId> {
        let session = self.session(holder);
        let demand = session.request.as_ref().map(|r| r.demand)?;
        let resident = self.memory.ledger().holding(holder)?.resident_bytes;
        let others = resident.saturating_sub(demand.argument_bytes - demand.paged_bytes);
        let may = others > 0 && session.may_be_evicted();
        (may && self.memory.next_victim_at(holder).is_none()).then_some(holder)
    }

    /// Nobody may be evicted now. If nobody will be, and nobody works who may free something, the
    /// holder would wait forever: it is refused, which is returned.
    fn wait_for_room(&mut self, holder: SessionId, host: u64, out: &mut Vec<Decision>) -> bool {
        if host > 0 {
            self.wake_at = self.memory.next_victim_at(holder);
        }
        let at_work = |id: SessionId, s: &Session| {
            // A paused one may free something when it is resumed.
            let asks = s.request.is_some() && !s.paused;
            id != holder && (!asks || self.works_for(id))
        };
        // A callback may return, unless it waits for what its job asks for here.
        let aged = self.session(holder).request.is_some_and(|r| r.aged);
        let lanes = || self.queues.lanes().iter();
        let hope = self.wake_at.is_some()
            || self.memory.evicting_bytes() > 0
            || lanes().any(|lane| lane.in_flight() > 0)
            || (!aged && lanes().any(LaneState::awaits_jobs))
            || self.others_fit(holder)
            || self.sessions.iter().any(|(id, s)| at_work(id, s));
        if !hope {
            self.refuse(holder, out);
        }
        !hope
    }

    fn refuse(&mut self, holder: SessionId, out: &mut Vec<Decision>) {
        let why = Refusal::NoRoom {
            needs_bytes: self.need(holder),
            free_bytes: self.memory.ledger().free_bytes(),
            host_free_bytes: self.memory.host_room(),
        };
        self.withdraw(holder);
        self.settle();
        out.push(Decision::Refuse {
            session: holder,
            why,
        });
    }

    /// Whether the holder is aged and would not fit if all were evicted but those whose iterations
    /// wait for callbacks while the callbacks wait for memory. Such a callback returns only when its
    /// request is answered, its iteration holds its arrays until then, and so they could wait for
    /// each other forever. Before aging, one may return: it may not wait for that request.
    fn is_deadlocked(&self, holder: SessionId) -> bool {
        let request = self.session(holder).request.as_ref();
        let Some(request) = request.filter(|request| request.aged) else {
            return false;
        };
        if !self.queues.lanes().iter().any(LaneState::awaits_jobs) {
            return false;
        }
        let demand = &request.demand;
        let needs = demand.new_bytes + demand.paged_bytes + demand.scratch_bytes();
        let waits = |id: SessionId, s: &Session| {
            let in_callback = s.account.running > 0 && !self.works_for(id);
            in_callback && (id == holder || (s.request.is_some() && self.lack(id) > 0))
        };
        let waiting = self.sessions.iter().filter(|(id, s)| waits(*id, s));
        let held: u64 = waiting.map(|(id, _)| self.memory.resident_bytes(id)).sum();
        needs > self.memory.ledger().room().device_bytes - held
    }

    fn others_fit(&self, holder: SessionId) -> bool {
        let mut others = self.sessions.iter();
        others.any(|(id, s)| {
            let asks = s.request.is_some() && !self.is_held(id, s);
            id != holder && asks && self.lack(id) == 0
        })
    }

    /// Has a session page out this many bytes; its request waits until it has.
    pub(crate) fn evict(&mut self, victim: SessionId, bytes: u64, out: &mut Vec<Decision>) {
        self.memory.eviction_started(bytes);
        let since = self.now;
        self.touch(victim).evicting = Some(Evicting { bytes, since });
        self.settle();
        out.push(Decision::PageOut {
            session: victim,
            bytes,
        });
    }

    /// What is free for this session: all, or what is left beside the reservation.
    pub(crate) fn free_for(&self, id: SessionId) -> u64 {
        match self.memory.reservation().other_holder(id) {
            Some(holder) => self.free_beside(holder),
            None => self.memory.ledger().free_bytes(),
        }
    }

    /// What is free for others than the holder: all, until the holder's room is on its way.
    pub(crate) fn free_beside(&self, holder: SessionId) -> u64 {
        let free = self.memory.ledger().free_bytes();
        if !self.is_covered(holder) {
            return free;
        }
        let reserved = self
            .need(holder)
            .saturating_sub(self.memory.evicting_bytes());
        free.saturating_sub(reserved)
    }

    /// Whether what is free and what is being paged out is enough for the holder.
    pub(crate) fn is_covered(&self, holder: SessionId) -> bool {
        self.lack(holder) <= self.memory.evicting_bytes()
    }

    /// What the session's request needs beyond what is free.
    fn lack(&self, id: SessionId) -> u64 {
        self.need(id)
            .saturating_sub(self.memory.ledger().free_bytes())
    }

    /// Where the holder waits for what runs, whether starting this request, which is later in order,
    /// would make it wait for longer.
    pub(crate) fn would_delay_holder(&self, id: SessionId) -> bool {
        let Some(holder) = self.memory.reservation().other_holder(id) else {
            return false;
        };
        let is_later = self.is_before(holder, id);
        is_later && self.fits_after(holder, None) && !self.fits_after(holder, Some(id))
    }

    /// Whether the holder fits as soon as what ran when it got the reservation, and what comes before
    /// it, has ended, even if what else was started since never ends; `with` is one that would be
    /// started now.
    pub(crate) fn fits_after(&self, holder: SessionId, with: Option<SessionId>) -> bool {
        let asked = |id: SessionId| self.session(id).request.as_ref();
        let Some(request) = asked(holder) else {
            return true;
        };
        let order = self.order_of(holder);
        let own = self.session(holder).lane.index();
        let with = with.and_then(|id| Some((self.session(id).lane.index(), asked(id)?.demand)));
        let mut kept = request.demand.new_bytes + request.demand.paged_bytes;
        kept += with.map_or(0, |(_, demand)| demand.new_bytes + demand.paged_bytes);
        let since = self.memory.reservation().starts_before;
        for (index, lane) in self.queues.lanes().iter().enumerate() {
            let mut size = lane.size_since(since, order);
            if index == own {
                size = size.max(request.demand.scratch_bytes());
            }
            if let Some((_, demand)) = with.filter(|(at, _)| *at == index) {
                size = size.max(demand.scratch_bytes());
            }
            kept += size;
        }
        kept <= self.memory.without_arrays()
    }
}
