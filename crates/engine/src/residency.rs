//! Whose arrays may leave the device, and when.
//!
//! A session that came in stays for a while, at least as long as makes its moving worth while, so
//! that two which do not fit together take long turns instead of moving at every iteration. Those
//! that compute nothing go first, the longest quiet first; then those that have stayed longest.
//!
//! Promise: a session with something in flight is never asked to leave; nobody stays longer than
//! [`STAY_MAX`] where another waits for the room.
//! Cost: O(log n).

use std::collections::BTreeSet;

use crate::SessionId;
use crate::engine::Engine;
use crate::time::{Duration, Time};

/// The shortest stay: even where moving seems free, a turn has some iterations in it.
const STAY_MIN: Duration = Duration(50_000_000);
/// The longest: others wait for it.
const STAY_MAX: Duration = Duration(1_000_000_000);
/// A stay lasts so many times what moving out and in costs: then a tenth of the time is lost to it.
const STAY_FACTOR: u64 = 10;

#[derive(Debug, Default)]
pub(crate) struct Residency {
    /// Sessions without a request, by when they became quiet or their stay ended.
    quiet: BTreeSet<(Time, SessionId)>,
    /// Sessions whose request waits, by the end of their stay.
    waiting: BTreeSet<(Time, SessionId)>,
    /// What paging one out took lately.
    cost: Duration,
}

/// Under which key a session may be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Quiet { since: Time },
    Waiting { stays_until: Time },
}

impl Residency {
    pub(crate) fn add(&mut self, session: SessionId, place: Place) {
        let new = match place {
            Place::Quiet { since } => self.quiet.insert((since, session)),
            Place::Waiting { stays_until } => self.waiting.insert((stays_until, session)),
        };
        assert!(new, "{session} stands here already");
    }

    pub(crate) fn remove(&mut self, session: SessionId, place: Place) {
        let found = match place {
            Place::Quiet { since } => self.quiet.remove(&(since, session)),
            Place::Waiting { stays_until } => self.waiting.remove(&(stays_until, session)),
        };
        assert!(found, "{session} does not stand here");
    }

    /// Who should leave first for `claimant`, if anybody may leave now.
    pub(crate) fn victim(&self, now: Time, claimant: SessionId) -> Option<SessionId> {
        let others = self.waiting.iter().find(|(_, other)| *other != claimant);
        let first = self.quiet.first().filter(|(since, _)| *since <= now);
        let first = first.or(others.filter(|(until, _)| *until <= now));
        first.map(|&(_, session)| session)
    }

    /// When somebody may leave for `claimant`; `None` if nobody is there.
    pub(crate) fn next(&self, claimant: SessionId) -> Option<Time> {
        let quiet = self.quiet.first().map(|&(since, _)| since);
        let others = self.waiting.iter().find(|(_, other)| *other != claimant);
        let waiting = others.map(|&(until, _)| until);
        match (quiet, waiting) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Until when a session stays that comes in now.
    pub(crate) fn stay(&self, now: Time) -> Time {
        let stay = Duration(self.cost.0.saturating_mul(STAY_FACTOR));
        now + stay.clamp(STAY_MIN, STAY_MAX)
    }

    /// Paging a session out took so long; bringing it in takes about as long again.
    pub(crate) fn moved(&mut self, took: Duration) {
        self.cost = Duration((3 * self.cost.0 + 2 * took.0) / 4);
    }
}

impl Engine {
    /// Puts the session where `residency` should find it.
    pub(crate) fn replace(&mut self, id: SessionId) {
        let resident = self.ledger.holding(id).map_or(0, |h| h.resident_bytes);
        let session = self.session(id);
        let waits = session.request.is_some() && !self.is_held(id, session);
        let place = (resident > 0 && session.may_leave()).then(|| match waits {
            false => Place::Quiet {
                since: session.quiet_since.max(session.stays_until),
            },
            true => Place::Waiting {
                stays_until: session.stays_until,
            },
        });
        let before = session.place;
        if before != place {
            self.session_mut(id).place = place;
            if let Some(before) = before {
                self.residency.remove(id, before);
            }
            if let Some(place) = place {
                self.residency.add(id, place);
            }
        }
    }

    /// What found no room on the host may find it now.
    pub(crate) fn host_has_more(&mut self) {
        while let Some(id) = self.cramped.pop_first() {
            self.session_mut(id).fixed = false;
            self.replace(id);
        }
    }
}
