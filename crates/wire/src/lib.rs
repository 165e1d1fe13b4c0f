//! What Salus' processes say to each other: messages, versions, framing, limits.
//!
//! A connection carries frames: a fixed header, then a small body. Bulk data never travels in a
//! frame; it is in shared memory and a frame names its [`Region`]. `docs/protocol.md` describes the
//! conversation; this crate is its grammar.
//!
//! Promise: decoding never panics, never allocates more than the bytes it was given justify, and
//! checks every length and count against a named limit of [`limits`].
//! Not here: sockets, descriptors, clocks, behaviour.

mod codec;
pub mod element;
pub mod env;
mod error;
mod frame;
mod ids;
mod job_name;
pub mod limits;
mod messages;
mod settings;
mod types;
pub mod version;

pub use codec::{DecodeError, Reader, Wire};
pub use element::ElementType;
pub use error::{Error, ErrorCode};
pub use frame::{Header, Message, decode_body, encode_frame};
pub use ids::*;
pub use job_name::job_name;
pub use messages::*;
pub use settings::*;
pub use types::*;
