//! Turns: ready sessions run one iteration each, in the order in which they became ready.
//!
//! A lane is an in-order queue of the device. While one iteration runs the next is handed over, so
//! that the device has no gap between them; so at most [`DEPTH`] are started and not ended.
//!
//! Promise: a ready session waits for at most one iteration of each other session, and for those
//! already handed over.
//! Cost: an event is O(log n) in the sessions, plus the few that run.
//! Not here: weights, memory, preempting what runs.

use std::collections::{BTreeMap, VecDeque};

use crate::time::Time;
use crate::{Account, Decision, Event, Lane, SessionId};

/// Iterations handed to a lane: one runs, one follows it without a gap. A third would only delay
/// whoever becomes ready next.
const DEPTH: usize = 2;

#[derive(Debug)]
pub struct Turns {
    accounts: BTreeMap<SessionId, Account>,
    /// Ready sessions, longest first. Invariant: a session stands here at most once.
    ready: VecDeque<SessionId>,
    lanes: Vec<Running>,
}

/// What a lane was given and has not ended.
#[derive(Debug, Default)]
struct Running {
    /// Oldest first; the device runs them in this order.
    iterations: VecDeque<Iteration>,
    /// When the last one ended: the next cannot have begun earlier.
    last_end: Time,
}

#[derive(Debug)]
struct Iteration {
    session: SessionId,
    ready_at: Time,
    started_at: Time,
}

impl Turns {
    pub fn new(lanes: u32) -> Self {
        Self {
            accounts: BTreeMap::new(),
            ready: VecDeque::new(),
            lanes: (0..lanes.max(1)).map(|_| Running::default()).collect(),
        }
    }

    pub fn account(&self, session: SessionId) -> Option<&Account> {
        self.accounts.get(&session)
    }

    /// Takes one event; the decisions are to be carried out in order.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Decision> {
        match event {
            Event::Opened { session } => {
                let earlier = self.accounts.insert(session, Account::default());
                assert!(earlier.is_none(), "{session} opened twice");
            }
            Event::Ready { session } => {
                let account = self.account_mut(session);
                assert!(
                    account.waiting_since.is_none(),
                    "{session} was ready already"
                );
                account.waiting_since = Some(now);
                self.ready.push_back(session);
            }
            Event::Ran { session } => self.ran(now, session),
            Event::Withdrew { session } => self.withdraw(session),
            Event::Closed { session } => {
                self.withdraw(session);
                let account = self.accounts.remove(&session);
                let running = account.map_or(0, |account| account.running);
                assert_eq!(running, 0, "{session} closed while it ran");
            }
        }
        self.start(now)
    }

    fn start(&mut self, now: Time) -> Vec<Decision> {
        let mut decisions = Vec::new();
        while !self.ready.is_empty() {
            let (index, lane) = match self
                .lanes
                .iter_mut()
                .enumerate()
                .filter(|(_, lane)| lane.iterations.len() < DEPTH)
                .min_by_key(|(_, lane)| lane.iterations.len())
            {
                Some(free) => free,
                None => break,
            };
            let Some(session) = self.ready.pop_front() else {
                break;
            };
            let account = self
                .accounts
                .get_mut(&session)
                .expect("ready sessions are open");
            let ready_at = account.waiting_since.take().expect("ready sessions wait");
            account.running += 1;
            lane.iterations.push_back(Iteration {
                session,
                ready_at,
                started_at: now,
            });
            decisions.push(Decision::Start {
                session,
                lane: Lane(index as u32),
            });
        }
        decisions
    }

    fn ran(&mut self, now: Time, session: SessionId) {
        let found = self.lanes.iter_mut().find_map(|lane| {
            let at = lane.iterations.iter().position(|i| i.session == session)?;
            lane.iterations
                .remove(at)
                .map(|iteration| (lane, iteration))
        });
        let (lane, iteration) = found.unwrap_or_else(|| panic!("{session} was not started"));
        // What was handed over early began when its predecessor ended, not when it was handed over.
        let began = iteration.started_at.max(lane.last_end);
        lane.last_end = lane.last_end.max(now);
        let account = self.account_mut(session);
        account.running -= 1;
        account.iterations += 1;
        account.device_time = account.device_time + (now - began);
        account.waiting = account.waiting + (began - iteration.ready_at);
    }

    fn withdraw(&mut self, session: SessionId) {
        self.ready.retain(|&other| other != session);
        self.account_mut(session).waiting_since = None;
    }

    fn account_mut(&mut self, session: SessionId) -> &mut Account {
        self.accounts
            .get_mut(&session)
            .unwrap_or_else(|| panic!("{session} is not open"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Time {
        Time(n * 1_000_000)
    }

    fn started(decisions: &[Decision]) -> Vec<u64> {
        decisions
            .iter()
            .map(|&Decision::Start { session, .. }| session.0)
            .collect()
    }

    fn open(turns: &mut Turns, sessions: std::ops::RangeInclusive<u64>) {
        for n in sessions {
            let none = turns.on(
                ms(0),
                Event::Opened {
                    session: SessionId(n),
                },
            );
            assert!(none.is_empty());
        }
    }

    fn ready(turns: &mut Turns, now: Time, n: u64) -> Vec<u64> {
        started(&turns.on(
            now,
            Event::Ready {
                session: SessionId(n),
            },
        ))
    }

    fn ran(turns: &mut Turns, now: Time, n: u64) -> Vec<u64> {
        started(&turns.on(
            now,
            Event::Ran {
                session: SessionId(n),
            },
        ))
    }

    #[test]
    fn one_session_alone_is_always_one_ahead() {
        let mut turns = Turns::new(1);
        open(&mut turns, 1..=1);
        assert_eq!(ready(&mut turns, ms(0), 1), [1]);
        assert_eq!(ready(&mut turns, ms(0), 1), [1]);
        assert_eq!(ready(&mut turns, ms(0), 1), []);
        assert_eq!(ran(&mut turns, ms(10), 1), [1]);
    }

    #[test]
    fn sessions_take_turns_however_fast_one_asks() {
        let mut turns = Turns::new(1);
        open(&mut turns, 1..=3);
        let mut order = ready(&mut turns, ms(0), 1);
        for n in [1, 2, 3] {
            order.extend(ready(&mut turns, ms(0), n));
        }
        let mut running: VecDeque<u64> = order.iter().copied().collect();
        for step in 1..=7 {
            let ended = running.pop_front().expect("two run");
            for next in ran(&mut turns, ms(step * 10), ended) {
                order.push(next);
                running.push_back(next);
                running.extend(ready(&mut turns, ms(step * 10), next));
            }
        }
        assert_eq!(order, [1, 1, 2, 3, 2, 3, 2, 3, 2]);
    }

    #[test]
    fn device_time_and_waiting_are_told_apart() {
        let mut turns = Turns::new(1);
        open(&mut turns, 1..=2);
        assert_eq!(ready(&mut turns, ms(0), 1), [1]);
        assert_eq!(ready(&mut turns, ms(2), 2), [2]);
        assert_eq!(ran(&mut turns, ms(10), 1), []);
        assert_eq!(ran(&mut turns, ms(15), 2), []);
        let account = *turns.account(SessionId(2)).expect("open");
        assert_eq!(account.device_time, ms(5) - ms(0));
        assert_eq!(account.waiting, ms(8) - ms(0));
        assert_eq!(account.iterations, 1);
    }

    #[test]
    fn a_job_that_goes_away_gives_its_turn_up() {
        let mut turns = Turns::new(1);
        open(&mut turns, 1..=3);
        let _ = ready(&mut turns, ms(0), 1);
        let _ = ready(&mut turns, ms(0), 1);
        let _ = ready(&mut turns, ms(0), 2);
        let _ = ready(&mut turns, ms(0), 3);
        assert_eq!(
            started(&turns.on(
                ms(1),
                Event::Closed {
                    session: SessionId(2)
                }
            )),
            []
        );
        assert_eq!(ran(&mut turns, ms(10), 1), [3]);
    }

    #[test]
    fn two_lanes_run_side_by_side() {
        let mut turns = Turns::new(2);
        open(&mut turns, 1..=2);
        let first = turns.on(
            ms(0),
            Event::Ready {
                session: SessionId(1),
            },
        );
        let second = turns.on(
            ms(0),
            Event::Ready {
                session: SessionId(2),
            },
        );
        assert_eq!(
            first,
            [Decision::Start {
                session: SessionId(1),
                lane: Lane(0)
            }]
        );
        assert_eq!(
            second,
            [Decision::Start {
                session: SessionId(2),
                lane: Lane(1)
            }]
        );
    }
}
