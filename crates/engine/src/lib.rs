//! The engine decides who runs next and whose arrays are where: `(now, event) → decisions`.
//!
//! The device host tells it what happened and carries its decisions out. The same crate runs in the
//! service, in tests and in the simulator, because it has no clock, no threads and no I/O.
//!
//! Reading order: `event.rs` (what goes in and comes out), `engine.rs` (how an event is handled),
//! `settle.rs`, `schedule/select.rs` (who is started), `memory/reservation.rs` (who is evicted), then
//! `policies/`.
//!
//! Promise: equal events at equal times give equal decisions.
//! Not here: clocks, sockets, locks, floats, hash order.

#![deny(
    clippy::float_arithmetic,
    reason = "sums of floats depend on their order"
)]

mod accounts;
mod control;
mod engine;
mod event;
mod explain;
mod inspect;
mod memory;
mod policies;
mod schedule;
mod session;
mod session_table;
mod settle;
mod time;

pub use accounts::{Account, State};
pub use engine::Engine;
pub use event::{Calling, Decision, Demand, Event, Kind, Lane, Program, Refusal, SessionId, User};
pub use explain::Why;
pub use memory::{EVICTION_MARGIN_BYTES, Holding, Ledger, MIN_RESIDENCY, MIN_RESIDENCY_MAX, Room};
pub use policies::Policy;
pub use salus_wire::{JobSettings, NonZeroDuration, Priority, Weight, Work};
pub use schedule::{AGING_LIMIT, DEPTH, Estimates};
pub use time::{Duration, Time};
