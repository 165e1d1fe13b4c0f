//! A named limit on every length and count that crosses a process boundary.

/// Body of one frame. Bulk data is in shared memory, so a frame is small; the largest honest one
/// is a `Launch` with [`ARGUMENTS`] ids.
pub const FRAME_BYTES: usize = 1 << 20;
/// A message held in shared memory, such as a program's signature with its optimized form.
pub const BLOB_BYTES: usize = 1 << 30;
/// Arguments or outputs of one program. The largest model seen has a few thousand leaves.
pub const ARGUMENTS: usize = 1 << 16;
/// Dimensions of an array; NumPy stops at 64.
pub const DIMS: usize = 64;
/// Names, kinds, users.
pub const NAME_BYTES: usize = 1 << 10;
/// Error messages; a compiler's may quote a program.
pub const ERROR_BYTES: usize = 1 << 16;
/// Compile options as a job sends them: about 1 kB from JAX, more with layouts of many arguments.
pub const OPTIONS_BYTES: usize = 1 << 19;
/// Source of a program, constants included.
pub const PROGRAM_BYTES: u64 = 1 << 31;
/// Attributes of a plugin or device, properties of a program.
pub const ATTRIBUTES: usize = 1 << 12;
/// Memories of a device.
pub const MEMORIES: usize = 64;
/// Ids in one `Drop`, `Completed` or `Released` message.
pub const BATCH: usize = 1 << 14;
/// JSON that the supervisor or the device host answers with in a frame; what is longer comes in a memfd
/// with it.
pub const JSON_BYTES: usize = 1 << 19;
/// The longest that may come in a memfd: a report of [`SESSIONS`] sessions is a quarter of it.
pub const REPORT_BYTES: usize = 1 << 25;
/// Records of each kind in a [`crate::Recording`]: those that the device host keeps, and those that go
/// on.
pub const RECORDS: usize = 1 << 17;
/// One shared segment.
pub const SEGMENT_BYTES: u64 = 1 << 40;
/// Segments that a session may have mapped at once.
pub const SEGMENTS: usize = 4096;
/// Live arrays of a session.
pub const ARRAYS: usize = 1 << 22;
/// Live programs of a session.
pub const PROGRAMS: usize = 1 << 16;
/// Compilations and reads that a session may have in flight.
pub const REQUESTS: usize = 1 << 12;
/// The window: launches that a session may have in flight. The plugin itself blocks at 32 per device.
pub const LAUNCHES: u32 = 32;
/// Operands or results of one callback: as many as fit a frame with room to spare.
pub const CALLBACK_ARRAYS: usize = 1 << 12;
/// Calls of a session's programs that may be under way at once: callbacks that launch programs that
/// call back, and threads of the job that each run one.
pub const CALLBACK_CHANNELS: usize = 16;
/// Programs that are refused because they ended a device host.
pub const CONVICTED: usize = 256;
/// Sessions of one device host.
pub const SESSIONS: usize = 4096;
