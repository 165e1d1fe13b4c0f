//! The engine's promises as stories: what sessions ask for, and what it decides.

mod story;

mod callback_lanes;
mod callback_memory;
mod callback_time;
mod departure;
mod eviction;
mod host_memory;
mod lanes;
mod page_in;
mod refusal;
mod reservation;
mod residency;
mod turns;
mod why;
