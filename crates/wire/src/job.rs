//! Between a job's adaptor and the service.
//!
//! The job names every id. Operations take effect in the order sent; `Execute`, `Upload`, `Copy`
//! and `Drop` are not answered one by one: `Completed` says later how launches and copies ended.

use crate::codec::{DecodeError, Reader, Wire, wire_enum, wire_struct};
use crate::limits;
use crate::model::{Description, Error, Region, Shape};

wire_enum! {
    /// From a job, or from a command that speaks to the supervisor.
    ToService {
        1 = Hello,
        2 = Command,
        3 = Segment,
        4 = SegmentGone,
        5 = Upload,
        6 = Compile,
        7 = Execute,
        8 = CopyArray,
        9 = Fetch,
        10 = Await,
        11 = DropArrays,
        12 = DropProgram,
        13 = AskUsage,
        14 = AskProfile,
    }
}

wire_enum! {
    /// From the service.
    FromService {
        1 = Welcome,
        2 = Refused,
        3 = Answer,
        4 = Compiled,
        5 = CompileFailed,
        6 = Completed,
        7 = Fetched,
        8 = Released,
        9 = ArrayFailed,
        10 = Usage,
        11 = Trace,
        12 = CallbackChannel,
        13 = Profiled,
    }
}

wire_struct! {
    /// What a job's user asks for; 0 is nothing.
    Terms {
        /// The most that the session may hold on the device and in pages.
        memory_max: u64,
        weight: u32,
        priority: Priority,
        /// An iteration should end so soon after it was asked for.
        deadline_us: u64,
        /// How many iterations it will make.
        iterations: u64,
        /// How much device time it will take.
        expect_us: u64,
    }

    /// The first frame of a job. Nothing else is sent before `Welcome`.
    Hello {
        protocol_min: u32,
        protocol_max: u32,
        /// Version of the adaptor, for messages.
        version: String = limits::NAME_BYTES,
        /// What `salus ps` shows.
        name: String = limits::NAME_BYTES,
        terms: Terms,
        /// Which `salus run` it comes from, as the answer to that one's `Hold` says; 0 is none.
        run: u64,
    }

    /// The first frame of a command such as `salus ps`; answered by `Answer` or `Refused`.
    Command {
        protocol_min: u32,
        protocol_max: u32,
        request: Request,
    }

    /// A shared segment, whose descriptor comes with this frame: a memfd sealed against shrinking.
    Segment { id: u32, bytes: u64 }

    /// The job unmapped a segment; arrays that live in it keep it mapped in the service.
    SegmentGone { id: u32 }

    /// An array from host memory. The region belongs to the service until `Released` names it.
    Upload { array: u64, shape: Shape, memory: u32, data: Region }

    /// A program to compile or to find in the cache; answered by `Compiled` or `CompileFailed`.
    /// The region may be reused after the answer.
    Compile {
        program: u64,
        /// `mlir` or `hlo`.
        format: String = limits::NAME_BYTES,
        code: Region,
        options: Vec<u8> = limits::OPTIONS_BYTES,
    }

    /// A launch. Outputs are named `first_output`, `first_output + 1`, ….
    Execute {
        /// Grows with each launch and copy of the session; named by `Completed`.
        operation: u64,
        program: u64,
        first_output: u64,
        arguments: Vec<u64> = limits::ARGUMENTS,
        /// Arguments not to be donated, by position.
        keep: Vec<u32> = limits::ARGUMENTS,
    }

    /// A copy of an array in another memory of the device; named by `Completed`.
    CopyArray { operation: u64, array: u64, copy: u64, memory: u32 }

    /// An array's bytes into a region; answered by `Fetched`. The array may be dropped at once.
    Fetch { request: u64, array: u64, target: Region, form: Form }

    /// Somebody waits for this operation: tell its end at once rather than in the next batch.
    Await { operation: u64 }

    /// Arrays that the job no longer has.
    DropArrays { arrays: Vec<u64> = limits::BATCH }

    DropProgram { program: u64 }

    /// What does the session hold? Answered by `Usage`.
    AskUsage { request: u64 }

    /// When did the session's launches run since then? Answered by `Profiled`.
    AskProfile {
        request: u64,
        /// In nanoseconds since 1970.
        since_ns: u64,
    }

    /// A session is open.
    Welcome {
        protocol: u32,
        session: u64,
        /// Version of the service, for messages.
        version: String = limits::NAME_BYTES,
        description: Description,
        /// Launches and copies that may be in flight.
        window: u32,
    }

    /// No session or no answer, and why.
    Refused { error: Error }

    /// The JSON may lie in a memfd that comes with this frame.
    Answer { json: String = limits::JSON_BYTES }

    /// A [`crate::Recording`] lies in the memfd that comes with this frame.
    Trace { bytes: u64 }

    /// A [`crate::Signature`] lies in the memfd that comes with this frame.
    Compiled { program: u64, bytes: u64 }

    CompileFailed { program: u64, error: Error }

    /// How launches and copies ended; each gives its place in the window back.
    Completed {
        done: Vec<u64> = limits::BATCH,
        failed: Vec<(u64, Error)> = limits::BATCH,
    }

    Fetched { request: u64, error: Option<Error> }

    /// The service no longer uses these regions of uploads.
    Released { regions: Vec<Region> = limits::BATCH }

    /// An upload could not be made; launches that use it fail likewise.
    ArrayFailed { array: u64, error: Error }

    /// A program of the job calls back: calls come on the socket whose descriptor comes with this
    /// frame ([`crate::ToCallbacks`]). There is one channel for each call that is under way.
    CallbackChannel { channel: u32 }

    /// A [`crate::Profile`] lies in the memfd that comes with this frame, unless there is an error.
    Profiled { request: u64, bytes: u64, error: Option<Error> }

    /// What the session holds, on the device or paged out, held at most, and may hold.
    Usage { request: u64, bytes: u64, peak_bytes: u64, limit_bytes: u64 }
}

/// How a fetched array is laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// As the device holds it.
    Raw,
    /// One element after another (sub-byte types one byte each), minor to major as given.
    Host { minor_to_major: Vec<i64> },
}

impl Wire for Form {
    const MIN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Raw => 0u8.put(out),
            Self::Host { minor_to_major } => (1u8, minor_to_major.clone()).put(out),
        }
    }

    fn take(reader: &mut Reader<'_>, _limit: usize) -> Result<Self, DecodeError> {
        Ok(match u8::take(reader, 0)? {
            0 => Self::Raw,
            1 => Self::Host {
                minor_to_major: Vec::take(reader, limits::DIMS)?,
            },
            n => return Err(DecodeError(format!("{n} is not a form of data"))),
        })
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            memory_max: 0,
            weight: 0,
            priority: Priority::Normal,
            deadline_us: 0,
            iterations: 0,
            expect_us: 0,
        }
    }
}

/// What a command asks of the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Device and sessions, for `salus ps`.
    Report,
    /// End the service.
    Stop,
    /// Stay as long as this connection does: a job is about to come.
    Hold,
    /// A session is treated differently from now on.
    Change { session: u64, change: Change },
    /// Sessions are served in the order of this policy from now on.
    Policy { name: String },
    /// What ran where and when in the last `seconds`, or as far back as is known if they are 0;
    /// answered by `Trace`.
    Trace { seconds: u32 },
    /// Why a session of this user is gone.
    Fate { session: u64 },
}

/// What may be changed of a session while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The most that it may hold in bytes; 0 is no limit.
    MemoryMax(u64),
    /// Its share relative to others.
    Weight(u32),
    Priority(Priority),
    /// In microseconds; 0 is none.
    Deadline(u64),
    /// Nothing more of it is started, and its memory may leave.
    Pause,
    Resume,
    /// It ends.
    Kill,
    /// It ends at once, whatever it runs: the device host is started again, and all sessions are lost.
    KillNow,
}

impl Wire for Change {
    const MIN_BYTES: usize = 1 + 8;

    fn put(&self, out: &mut Vec<u8>) {
        let (kind, value) = match self {
            Self::MemoryMax(bytes) => (1u8, *bytes),
            Self::Weight(weight) => (2, u64::from(*weight)),
            Self::Priority(priority) => (3, *priority as u64),
            Self::Deadline(microseconds) => (4, *microseconds),
            Self::Pause => (5, 0),
            Self::Resume => (6, 0),
            Self::Kill => (7, 0),
            Self::KillNow => (8, 0),
        };
        (kind, value).put(out);
    }

    fn take(reader: &mut Reader<'_>, _limit: usize) -> Result<Self, DecodeError> {
        let (kind, value) = (u8::take(reader, 0)?, u64::take(reader, 0)?);
        let out_of_range = || DecodeError(format!("{value} is out of range for change {kind}"));
        Ok(match kind {
            1 => Self::MemoryMax(value),
            2 => Self::Weight(u32::try_from(value).map_err(|_| out_of_range())?),
            3 => Self::Priority(Priority::numbered(value).ok_or_else(out_of_range)?),
            4 => Self::Deadline(value),
            5 => Self::Pause,
            6 => Self::Resume,
            7 => Self::Kill,
            8 => Self::KillNow,
            n => return Err(DecodeError(format!("{n} is not a change"))),
        })
    }
}

/// A class of sessions; a higher one goes first under some policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    High = 1,
    #[default]
    Normal = 2,
    Low = 3,
}

impl Priority {
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    fn numbered(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|one| *one as u64 == number)
    }
}

impl Wire for Priority {
    const MIN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }

    fn take(reader: &mut Reader<'_>, _limit: usize) -> Result<Self, DecodeError> {
        let number = u8::take(reader, 0)?;
        Self::numbered(u64::from(number))
            .ok_or_else(|| DecodeError(format!("{number} is not a priority")))
    }
}

impl Wire for Request {
    const MIN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Report => 1u8.put(out),
            Self::Stop => 2u8.put(out),
            Self::Hold => 3u8.put(out),
            Self::Change { session, change } => {
                (4u8, *session).put(out);
                change.put(out);
            }
            Self::Policy { name } => {
                5u8.put(out);
                name.put(out);
            }
            Self::Trace { seconds } => (6u8, *seconds).put(out),
            Self::Fate { session } => (7u8, *session).put(out),
        }
    }

    fn take(reader: &mut Reader<'_>, _limit: usize) -> Result<Self, DecodeError> {
        match u8::take(reader, 0)? {
            1 => Ok(Self::Report),
            2 => Ok(Self::Stop),
            3 => Ok(Self::Hold),
            4 => Ok(Self::Change {
                session: u64::take(reader, 0)?,
                change: Change::take(reader, 0)?,
            }),
            5 => Ok(Self::Policy {
                name: String::take(reader, limits::NAME_BYTES)?,
            }),
            6 => Ok(Self::Trace {
                seconds: u32::take(reader, 0)?,
            }),
            7 => Ok(Self::Fate {
                session: u64::take(reader, 0)?,
            }),
            n => Err(DecodeError(format!("{n} is not a request"))),
        }
    }
}
