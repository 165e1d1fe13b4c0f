//! What will happen, in the order of time.

use std::collections::BTreeMap;

use salus_engine::Time;

/// Planned actions. Those planned for the same moment come in the order in which they were planned.
#[derive(Debug)]
pub struct Agenda<T> {
    actions: BTreeMap<(Time, u64), T>,
    planned: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self {
            actions: BTreeMap::new(),
            planned: 0,
        }
    }
}

impl<T> Agenda<T> {
    pub fn plan(&mut self, at: Time, action: T) {
        self.planned += 1;
        self.actions.insert((at, self.planned), action);
    }

    /// When the next action is planned.
    pub fn next(&self) -> Option<Time> {
        self.actions.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next action if it is planned for this time or before.
    pub fn take(&mut self, now: Time) -> Option<T> {
        let first = self.actions.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
