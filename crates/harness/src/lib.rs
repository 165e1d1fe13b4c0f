//! What tests, attacks and benches share: processes that end with us, a private service, and a
//! client that speaks the wire by hand.
//!
//! `keeper` starts processes through `salus`, which asks the kernel to end them with us; `process`
//! is one of them; `service` is `salus serve` with its own socket, cache and configuration;
//! `client` is a session without a job.
//!
//! Promise: whatever is started here ends with the process that started it, however that ends, and
//! nothing of the user's services, caches or configuration is used or touched.
//! Not here: JAX, and anything that a job or a user needs.

mod client;
mod keeper;
mod line_reader;
mod process;
mod service;
mod temp_dir;
mod watch;

pub use client::{Client, Loss};
pub use keeper::{Ending, Keeper, Role, play};
pub use line_reader::LineReader;
pub use process::Process;
pub use service::{Service, Start};
pub use temp_dir::TempDir;
pub use watch::Watch;
