//! What can be seen of a simulation: its sessions, its lanes, and what the engine says of them.

use salus_engine::{
    Account, Duration, Engine, Lane, Ledger, Policy, Program, SessionId, State, Time, Why,
};

use super::{Session, Simulation};

impl Simulation {
    pub fn now(&self) -> Time {
        self.now
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// An open session.
    #[track_caller]
    pub fn session(&self, id: u64) -> &Session {
        self.sessions.get(&id).expect("it is open")
    }

    pub fn is_open(&self, id: u64) -> bool {
        self.sessions.contains_key(&id)
    }

    /// The open sessions in order of arrival.
    pub fn sessions(&self) -> impl Iterator<Item = (u64, &Session)> {
        self.sessions.iter().map(|(id, session)| (*id, session))
    }

    /// Those of which nothing may be started: the paused, and under a policy that serves one session
    /// only, all but the first that is not paused.
    pub fn held_back(&self) -> impl Iterator<Item = u64> {
        let owner = self.sessions.iter().find(|(_, session)| !session.paused);
        let owner = owner.map(|(id, _)| *id);
        let exclusive = self.policy == Policy::Exclusive;
        let is_held = move |id: u64, paused: bool| paused || (exclusive && Some(id) != owner);
        let held = self.sessions.iter();
        held.filter(move |(id, session)| is_held(**id, session.paused))
            .map(|(id, _)| *id)
    }

    /// Whose iteration in the lane was started first, of those that are not in a callback.
    pub fn first_in(&self, lane: Lane) -> Option<u64> {
        let running = |(id, session): (&u64, &Session)| {
            let there = session.running.iter().filter(|it| it.lane == lane);
            let first = there.filter(|it| !it.in_callback).map(|it| it.number).min();
            first.map(|number| (number, *id))
        };
        let first = self.sessions.iter().filter_map(running).min();
        first.map(|(_, id)| id)
    }

    /// When an iteration ends that the lane begins now, after what it was given before, one at a time.
    pub fn ends_at(&mut self, lane: Lane, took: Duration) -> Time {
        let free_at = self.free_at.entry(lane).or_insert(self.now);
        *free_at = (*free_at).max(self.now) + took;
        *free_at
    }

    pub fn wake_at(&self) -> Option<Time> {
        self.engine.wake_at()
    }

    pub fn why(&self, id: u64) -> Option<Why> {
        self.engine.why(SessionId(id))
    }

    /// Of an open session.
    #[track_caller]
    pub fn account(&self, id: u64) -> Account {
        *self.engine.account(SessionId(id)).expect("it is open")
    }

    pub fn state(&self, id: u64) -> State {
        self.account(id).state()
    }

    pub fn lane(&self, id: u64) -> Option<Lane> {
        self.engine.lane(SessionId(id))
    }

    /// Device time that the session is expected to still need.
    pub fn remaining(&self, id: u64) -> Option<Duration> {
        self.engine.remaining(SessionId(id))
    }

    /// What an iteration of the program is expected to take.
    pub fn estimate(&self, program: Program) -> Option<Duration> {
        let (median, _) = self.engine.estimates().of(program)?;
        Some(median)
    }

    pub fn ledger(&self) -> &Ledger {
        self.engine.ledger()
    }

    /// To look at what is not part of its interface.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}
