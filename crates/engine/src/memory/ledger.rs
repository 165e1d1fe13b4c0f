//! The ledger: where every byte is. Arrays on the device, arrays paged out to the host, arrays in host
//! memory that the device itself reads and writes, scratch of lanes.
//!
//! Promise: arrays + scratch never exceed the room of the device, pages + arrays of the host never that
//! of the host, and what a session holds is what it took and has not released.
//! Cost: O(log n) in the users.
//! Not here: who gets memory (`schedule/select.rs`), who is evicted (`eviction.rs`).

use std::collections::BTreeMap;

use crate::event::{SessionId, User};
use crate::session_table::SessionTable;

/// How much there is to share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Device memory that the ledger may give away: without the headroom.
    pub device_bytes: u64,
    /// Host memory for arrays that are paged out, and for those that are in host memory anyway.
    pub host_bytes: u64,
    /// The most that the sessions of one user may hold together, resident or paged.
    pub user_max: Option<u64>,
}

#[derive(Debug)]
pub struct Ledger {
    room: Room,
    holdings: SessionTable<Holding>,
    /// What the sessions of each user hold together; only users that hold something.
    users: BTreeMap<User, u64>,
    resident_bytes: u64,
    paged_bytes: u64,
    host_bytes: u64,
    /// The sizes of all lanes together.
    scratch_bytes: u64,
    peak_bytes: u64,
}

/// What one session holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holding {
    pub user: User,
    /// Arrays on the device, and outputs reserved by launches.
    pub resident_bytes: u64,
    pub paged_bytes: u64,
    /// Arrays that are in host memory, where programs reach them: they are never paged.
    pub host_bytes: u64,
    /// The most that it ever held on the device and in pages.
    pub peak_bytes: u64,
}

impl Holding {
    pub fn total(&self) -> u64 {
        self.resident_bytes + self.paged_bytes + self.host_bytes
    }
}

impl Ledger {
    pub(crate) fn new(room: Room) -> Self {
        Self {
            room,
            holdings: SessionTable::default(),
            users: BTreeMap::new(),
            resident_bytes: 0,
            paged_bytes: 0,
            host_bytes: 0,
            scratch_bytes: 0,
            peak_bytes: 0,
        }
    }

    pub fn room(&self) -> Room {
        self.room
    }

    pub fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    pub fn paged_bytes(&self) -> u64 {
        self.paged_bytes
    }

    /// Arrays in host memory that are not pages.
    pub fn host_bytes(&self) -> u64 {
        self.host_bytes
    }

    pub fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }

    /// The most that arrays and scratch ever took at once.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    pub fn holding(&self, session: SessionId) -> Option<&Holding> {
        self.holdings.get(session)
    }

    pub fn holdings(&self) -> impl Iterator<Item = (SessionId, &Holding)> {
        self.holdings.iter()
    }

    pub fn free_bytes(&self) -> u64 {
        self.room.device_bytes - self.resident_bytes - self.scratch_bytes
    }

    pub fn host_free_bytes(&self) -> u64 {
        self.room.host_bytes - self.paged_bytes - self.host_bytes
    }

    /// What all sessions of this user hold.
    pub fn user_bytes(&self, user: User) -> u64 {
        self.users.get(&user).copied().unwrap_or(0)
    }

    pub(crate) fn open(&mut self, session: SessionId, user: User) {
        let holding = Holding {
            user,
            ..Holding::default()
        };
        let earlier = self.holdings.insert(session, holding);
        assert!(earlier.is_none(), "{session} opened twice");
    }

    /// Forgets the session; what it still held is free again.
    pub(crate) fn close(&mut self, session: SessionId) {
        if let Some(holding) = self.holdings.remove(session) {
            self.resident_bytes -= holding.resident_bytes;
            self.paged_bytes -= holding.paged_bytes;
            self.host_bytes -= holding.host_bytes;
            self.user_holds_less(holding.user, holding.total());
        }
    }

    /// Takes room on the device for `bytes` more, of which `from_host` were paged out before.
    pub(crate) fn take(&mut self, session: SessionId, bytes: u64, from_host: u64) {
        assert!(
            bytes <= self.free_bytes(),
            "{session} takes what is not free"
        );
        let holding = self.holding_mut(session);
        assert!(from_host <= bytes && from_host <= holding.paged_bytes);
        holding.resident_bytes += bytes;
        holding.paged_bytes -= from_host;
        let now = holding.resident_bytes + holding.paged_bytes;
        holding.peak_bytes = holding.peak_bytes.max(now);
        let user = holding.user;
        *self.users.entry(user).or_default() += bytes - from_host;
        self.resident_bytes += bytes;
        self.paged_bytes -= from_host;
        self.note_peak();
    }

    /// Takes room on the host for arrays that are there and no pages.
    pub(crate) fn take_host(&mut self, session: SessionId, bytes: u64) {
        assert!(
            bytes <= self.host_free_bytes(),
            "{session} takes what is not free on the host"
        );
        let holding = self.holding_mut(session);
        holding.host_bytes += bytes;
        let user = holding.user;
        *self.users.entry(user).or_default() += bytes;
        self.host_bytes += bytes;
    }

    pub(crate) fn release(&mut self, session: SessionId, resident: u64, paged: u64, host: u64) {
        let holding = self.holding_mut(session);
        assert!(
            resident <= holding.resident_bytes
                && paged <= holding.paged_bytes
                && host <= holding.host_bytes,
            "{session} releases {resident}, {paged} and {host} bytes of {holding:?}"
        );
        holding.resident_bytes -= resident;
        holding.paged_bytes -= paged;
        holding.host_bytes -= host;
        let user = holding.user;
        self.resident_bytes -= resident;
        self.paged_bytes -= paged;
        self.host_bytes -= host;
        self.user_holds_less(user, resident + paged + host);
    }

    fn user_holds_less(&mut self, user: User, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let held = self
            .users
            .get_mut(&user)
            .expect("a user who releases, holds");
        *held -= bytes;
        if *held == 0 {
            self.users.remove(&user);
        }
    }

    pub(crate) fn page_out(&mut self, session: SessionId, bytes: u64) {
        assert!(
            bytes <= self.host_free_bytes(),
            "the host has no room for it"
        );
        let holding = self.holding_mut(session);
        assert!(bytes <= holding.resident_bytes);
        holding.resident_bytes -= bytes;
        holding.paged_bytes += bytes;
        self.resident_bytes -= bytes;
        self.paged_bytes += bytes;
    }

    /// A lane's size changes at an iteration's boundary.
    pub(crate) fn resize_lane(&mut self, from: u64, to: u64) {
        assert!(
            to <= from || to - from <= self.free_bytes(),
            "a lane grows into what is not free"
        );
        self.scratch_bytes = self.scratch_bytes - from + to;
        self.note_peak();
    }

    fn note_peak(&mut self) {
        let now = self.resident_bytes + self.scratch_bytes;
        self.peak_bytes = self.peak_bytes.max(now);
    }

    fn holding_mut(&mut self, session: SessionId) -> &mut Holding {
        self.holdings
            .get_mut(session)
            .unwrap_or_else(|| panic!("{session} is not open"))
    }
}
