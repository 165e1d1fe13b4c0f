//! What carries the messages of `wire`: sockets that pass descriptors, and shared segments.
//!
//! Used by every process of Salus, the job's included, so it starts no thread, installs no signal
//! handler and logs nothing.

mod segment;
mod socket;

pub use segment::{Mapping, Segment, blob, open_blob, text_of, with_text};
pub use socket::{Inbox, Outbox, Received, send_all};
