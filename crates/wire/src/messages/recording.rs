//! What the device host remembers of who ran where and when: all of it for `salus trace`, and what
//! is a job's own for its profiler.
//!
//! Times of a [`Recording`] are nanoseconds since the device host began, those of a [`Profile`]
//! since 1970, as profilers have them. Each span is recorded whole, from its beginning to its
//! end, so nothing here needs what was forgotten meanwhile to be understood.

use crate::codec::wire_struct;
use crate::limits;
use crate::settings::JobSettings;

wire_struct! {
    /// It travels in a memfd, because it is too large for a frame.
    Recording {
        /// When the device host began, in nanoseconds since 1970: what the recordings of several have in
        /// common.
        began_unix_ns: u64,
        /// From here on it is complete; what it has from earlier ended later.
        from_ns: u64,
        until_ns: u64,
        platform: String = limits::NAME_BYTES,
        kind: String = limits::NAME_BYTES,
        policy: String = limits::NAME_BYTES,
        /// What the ledger may give away of the device, and of the host for what is paged out.
        room_bytes: u64,
        host_room_bytes: u64,
        /// How many lanes the device has, and how many of them are open unless the policy opens all.
        lanes: u32,
        width: u32,
        /// How many records were ever made, and how many of them were forgotten: the oldest that is
        /// known has this number.
        records_made: u64,
        records_forgotten: u64,
        sessions: Vec<RecordedSession> = limits::RECORDS,
        /// The names of some programs, by number.
        programs: Vec<(u64, String)> = limits::RECORDS,
        iterations: Vec<RecordedIteration> = limits::RECORDS,
        waits: Vec<RecordedWait> = limits::RECORDS,
        moves: Vec<RecordedMove> = limits::RECORDS,
        pauses: Vec<RecordedSpan> = limits::RECORDS,
        compilations: Vec<RecordedSpan> = limits::RECORDS,
        refusals: Vec<RecordedRefusal> = limits::RECORDS,
        /// The policies that were chosen meanwhile, and when.
        policies: Vec<(u64, String)> = limits::RECORDS,
        memory: Vec<RecordedMemory> = limits::RECORDS,
    }

    RecordedSession {
        session: u64,
        name: String = limits::NAME_BYTES,
        pid: i32,
        opened_ns: u64,
        closed_ns: Option<u64>,
        /// The latest.
        settings: JobSettings,
        /// Device time of earlier sessions like it, if there were any.
        recalled_ns: Option<u64>,
        /// The most that its arrays ever took, on the device and paged out.
        peak_bytes: u64,
        /// The most that one of its launches took while it ran.
        scratch_bytes: u64,
    }

    RecordedIteration {
        session: u64,
        lane: u32,
        program: u64,
        /// When it was asked for, and when it was handed to its lane.
        ready_ns: u64,
        started_ns: u64,
        /// Of the time between these, how long memory was lacking.
        memory_ns: u64,
        /// When the lane had come to it: nothing else runs there until it ends.
        began_ns: u64,
        ended_ns: u64,
        /// It still runs; `ended_ns` is now.
        runs: bool,
        /// Since the launch before, its host has read an array or waited for an operation.
        reads: bool,
    }

    /// A wait that led to no iteration: for an array's room, or it goes on, or was given up.
    RecordedWait { session: u64, ready_ns: u64, until_ns: u64, memory_ns: u64 }

    /// Arrays of a session went to host memory or came back.
    RecordedMove {
        session: u64,
        out: bool,
        /// What the engine wanted to leave; 0 of those that came back.
        asked_bytes: u64,
        bytes: u64,
        began_ns: u64,
        ended_ns: u64,
    }

    RecordedSpan { session: u64, began_ns: u64, ended_ns: u64 }

    RecordedRefusal { session: u64, at_ns: u64, why: String = limits::NAME_BYTES }

    /// When the launches of a session ran. It travels in a memfd, because it is too large for a frame.
    Profile {
        /// From here on it is complete.
        from_ns: u64,
        /// What the launches are called; each is named once.
        programs: Vec<String> = limits::RECORDS,
        launches: Vec<ProfiledLaunch> = limits::RECORDS,
    }

    ProfiledLaunch {
        lane: u32,
        /// Among `programs`.
        program: u32,
        /// When it was asked for, when the lane had come to it, and when it ended.
        ready_ns: u64,
        began_ns: u64,
        ended_ns: u64,
    }

    /// What the ledger says from this time on.
    RecordedMemory { at_ns: u64, resident_bytes: u64, paged_bytes: u64, scratch_bytes: u64 }
}
