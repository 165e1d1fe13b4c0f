//! What can be asked of the engine: what the service reports and the simulator draws.
//!
//! Not here: why a session waits (`explain.rs`).

use salus_wire::JobSettings;

use crate::accounts::Account;
use crate::engine::Engine;
use crate::event::{Lane, Program, SessionId};
use crate::memory::Ledger;
use crate::policies::Policy;
use crate::schedule::{Estimates, LaneState};
use crate::time::{Duration, Time};

impl Engine {
    pub fn policy(&self) -> Policy {
        self.queues.policy()
    }

    pub fn ledger(&self) -> &Ledger {
        self.memory.ledger()
    }

    pub fn estimates(&self) -> &Estimates {
        &self.estimates
    }

    pub fn account(&self, session: SessionId) -> Option<&Account> {
        self.sessions.get(session).map(|s| &s.account)
    }

    pub fn settings(&self, session: SessionId) -> Option<&JobSettings> {
        self.sessions.get(session).map(|s| &s.settings)
    }

    /// The lane of the session's arrays.
    pub fn lane(&self, session: SessionId) -> Option<Lane> {
        self.sessions.get(session).map(|s| s.lane)
    }

    /// Since when a request of the session waits.
    pub fn waits_since(&self, session: SessionId) -> Option<Time> {
        let request = self.sessions.get(session)?.request.as_ref()?;
        Some(request.ready_at)
    }

    /// Estimate of the device time that the session still needs, if there is one.
    pub fn remaining(&self, session: SessionId) -> Option<Duration> {
        let session = self.sessions.get(session)?;
        let attained = session.account.device_time;
        session.estimate.remaining(session.settings.work, attained)
    }

    /// The program that has taken most of the session's time.
    pub fn main_program(&self, session: SessionId) -> Option<Program> {
        self.sessions.get(session)?.estimate.main()
    }

    /// Each lane that is open or has sessions, its size, and the iterations in it.
    pub fn lanes(&self) -> impl Iterator<Item = (Lane, u64, usize)> {
        let open = self.queues.open_lanes();
        let lanes = self.queues.lanes().iter().enumerate();
        let used = lanes.filter(move |(index, lane)| *index < open || lane.has_members());
        used.map(|(index, l)| (Lane(index as u32), l.size_bytes(), l.in_flight()))
    }

    /// How many lanes the device has, and how many of them are open unless the policy opens all.
    pub fn lane_counts(&self) -> (u32, u32) {
        let (lanes, width) = (self.queues.lanes().len(), self.queues.width());
        (lanes as u32, width as u32)
    }

    /// Iterations that the device runs now, and since when.
    pub fn running(&self) -> impl Iterator<Item = (SessionId, Program, Time)> {
        let all = self.queues.lanes().iter().flat_map(LaneState::running);
        all.map(|(iteration, since)| (iteration.session, iteration.program, since))
    }

    /// When to send [`crate::Event::Woke`], if nothing else happens before.
    pub fn wake_at(&self) -> Option<Time> {
        self.wake_at
    }
}
