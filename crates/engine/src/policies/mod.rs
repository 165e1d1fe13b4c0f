//! Policies: in which order ready sessions are served, and how the device is arranged for them.
//!
//! A policy ranks each request when it becomes ready, and again when what the rank is made of has
//! changed; the engine keeps the requests of each lane sorted by rank and serves the lowest that
//! fits. Each policy is one file with one [`Descriptor`], and one row of the table below. Ranks only
//! order: a request that waited for [`crate::AGING_LIMIT`] is served before all others
//! (`schedule/aging.rs`), which bounds every wait.
//!
//! To add one: write its file, then add its `mod` line and its row.
//! Cost: a rank is O(1) and keeping one sorted O(log n), so a decision is O(log n).
//! Not here: memory (`memory/`), which programs run side by side (`schedule/co_run.rs`).

mod deadline;
mod exclusive;
mod fair;
mod fifo;
pub(crate) mod las;
mod pack;
mod priority;
mod srtf;

use salus_wire::JobSettings;

use crate::event::SessionId;
use crate::session::Session;
use crate::time::{Duration, Time};

/// Rank classes: 0 for aged requests, and at most three of a policy's own.
pub(crate) const CLASSES: usize = 4;

/// Declares the policies, one row each: the name in code, and its file.
macro_rules! policies {
    ($($policy:ident => $file:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Policy {
            $($policy,)*
        }

        impl Policy {
            pub const ALL: [Self; [$(stringify!($policy)),*].len()] = [$(Self::$policy),*];

            fn descriptor(self) -> &'static Descriptor {
                match self {
                    $(Self::$policy => &$file::POLICY,)*
                }
            }
        }
    };
}

policies! {
    Exclusive => exclusive,
    Fifo => fifo,
    Srtf => srtf,
    Pack => pack,
    Fair => fair,
    Priority => priority,
    Las => las,
    Deadline => deadline,
}

/// All that the engine knows of a policy.
struct Descriptor {
    /// What users type.
    name: &'static str,
    /// What it does, in one sentence.
    what: &'static str,
    rank: fn(&Facts<'_>) -> Rank,
    /// The class of a session's ranks. While a session of a lower class is open, nothing of a higher
    /// one is handed to the device early: it could not be overtaken there.
    class: fn(&JobSettings) -> u8,
    arrangement: Arrangement,
}

/// How a policy uses lanes and holds sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrangement {
    /// All lanes are open, and programs run side by side only where that helps (`co_run.rs`).
    /// Otherwise as many lanes are open as the service is set to, side by side whatever they run.
    pub(crate) co_runs: bool,
    /// The first session alone is served until it ends; all others are held.
    pub(crate) one_owner: bool,
    /// What the ranks of each class are made of.
    keys: [Key; CLASSES],
}

/// What a rank's key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// Neither: it has a meaning for its policy alone.
    Other,
    /// Virtual time: a lane's clock is added where lanes are compared.
    VirtualTime,
    /// The time by which the iteration should end.
    Deadline,
}

impl Arrangement {
    /// Lanes as the service is set to, nobody held, ranks of the policy's own kind.
    const PLAIN: Self = Self {
        co_runs: false,
        one_owner: false,
        keys: [Key::Other; CLASSES],
    };

    /// Like `PLAIN`, with ranks by virtual time in all of the policy's classes.
    const SHARING: Self = Self {
        keys: [
            Key::Other,
            Key::VirtualTime,
            Key::VirtualTime,
            Key::VirtualTime,
        ],
        ..Self::PLAIN
    };

    /// Whether the ranks of this class are virtual times.
    pub(crate) fn is_virtual_time(&self, class: u8) -> bool {
        self.keys[usize::from(class)] == Key::VirtualTime
    }

    /// Whether the ranks of this class are deadlines.
    pub(crate) fn is_deadline(&self, class: u8) -> bool {
        self.keys[usize::from(class)] == Key::Deadline
    }
}

/// What a policy knows of a session whose request it ranks. Each policy asks for what it uses.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) id: SessionId,
    pub(crate) session: &'a Session,
    pub(crate) ready_at: Time,
}

impl Facts<'_> {
    fn settings(&self) -> &JobSettings {
        &self.session.settings
    }

    /// Device time used, and the estimate for what is in flight.
    fn attained(&self) -> Duration {
        self.session.account.device_time + self.session.virtual_time.pending()
    }

    /// Device time ÷ weight (`schedule/virtual_time.rs`).
    fn virtual_time(&self) -> u128 {
        self.session.virtual_time.at(self.settings().weight)
    }

    /// Estimate of the device time that the session still needs, if there is one.
    fn remaining(&self) -> Option<Duration> {
        let work = self.settings().work;
        self.session.estimate.remaining(work, self.attained())
    }
}

/// The lower is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) class: u8,
    pub(crate) key: u128,
}

impl Rank {
    /// The rank of aged requests; their age orders them.
    pub(crate) const AGED: Self = Self { class: 0, key: 0 };

    /// In one of the classes of a policy, which begin at 1.
    fn new(class: u8, key: u128) -> Self {
        debug_assert!(class > 0, "class 0 is for aged requests");
        Self { class, key }
    }

    /// The shorter time first, of equal ones in order of arrival.
    fn by_time(time: Duration, session: SessionId) -> Self {
        Self::new(1, u128::from(time.0) << 64 | u128::from(session.0))
    }
}

/// The class of policies that have one.
fn only_class(_settings: &JobSettings) -> u8 {
    1
}

impl Policy {
    pub fn name(self) -> &'static str {
        self.descriptor().name
    }

    /// What it does, in one sentence.
    pub fn what(self) -> &'static str {
        self.descriptor().what
    }

    /// Whether it runs iterations side by side, in all lanes that the device has.
    pub fn co_runs(self) -> bool {
        self.arrangement().co_runs
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    pub(crate) fn rank(self, facts: &Facts<'_>) -> Rank {
        (self.descriptor().rank)(facts)
    }

    pub(crate) fn class(self, settings: &JobSettings) -> u8 {
        (self.descriptor().class)(settings)
    }

    pub(crate) fn arrangement(self) -> Arrangement {
        self.descriptor().arrangement
    }
}
