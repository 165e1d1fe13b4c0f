//! Memory of the device and the host: who holds it, who is evicted, and for whom it is reserved.
//!
//! Three parts that change together: the ledger (where every byte is), the eviction index (whose
//! arrays may be paged out, and what is on its way out), and the reservation (the first request that
//! does not fit).
//!
//! Promise: arrays and scratch never exceed the device, pages never the host.
//! Cost: O(log n) in the sessions.

mod eviction;
mod host_room;
mod ledger;
mod reservation;

pub(crate) use eviction::{Candidate, Evicting};
pub use eviction::{MIN_RESIDENCY, MIN_RESIDENCY_MAX};
use host_room::HostQueue;
pub use ledger::{Holding, Ledger, Room};
pub use reservation::EVICTION_MARGIN_BYTES;

use crate::event::{Demand, SessionId, User};
use crate::time::Time;
use eviction::Eviction;
use reservation::Reservation;

#[derive(Debug)]
pub(crate) struct Memory {
    ledger: Ledger,
    eviction: Eviction,
    reservation: Reservation,
    host_queue: HostQueue,
}

impl Memory {
    pub(crate) fn new(room: Room) -> Self {
        Self {
            ledger: Ledger::new(room),
            eviction: Eviction::default(),
            reservation: Reservation::default(),
            host_queue: HostQueue::default(),
        }
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    pub(crate) fn reservation_mut(&mut self) -> &mut Reservation {
        &mut self.reservation
    }

    pub(crate) fn resident_bytes(&self, session: SessionId) -> u64 {
        let holding = self.ledger.holding(session);
        holding.map_or(0, |holding| holding.resident_bytes)
    }

    /// Host memory that is neither used nor promised to what is being paged out.
    pub(crate) fn host_room(&self) -> u64 {
        let free = self.ledger.host_free_bytes();
        free.saturating_sub(self.eviction.evicting_bytes())
    }

    /// Device memory without arrays: what would be free if nothing ran.
    pub(crate) fn without_arrays(&self) -> u64 {
        self.ledger.free_bytes() + self.ledger.scratch_bytes()
    }

    pub(crate) fn open(&mut self, session: SessionId, user: User) {
        self.ledger.open(session, user);
    }

    /// The session is gone, with all that it held and whatever it was asked to page out.
    pub(crate) fn close(&mut self, session: SessionId, evicting: Option<Evicting>) {
        self.eviction.forget(session, evicting);
        self.ledger.close(session);
    }

    /// Room for what a request takes, also for the arguments that are paged in.
    pub(crate) fn take(&mut self, session: SessionId, demand: &Demand) {
        let bytes = demand.new_bytes + demand.paged_bytes;
        self.ledger.take(session, bytes, demand.paged_bytes);
        if demand.new_host_bytes > 0 {
            self.ledger.take_host(session, demand.new_host_bytes);
        }
    }

    /// Room for arguments that are paged in before the request's turn.
    pub(crate) fn page_in(&mut self, session: SessionId, bytes: u64) {
        self.ledger.take(session, bytes, bytes);
    }

    /// A lane's scratch changes its size.
    pub(crate) fn resize_lane(&mut self, (before, after): (u64, u64)) {
        self.ledger.resize_lane(before, after);
    }

    pub(crate) fn release(
        &mut self,
        session: SessionId,
        resident_bytes: u64,
        paged_bytes: u64,
        host_bytes: u64,
    ) {
        self.ledger
            .release(session, resident_bytes, paged_bytes, host_bytes);
    }

    pub(crate) fn eviction_started(&mut self, bytes: u64) {
        self.eviction.started(bytes);
    }

    /// The session has paged out this many bytes; 0 if nothing of it can be moved.
    pub(crate) fn eviction_ended(
        &mut self,
        now: Time,
        session: SessionId,
        asked: Evicting,
        bytes: u64,
    ) {
        self.ledger.page_out(session, bytes);
        self.eviction.ended(now, asked, bytes);
        let no_room = self.ledger.host_free_bytes() < self.resident_bytes(session);
        if bytes == 0 && no_room {
            self.eviction.found_no_host_room(session);
        }
    }

    /// Bytes that sessions were asked to page out and have not yet.
    pub(crate) fn evicting_bytes(&self) -> u64 {
        self.eviction.evicting_bytes()
    }

    /// Who is evicted first for `holder`, if anybody may be evicted now.
    pub(crate) fn victim(&self, now: Time, holder: SessionId) -> Option<SessionId> {
        self.eviction.victim(now, holder)
    }

    /// When somebody may be evicted for `holder`; `None` if there is nobody.
    pub(crate) fn next_victim_at(&self, holder: SessionId) -> Option<Time> {
        self.eviction.next(holder)
    }

    /// Until when a session is not evicted that is paged in now.
    pub(crate) fn resident_until(&self, now: Time) -> Time {
        self.eviction.resident_until(now)
    }

    /// Host memory became free: a session that found none may be asked again, one at a time.
    pub(crate) fn next_cramped(&mut self) -> Option<SessionId> {
        self.eviction.next_cramped()
    }

    /// The session's request waits for the host since another time than before, or no longer.
    pub(crate) fn update_host_queue(
        &mut self,
        session: SessionId,
        before: Option<Time>,
        after: Option<Time>,
    ) {
        self.host_queue.update(session, before, after);
    }

    /// The session is another candidate for eviction than before, or none.
    pub(crate) fn update_candidate(
        &mut self,
        session: SessionId,
        before: Option<Candidate>,
        after: Option<Candidate>,
    ) {
        self.eviction.update(session, before, after);
    }
}
