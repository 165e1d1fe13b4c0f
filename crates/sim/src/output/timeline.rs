//! What a job did when, from its first moment to the last.

use salus_engine::{Duration, Lane, Time};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not there, or its own host works.
    Away,
    Runs(Lane),
    /// Others are before it.
    Turn,
    Memory,
    /// Its arrays move.
    Moves,
    Paused,
}

impl State {
    /// Whether it could go on if it were alone.
    pub(crate) fn is_waiting(self) -> bool {
        matches!(self, Self::Turn | Self::Memory | Self::Moves)
    }
}

#[derive(Debug)]
pub(crate) struct Timeline {
    /// From when on it was in which state; the times grow.
    changes: Vec<(Time, State)>,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Self {
            changes: vec![(Time(0), State::Away)],
        }
    }

    pub(crate) fn enter(&mut self, now: Time, state: State) {
        // What lasted no time did not happen.
        self.changes.pop_if(|(since, _)| *since == now);
        if self.changes.last().is_none_or(|(_, last)| *last != state) {
            self.changes.push((now, state));
        }
    }

    /// Each state with its beginning and end, up to the end of the run.
    pub(crate) fn parts(&self, end: Time) -> impl Iterator<Item = (Time, Time, State)> {
        let ends = self.changes.iter().skip(1).map(|(since, _)| *since);
        let parts = self.changes.iter().zip(ends.chain([end]));
        parts.map(|((since, state), until)| (*since, until, *state))
    }

    pub(crate) fn time_in(&self, end: Time, is_it: impl Fn(State) -> bool) -> Duration {
        let parts = self.parts(end).filter(|(_, _, state)| is_it(*state));
        parts.fold(Duration(0), |sum, (since, until, _)| sum + (until - since))
    }

    /// The longest time in which it waited without a break.
    pub(crate) fn longest_wait(&self, end: Time) -> Duration {
        let (mut longest, mut current) = (Duration(0), Duration(0));
        for (since, until, state) in self.parts(end) {
            current = match state.is_waiting() {
                true => current + (until - since),
                false => Duration(0),
            };
            longest = longest.max(current);
        }
        longest
    }
}
