//! What Salus' processes say to each other: messages, versions, framing, limits.
//!
//! A connection carries frames: a fixed header, then a small body. Bulk data never travels in a
//! frame; it lies in shared memory and a frame names its [`Region`]. `docs/protocol.md` tells the
//! conversation; this crate is its grammar.
//!
//! Promise: decoding never panics, never allocates more than the bytes it was given justify, and
//! checks every length and count against a named limit of [`limits`].
//! Not here: sockets, descriptors, clocks, behaviour.

mod callback;
mod codec;
mod frame;
mod internal;
mod job;
pub mod limits;
mod model;
mod recording;
mod token;
pub mod version;

pub use callback::*;
pub use codec::{DecodeError, Reader, Wire};
pub use frame::{Header, Message, decode_body, encode_frame};
pub use internal::*;
pub use job::*;
pub use model::*;
pub use recording::*;
pub use token::{Token, TokenError};
