//! Why a session waits.

use crate::{Engine, SessionId};

/// What keeps a session from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It asked for nothing: its own host works.
    AtWork,
    Running,
    /// Others are before it in its lane.
    Turn {
        ahead: u32,
    },
    /// It needs more than is free; `first` is the one that is served before it, if it is not itself.
    Memory {
        needs_bytes: u64,
        free_bytes: u64,
        first: Option<SessionId>,
    },
    /// Its arrays leave the device for another session.
    Leaving {
        claimant: Option<SessionId>,
    },
}

impl Engine {
    pub fn why(&self, id: SessionId) -> Option<Why> {
        let session = self.sessions.get(&id)?;
        if session.is_leaving() {
            let claimant = self.claim.filter(|other| *other != id);
            return Some(Why::Leaving { claimant });
        }
        if session.request.is_none() {
            let running = session.account.running > 0;
            return Some(if running { Why::Running } else { Why::AtWork });
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
        let ahead = lane.in_flight() as u32;
        Some(Why::Turn { ahead })
    }
}
