//! Why a session waits: what `salus explain` says.

use crate::accounts::State;
use crate::engine::Engine;
use crate::event::{Kind, SessionId};

/// What keeps a session from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It has no request: the job is running on its host.
    Idle,
    Running,
    /// Its iteration waits for a callback that its own process runs.
    Callback,
    /// A program of it is being compiled or loaded.
    Compiling,
    /// Its user has paused it.
    Paused,
    /// The policy serves another session alone until it ends.
    Exclusive {
        owner: Option<SessionId>,
    },
    /// By the policy, others are before it: `ahead` are handed to its lane, and one of them runs.
    Turn {
        ahead: u32,
        runs: Option<SessionId>,
    },
    /// It would run side by side with what runs now, and slow both down.
    Interference,
    /// It needs more than is free; `holder` has the reservation, if another session has it.
    Memory {
        needs_bytes: u64,
        free_bytes: u64,
        holder: Option<SessionId>,
    },
    /// Its arrays in host memory do not fit there.
    HostMemory {
        needs_bytes: u64,
        free_bytes: u64,
    },
    /// Its minimum residency is over, and it starts nothing until somebody was evicted for the
    /// reservation's holder.
    Reserved {
        holder: SessionId,
    },
    /// It is being evicted for the reservation's holder, or to change lanes.
    Evicting {
        holder: Option<SessionId>,
    },
}

impl Engine {
    pub fn why(&self, id: SessionId) -> Option<Why> {
        let session = self.sessions.get(id)?;
        if session.evicting.is_some() {
            let holder = self.memory.reservation().other_holder(id);
            return Some(Why::Evicting { holder });
        }
        let Some(request) = &session.request else {
            return Some(match session.account.state() {
                State::Paused => Why::Paused,
                State::Compile => Why::Compiling,
                State::Host => Why::Idle,
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
        if request.awaits_host {
            return Some(Why::HostMemory {
                needs_bytes: request.demand.new_host_bytes,
                free_bytes: self.memory.host_room(),
            });
        }
        let (needs_bytes, free_bytes) = (self.need(id), self.memory.ledger().free_bytes());
        let holder = self.memory.reservation().other_holder(id);
        if needs_bytes > free_bytes || (holder.is_some() && needs_bytes > 0) {
            return Some(Why::Memory {
                needs_bytes,
                free_bytes,
                holder,
            });
        }
        let lane = self.queues.lane(session.lane);
        let calls_back = request.demand.calling().is_some();
        let depth = self.queues.depth(self.now, request.order.rank);
        if request.demand.kind != Kind::Array && !lane.lets_in(calls_back, depth) {
            return Some(Why::Turn {
                ahead: lane.in_flight() as u32,
                runs: lane.head(),
            });
        }
        Some(match holder {
            Some(holder) => Why::Reserved { holder },
            None => Why::Interference,
        })
    }
}
