//! What holds after every event, whatever the policy, the jobs and the device do.
//!
//! The ledger agrees with what the sessions hold, nothing is oversold, a lane is as large as what
//! runs in it and is handed no more than it may have, a session is in one state at any moment, and
//! every wait has a reason. Decisions concern only sessions that they may concern.

use std::num::NonZeroU64;

use salus_engine::{DEPTH, Decision, Lane, Policy, Refusal, SessionId, State, Why};

use crate::simulation::{Iteration, Simulation};

impl Simulation {
    pub(crate) fn check(&self) {
        self.check_memory();
        self.check_lanes();
        self.check_times();
        self.check_waits();
    }

    fn check_memory(&self) {
        let ledger = self.engine.ledger();
        assert!(ledger.resident_bytes() + ledger.scratch_bytes() <= self.room.device_bytes);
        assert!(ledger.paged_bytes() + ledger.host_bytes() <= self.room.host_bytes);
        let (mut resident, mut paged, mut host) = (0, 0, 0);
        for (id, session) in &self.sessions {
            let holding = ledger.holding(SessionId(*id)).expect("it is open");
            let held = (
                session.resident_bytes,
                session.paged_bytes,
                session.host_bytes,
            );
            let charged = (
                holding.resident_bytes,
                holding.paged_bytes,
                holding.host_bytes,
            );
            assert_eq!(charged, held, "session {id} on the device, on the host");
            resident += held.0;
            paged += held.1;
            host += held.2;
        }
        let sums = (
            ledger.resident_bytes(),
            ledger.paged_bytes(),
            ledger.host_bytes(),
        );
        assert_eq!(sums, (resident, paged, host), "the sums of the sessions");
    }

    fn check_lanes(&self) {
        for (lane, size_bytes, count) in self.engine.lanes() {
            let there = self.in_lanes().filter(|it| it.lane == lane);
            let (mut largest, mut in_order, mut all) = (0, 0, 0);
            for iteration in there {
                largest = largest.max(iteration.scratch_bytes);
                in_order += usize::from(iteration.calling.is_none());
                all += 1;
            }
            assert_eq!(count, all, "iterations in {lane:?}");
            assert_eq!(
                size_bytes, largest,
                "{lane:?} is as large as what runs in it"
            );
            assert!(in_order <= DEPTH, "{lane:?} has {in_order}");
        }
        let lanes: usize = self.engine.lanes().map(|(_, _, count)| count).sum();
        assert_eq!(self.in_lanes().count(), lanes, "no lane is forgotten");
    }

    /// The times of a session's states add up to its age.
    fn check_times(&self) {
        for (id, session) in &self.sessions {
            let account = self.account(*id);
            let times = State::ALL.map(|state| account.time_in(state, self.now).0);
            let age = (self.now - session.opened_at).0;
            assert_eq!(times.iter().sum::<u64>(), age, "of session {id}");
        }
    }

    /// A session that waits is held back, or waits for room, or its lane has as much as it may have.
    fn check_waits(&self) {
        let held: Vec<u64> = self.held_back().collect();
        let classes = matches!(self.policy, Policy::Priority | Policy::Deadline);
        for (id, session) in &self.sessions {
            if session.request.is_none() || held.contains(id) {
                continue;
            }
            match self.why(*id).expect("it is open") {
                why @ (Why::Idle | Why::Running | Why::Callback | Why::Compiling) => {
                    panic!("session {id} asks, and is {why:?}")
                }
                Why::Paused | Why::Exclusive { .. } => panic!("session {id} is not held back"),
                Why::Turn { ahead, .. } => {
                    let lane = self.lane(*id).expect("it is open");
                    let places = match classes || self.is_for_callbacks(lane) {
                        true => 1,
                        false => DEPTH,
                    };
                    let mut here = self.sessions.iter().filter(|(_, other)| other.pages_in);
                    let copies = here.any(|(other, _)| self.lane(*other) == Some(lane));
                    assert!(
                        ahead as usize >= places || copies,
                        "session {id} could be handed to its lane"
                    );
                }
                Why::Interference => {
                    let runs = self.in_lanes().next().is_some();
                    let packs = self.policy == Policy::Pack;
                    assert!(
                        packs && runs,
                        "session {id} could run, and its lane is idle"
                    );
                }
                Why::HostMemory { needs_bytes, .. } => {
                    let free = self.engine.ledger().host_free_bytes();
                    let evicting = self.sessions.values().any(|session| session.pages_out);
                    assert!(evicting || needs_bytes > free, "session {id} fits the host");
                }
                Why::Memory { .. } | Why::Reserved { .. } | Why::Evicting { .. } => {}
            }
        }
    }

    /// Whether one that calls back is in the lane, or is to be handed to it.
    fn is_for_callbacks(&self, lane: Lane) -> bool {
        let calls = |it: &Iteration| it.lane == lane && it.calling.is_some();
        let mut asking = self.sessions.iter().filter_map(|(id, session)| {
            let (demand, _) = session.request.as_ref()?;
            demand.calling().and(self.lane(*id))
        });
        self.in_lanes().any(calls) || asking.any(|other| other == lane)
    }

    /// Iterations that are not in a callback.
    fn in_lanes(&self) -> impl Iterator<Item = &Iteration> {
        let running = self.sessions.values().flat_map(|session| &session.running);
        running.filter(|iteration| !iteration.in_callback)
    }

    /// One that calls back has its lane for itself, except for those that came back to it; for each
    /// of those that leaves again one is handed over.
    pub(crate) fn check_lane_had_a_place(&mut self, lane: Lane, calls_back: bool) {
        let there = self.in_lanes().filter(|it| it.lane == lane);
        let calls: Vec<bool> = there.map(|it| it.calling.is_some()).collect();
        let calling = calls.iter().filter(|calls| **calls).count();
        let (beside, others_call) = (calls.len() - 1, calling - usize::from(calls_back));
        let vacated = self.vacated.entry(lane).or_default();
        if beside == 0 {
            *vacated = 0;
        } else if others_call > 0 {
            assert!(*vacated > 0, "one more in {lane:?} beside what calls back");
            *vacated -= 1;
        } else {
            assert!(!calls_back, "{lane:?} is not empty");
            *vacated = vacated.saturating_sub(1);
        }
    }

    pub(crate) fn check_decision(&self, decision: &Decision) {
        match *decision {
            Decision::Start { session, .. } => {
                let is_held = self.held_back().any(|held| held == session.0);
                assert!(!is_held, "{session} starts while it is held back");
                let pages_out = self.session(session.0).pages_out;
                assert!(!pages_out, "{session} starts while it is paged out");
            }
            Decision::PageIn { session, .. } => {
                let found = self.session(session.0);
                assert!(!found.pages_out, "{session} is paged out and in");
                let paged = found.request.map_or(0, |(demand, _)| demand.paged_bytes);
                assert!(paged > 0, "{session} has nothing to page in");
            }
            Decision::PageOut { session, bytes } => {
                let found = self.session(session.0);
                assert!(found.running.is_empty(), "{session} runs and is evicted");
                assert!(!found.pages_out, "{session} was asked already");
                assert!(bytes > 0);
            }
            Decision::Refuse { session, why } => self.check_refusal(session.0, why),
        }
    }

    fn check_refusal(&self, id: u64, why: Refusal) {
        let session = self.session(id);
        let (demand, _) = session.request.as_ref().expect("it asked");
        let held = |user: Option<u32>| -> u64 {
            let sessions = self.sessions.iter().filter(|(other, session)| match user {
                Some(user) => session.user == user,
                None => **other == id,
            });
            sessions
                .map(|(_, s)| s.resident_bytes + s.paged_bytes + s.host_bytes)
                .sum()
        };
        let new_bytes = demand.new_bytes + demand.new_host_bytes;
        match why {
            Refusal::NoHostRoom { room_bytes, .. } => {
                assert_eq!(room_bytes, self.room.host_bytes);
                let promised = self.sessions.values().any(|session| session.pages_out);
                let free = self.engine.ledger().host_free_bytes();
                assert!(
                    promised || demand.new_host_bytes > free,
                    "{id} fits the host"
                );
            }
            Refusal::TooLarge { needs_bytes, .. } => {
                assert!(needs_bytes > self.room.device_bytes);
            }
            Refusal::BeyondLimit { memory_max, .. } => {
                let limit = session.settings.memory_max.map(NonZeroU64::get);
                assert_eq!(Some(memory_max), limit);
                assert!(held(None) + new_bytes > memory_max);
            }
            Refusal::BeyondUserLimit { user_max, .. } => {
                assert_eq!(Some(user_max), self.room.user_max);
                assert!(held(Some(session.user)) + new_bytes > user_max);
            }
            Refusal::NoRoom { .. } => {
                let free = self.engine.ledger().free_bytes();
                assert!(crate::simulation::lacks(demand) > free, "{id} fits");
            }
        }
    }
}
