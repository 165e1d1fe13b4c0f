//! What carries the messages of `wire`: sockets that pass descriptors, and shared segments.
//!
//! Used by every process of Salus, the job's included, so it starts no thread, installs no signal
//! handler and logs nothing.

pub mod endpoint;
mod host_memory;
mod lock;
mod segment;
mod socket;

pub use host_memory::{HOST_ALIGNMENT, HeapMemory, HostBytes, HostMemory, Part};
pub use lock::{lock, wait, wait_timeout};
pub use segment::{Mapping, Segment, blob, open_blob, text_of, with_text};
pub use socket::{Inbox, Outbox, Received, send_all};
