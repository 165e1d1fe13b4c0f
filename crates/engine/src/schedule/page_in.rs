//! Page-ins ahead of a turn, on devices with memory of their own.
//!
//! There a copy to the device waits for all iterations that were handed over before it, and the next
//! iteration of its session waits for the copy: the device would be idle meanwhile. So where the first
//! in order must be paged in and another session of its lane is ready, too, its copies are handed over
//! first, then one iteration of the other, and the turn of the first comes next: it is copied while
//! the other computes.
//!
//! Promise: a request waits for one iteration of its own class at most because of this, and not at all
//! where it is aged or has a deadline. Where the device's memory is the host's, nothing changes.
//! Not here: when it is its turn (`select.rs`).

use super::lanes::Waiting;
use crate::engine::Engine;
use crate::event::{Decision, Kind, Lane, SessionId};

impl Engine {
    /// The device has memory of its own.
    #[must_use]
    pub fn with_own_memory(mut self) -> Self {
        self.own_memory = true;
        self
    }

    /// Whether the session, which is the first in order and fits, should be paged in before another's
    /// iteration instead of being started now.
    pub(super) fn is_paged_in_ahead(&self, id: SessionId) -> bool {
        let session = self.session(id);
        let Some(request) = session.request.as_ref().filter(|_| self.own_memory) else {
            return false;
        };
        let is_launch = matches!(request.demand.kind, Kind::Launch { .. });
        let may = is_launch && request.demand.paged_bytes > 0 && !request.aged;
        may && self.goes_between(session.lane, id).is_some()
    }

    /// The first launch of the lane that may go before the session's, which needs no paging and leaves
    /// it enough memory.
    pub(super) fn goes_between(&self, lane: Lane, id: SessionId) -> Option<&Waiting> {
        let arrangement = self.queues.arrangement();
        let rank = self.session(id).request.as_ref()?.order.rank;
        if arrangement.co_runs || arrangement.is_deadline(rank.class) {
            return None;
        }
        let state = self.queues.lane(lane);
        let mut others = state.resident.iter();
        let (order, waiting) = others.find(|(_, waiting)| waiting.session != id)?;
        let is_alike = order.rank.class == rank.class && !waiting.calls_back;
        let depth = self.queues.depth(self.now, order.rank);
        let has_place = is_alike && state.lets_in(false, depth);
        let both = waiting.need(state.size_bytes()) + self.need(id);
        let fits = both <= self.free_for(id) && !self.lacks_host_room(waiting.session);
        (has_place && fits).then_some(waiting)
    }

    /// Has the session page in what its request needs, before its turn.
    pub(super) fn page_in_ahead(&mut self, id: SessionId, out: &mut Vec<Decision>) {
        let resident_until = self.memory.resident_until(self.now);
        let session = self.touch(id);
        let lane = session.lane;
        session.resident_until = resident_until;
        session.unevictable = false;
        let request = session.request.as_mut();
        let bytes = request.map_or(0, |r| std::mem::take(&mut r.demand.paged_bytes));
        self.memory.page_in(id, bytes);
        self.queues.lane_mut(lane).begin_page_in(id);
        self.host_has_more();
        self.settle();
        out.push(Decision::PageIn { session: id, lane });
    }

    /// The session's copies were handed to the device.
    pub(crate) fn paged_in(&mut self, id: SessionId) {
        let lane = self.session(id).lane;
        self.queues.lane_mut(lane).page_in_begun(id);
        self.touch(id);
    }
}
