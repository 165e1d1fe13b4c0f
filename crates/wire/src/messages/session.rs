//! Between a job's adaptor and the service.
//!
//! The job names every id. Operations take effect in the order sent; `Launch`, `Upload`, `Copy`
//! and `Drop` are not answered one by one: `Completed` says later how launches and copies ended.

use std::num::NonZeroU64;

use crate::codec::{wire_choice, wire_enum, wire_struct};
use crate::error::Error;
use crate::ids::{ArrayId, OperationId, ProgramId, RequestId, SegmentId};
use crate::limits;
use crate::settings::{JobSettings, NonZeroDuration, Priority, Weight};
use crate::types::{Description, Region, Shape};

wire_enum! {
    /// From a job, or from a command that speaks to the supervisor.
    ToService {
        1 = Hello,
        2 = Command,
        3 = Segment,
        4 = SegmentGone,
        5 = Upload,
        6 = Compile,
        7 = Launch,
        8 = CopyArray,
        9 = ReadArray,
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
        7 = ReadDone,
        8 = Released,
        9 = ArrayFailed,
        10 = Usage,
        11 = Trace,
        12 = CallbackChannel,
        13 = Profiled,
    }
}

wire_struct! {
    /// The first frame of a job. Nothing else is sent before `Welcome`.
    Hello {
        protocol_min: u32,
        protocol_max: u32,
        /// Version of the adaptor, for messages.
        version: String = limits::NAME_BYTES,
        /// What `salus ps` shows.
        name: String = limits::NAME_BYTES,
        settings: JobSettings,
        /// Which `salus run` it comes from, as the answer to that one's `Hold` says; 0 is none.
        run: u64,
        /// The device that the job wants (`cuda:1`); empty is whichever has least to do.
        device: String = limits::NAME_BYTES,
    }

    /// The first frame of a command such as `salus ps`; answered by `Answer` or `Refused`.
    Command {
        protocol_min: u32,
        protocol_max: u32,
        request: Request,
    }

    /// A shared segment, whose descriptor comes with this frame: a memfd sealed against shrinking.
    Segment { id: SegmentId, bytes: u64 }

    /// The job unmapped a segment; arrays that live in it keep it mapped in the service.
    SegmentGone { id: SegmentId }

    /// An array from host memory. The region belongs to the service until `Released` names it.
    Upload { array: ArrayId, shape: Shape, memory: u32, data: Region }

    /// A program to compile or to find in the cache; answered by `Compiled` or `CompileFailed`.
    /// The region may be reused after the answer.
    Compile {
        program: ProgramId,
        /// `mlir` or `hlo`.
        format: String = limits::NAME_BYTES,
        code: Region,
        options: Vec<u8> = limits::OPTIONS_BYTES,
    }

    /// A launch. Outputs are named `first_output`, `first_output + 1`, ….
    Launch {
        /// Grows with each launch and copy of the session; named by `Completed`.
        operation: OperationId,
        program: ProgramId,
        first_output: ArrayId,
        arguments: Vec<ArrayId> = limits::ARGUMENTS,
        /// Arguments not to be donated, by position.
        keep: Vec<u32> = limits::ARGUMENTS,
    }

    /// A copy of an array in another memory of the device; named by `Completed`.
    CopyArray { operation: OperationId, array: ArrayId, copy: ArrayId, memory: u32 }

    /// An array's bytes into a region; answered by `ReadDone`. The array may be dropped at once.
    ReadArray { request: RequestId, array: ArrayId, target: Region, form: Form }

    /// Somebody waits for this operation: tell its end at once rather than in the next batch.
    Await { operation: OperationId }

    /// Arrays that the job no longer has.
    DropArrays { arrays: Vec<ArrayId> = limits::BATCH }

    DropProgram { program: ProgramId }

    /// What does the session hold? Answered by `Usage`.
    AskUsage { request: RequestId }

    /// When did the session's launches run since then? Answered by `Profiled`.
    AskProfile {
        request: RequestId,
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

    /// The JSON may be in a memfd that comes with this frame.
    Answer { json: String = limits::JSON_BYTES }

    /// A [`crate::Recording`] of a device is in the memfd that comes with this frame, or `missing` says
    /// why there is none. As many frames as `more` says follow, one for each further device.
    Trace {
        device: String = limits::NAME_BYTES,
        bytes: u64,
        missing: Option<String> = limits::NAME_BYTES,
        more: u32,
    }

    /// A [`crate::Signature`] is in the memfd that comes with this frame.
    Compiled { program: ProgramId, bytes: u64 }

    CompileFailed { program: ProgramId, error: Error }

    /// How launches and copies ended; each gives its place in the window back.
    Completed {
        done: Vec<OperationId> = limits::BATCH,
        failed: Vec<(OperationId, Error)> = limits::BATCH,
    }

    ReadDone { request: RequestId, error: Option<Error> }

    /// The service no longer uses these regions of uploads.
    Released { regions: Vec<Region> = limits::BATCH }

    /// An upload could not be made; launches that use it fail likewise.
    ArrayFailed { array: ArrayId, error: Error }

    /// A program of the job calls back: calls come on the socket whose descriptor comes with this
    /// frame ([`crate::ToCallbacks`]). There is one channel for each call that is under way.
    CallbackChannel { channel: u32 }

    /// A [`crate::Profile`] is in the memfd that comes with this frame, unless there is an error.
    Profiled { request: RequestId, bytes: u64, error: Option<Error> }

    /// What the session holds, on the device or paged out, held at most, and may hold.
    Usage { request: RequestId, bytes: u64, peak_bytes: u64, limit_bytes: u64 }
}

wire_choice! {
    /// How an array that is read is laid out.
    #[derive(Eq)]
    Form, "form of data" {
        /// As the device holds it.
        0 = Raw,
        /// One element after another (sub-byte types one byte each), minor to major as given.
        1 = Host { minor_to_major: Vec<i64> = limits::DIMS },
    }
}

wire_choice! {
    /// What a command asks of the supervisor.
    #[derive(Eq)]
    Request, "request" {
        /// Device and sessions, for `salus ps`.
        1 = Report,
        /// End the service.
        2 = Stop,
        /// Stay as long as this connection does: a job is about to come.
        3 = Hold,
        /// Change a session from now on.
        4 = Change { session: u64, change: Change },
        /// Serve sessions by this policy from now on; an empty `device` is all devices.
        5 = Policy { name: String = limits::NAME_BYTES, device: String = limits::NAME_BYTES },
        /// What ran where and when in the last `seconds`, or as far back as is known if they are 0;
        /// answered by `Trace`.
        6 = Trace { seconds: u32 },
        /// Why a session of this user is gone.
        7 = Fate { session: u64 },
    }
}

wire_choice! {
    /// What may be changed of a session while it runs.
    #[derive(Copy, Eq)]
    Change, "change" {
        /// The most that it may hold in bytes; `None` is no limit.
        1 = MemoryMax(bytes: Option<NonZeroU64>),
        2 = Weight(weight: Weight),
        3 = Priority(priority: Priority),
        4 = Deadline(deadline: Option<NonZeroDuration>),
        /// Nothing more of it is started, and its memory may be paged out.
        5 = Pause,
        6 = Resume,
        /// It ends.
        7 = Kill,
        /// It ends at once, whatever it runs: the device host is started again, and all sessions are
        /// lost.
        8 = KillNow,
    }
}
