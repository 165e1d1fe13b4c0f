//! Room on the host for arrays that are made there: a device with memory of its own reaches them, and
//! they share the host's memory with pages.
//!
//! Nobody can be evicted for such an array. So a request that lacks room on the host leaves its queue,
//! in which it would keep others waiting, and comes back as soon as there is room. If there is none
//! within [`AGING_LIMIT`], or if nobody else holds anything there, it is refused with the numbers.
//!
//! Promise: a request waits here for at most [`AGING_LIMIT`] and keeps nobody else from starting, so
//! no two requests can wait for each other.
//! Cost: nothing where no request has such arrays, else O(requests that wait here) per event.

use std::collections::BTreeSet;

use crate::engine::Engine;
use crate::event::{Decision, Refusal, SessionId};
use crate::schedule::AGING_LIMIT;
use crate::time::Time;

/// Requests that lack room on the host.
#[derive(Debug, Default)]
pub(super) struct HostQueue {
    /// By the time since when they lack it.
    waiting: BTreeSet<(Time, SessionId)>,
}

impl HostQueue {
    pub(super) fn update(&mut self, session: SessionId, before: Option<Time>, after: Option<Time>) {
        let found = before.is_none_or(|since| self.waiting.remove(&(since, session)));
        assert!(found, "{session} does not wait for the host");
        let is_new = after.is_none_or(|since| self.waiting.insert((since, session)));
        assert!(is_new, "{session} waits for the host already");
    }
}

impl Engine {
    /// The most that the session may page out now: what it was asked for, and what nobody was promised.
    pub fn may_page_out(&self, id: SessionId) -> u64 {
        let evicting = self.sessions.get(id).and_then(|session| session.evicting);
        let asked = evicting.map_or(0, |evicting| evicting.bytes);
        asked + self.memory.host_room()
    }

    /// It pages out more than it was asked for.
    pub(crate) fn paging_out(&mut self, id: SessionId, bytes: u64) {
        let most = self.may_page_out(id);
        let asked = self.session_mut(id).evicting.as_mut();
        let asked = asked.unwrap_or_else(|| panic!("{id} was not asked to page out"));
        let more = bytes.min(most).saturating_sub(asked.bytes);
        asked.bytes += more;
        self.memory.eviction_started(more);
    }

    /// Whether the session's request has arrays in host memory that do not fit there now.
    pub(crate) fn lacks_host_room(&self, id: SessionId) -> bool {
        let needs = self.host_need(id);
        needs > 0 && needs > self.memory.host_room()
    }

    fn host_need(&self, id: SessionId) -> u64 {
        let request = self.session(id).request.as_ref();
        request.map_or(0, |request| request.demand.new_host_bytes)
    }

    /// The session's request waits until the host has room for it, or is refused if only the session
    /// itself could make room.
    pub(crate) fn wait_for_host_room(&mut self, id: SessionId, out: &mut Vec<Decision>) {
        self.memory.reservation_mut().give_up(id);
        if self.frees_nothing(id) {
            return self.refuse_for_host(id, out);
        }
        let now = self.now;
        if let Some(request) = &mut self.touch(id).request {
            request.lacks_host_since.get_or_insert(now);
            request.awaits_host = true;
        }
        self.settle();
    }

    /// Lets requests back into their queues for which there is room on the host now, the oldest
    /// first; refuses those that have waited for too long or in vain.
    pub(crate) fn serve_host_queue(&mut self, out: &mut Vec<Decision>) {
        if self.memory.host_queue.waiting.is_empty() {
            return;
        }
        let mut room = self.memory.host_room();
        for (since, id) in self.memory.host_queue.waiting.clone() {
            let needs = self.host_need(id);
            if needs <= room {
                room -= needs;
                if let Some(request) = &mut self.touch(id).request {
                    request.awaits_host = false;
                }
                self.settle();
            } else if self.session(id).evicting.is_some() {
                // It is answered when it has paged out.
            } else if since + AGING_LIMIT <= self.now || self.frees_nothing(id) {
                self.refuse_for_host(id, out);
            }
        }
    }

    /// Whether there is room now for a request that waits here.
    pub(crate) fn host_queue_may_go(&self) -> bool {
        let mut waiting = self.memory.host_queue.waiting.iter();
        waiting.any(|(_, id)| !self.lacks_host_room(*id))
    }

    /// When a request has waited for the host for too long.
    pub(crate) fn next_host_refusal_at(&self) -> Option<Time> {
        let waiting = self.memory.host_queue.waiting.iter();
        let mut waiting = waiting.filter(|(_, id)| self.session(*id).evicting.is_none());
        waiting.next().map(|(since, _)| *since + AGING_LIMIT)
    }

    /// Whether all that is on the host is the session's own, and nothing of it runs that could free
    /// some.
    fn frees_nothing(&self, id: SessionId) -> bool {
        let ledger = self.memory.ledger();
        let own = ledger
            .holding(id)
            .map_or(0, |own| own.paged_bytes + own.host_bytes);
        let others = ledger.paged_bytes() + ledger.host_bytes() - own;
        let is_quiet = self.session(id).account.running == 0;
        is_quiet && others == 0 && self.memory.evicting_bytes() == 0
    }

    fn refuse_for_host(&mut self, id: SessionId, out: &mut Vec<Decision>) {
        let why = self.no_host_room(self.host_need(id));
        self.withdraw(id);
        self.settle();
        out.push(Decision::Refuse { session: id, why });
    }

    pub(crate) fn no_host_room(&self, needs_bytes: u64) -> Refusal {
        Refusal::NoHostRoom {
            needs_bytes,
            free_bytes: self.memory.host_room(),
            room_bytes: self.memory.ledger().room().host_bytes,
        }
    }
}
