//! Accounts: what each session has used, and where its time went.
//!
//! At any moment a session is in one state, so the times in all states add up to its age.
//! Not here: which state follows from what (`settle.rs`).

use crate::time::{Duration, Time};

/// What a session does, or waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It has no request: the job is running on its host.
    Host,
    /// A program of it is being compiled or loaded.
    Compile,
    /// The device works for it.
    Running,
    /// Its iteration waits for a callback that its own process runs.
    Callback,
    /// Others are before it, by the policy.
    Turn,
    /// It waits for room on the device.
    Memory,
    /// Its arrays are being paged out while its request waits.
    Paging,
    /// Its user has paused it.
    Paused,
}

impl State {
    pub const ALL: [Self; 8] = [
        Self::Host,
        Self::Compile,
        Self::Running,
        Self::Callback,
        Self::Turn,
        Self::Memory,
        Self::Paging,
        Self::Paused,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Compile => "compile",
            Self::Running => "running",
            Self::Callback => "callback",
            Self::Turn => "turn",
            Self::Memory => "memory",
            Self::Paging => "paging",
            Self::Paused => "paused",
        }
    }

    /// Whether others, or their memory, keep it from running.
    fn is_waiting(self) -> bool {
        matches!(self, Self::Turn | Self::Memory | Self::Paging)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    pub iterations: u64,
    /// Iterations that followed one of another session in their lane.
    pub switches: u64,
    /// Lane time: of each iteration from when it was started, or the one before it in the lane has
    /// ended, to its own end.
    pub device_time: Duration,
    /// Iterations started and not ended.
    pub running: u32,
    state: State,
    since: Time,
    /// Time in each state, without the time since `since`.
    times: [Duration; State::ALL.len()],
}

impl Account {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            iterations: 0,
            switches: 0,
            device_time: Duration(0),
            running: 0,
            state: State::Host,
            since: now,
            times: [Duration(0); State::ALL.len()],
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Since when it is in that state.
    pub fn since(&self) -> Time {
        self.since
    }

    /// How long it was in a state until now.
    pub fn time_in(&self, state: State, now: Time) -> Duration {
        let ongoing = match state == self.state {
            true => now - self.since,
            false => Duration(0),
        };
        self.times[state as usize] + ongoing
    }

    /// How long others, or their memory, kept it from running.
    pub fn waiting(&self, now: Time) -> Duration {
        let waiting = State::ALL.into_iter().filter(|state| state.is_waiting());
        waiting.fold(Duration(0), |sum, state| sum + self.time_in(state, now))
    }

    pub(crate) fn enter(&mut self, now: Time, state: State) {
        if state != self.state {
            self.times[self.state as usize] = self.time_in(self.state, now);
            self.state = state;
            // Never back: the state's time would count twice.
            self.since = self.since.max(now);
        }
    }
}
