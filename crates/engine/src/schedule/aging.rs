//! Aging: a request that waited for [`AGING_LIMIT`] goes before all others, which prevents starvation.
//!
//! Policies only order; without aging a request could wait forever behind others that keep coming.
//! Aged requests are served by age, whatever their rank was.
//!
//! Promise: an aged request is before all that are not.
//! Cost: O(log n).

use std::collections::BTreeMap;

use crate::event::SessionId;
use crate::time::{Duration, Time};

/// How long a request waits behind others that the policy puts before it: 30 s, which is long enough
/// for a policy to have its effect and short enough for a person to wait.
pub const AGING_LIMIT: Duration = Duration(30_000_000_000);

/// Queued requests that are not aged yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    /// By the request's number, which grows with each request.
    young: BTreeMap<u64, (SessionId, Time)>,
}

impl Ages {
    pub(super) fn insert(&mut self, number: u64, session: SessionId, ready_at: Time) {
        self.young.insert(number, (session, ready_at));
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.young.remove(&number);
    }

    /// The session of the oldest request, if that has waited for long enough.
    pub(super) fn aged(&self, now: Time) -> Option<SessionId> {
        let (_, &(session, ready_at)) = self.young.first_key_value()?;
        (now - ready_at >= AGING_LIMIT).then_some(session)
    }

    /// When the next request will have waited for long enough.
    pub(super) fn next(&self) -> Option<Time> {
        let (_, &(_, ready_at)) = self.young.first_key_value()?;
        Some(ready_at + AGING_LIMIT)
    }
}
