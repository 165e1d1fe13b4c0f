//! Why a session waits.

use crate::{Engine, Kind, SessionId, State};

/// What keeps a session from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It asked for nothing: its own host works.
    AtWork,
    Running,
    /// Its iteration waits for a callback that its own process runs.
    Callback,
    /// A program of it is being compiled or loaded.
    Compiling,
    /// Its user has paused it.
    Paused,
    /// Another has the device until it ends.
    Exclusive {
        owner: Option<SessionId>,
    },
    /// By the policy, others are before it: so many are handed to its lane, and one of them runs.
    Turn {
        ahead: u32,
        runs: Option<SessionId>,
    },
    /// It would run beside what runs now, and both would be slower.
    Apart,
    /// It needs more than is free; `first` is the one that is served before it, if it is not itself.
    Memory {
        needs_bytes: u64,
        free_bytes: u64,
        first: Option<SessionId>,
    },
    /// It has stayed its time, and goes on when somebody has left for the one that is served first.
    GivesWay {
        first: SessionId,
    },
    /// Its arrays leave the device for another session.
    Leaving {
        claimant: Option<SessionId>,
    },
}

impl Engine {
    pub fn why(&self, id: SessionId) -> Option<Why> {
        let session = self.sessions.get(id)?;
        if session.is_leaving() {
            let claimant = self.claim.filter(|other| *other != id);
            return Some(Why::Leaving { claimant });
        }
        let Some(request) = &session.request else {
            return Some(match session.account.state() {
                State::Paused => Why::Paused,
                State::Compile => Why::Compiling,
                State::Host => Why::AtWork,
                State::Callback => Why::Callback,
                _ => Why::Running,
            });
        };
        if session.paused {
            return Some(Why::Paused);
        }
        if self.is_held(id, session) {
            return Some(Why::Exclusive { owner: self.owner });
        }
        let (needs_bytes, free_bytes) = (self.need(id), self.ledger.free_bytes());
        let first = self.claim.filter(|other| *other != id);
        if needs_bytes > free_bytes || (first.is_some() && needs_bytes > 0) {
            return Some(Why::Memory {
                needs_bytes,
                free_bytes,
                first,
            });
        }
        let lane = &self.lanes[session.lane.0 as usize];
        let calls_back = request.demand.calling().is_some();
        let depth = self.depth(request.order.rank);
        if request.demand.kind != Kind::Array && !lane.lets_in(calls_back, depth) {
            return Some(Why::Turn {
                ahead: lane.in_flight() as u32,
                runs: lane.head(),
            });
        }
        Some(match first {
            Some(first) => Why::GivesWay { first },
            None => Why::Apart,
        })
    }
}
