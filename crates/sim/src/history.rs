//! What ran when: every iteration of a run, to ask questions about.

use salus_engine::{Duration, Lane, Time};

/// An iteration that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    /// Which of the scenario's jobs.
    pub job: usize,
    pub lane: Lane,
    /// When its session asked the engine for it, when the device began with it, and when it ended.
    pub asked_at: Time,
    pub began: Time,
    pub ended: Time,
}

impl Ran {
    /// How long it waited for its turn on the device.
    pub fn waited(&self) -> Duration {
        self.began - self.asked_at
    }

    /// How long it ran in this time.
    pub fn time_within(&self, from: Time, to: Time) -> Duration {
        self.ended.min(to) - self.began.max(from)
    }

    /// How long both ran at once in this time.
    pub fn time_beside(&self, other: &Self, from: Time, to: Time) -> Duration {
        self.ended.min(other.ended).min(to) - self.began.max(other.began).max(from)
    }
}
