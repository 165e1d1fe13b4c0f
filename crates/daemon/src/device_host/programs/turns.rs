//! Fair queues: users are served in turn, and so are the sessions of each user.
//!
//! Promise: a user with a hundred sessions is served no sooner than one with a single session, and a
//! session with a hundred requests no sooner than one with a single request.

use std::collections::{BTreeMap, VecDeque};

use salus_engine::SessionId;

/// Requests of sessions, in the order in which they are served.
pub(crate) struct Turns<T> {
    /// Users with requests, the next first.
    users: VecDeque<u32>,
    of: BTreeMap<u32, OfUser<T>>,
}

struct OfUser<T> {
    sessions: VecDeque<SessionId>,
    requests: BTreeMap<SessionId, VecDeque<T>>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            users: VecDeque::new(),
            of: BTreeMap::new(),
        }
    }
}

impl<T> Default for OfUser<T> {
    fn default() -> Self {
        Self {
            sessions: VecDeque::new(),
            requests: BTreeMap::new(),
        }
    }
}

impl<T> Turns<T> {
    pub(crate) fn push(&mut self, user: u32, session: SessionId, request: T) {
        let own = self.of.entry(user).or_default();
        if own.requests.is_empty() {
            self.users.push_back(user);
        }
        let requests = own.requests.entry(session).or_default();
        if requests.is_empty() {
            own.sessions.push_back(session);
        }
        requests.push_back(request);
    }

    /// The next request, of the users that may be served now.
    pub(crate) fn pop(&mut self, may: impl Fn(u32) -> bool) -> Option<(u32, T)> {
        let at = self.users.iter().position(|user| may(*user))?;
        let user = self.users.remove(at)?;
        let own = self.of.get_mut(&user)?;
        let request = own.pop();
        match own.requests.is_empty() {
            true => drop(self.of.remove(&user)),
            false => self.users.push_back(user),
        }
        request.map(|request| (user, request))
    }

    /// Removes the requests of a session.
    pub(crate) fn forget(&mut self, user: u32, session: SessionId) -> VecDeque<T> {
        let Some(own) = self.of.get_mut(&user) else {
            return VecDeque::new();
        };
        let requests = own.requests.remove(&session).unwrap_or_default();
        own.sessions.retain(|other| *other != session);
        if own.requests.is_empty() {
            self.of.remove(&user);
            self.users.retain(|other| *other != user);
        }
        requests
    }
}

impl<T> OfUser<T> {
    fn pop(&mut self) -> Option<T> {
        let session = self.sessions.pop_front()?;
        let requests = self.requests.get_mut(&session)?;
        let request = requests.pop_front();
        match requests.is_empty() {
            true => drop(self.requests.remove(&session)),
            false => self.sessions.push_back(session),
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(turns: &mut Turns<i32>) -> Vec<i32> {
        std::iter::from_fn(|| turns.pop(|_| true).map(|(_, request)| request)).collect()
    }

    #[test]
    fn sessions_of_a_user_take_turns() {
        let mut turns = Turns::default();
        let (hog, other) = (SessionId(1), SessionId(2));
        for n in 0..4 {
            turns.push(7, hog, n);
        }
        assert_eq!(turns.pop(|_| true), Some((7, 0)));
        turns.push(7, other, 10);
        turns.push(7, other, 11);
        assert_eq!(rest(&mut turns), [1, 10, 2, 11, 3]);
        turns.push(7, hog, 4);
        turns.push(7, other, 12);
        assert_eq!(turns.forget(7, hog), [4]);
        assert_eq!(rest(&mut turns), [12]);
        assert!(turns.users.is_empty() && turns.of.is_empty());
    }

    #[test]
    fn a_user_with_many_sessions_is_served_as_often_as_one_with_a_single_one() {
        let mut turns = Turns::default();
        for session in 1..=100 {
            turns.push(7, SessionId(session), 7);
        }
        for _ in 0..3 {
            turns.push(8, SessionId(200), 8);
        }
        assert_eq!(rest(&mut turns)[..7], [7, 8, 7, 8, 7, 8, 7]);
    }

    #[test]
    fn who_may_not_be_served_now_does_not_hold_others_up() {
        let mut turns = Turns::default();
        turns.push(7, SessionId(1), 1);
        turns.push(8, SessionId(2), 2);
        assert_eq!(turns.pop(|user| user != 7), Some((8, 2)));
        assert_eq!(turns.pop(|user| user != 7), None);
        assert_eq!(turns.pop(|_| true), Some((7, 1)));
        assert!(turns.forget(7, SessionId(1)).is_empty());
    }
}
