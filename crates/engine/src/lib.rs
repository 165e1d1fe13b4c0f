//! Who runs next: `(now, event) → decisions`, and nothing else.
//!
//! The device host tells the engine what happened and does what it answers. The same crate runs in
//! the service, in tests and in the simulator, because it has no clock, no threads and no I/O.
//!
//! Promise: equal events at equal times give equal decisions.
//! Not here: time, memory, sockets, locks, floats, hash order (`clippy.toml` bans them).

mod accounts;
mod time;
mod turns;

pub use accounts::Account;
pub use time::{Duration, Time};
pub use turns::Turns;

/// One connected job. Ids grow and are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// One of the device's in-order queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane(pub u32);

/// What happened. Of each session: `Opened (Ready | Ran | Withdrew)* Closed`, where `Ready` comes
/// again only after the `Start` that answers the last, and `Closed` only when nothing of it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Opened {
        session: SessionId,
    },
    /// The session's next iteration has its arguments and waits for its turn.
    Ready {
        session: SessionId,
    },
    /// An iteration that was started has ended, well or not.
    Ran {
        session: SessionId,
    },
    /// The session's waiting iteration will not come: its job went away.
    Withdrew {
        session: SessionId,
    },
    Closed {
        session: SessionId,
    },
}

/// What to do now.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Start the session's next iteration in this lane.
    Start { session: SessionId, lane: Lane },
}
