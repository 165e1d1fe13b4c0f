//! Who runs next, and whose memory is where: `(now, event) → decisions`, and nothing else.
//!
//! The device host tells the engine what happened and does what it answers. The same crate runs in
//! the service, in tests and in the simulator, because it has no clock, no threads and no I/O.
//!
//! Promise: equal events at equal times give equal decisions.
//! Not here: time, sockets, locks, floats, hash order (`clippy.toml` bans them).

mod accounts;
mod asked;
mod claim;
mod engine;
mod explain;
mod lanes;
mod ledger;
mod order;
mod pairing;
mod policies;
mod progress;
mod residency;
mod serving;
mod shares;
mod table;
mod time;

use std::num::NonZeroU32;

pub use accounts::{Account, State};
pub use engine::Engine;
pub use explain::Why;
pub use ledger::{Holding, Ledger, Room};
pub use policies::Policy;
pub use progress::Estimates;
pub use time::{Duration, Time};

/// One connected job. Ids grow by ones and are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// Whom a session belongs to: a number of the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct User(pub u32);

/// One of the device's in-order queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane(pub u32);

/// What runs in an iteration: a number of the caller's, the same for equal programs of all sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Program(pub u64);

/// One of a session's iterations that call back: a number of the caller's. The session may use it
/// again when that iteration has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Calling(pub u64);

/// A share of the device relative to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(pub NonZeroU32);

impl Default for Weight {
    fn default() -> Self {
        Self(NonZeroU32::MIN)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Class {
    High,
    #[default]
    Normal,
    Low,
}

/// What a job is said to have before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Of the program that takes most of its time.
    Iterations(u64),
    /// On the device.
    Time(Duration),
}

/// What a job's user asks of the policies; each takes what it understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wishes {
    pub weight: Weight,
    pub class: Class,
    /// An iteration should end so soon after it was ready.
    pub latency: Option<Duration>,
    pub work: Option<Work>,
}

/// What a session asks for: one thing at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub kind: Kind,
    /// Bytes that will stay: outputs that take no argument's place, or the new array.
    pub new_bytes: u64,
    /// Bytes of the arguments, wherever they are.
    pub argument_bytes: u64,
    /// Those of them that are paged out.
    pub absent_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An iteration: it needs a lane, and scratch while it runs.
    Launch {
        scratch_bytes: u64,
        program: Program,
    },
    /// An iteration that calls back into its job while it runs, and gives its lane up meanwhile. Its
    /// scratch is not the lane's, which others use then: it is among `new_bytes`, and released when
    /// the iteration has ended.
    CallsBack { program: Program, calling: Calling },
    /// Room for an array, or for bringing one back; it needs no lane.
    Array,
}

impl Demand {
    pub fn scratch_bytes(&self) -> u64 {
        match self.kind {
            Kind::Launch { scratch_bytes, .. } => scratch_bytes,
            Kind::CallsBack { .. } | Kind::Array => 0,
        }
    }

    /// Of an iteration.
    pub fn program(&self) -> Option<Program> {
        match self.kind {
            Kind::Launch { program, .. } | Kind::CallsBack { program, .. } => Some(program),
            Kind::Array => None,
        }
    }

    /// Which of the session's iterations it is, if it calls back.
    pub fn calling(&self) -> Option<Calling> {
        match self.kind {
            Kind::CallsBack { calling, .. } => Some(calling),
            Kind::Launch { .. } | Kind::Array => None,
        }
    }

    /// What must be on the device at once.
    pub fn total(&self) -> u64 {
        self.argument_bytes
            .saturating_add(self.new_bytes)
            .saturating_add(self.scratch_bytes())
    }
}

/// What happened. Of each session: `Opened … Closed`; a `Ready` comes again only after the answer to
/// the last (`Start` or `Refuse`) or after `Withdrew`; `Closed` only when nothing of it runs. Of each
/// iteration that calls back, between its start and its end: `CallbackBegan`, `CallbackEnded`, and so
/// on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Opened {
        session: SessionId,
        user: User,
        memory_max: Option<u64>,
        wishes: Wishes,
    },
    /// The session's next operation has its arguments and waits for room and its turn.
    Ready {
        session: SessionId,
        demand: Demand,
    },
    /// An iteration that was started has ended, well or not: the session's oldest, or this one.
    Ran {
        session: SessionId,
        calling: Option<Calling>,
    },
    /// An iteration that was started did not run after all: the session's latest, or this one.
    DidNotRun {
        session: SessionId,
        calling: Option<Calling>,
    },
    /// An iteration that calls back waits for its job, and goes on.
    CallbackBegan {
        session: SessionId,
        calling: Calling,
    },
    CallbackEnded {
        session: SessionId,
        calling: Calling,
    },
    /// What the session asked for is no longer wanted: its job went away.
    Withdrew {
        session: SessionId,
    },
    /// Arrays are gone: bytes of them that were on the device, and that were paged out.
    Released {
        session: SessionId,
        resident_bytes: u64,
        paged_bytes: u64,
    },
    /// The answer to `PageOut`: so many bytes are now in host memory, perhaps fewer than asked. If
    /// a request waits, `absent_bytes` of its arguments are paged out now.
    PagedOut {
        session: SessionId,
        bytes: u64,
        absent_bytes: u64,
    },
    /// The session's limit was changed; what it holds already stays.
    Limited {
        session: SessionId,
        memory_max: Option<u64>,
    },
    /// What the session's user asks for was changed.
    Wished {
        session: SessionId,
        wishes: Wishes,
    },
    /// Nothing of the session is started until it is resumed; its memory may leave.
    Paused {
        session: SessionId,
    },
    Resumed {
        session: SessionId,
    },
    /// A program of the session is being compiled or loaded, and no longer is.
    Compiling {
        session: SessionId,
    },
    Compiled {
        session: SessionId,
    },
    /// Sessions like this one came to so much device time.
    Recalled {
        session: SessionId,
        total: Duration,
    },
    /// From now on this is the order.
    Ordered {
        policy: Policy,
    },
    Closed {
        session: SessionId,
    },
    /// The time of [`Engine::wake_at`] has come.
    Woke,
}

/// What to do now.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Do what the session asked for: its arrays live in this lane, where also its iteration runs.
    /// The room is reserved, also for what must be brought back.
    Start { session: SessionId, lane: Lane },
    /// Move at least so many bytes of the session's arrays to the host, as far as they can be moved.
    PageOut { session: SessionId, bytes: u64 },
    /// What the session asked for cannot be done, now or later.
    Refuse { session: SessionId, why: Refusal },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It would not fit if it were alone.
    TooLarge { needs_bytes: u64, room_bytes: u64 },
    /// It would exceed the session's own limit.
    BeyondLimit { needs_bytes: u64, memory_max: u64 },
    /// It would exceed what the user's sessions may hold together.
    BeyondUserLimit { needs_bytes: u64, user_max: u64 },
    /// Device and host are full of arrays that nobody can give back.
    NoRoom {
        needs_bytes: u64,
        free_bytes: u64,
        host_free_bytes: u64,
    },
}

impl Refusal {
    /// What was needed, what there is, and what the second is called.
    pub fn numbers(&self) -> (u64, u64, &'static str) {
        match *self {
            Self::TooLarge {
                needs_bytes,
                room_bytes,
            } => (needs_bytes, room_bytes, "the device has"),
            Self::BeyondLimit {
                needs_bytes,
                memory_max,
            } => (needs_bytes, memory_max, "its limit is"),
            Self::BeyondUserLimit {
                needs_bytes,
                user_max,
            } => (needs_bytes, user_max, "its user's limit is"),
            Self::NoRoom {
                needs_bytes,
                free_bytes,
                ..
            } => (needs_bytes, free_bytes, "nobody can leave; free are"),
        }
    }
}
