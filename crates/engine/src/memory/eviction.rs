//! Eviction: whose arrays may be paged out for others, and when.
//!
//! A session that was paged in is not evicted for a minimum residency, long enough to be worth its
//! paging, so that two sessions that do not fit together take long turns instead of thrashing at every
//! iteration. Victims are first the sessions without a request, the longest quiet first; then those
//! whose minimum residency ended first.
//!
//! Promise: a session with something in flight is never evicted; nobody is safe from eviction for
//! longer than [`MIN_RESIDENCY_MAX`] where another waits for the room.
//! Cost: O(log n).
//! Not here: for whom, and how much (`reservation.rs`).

use std::collections::BTreeSet;

use crate::event::SessionId;
use crate::time::{Duration, Time};

/// The shortest minimum residency: 50 ms, so that a turn has some iterations in it even where paging
/// seems free.
pub const MIN_RESIDENCY: Duration = Duration(50_000_000);
/// The longest minimum residency: 1 s, because others wait meanwhile.
pub const MIN_RESIDENCY_MAX: Duration = Duration(1_000_000_000);
/// Between these it is this many times what paging out and in takes, so that paging takes at most a
/// tenth of the time.
const MIN_RESIDENCY_PER_PAGING: u64 = 10;

#[derive(Debug, Default)]
pub(super) struct Eviction {
    /// Candidates without a request, by when they became quiet or their minimum residency ended.
    quiet: BTreeSet<(Time, SessionId)>,
    /// Candidates whose request waits, by the end of their minimum residency.
    waiting: BTreeSet<(Time, SessionId)>,
    /// Sessions that could not be paged out because the host had too little room.
    cramped: BTreeSet<SessionId>,
    /// Asked of sessions and not answered yet.
    evicting_bytes: u64,
    /// What paging one out and in took lately.
    paging_time: Duration,
}

/// A session that may be evicted, and from when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Candidate {
    Quiet { since: Time },
    Waiting { resident_until: Time },
}

/// What a session was asked to page out, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evicting {
    pub(crate) bytes: u64,
    pub(crate) since: Time,
}

impl Eviction {
    pub(super) fn update(
        &mut self,
        session: SessionId,
        before: Option<Candidate>,
        after: Option<Candidate>,
    ) {
        let found = match before {
            Some(Candidate::Quiet { since }) => self.quiet.remove(&(since, session)),
            Some(Candidate::Waiting { resident_until }) => {
                self.waiting.remove(&(resident_until, session))
            }
            None => true,
        };
        assert!(found, "{session} is not a candidate");
        let is_new = match after {
            Some(Candidate::Quiet { since }) => self.quiet.insert((since, session)),
            Some(Candidate::Waiting { resident_until }) => {
                self.waiting.insert((resident_until, session))
            }
            None => true,
        };
        assert!(is_new, "{session} is a candidate already");
    }

    pub(super) fn victim(&self, now: Time, holder: SessionId) -> Option<SessionId> {
        let others = self.waiting.iter().find(|(_, other)| *other != holder);
        let first = self.quiet.first().filter(|(since, _)| *since <= now);
        let first = first.or(others.filter(|(until, _)| *until <= now));
        first.map(|&(_, session)| session)
    }

    pub(super) fn next(&self, holder: SessionId) -> Option<Time> {
        let quiet = self.quiet.first().map(|&(since, _)| since);
        let others = self.waiting.iter().find(|(_, other)| *other != holder);
        let waiting = others.map(|&(until, _)| until);
        match (quiet, waiting) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub(super) fn resident_until(&self, now: Time) -> Time {
        let worth_it = self.paging_time.0.saturating_mul(MIN_RESIDENCY_PER_PAGING);
        now + Duration(worth_it).clamp(MIN_RESIDENCY, MIN_RESIDENCY_MAX)
    }

    pub(super) fn evicting_bytes(&self) -> u64 {
        self.evicting_bytes
    }

    pub(super) fn started(&mut self, bytes: u64) {
        self.evicting_bytes += bytes;
    }

    pub(super) fn ended(&mut self, now: Time, asked: Evicting, bytes: u64) {
        self.evicting_bytes -= asked.bytes;
        if bytes > 0 {
            // Paging in takes about as long again; the last ones count most.
            let took = now - asked.since;
            self.paging_time = Duration((3 * self.paging_time.0 + 2 * took.0) / 4);
        }
    }

    pub(super) fn found_no_host_room(&mut self, session: SessionId) {
        self.cramped.insert(session);
    }

    pub(super) fn next_cramped(&mut self) -> Option<SessionId> {
        self.cramped.pop_first()
    }

    /// The session is closed; it is no candidate any more.
    pub(super) fn forget(&mut self, session: SessionId, evicting: Option<Evicting>) {
        self.evicting_bytes -= evicting.map_or(0, |evicting| evicting.bytes);
        self.cramped.remove(&session);
    }
}
