//! A table of values by session, with lookups in constant time.
//!
//! Ids grow by ones and are never reused, so a session's place is its distance from the oldest one
//! that is open. The engine looks sessions up dozens of times per event; with a tree that was a third
//! of a decision's cost.
//!
//! Cost: O(1); a pointer for each id from the oldest open session to the newest.

use std::collections::VecDeque;

use crate::event::SessionId;

#[derive(Debug)]
pub(crate) struct SessionTable<T> {
    /// The id of the first place.
    first: u64,
    /// Neither the first nor the last is empty.
    places: VecDeque<Option<Box<T>>>,
}

impl<T> Default for SessionTable<T> {
    fn default() -> Self {
        Self {
            first: 0,
            places: VecDeque::new(),
        }
    }
}

impl<T> SessionTable<T> {
    fn place(&self, id: SessionId) -> Option<usize> {
        usize::try_from(id.0.checked_sub(self.first)?).ok()
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<&T> {
        self.places.get(self.place(id)?)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut T> {
        let place = self.place(id)?;
        self.places.get_mut(place)?.as_deref_mut()
    }

    /// Returns the value that was there.
    pub(crate) fn insert(&mut self, id: SessionId, value: T) -> Option<T> {
        if self.places.is_empty() {
            self.first = id.0;
        }
        while id.0 < self.first {
            self.places.push_front(None);
            self.first -= 1;
        }
        while self.first + self.places.len() as u64 <= id.0 {
            self.places.push_back(None);
        }
        let place = self.place(id).and_then(|place| self.places.get_mut(place));
        let before = place.and_then(|place| place.replace(Box::new(value)));
        before.map(|before| *before)
    }

    pub(crate) fn remove(&mut self, id: SessionId) -> Option<T> {
        let place = self.place(id)?;
        let value = self.places.get_mut(place)?.take()?;
        while self.places.pop_front_if(|place| place.is_none()).is_some() {
            self.first += 1;
        }
        while self.places.pop_back_if(|place| place.is_none()).is_some() {}
        Some(*value)
    }

    /// In order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &T)> {
        let ids = (self.first..).map(SessionId);
        let places = ids.zip(&self.places);
        places.filter_map(|(id, place)| Some((id, place.as_deref()?)))
    }
}
