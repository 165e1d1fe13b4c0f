//! Aging: a request that waited for [`AGING_LIMIT`] goes before all others, which prevents starvation.
//!
//! Policies only order; without aging a request could wait forever behind others that keep coming.
//! Aged requests are served by age, whatever their rank was. Where many sessions wait, there would
//! always be an aged request, and age alone would be the policy. So aged launches take at most one part
//! in [`AGED_PART`] of the device's time: what they may take adds up for as long as [`AGING_LIMIT`], and
//! where it is used up, the next is promoted as soon as there is some again. Few sessions that wait
//! never notice. Requests for arrays take no device time, and what a launch that calls back waits for may
//! be what waits for it, so these are not limited.
//!
//! Promise: an aged request is before all that are not. A request is aged after [`AGING_LIMIT`], or when
//! each launch that waited for longer has run once in that part of the device's time.
//! Cost: O(log n).

use std::collections::BTreeMap;

use crate::event::{Demand, Kind, SessionId};
use crate::time::{Duration, Time};

/// How long a request waits behind others that the policy puts before it: 30 s, which is long enough
/// for a policy to have its effect and short enough for a person to wait.
pub const AGING_LIMIT: Duration = Duration(30_000_000_000);
/// Aged launches take one part in this many of the device's time: 20, so that a policy keeps its effect
/// whatever waits. On the traces of `salus sim study`, `srtf` reaches 0.96 of its ideal's gain; at 10 it
/// was 0.92 on six of them.
pub(super) const AGED_PART: u64 = 20;

/// Queued requests that are not aged yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    /// Launches of which aged ones are limited, by the request's number, which grows with each request.
    launches: BTreeMap<u64, (SessionId, Time)>,
    /// All others.
    unlimited: BTreeMap<u64, (SessionId, Time)>,
    /// When the device will have run [`AGED_PART`] times as long as aged launches took.
    paid_at: Time,
}

impl Ages {
    pub(super) fn insert(&mut self, number: u64, session: SessionId, at: Time, demand: &Demand) {
        let ages = match demand.kind {
            Kind::Launch { .. } => &mut self.launches,
            Kind::CallsBack { .. } | Kind::Array => &mut self.unlimited,
        };
        ages.insert(number, (session, at));
    }

    pub(super) fn remove(&mut self, number: u64) {
        if self.launches.remove(&number).is_none() {
            self.unlimited.remove(&number);
        }
    }

    /// The session of the oldest request that has waited for long enough.
    pub(super) fn aged(&self, now: Time) -> Option<SessionId> {
        let firsts = [
            self.launches.first_key_value().zip(Some(self.may_at())),
            self.unlimited.first_key_value().zip(Some(Time(0))),
        ];
        let firsts = firsts.into_iter().flatten();
        let aged = firsts.filter(|((_, (_, ready_at)), may_at)| {
            now - *ready_at >= AGING_LIMIT && *may_at <= now
        });
        let oldest = aged.min_by_key(|((number, _), _)| **number);
        oldest.map(|((_, (session, _)), _)| *session)
    }

    /// When the next request will have waited for long enough.
    pub(super) fn next(&self) -> Option<Time> {
        let age = |(_, (_, ready_at)): (&u64, &(SessionId, Time))| *ready_at + AGING_LIMIT;
        let launch = self.launches.first_key_value().map(age);
        let launch = launch.map(|at| at.max(self.may_at()));
        let other = self.unlimited.first_key_value().map(age);
        launch.into_iter().chain(other).min()
    }

    /// A launch has aged that is expected to take this long.
    pub(super) fn charge(&mut self, now: Time, expected: Duration) {
        let part = Duration(expected.0.saturating_mul(AGED_PART));
        self.paid_at = self.paid_at.max(now) + part;
    }

    /// It took another time than was expected.
    pub(super) fn correct(&mut self, expected: Duration, took: Duration) {
        let part = |time: Duration| Duration(time.0.saturating_mul(AGED_PART));
        self.paid_at = self.paid_at + part(took);
        self.paid_at = Time(self.paid_at.0.saturating_sub(part(expected).0));
    }

    /// From when on a launch may age: what is not paid for is less than what adds up at most.
    fn may_at(&self) -> Time {
        Time((self.paid_at.0 + 1).saturating_sub(AGING_LIMIT.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Program;

    const SECOND: u64 = 1_000_000_000;

    fn launch() -> Demand {
        demand(Kind::Launch {
            scratch_bytes: 0,
            program: Program(1),
        })
    }

    fn demand(kind: Kind) -> Demand {
        Demand {
            kind,
            new_bytes: 0,
            new_host_bytes: 0,
            argument_bytes: 0,
            paged_bytes: 0,
        }
    }

    #[test]
    fn aged_launches_take_their_part_of_the_time_at_most() {
        let mut ages = Ages::default();
        let mut number = 0;
        for session in 0..100 {
            number += 1;
            ages.insert(number, SessionId(session), Time(0), &launch());
        }
        // Each takes a second when it is promoted, and asks again.
        let mut promoted = 0;
        while let Some(now) = ages.next().filter(|at| at.0 < 300 * SECOND) {
            let session = ages.aged(now).expect("its time has come");
            promoted += 1;
            ages.remove(promoted);
            ages.charge(now, Duration(SECOND));
            number += 1;
            ages.insert(number, session, now, &launch());
        }
        // What adds up in 30 s, which is 1.5 s, and a twentieth of the 270 s after that.
        assert_eq!(promoted, 15);
    }

    #[test]
    fn what_it_took_counts() {
        let mut ages = Ages::default();
        for number in 0..2 {
            ages.insert(number, SessionId(number), Time(0), &launch());
        }
        let aged_at = Time(AGING_LIMIT.0);
        assert_eq!(ages.aged(aged_at), Some(SessionId(0)));
        ages.remove(0);
        ages.charge(aged_at, Duration(0));
        ages.correct(Duration(0), Duration(5 * SECOND));
        assert_eq!(ages.aged(aged_at), None);
        assert_eq!(ages.next(), Some(Time(100 * SECOND + 1)));
        ages.correct(Duration(5 * SECOND), Duration(SECOND));
        assert_eq!(ages.aged(aged_at), Some(SessionId(1)));
    }

    #[test]
    fn arrays_age_whatever_launches_took() {
        let mut ages = Ages::default();
        ages.insert(1, SessionId(1), Time(0), &launch());
        ages.insert(2, SessionId(2), Time(0), &demand(Kind::Array));
        let aged_at = Time(AGING_LIMIT.0);
        ages.charge(aged_at, Duration(60 * SECOND));
        assert_eq!(ages.aged(aged_at), Some(SessionId(2)));
        assert_eq!(ages.next(), Some(aged_at));
    }
}
