//! What the engine is told and what it answers: events in, decisions out.
//!
//! Not here: what an event does (`engine.rs`), why a session waits (`explain.rs`).

use salus_wire::JobSettings;

use crate::policies::Policy;
use crate::time::Duration;

/// One connected job. Ids grow by ones and are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// The user that a session belongs to: a number that the caller chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct User(pub u32);

/// One of the device's in-order queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane(pub u32);

impl Lane {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A program: a number that the caller chooses, the same for equal programs of all sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Program(pub u64);

/// One of a session's iterations that call back: a number that the caller chooses. It may be used
/// again when that iteration has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Calling(pub u64);

/// What a session's request takes. A session has one request at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub kind: Kind,
    /// Bytes that it adds: outputs that reuse no argument's memory, or the new array.
    pub new_bytes: u64,
    /// The same in host memory, which a device with memory of its own reaches, too.
    pub new_host_bytes: u64,
    /// Bytes of the arguments, on the device and paged out.
    pub argument_bytes: u64,
    /// Bytes of arguments that are paged out.
    pub paged_bytes: u64,
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
    /// Room for an array, or for paging one in; it needs no lane.
    Array,
}

impl Demand {
    pub fn scratch_bytes(&self) -> u64 {
        match self.kind {
            Kind::Launch { scratch_bytes, .. } => scratch_bytes,
            Kind::CallsBack { .. } | Kind::Array => 0,
        }
    }

    /// The program of an iteration.
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

/// What happened.
///
/// The events of a session are `Opened … Closed`. A `Ready` comes again only after the decision on the
/// last (`Start` or `Refuse`) or after `Withdrew`; `Closed` only when nothing of it runs. Between the
/// start and the end of an iteration that calls back, `CallbackBegan` and `CallbackEnded` alternate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Opened {
        session: SessionId,
        user: User,
        settings: JobSettings,
    },
    /// The session's next operation waits for room and its turn.
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
    /// An iteration waits for a callback of its job.
    CallbackBegan {
        session: SessionId,
        calling: Calling,
    },
    /// The callback has returned, and the iteration goes on.
    CallbackEnded {
        session: SessionId,
        calling: Calling,
    },
    /// The session's request is no longer wanted: its job has ended.
    Withdrew {
        session: SessionId,
    },
    /// Arrays were dropped: bytes that were on the device, bytes that were paged out, and bytes in
    /// host memory that were no pages.
    Released {
        session: SessionId,
        resident_bytes: u64,
        paged_bytes: u64,
        host_bytes: u64,
    },
    /// `PageOut` is being carried out, and `bytes` will be in host memory, which is more than was
    /// asked because arrays are moved whole: at most [`crate::Engine::may_page_out`].
    PagingOut {
        session: SessionId,
        bytes: u64,
    },
    /// `PageIn` was carried out: the copies were handed to the device.
    PagedIn {
        session: SessionId,
    },
    /// `PageOut` was carried out: `bytes` are now in host memory, perhaps fewer than asked. If a
    /// request waits, `paged_bytes` of its arguments are paged out now.
    PagedOut {
        session: SessionId,
        bytes: u64,
        paged_bytes: u64,
    },
    /// The session's settings were changed. What it holds beyond a lower memory limit stays.
    SettingsChanged {
        session: SessionId,
        settings: JobSettings,
    },
    /// Nothing of the session is started until it is resumed; its arrays may be evicted.
    Paused {
        session: SessionId,
    },
    Resumed {
        session: SessionId,
    },
    /// A program of the session is being compiled or loaded.
    CompileStarted {
        session: SessionId,
    },
    /// It was compiled or loaded, or could not be.
    CompileEnded {
        session: SessionId,
    },
    /// Earlier sessions with the same programs used this device time in total.
    EstimatedFromHistory {
        session: SessionId,
        total: Duration,
    },
    /// Sessions are served by another policy from now on.
    PolicyChanged {
        policy: Policy,
    },
    Closed {
        session: SessionId,
    },
    /// The time of [`crate::Engine::wake_at`] has come.
    Woke,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Carry out the session's request: its arrays are in this lane, and its iteration runs there.
    /// The ledger has taken the room, also for arguments that must be paged in.
    Start { session: SessionId, lane: Lane },
    /// Page in the arguments of the session's request now, which goes on waiting for its turn: the
    /// ledger has taken the room. Only on a device with memory of its own.
    PageIn { session: SessionId, lane: Lane },
    /// Evicted: page out at least this many bytes of the session's arrays, or as many as can be moved.
    PageOut { session: SessionId, bytes: u64 },
    /// The session's request cannot be carried out, neither now nor later.
    Refuse { session: SessionId, why: Refusal },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It would not fit even alone.
    TooLarge { needs_bytes: u64, room_bytes: u64 },
    /// It would exceed the session's own limit.
    BeyondLimit { needs_bytes: u64, memory_max: u64 },
    /// It would exceed what the user's sessions may hold together.
    BeyondUserLimit { needs_bytes: u64, user_max: u64 },
    /// Its arrays in host memory would not fit beside what is there.
    NoHostRoom {
        needs_bytes: u64,
        free_bytes: u64,
        room_bytes: u64,
    },
    /// Device and host are full of arrays that cannot be evicted.
    NoRoom {
        needs_bytes: u64,
        free_bytes: u64,
        host_free_bytes: u64,
    },
}

impl Refusal {
    /// The bytes needed, the bytes there are, and words that introduce the latter.
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
            Self::NoHostRoom {
                needs_bytes,
                free_bytes,
                ..
            } => (needs_bytes, free_bytes, "of the host's memory are free"),
            Self::NoRoom {
                needs_bytes,
                free_bytes,
                ..
            } => (needs_bytes, free_bytes, "nothing can be evicted; free are"),
        }
    }
}
