//! The order: in which queue a request stands, and at which place.
//!
//! Requests of a lane are compared with each other, those of different lanes only where they want
//! the same memory or should not run side by side.
//!
//! Promise: who has waited for [`PATIENCE`] is before all who have not.
//! Cost: O(log n) in the sessions and O(lanes).
//! Not here: what comes before what (`policies/`), virtual time (`shares.rs`).

use std::collections::BTreeMap;

use crate::engine::{Engine, Order, Request, Session};
use crate::lanes::{DEPTH, LaneState, Waiting};
use crate::policies::{CLASSES, Facts, PATIENCE, Rank};
use crate::shares::OWED_TO_A_LANE;
use crate::time::Time;
use crate::{Demand, Kind, Lane, SessionId};

impl Engine {
    /// Puts the request where it belongs, if it may be served.
    pub(crate) fn enqueue(&mut self, now: Time, id: SessionId) {
        let session = self.session(id);
        if let Some(request) = session.request
            && session.leaving.is_none()
            && !session.queued
            && !self.is_held(id, session)
        {
            let lane = session.lane;
            let order = self.rank(id, session, &request);
            let queue = self.queue(lane, &request.demand);
            let earlier = queue.insert(order, Waiting::new(id, &request.demand));
            assert!(earlier.is_none());
            if !request.aged {
                self.ages.insert(order.number, (id, request.ready_at));
            }
            let session = self.session_mut(id);
            session.request = Some(Request { order, ..request });
            session.queued = true;
        }
        self.restate(now, id);
    }

    /// The request counts as made now: for as long as its user has paused it, nobody let it wait.
    pub(crate) fn ask_anew(&mut self, now: Time, id: SessionId) {
        self.dequeue(id);
        let number = self.next_request();
        if let Some(request) = &mut self.session_mut(id).request {
            request.order.number = number;
            request.ready_at = now;
            request.aged = false;
        }
    }

    pub(crate) fn dequeue(&mut self, id: SessionId) {
        let session = self.session_mut(id);
        let lane = session.lane;
        if std::mem::take(&mut session.queued)
            && let Some(request) = session.request
        {
            let found = self.queue(lane, &request.demand).remove(&request.order);
            assert!(found.is_some_and(|waiting| waiting.session == id));
            self.ages.remove(&request.order.number);
        }
    }

    /// What the order of the session's request is made of has changed.
    pub(crate) fn requeue(&mut self, now: Time, id: SessionId) {
        let session = self.session(id);
        let held = self.is_held(id, session);
        let queued = session.request.filter(|_| session.queued && !held);
        if let Some(request) = queued {
            let order = self.rank(id, session, &request);
            self.reorder(id, order);
            return self.restate(now, id);
        }
        self.dequeue(id);
        if held && self.claim == Some(id) {
            self.claim = None;
        }
        self.enqueue(now, id);
    }

    /// Its request moves within its queue.
    fn reorder(&mut self, id: SessionId, order: Order) {
        let session = self.session_mut(id);
        let lane = session.lane;
        if let Some(request) = &mut session.request
            && request.order != order
        {
            let (before, demand) = (request.order, request.demand);
            request.order = order;
            let queue = self.queue(lane, &demand);
            let waiting = queue.remove(&before);
            let waiting = waiting.unwrap_or_else(|| panic!("{id} is not in its queue"));
            let earlier = queue.insert(order, waiting);
            assert!(earlier.is_none());
        }
    }

    fn rank(&self, id: SessionId, session: &Session, request: &Request) -> Order {
        let attained = session.account.device_time + session.share.pending();
        let facts = Facts {
            session: id,
            wishes: &session.wishes,
            ready_at: request.ready_at,
            attained,
            virtual_time: session.share.virtual_time(session.wishes.weight),
            remaining: session.progress.remaining(session.wishes.work, attained),
        };
        let rank = match request.aged {
            true => Rank::FIRST,
            false => self.policy.rank(&facts),
        };
        let order = Order {
            rank,
            number: request.order.number,
        };
        match request.demand.kind {
            // The queue of these is one for all lanes.
            Kind::Array => self.among_all(session.lane.0 as usize, order),
            _ => order,
        }
    }

    fn queue(&mut self, lane: Lane, demand: &Demand) -> &mut BTreeMap<Order, Waiting> {
        let lane = &mut self.lanes[lane.0 as usize];
        match demand.kind {
            Kind::Array => &mut self.arrays,
            _ if demand.absent_bytes > 0 => &mut lane.absent,
            _ => &mut lane.resident,
        }
    }

    /// How many iterations a lane may have with one of this rank: one runs and the next follows
    /// without a gap, unless what should run before that could become ready meanwhile.
    pub(crate) fn depth(&self, rank: Rank) -> usize {
        let lowest = self.classes.first_key_value().map(|(class, _)| *class);
        let tightest = self
            .latencies
            .first_key_value()
            .map(|(latency, _)| *latency);
        // The earliest that somebody who is not ready yet could have to be done by.
        let earliest = tightest.map(|latency| u128::from((self.now + latency).0));
        let is_due = self.policy.is_due(rank.class);
        let overtaken = lowest.is_some_and(|lowest| lowest < rank.class)
            || (is_due && earliest.is_some_and(|earliest| earliest < rank.key));
        match overtaken {
            true => 1,
            false => DEPTH,
        }
    }

    /// Whoever has waited long enough goes before all others.
    pub(crate) fn heed_age(&mut self, now: Time) {
        while let Some((_, &(id, ready_at))) = self.ages.first_key_value() {
            if now - ready_at < PATIENCE {
                break;
            }
            self.dequeue(id);
            if let Some(request) = &mut self.session_mut(id).request {
                request.aged = true;
            }
            self.enqueue(now, id);
        }
    }

    /// When the next request will have waited long enough to go before others.
    pub(crate) fn next_age(&self) -> Option<Time> {
        let (_, &(_, ready_at)) = self.ages.first_key_value()?;
        Some(ready_at + PATIENCE)
    }

    /// Where those of the session's class stand in virtual time that were served last in its lane.
    pub(crate) fn clock(&self, session: &Session) -> u128 {
        let class = self.policy.class(&session.wishes);
        self.lanes[session.lane.0 as usize].clocks[usize::from(class)]
    }

    /// The session is served next.
    pub(crate) fn advance_clock(&mut self, id: SessionId) {
        let session = self.session(id);
        let at = session.share.virtual_time(session.wishes.weight);
        let class = usize::from(self.policy.class(&session.wishes));
        let own = session.lane.0 as usize;
        let lanes = self.lanes.iter();
        let clocks = lanes.map(|lane| lane.clocks[class] + lane.shifts[class]);
        let first = clocks.max().unwrap_or(0);
        let lane = &mut self.lanes[own];
        lane.clocks[class] = at.max(lane.clocks[class]);
        let behind = first.saturating_sub(lane.clocks[class] + lane.shifts[class]);
        lane.shifts[class] += behind.saturating_sub(OWED_TO_A_LANE);
    }

    /// No lane is behind another any more: what they got side by side is not held against them when
    /// they take turns.
    pub(crate) fn level_lanes(&mut self) {
        for class in 0..CLASSES {
            let stands = |lane: &LaneState| lane.clocks[class] + lane.shifts[class];
            let first = self.lanes.iter().map(stands).max().unwrap_or(0);
            for lane in &mut self.lanes {
                lane.shifts[class] = first - lane.clocks[class];
            }
        }
    }

    /// The session wants its share again, after it asked for nothing.
    pub(crate) fn rejoin(&mut self, now: Time, id: SessionId) {
        let clock = self.clock(self.session(id));
        let session = self.session_mut(id);
        let away = now - session.quiet_since;
        session.share.ready(away, clock, session.wishes.weight);
    }

    /// Where a lane's request stands among those of all lanes. What its sessions got counts, but a
    /// lane is never far behind: others got more because they had fewer to share with.
    pub(crate) fn among_all(&self, lane: usize, mut order: Order) -> Order {
        let class = order.rank.class;
        if self.policy.shares(class) {
            order.rank.key += self.lanes[lane].shifts[usize::from(class)];
        }
        order
    }

    /// Of its request, among all.
    pub(crate) fn order_of(&self, id: SessionId) -> Option<Order> {
        let session = self.session(id);
        let request = session.request.as_ref()?;
        Some(match request.demand.kind {
            Kind::Array => request.order,
            _ => self.among_all(session.lane.0 as usize, request.order),
        })
    }
}
