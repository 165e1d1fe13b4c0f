//! Settling: what follows from a session's record is brought up to date, here and nowhere else.
//!
//! Five things follow from a record: as what it is counted, where its request is queued, whether that
//! waits for the host, whether the session is a candidate for eviction, and its account's state. Handlers of events change records through
//! [`Engine::touch`] and leave these alone; after each event, and after each decision, all touched
//! sessions are settled.
//!
//! Promise: outside of a handler, indexes agree with records.
//! Cost: O(log n) per touched session.

use crate::accounts::State;
use crate::engine::Engine;
use crate::event::SessionId;
use crate::memory::Candidate;
use crate::policies::{Facts, Rank};
use crate::schedule::{Counted, LaneState, Order, Place, Queue};
use crate::session::{Request, Session};
use crate::time::Time;

impl Engine {
    /// The session's record, to be changed: what follows from it is settled later.
    pub(crate) fn touch(&mut self, id: SessionId) -> &mut Session {
        self.touched.push(id);
        self.session_mut(id)
    }

    /// Brings all touched sessions up to date.
    pub(crate) fn settle(&mut self) {
        // The owner first: whether a session is held depends on it. It may touch others.
        let mut next = 0;
        while let Some(&id) = self.touched.get(next) {
            self.update_owner(id);
            next += 1;
        }
        while let Some(id) = self.touched.pop() {
            self.settle_session(id);
        }
        let lane = self.vacated.take().map(|lane| self.queues.lane(lane));
        if let Some(next) = lane.and_then(LaneState::head) {
            self.update_state(next);
        }
    }

    fn settle_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let held = self.is_held(id, session);
        if held {
            self.memory.reservation_mut().give_up(id);
        }
        let counted = (!session.paused).then(|| Counted {
            class: self.queues.policy().class(&session.settings),
            deadline: session.settings.deadline.map(Into::into),
        });
        let request = session.request.as_ref().filter(|_| !held);
        let queued = request.filter(|request| session.evicting.is_none() && !request.awaits_host);
        let awaits_host = request.filter(|request| request.awaits_host);
        let awaits_host_since = awaits_host.and_then(|request| request.lacks_host_since);
        let place = queued.map(|request| self.place(id, session, request));
        let is_candidate = session.may_be_evicted() && self.memory.resident_bytes(id) > 0;
        let candidate = is_candidate.then(|| match request {
            None => Candidate::Quiet {
                since: session.quiet_since.max(session.resident_until),
            },
            Some(_) => Candidate::Waiting {
                resident_until: session.resident_until,
            },
        });
        self.index(id, counted, place, candidate);
        self.index_host_wait(id, awaits_host_since);
        self.update_state(id);
    }

    /// Has the indexes say this of the session.
    #[inline]
    pub(crate) fn index(
        &mut self,
        id: SessionId,
        counted: Option<Counted>,
        place: Option<Place>,
        candidate: Option<Candidate>,
    ) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.rerank = false;
        let derived = &mut session.derived;
        if derived.counted != counted {
            let before = std::mem::replace(&mut derived.counted, counted);
            self.queues.update_counted(before, counted);
        }
        if derived.candidate != candidate {
            let before = std::mem::replace(&mut derived.candidate, candidate);
            self.memory.update_candidate(id, before, candidate);
        }
        if derived.place != place {
            let before = std::mem::replace(&mut derived.place, place);
            if let Some((request, place)) = session.request.as_mut().zip(place) {
                request.order = place.order;
            }
            let request = session.request.as_ref();
            self.queues.update_place(id, before, place, request);
        }
    }

    /// Has the queue for the host's memory say this of the session.
    pub(crate) fn index_host_wait(&mut self, id: SessionId, since: Option<Time>) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let derived = &mut session.derived.awaits_host_since;
        if *derived != since {
            let before = std::mem::replace(derived, since);
            self.memory.update_host_queue(id, before, since);
        }
    }

    fn place(&self, id: SessionId, session: &Session, request: &Request) -> Place {
        let (rank, number) = (self.rank(id, session, request), request.order.number);
        let queue = Queue::of(session.lane, &request.demand);
        let mut place = Place {
            queue,
            order: Order { rank, number },
            shift: 0,
            aged: request.aged,
        };
        if queue == Queue::Arrays {
            // The queue of these is one for all lanes. Lanes' clocks move all the time; a request's
            // place follows when its own rank changes.
            let is_same = |before: &Place| before.own() == place.order;
            let before = session.derived.place.filter(is_same);
            let before = before.filter(|_| !session.rerank);
            place.order = match before {
                Some(before) => before.order,
                None => self.queues.among_all(session.lane, place.order),
            };
            place.shift = place.order.rank.key - rank.key;
        }
        place
    }

    fn rank(&self, id: SessionId, session: &Session, request: &Request) -> Rank {
        if request.aged {
            return Rank::AGED;
        }
        self.queues.policy().rank(&Facts {
            id,
            session,
            ready_at: request.ready_at,
        })
    }

    fn update_state(&mut self, id: SessionId) {
        let session = self.session(id);
        let lane = self.queues.lane(session.lane);
        let state = if self.works_for(id) {
            match lane.is_at_work_for(id) {
                true => State::Running,
                false => State::Turn,
            }
        } else if let Some(request) = &session.request {
            let lacks = || session.need(lane) > self.memory.ledger().free_bytes();
            let is_reserved = self.memory.reservation().is_held_by(id);
            if session.paused {
                State::Paused
            } else if session.evicting.is_some() {
                State::Paging
            } else if is_reserved
                || request.demand.paged_bytes > 0
                || request.awaits_host
                || lacks()
            {
                State::Memory
            } else {
                State::Turn
            }
        } else if session.account.running > 0 {
            State::Callback
        } else if session.paused {
            State::Paused
        } else if session.compiling > 0 {
            State::Compile
        } else {
            State::Host
        };
        if state != session.account.state() {
            let now = self.now;
            self.session_mut(id).account.enter(now, state);
        }
    }
}
