//! The engine's record of a session, and its request.
//!
//! Not here: what follows from it (`settle.rs`).

use salus_wire::JobSettings;

use crate::accounts::Account;
use crate::event::{Demand, Lane};
use crate::memory::{Candidate, Evicting};
use crate::schedule::{Counted, LaneState, Order, Place, SessionEstimate, VirtualTime};
use crate::time::Time;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) account: Account,
    pub(crate) settings: JobSettings,
    pub(crate) virtual_time: VirtualTime,
    pub(crate) estimate: SessionEstimate,
    /// Where its arrays are and its iterations run.
    pub(crate) lane: Lane,
    pub(crate) request: Option<Request>,
    pub(crate) evicting: Option<Evicting>,
    /// It was asked to page out and could not: not asked again before something changes.
    pub(crate) unevictable: bool,
    /// The end of its minimum residency.
    pub(crate) resident_until: Time,
    /// It is not moved to another lane before.
    pub(crate) lane_until: Time,
    /// Since when it has nothing in flight, or when that last changed.
    pub(crate) quiet_since: Time,
    pub(crate) paused: bool,
    pub(crate) compiling: u32,
    /// What its rank is made of has changed: its request is placed anew.
    pub(crate) rerank: bool,
    pub(crate) derived: Derived,
}

/// What the engine's indexes say of a session. It follows from the rest of the record, and only
/// `settle.rs` writes it.
#[derive(Debug, Default)]
pub(crate) struct Derived {
    /// `None` while the session is paused.
    pub(crate) counted: Option<Counted>,
    /// `None` while its request must wait for something else than its turn or room.
    pub(crate) place: Option<Place>,
    /// `None` while it cannot be evicted.
    pub(crate) candidate: Option<Candidate>,
    /// Since when its request lacks room on the host, while it waits for that.
    pub(crate) awaits_host_since: Option<Time>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) order: Order,
    pub(crate) demand: Demand,
    pub(crate) ready_at: Time,
    /// It has waited for `AGING_LIMIT`: its age alone counts.
    pub(crate) aged: bool,
    /// When it was first found that the host has no room for its arrays there.
    pub(crate) lacks_host_since: Option<Time>,
    /// It waits for that room, and for nothing else.
    pub(crate) awaits_host: bool,
}

impl Session {
    pub(crate) fn new(now: Time, settings: JobSettings, lane: Lane) -> Self {
        Self {
            account: Account::new(now),
            settings,
            virtual_time: VirtualTime::default(),
            estimate: SessionEstimate::default(),
            lane,
            request: None,
            evicting: None,
            unevictable: false,
            resident_until: Time(0),
            lane_until: Time(0),
            quiet_since: now,
            paused: false,
            compiling: 0,
            rerank: false,
            derived: Derived::default(),
        }
    }

    pub(crate) fn may_be_evicted(&self) -> bool {
        self.account.running == 0 && self.evicting.is_none() && !self.unevictable
    }

    /// What its request takes beyond what it has, in its lane.
    pub(crate) fn need(&self, lane: &LaneState) -> u64 {
        let Some(request) = &self.request else {
            return 0;
        };
        let demand = &request.demand;
        demand.new_bytes + demand.paged_bytes + lane.growth(demand.scratch_bytes())
    }
}
