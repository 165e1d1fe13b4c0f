//! Policies: in which order ready sessions are served.
//!
//! A policy gives each request a rank when it becomes ready, and again when what it is made of has
//! changed; the engine keeps the requests of each lane sorted by it and serves the lowest first,
//! whatever fits. So a policy is a few lines that say what comes before what, and every one of them
//! works with lanes, paging and limits alike. Ranks only order: whoever has waited for
//! [`PATIENCE`] is served before all that have not, the oldest first, which bounds every wait.
//!
//! Cost: a rank is O(1) and keeping one sorted O(log n), so a decision is O(log n).
//! Not here: memory (`claim.rs`), who shares the device with whom (`pairing.rs`).

mod deadline;
mod exclusive;
mod fair;
mod fifo;
pub(crate) mod las;
mod pack;
mod priority;
mod srtf;

use crate::time::{Duration, Time};
use crate::{SessionId, Wishes};

/// So long a request waits for others that a policy puts before it, and no longer.
pub(crate) const PATIENCE: Duration = Duration(30_000_000_000);

/// The classes of all policies, and that of those who waited for so long.
pub(crate) const CLASSES: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Exclusive,
    Fifo,
    Srtf,
    Pack,
    Fair,
    Priority,
    Las,
    Deadline,
}

/// What a policy knows of a session whose request it ranks.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    /// Grows with the sessions' arrival.
    pub(crate) session: SessionId,
    pub(crate) wishes: &'a Wishes,
    pub(crate) ready_at: Time,
    /// Device time used, and expected of what is in flight.
    pub(crate) attained: Duration,
    /// Device time ÷ weight, as `shares.rs` counts it.
    pub(crate) virtual_time: u128,
    /// Device time that it will still need, if anybody knows.
    pub(crate) remaining: Option<Duration>,
}

/// The lower is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) class: u8,
    pub(crate) key: u128,
}

impl Rank {
    /// Of requests that have waited for [`PATIENCE`]; their age orders them.
    pub(crate) const FIRST: Self = Self { class: 0, key: 0 };

    /// In one of the classes of a policy, which begin at 1.
    fn new(class: u8, key: u128) -> Self {
        debug_assert!(class > 0, "that is for those who waited long");
        Self { class, key }
    }

    /// The shorter time first, of equal ones in order of arrival.
    fn by_time(time: Duration, session: SessionId) -> Self {
        Self::new(1, u128::from(time.0) << 64 | u128::from(session.0))
    }
}

impl Policy {
    pub const ALL: [Self; 8] = [
        Self::Exclusive,
        Self::Fifo,
        Self::Srtf,
        Self::Pack,
        Self::Fair,
        Self::Priority,
        Self::Las,
        Self::Deadline,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Fifo => "fifo",
            Self::Srtf => "srtf",
            Self::Pack => "pack",
            Self::Fair => "fair",
            Self::Priority => "priority",
            Self::Las => "las",
            Self::Deadline => "deadline",
        }
    }

    /// What it does, in one sentence.
    pub fn what(self) -> &'static str {
        match self {
            Self::Exclusive => exclusive::WHAT,
            Self::Fifo => fifo::WHAT,
            Self::Srtf => srtf::WHAT,
            Self::Pack => pack::WHAT,
            Self::Fair => fair::WHAT,
            Self::Priority => priority::WHAT,
            Self::Las => las::WHAT,
            Self::Deadline => deadline::WHAT,
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    pub(crate) fn rank(self, facts: &Facts<'_>) -> Rank {
        match self {
            Self::Exclusive => exclusive::rank(facts),
            Self::Fifo => fifo::rank(facts),
            Self::Srtf => srtf::rank(facts),
            Self::Pack => pack::rank(facts),
            Self::Fair => fair::rank(facts),
            Self::Priority => priority::rank(facts),
            Self::Las => las::rank(facts),
            Self::Deadline => deadline::rank(facts),
        }
    }

    /// The class of a session's ranks. While one of a lower class is there, nothing of a higher one
    /// is handed to the device early: it could not be overtaken there.
    pub(crate) fn class(self, wishes: &Wishes) -> u8 {
        match self {
            Self::Priority => priority::class(wishes),
            Self::Deadline => deadline::class(wishes),
            _ => 1,
        }
    }

    /// Whether the ranks of this class are the times at which requests are due.
    pub(crate) fn is_due(self, class: u8) -> bool {
        self == Self::Deadline && class == deadline::DUE
    }

    /// Whether the ranks of this class are virtual times.
    pub(crate) fn shares(self, class: u8) -> bool {
        match self {
            Self::Fair | Self::Pack | Self::Priority => class > 0,
            Self::Deadline => class == deadline::SHARES,
            _ => false,
        }
    }

    /// Whether the first session alone may run until it ends.
    pub(crate) fn is_exclusive(self) -> bool {
        self == Self::Exclusive
    }

    /// Whether lanes run side by side only where that helps.
    pub(crate) fn packs(self) -> bool {
        self == Self::Pack
    }
}
