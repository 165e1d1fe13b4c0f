//! What users and those who rule the service ask for while sessions run: other wishes, a pause,
//! another policy; and who may not run because of it.

use std::collections::BTreeMap;

use crate::engine::{Engine, Session};
use crate::policies::Policy;
use crate::time::Time;
use crate::{SessionId, Wishes};

impl Engine {
    pub(crate) fn wish(&mut self, now: Time, id: SessionId, wishes: Wishes) {
        self.count(id, false);
        let before = self.clock(self.session(id));
        self.session_mut(id).wishes = wishes;
        let clock = self.clock(self.session(id));
        self.session_mut(id).share.moved(before, clock);
        self.count(id, true);
        self.requeue(now, id);
    }

    pub(crate) fn pause(&mut self, now: Time, id: SessionId, paused: bool) {
        if self.session(id).paused != paused {
            self.count(id, false);
            self.session_mut(id).paused = paused;
            self.count(id, true);
            if !paused {
                self.rejoin(now, id);
                self.ask_anew(now, id);
            }
            self.requeue(now, id);
            self.replace(id);
            self.choose_owner(now);
        }
    }

    pub(crate) fn order(&mut self, now: Time, policy: Policy) {
        self.policy = policy;
        let ids: Vec<SessionId> = self.sessions.iter().map(|(id, _)| id).collect();
        self.classes.clear();
        self.latencies.clear();
        for lane in &mut self.lanes {
            lane.clocks = Default::default();
            lane.shifts = Default::default();
        }
        for &id in &ids {
            self.count(id, true);
            // What another policy gave to some nobody owes to the others.
            self.session_mut(id).share.restart();
        }
        self.owner = None;
        self.choose_owner(now);
        for id in ids {
            self.requeue(now, id);
            self.replace(id);
        }
    }

    /// Counts a session that may run, or no longer.
    pub(crate) fn count(&mut self, id: SessionId, is_there: bool) {
        let session = self.session(id);
        if session.paused {
            return;
        }
        let (class, latency) = (self.policy.class(&session.wishes), session.wishes.latency);
        count_in(&mut self.classes, class, is_there);
        if let Some(latency) = latency {
            count_in(&mut self.latencies, latency, is_there);
        }
    }

    /// Under a policy that serves one session only, which one.
    pub(crate) fn choose_owner(&mut self, now: Time) {
        let owner = match self.policy.is_exclusive() {
            true => self.sessions.iter().find(|(_, s)| !s.paused),
            false => None,
        };
        let owner = owner.map(|(id, _)| id);
        let before = std::mem::replace(&mut self.owner, owner);
        if before != owner {
            for id in [before, owner].into_iter().flatten() {
                if self.sessions.get(id).is_some() {
                    self.requeue(now, id);
                    self.replace(id);
                }
            }
        }
    }

    /// Whether anything of the session may be started now.
    pub(crate) fn is_held(&self, id: SessionId, session: &Session) -> bool {
        session.paused || (self.policy.is_exclusive() && self.owner != Some(id))
    }
}

fn count_in<K: Ord + Copy>(counts: &mut BTreeMap<K, u32>, key: K, is_there: bool) {
    let count = counts.entry(key).or_default();
    match is_there {
        true => *count += 1,
        false => *count -= 1,
    }
    if *count == 0 {
        counts.remove(&key);
    }
}
