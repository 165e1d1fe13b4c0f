//! The iterations that are in a lane now: handed to the device and not ended.
//!
//! When an iteration really began is a rule of the engine (`engine/src/schedule/lanes.rs`, where an
//! iteration ends): one that was handed over early began when the one before it in its lane ended. It
//! is repeated here, because the engine has forgotten an iteration when the recorder sees its end.

use std::collections::VecDeque;

use salus_engine::{Calling, Duration, SessionId, Time};

use super::ring::Iteration;

#[derive(Default)]
pub(super) struct Lanes {
    lanes: Vec<InLane>,
    /// Iterations that wait for a callback of their jobs, and are in no lane meanwhile.
    calling_back: Vec<Handed>,
}

/// The iterations of one lane, oldest first.
#[derive(Default)]
struct InLane {
    handed: VecDeque<Handed>,
    last_end: Time,
}

/// An iteration that was handed to the device.
struct Handed {
    iteration: Iteration,
    /// Set if it calls back: then it runs beside the others.
    calling: Option<Calling>,
}

impl Handed {
    fn is(&self, session: SessionId, calling: Option<Calling>) -> bool {
        self.iteration.session == session && self.calling == calling
    }
}

impl InLane {
    /// The session's oldest iteration, or the one that calls back.
    fn find(&self, session: SessionId, calling: Option<Calling>) -> Option<usize> {
        self.handed.iter().position(|h| h.is(session, calling))
    }

    /// The iteration as if it ended now.
    fn until(&self, handed: &Handed, now: Time) -> Iteration {
        let started = handed.iteration.started;
        Iteration {
            began: match handed.calling {
                Some(_) => started,
                None => started.max(self.last_end),
            },
            ended: now,
            ..handed.iteration
        }
    }
}

impl Lanes {
    pub(super) fn started(&mut self, iteration: Iteration, calling: Option<Calling>) {
        let lane = iteration.lane.0 as usize;
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, InLane::default);
        }
        let handed = Handed { iteration, calling };
        self.lanes[lane].handed.push_back(handed);
    }

    /// An iteration has ended. Lanes are few, and so are the iterations in them: looking through them
    /// is no search.
    pub(super) fn ran(
        &mut self,
        now: Time,
        session: SessionId,
        calling: Option<Calling>,
    ) -> Option<Iteration> {
        let ended = self.lanes.iter_mut().find_map(|lane| {
            let at = lane.find(session, calling)?;
            let handed = lane.handed.remove(at)?;
            let ended = lane.until(&handed, now);
            if calling.is_none() {
                lane.last_end = lane.last_end.max(now);
            }
            Some(ended)
        })?;
        Some(Iteration {
            runs: false,
            ..ended
        })
    }

    /// The iteration's time so far is shown as one of its own; it goes on after its callback.
    pub(super) fn callback_began(
        &mut self,
        now: Time,
        session: SessionId,
        calling: Calling,
    ) -> Option<Iteration> {
        let handed = self.lanes.iter_mut().find_map(|lane| {
            let at = lane.find(session, Some(calling))?;
            lane.handed.remove(at)
        })?;
        let so_far = Iteration {
            runs: false,
            ended: now,
            ..handed.iteration
        };
        self.calling_back.push(handed);
        Some(so_far)
    }

    pub(super) fn callback_ended(&mut self, now: Time, session: SessionId, calling: Calling) {
        let back = |handed: &Handed| handed.is(session, Some(calling));
        if let Some(at) = self.calling_back.iter().position(back) {
            let Handed { iteration, calling } = self.calling_back.remove(at);
            let iteration = Iteration {
                ready: now,
                started: now,
                began: now,
                memory: Duration(0),
                reads: false,
                ..iteration
            };
            let lane = &mut self.lanes[iteration.lane.0 as usize];
            lane.handed.push_back(Handed { iteration, calling });
        }
    }

    pub(super) fn did_not_run(&mut self, session: SessionId, calling: Option<Calling>) {
        for lane in &mut self.lanes {
            let last = lane.handed.iter().rposition(|h| h.is(session, calling));
            if let Some(at) = last {
                lane.handed.remove(at);
                break;
            }
        }
    }

    /// Iterations that run, as if they ended now, and iterations that wait for them.
    pub(super) fn ongoing(&self, now: Time) -> impl Iterator<Item = Ongoing> {
        self.lanes.iter().flat_map(move |lane| {
            // Only the oldest runs, and beside it those that call back; the others wait for it.
            let oldest = lane.handed.iter().position(|h| h.calling.is_none());
            let each = lane.handed.iter().enumerate();
            each.map(
                move |(at, handed)| match handed.calling.is_some() || Some(at) == oldest {
                    true => Ongoing::Runs(lane.until(handed, now)),
                    false => Ongoing::Waits(handed.iteration),
                },
            )
        })
    }

    /// The oldest iteration of each lane that has one of the session's there, as if it ended now.
    pub(super) fn oldest_of(
        &self,
        session: SessionId,
        now: Time,
    ) -> impl Iterator<Item = Iteration> {
        self.lanes.iter().filter_map(move |lane| {
            let oldest = lane.handed.front();
            let own = oldest.filter(|handed| handed.iteration.session == session)?;
            Some(lane.until(own, now))
        })
    }
}

/// An iteration that has not ended.
pub(super) enum Ongoing {
    Runs(Iteration),
    Waits(Iteration),
}
