//! Between the service's own processes: supervisor, device host, compilers.

use crate::codec::{wire_enum, wire_struct};
use crate::error::Error;
use crate::limits;
use crate::messages::Change;
use crate::settings::JobSettings;
use crate::types::{Description, Signature};

wire_enum! {
    /// From the supervisor to the device host.
    ToHost {
        1 = Adopt,
        2 = Report,
        3 = CompilerJoined,
        4 = CompilerEnded,
        5 = ChangeSession,
        6 = ChangePolicy,
        7 = AskTrace,
        8 = Board,
        9 = Convicted,
    }
}

wire_enum! {
    /// From the device host to the supervisor.
    FromHost {
        1 = Up,
        2 = Failed,
        3 = Reported,
        4 = CompilerWanted,
        5 = SessionClosed,
        6 = Traced,
        7 = CompilerUnwanted,
        8 = Endless,
        9 = Load,
    }
}

wire_enum! {
    /// From the device host to a compiler.
    ToCompiler { 1 = CompileRequest, 2 = Target }
}

wire_enum! {
    /// From a compiler to the device host.
    FromCompiler { 1 = CompileResult, 2 = CompileError }
}

wire_struct! {
    /// A job was let in: its socket comes with this frame. The device host sends `Welcome`.
    Adopt {
        session: u64,
        protocol: u32,
        pid: i32,
        uid: u32,
        user: String = limits::NAME_BYTES,
        name: String = limits::NAME_BYTES,
        settings: JobSettings,
    }

    Report { request: u64 }

    /// Change a session; answered by `Reported`.
    ChangeSession { request: u64, session: u64, change: Change }

    /// Serve sessions by another policy; answered by `Reported`.
    ChangePolicy { request: u64, policy: String = limits::NAME_BYTES }

    /// What happened in the last `seconds`, or as far back as is known if they are 0? Answered by
    /// `Traced`. If `names_of` is a user, what others' jobs and programs are called is left out.
    AskTrace { request: u64, seconds: u32, names_of: Option<u32> }

    /// The status page on which the device host says what it runs; its memory comes with this frame,
    /// before all others.
    Board { bytes: u64 }

    /// This program ended a device host and is refused.
    Convicted { program: u64, error: Error }

    /// A compiler is ready; its socket comes with this frame.
    CompilerJoined { compiler: u64, pid: i32 }

    /// A compiler's process ended, and how (`signal 6 (SIGABRT)`).
    CompilerEnded { compiler: u64, how: String = limits::NAME_BYTES }

    /// The device is open; what a report says of it then.
    Up { description: Description, json: String = limits::JSON_BYTES }

    /// The device cannot be opened.
    Failed { error: Error }

    /// The JSON may be in a memfd that comes with this frame.
    Reported { request: u64, json: String = limits::JSON_BYTES }

    /// A [`crate::Recording`] is in the memfd that comes with this frame.
    Traced { request: u64, bytes: u64 }

    /// The device host has programs to compile and wants one more compiler.
    CompilerWanted { count: u32 }

    /// What sessions make of the device, from which the supervisor chooses a device for the next job.
    Load {
        /// The newest session that is counted.
        newest: u64,
        /// The average number of sessions that want the device, in thousandths.
        wanting_milli: u64,
        /// What their arrays take, on the device and paged out.
        held_bytes: u64,
    }

    /// An iteration takes longer than one may: the device host must be started again.
    Endless { session: u64, why: String = limits::ERROR_BYTES }

    /// Nobody waits for what this compiler does: it should end.
    CompilerUnwanted { compiler: u64 }

    /// A session ended, whatever ended it; the supervisor counts those that are open.
    SessionClosed { session: u64 }

    /// The device to compile for, before the first request. Not sent on a device that every compiler
    /// opens for itself.
    Target {
        description: Description,
        /// Whether the compiler opens a small client of its own, to measure on the device.
        tunes: bool,
    }

    /// The source is in the memfd that comes with this frame.
    CompileRequest {
        format: String = limits::NAME_BYTES,
        code_bytes: u64,
        options: Vec<u8> = limits::OPTIONS_BYTES,
    }

    /// A [`StoredProgram`] is in the memfd that comes with this frame.
    CompileResult { bytes: u64 }

    CompileError { error: Error }

    /// A compiled program as it is in shared memory and in the cache on disk.
    StoredProgram {
        signature: Signature,
        executable: Vec<u8> = limits::BLOB_BYTES,
    }
}
