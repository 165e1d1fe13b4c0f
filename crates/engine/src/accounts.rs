//! What each session has used and how long it waited.

use crate::time::{Duration, Time};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    pub iterations: u64,
    /// Time in which the device worked for this session.
    pub device_time: Duration,
    /// Time in which an iteration of this session was ready and others ran.
    pub waiting: Duration,
    /// Iterations started and not ended.
    pub running: u32,
    /// Since when its next iteration waits for its turn.
    pub waiting_since: Option<Time>,
}
