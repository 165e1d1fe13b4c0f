//! The messages, by who speaks: a job and the service, the service's own processes, a program and the
//! callbacks of its job; and what does not travel in frames: traces, and programs in JAX's cache.

mod callback;
mod recording;
mod service;
mod session;
mod token;

pub use callback::*;
pub use recording::*;
pub use service::*;
pub use session::*;
pub use token::{Token, TokenError};
