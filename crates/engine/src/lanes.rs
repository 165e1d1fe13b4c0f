//! Lanes: in-order queues of the device, each with a slice of its memory for scratch.
//!
//! Iterations of one lane run one at a time, so its size is the largest scratch among those handed
//! to it: it grows when one is handed over and shrinks when one ends. Lanes run side by side, so
//! their sizes add up. While one iteration runs the next is handed over, so that the device has no
//! gap between them; so at most [`DEPTH`] are started and not ended.
//!
//! An iteration that calls back into its job has the lane for itself: the device does not order it
//! with others. While it waits for the job it is *away*, and the lane serves others. When it goes on
//! it does so at once, beside what was handed over meanwhile; nothing more is handed over until it
//! ends or waits again.
//!
//! Promise: a lane's size covers whatever runs in it, and nothing else.
//! Not here: which session goes where.

use std::collections::{BTreeMap, VecDeque};

use crate::engine::{Engine, Order};
use crate::policies::CLASSES;
use crate::time::{Duration, Time};
use crate::{Demand, Kind, Lane, Program, SessionId};

/// One runs, one follows it without a gap. A third would only delay whoever becomes ready next.
pub(crate) const DEPTH: usize = 2;

#[derive(Debug, Default)]
pub(crate) struct LaneState {
    /// Oldest first; the device runs them in this order.
    iterations: VecDeque<Iteration>,
    /// Started, and waiting for their jobs' callbacks; the latest last.
    away: Vec<Iteration>,
    /// When the last one ended: the next cannot have begun earlier.
    last_end: Time,
    /// Whose it was.
    last_session: Option<SessionId>,
    /// The largest scratch of `iterations`.
    size_bytes: u64,
    /// Ready launches of the lane's sessions in order, those that need nothing from the host first
    /// of two: they may go ahead where the others must wait for room.
    pub(crate) resident: BTreeMap<Order, Waiting>,
    pub(crate) absent: BTreeMap<Order, Waiting>,
    /// Virtual time of what was started last, by the policy's class; it never goes back.
    pub(crate) clocks: [u128; CLASSES],
    /// Is added to virtual times where they are compared with those of other lanes.
    pub(crate) shifts: [u128; CLASSES],
    /// Sessions whose arrays live here.
    pub(crate) members: u32,
}

/// A request in a queue, with what it takes: a demand does not change while it stands there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) session: SessionId,
    /// `None` if it needs no lane.
    pub(crate) program: Option<Program>,
    pub(crate) calls_back: bool,
    array_bytes: u64,
    scratch_bytes: u64,
}

impl Waiting {
    pub(crate) fn new(session: SessionId, demand: &Demand) -> Self {
        let (program, calls_back) = match demand.kind {
            Kind::Launch {
                program,
                calls_back,
                ..
            } => (Some(program), calls_back),
            Kind::Array => (None, false),
        };
        Self {
            session,
            program,
            calls_back,
            array_bytes: demand.new_bytes + demand.absent_bytes,
            scratch_bytes: demand.scratch_bytes(),
        }
    }

    /// Beyond what is there, in a lane of this size.
    pub(crate) fn need(&self, lane_bytes: u64) -> u64 {
        self.array_bytes + self.scratch_bytes.saturating_sub(lane_bytes)
    }
}

#[derive(Debug)]
pub(crate) struct Iteration {
    pub(crate) session: SessionId,
    pub(crate) program: Program,
    /// Of its request when it was started, among those of all lanes.
    pub(crate) order: Order,
    /// How many had been started then, with this one.
    pub(crate) nth: u64,
    pub(crate) started_at: Time,
    pub(crate) scratch_bytes: u64,
    /// What it was charged with when it was started.
    pub(crate) expected: Duration,
    pub(crate) calls_back: bool,
    /// Device time before its last callback.
    pub(crate) used: Duration,
}

/// What an iteration took.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) program: Program,
    pub(crate) took: Duration,
    pub(crate) expected: Duration,
    /// Whether the iteration before it in the lane was another session's.
    pub(crate) switched: bool,
    /// The lane's size before and after.
    pub(crate) resized: (u64, u64),
}

impl LaneState {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Nothing more may be handed to it, whatever it is.
    pub(crate) fn is_full(&self) -> bool {
        self.iterations.len() >= DEPTH
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.iterations.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.iterations.is_empty() && self.resident.is_empty() && self.absent.is_empty()
    }

    /// The session whose iteration runs.
    pub(crate) fn head(&self) -> Option<SessionId> {
        self.iterations.front().map(|i| i.session)
    }

    /// What was handed to it; the first of them runs.
    pub(crate) fn iterations(&self) -> impl Iterator<Item = &Iteration> {
        self.iterations.iter()
    }

    /// What runs.
    pub(crate) fn runs(&self) -> Option<Program> {
        self.iterations.front().map(|i| i.program)
    }

    /// Bytes by which the lane must grow for this scratch.
    pub(crate) fn growth(&self, scratch_bytes: u64) -> u64 {
        scratch_bytes.saturating_sub(self.size_bytes)
    }

    /// What its size would be if only those were in it that were started after the `nth` iteration
    /// and are later in order than `order`.
    pub(crate) fn size_since(&self, nth: u64, order: Option<Order>) -> u64 {
        let since = self.iterations.iter();
        let since = since.filter(|i| i.nth > nth && Some(i.order) > order);
        since.map(|i| i.scratch_bytes).max().unwrap_or(0)
    }

    /// Returns the size before and after.
    pub(crate) fn start(&mut self, iteration: Iteration) -> (u64, u64) {
        let before = self.size_bytes;
        self.size_bytes = before.max(iteration.scratch_bytes);
        self.iterations.push_back(iteration);
        (before, self.size_bytes)
    }

    /// Whether the request may be handed over now, as far as callbacks go: what calls back runs
    /// alone, and whoever is first in order and waits for that is not overtaken.
    pub(crate) fn lets_in(&self, waiting: &Waiting) -> bool {
        if self.iterations.is_empty() {
            return true;
        }
        let heads = [&self.resident, &self.absent].into_iter();
        let first = heads
            .filter_map(BTreeMap::first_key_value)
            .min_by_key(|(order, _)| *order);
        !waiting.calls_back
            && !self.iterations.iter().any(|i| i.calls_back)
            && !first.is_some_and(|(_, first)| first.calls_back)
    }

    /// The session's iteration that was handed over last and calls back waits for its job.
    pub(crate) fn leave(&mut self, session: SessionId, now: Time) -> Option<()> {
        let calls = |i: &Iteration| i.session == session && i.calls_back;
        let at = self.iterations.iter().rposition(calls)?;
        let mut iteration = self.iterations.remove(at)?;
        iteration.used = iteration.used + (now - iteration.started_at);
        self.away.push(iteration);
        Some(())
    }

    /// The session's iteration that left last goes on.
    pub(crate) fn come_back(&mut self, session: SessionId, now: Time) -> Option<()> {
        let at = self.away.iter().rposition(|i| i.session == session)?;
        let mut iteration = self.away.remove(at);
        iteration.started_at = now;
        self.iterations.push_back(iteration);
        Some(())
    }

    /// Whether an iteration of the session waits for its job.
    pub(crate) fn is_away(&self, session: SessionId) -> bool {
        self.away.iter().any(|i| i.session == session)
    }

    /// Whether an iteration of the session was handed over and has not ended, nor waits for its job.
    pub(crate) fn holds(&self, session: SessionId) -> bool {
        self.iterations.iter().any(|i| i.session == session)
    }

    /// The session's oldest iteration here has ended.
    pub(crate) fn end(&mut self, session: SessionId, now: Time) -> Option<Ended> {
        let at = self.iterations.iter().position(|i| i.session == session)?;
        let iteration = self.iterations.remove(at)?;
        let began = match iteration.calls_back {
            // It ran since it was handed over or went on, whatever ended beside it meanwhile.
            true => iteration.started_at,
            // What was handed over early began when its predecessor ended, not when it was handed
            // over.
            false => iteration.started_at.max(self.last_end),
        };
        if !iteration.calls_back {
            self.last_end = self.last_end.max(now);
        }
        let before = self.last_session.replace(session);
        let switched = before.is_some_and(|before| before != session);
        let resized = self.shrink();
        Some(Ended {
            program: iteration.program,
            took: iteration.used + (now - began),
            expected: iteration.expected,
            switched,
            resized,
        })
    }

    /// The session's last iteration here did not run: what it was charged with, and the lane's size
    /// before and after.
    pub(crate) fn give_back(&mut self, session: SessionId) -> Option<(Duration, (u64, u64))> {
        let at = self.iterations.iter().rposition(|i| i.session == session)?;
        let iteration = self.iterations.remove(at)?;
        Some((iteration.expected, self.shrink()))
    }

    fn shrink(&mut self) -> (u64, u64) {
        let before = self.size_bytes;
        let scratch = self.iterations.iter().map(|i| i.scratch_bytes);
        self.size_bytes = scratch.max().unwrap_or(0);
        (before, self.size_bytes)
    }
}

/// Which session lives where.
impl Engine {
    /// The session goes to another lane; nothing of it is on the device or queued.
    pub(crate) fn move_to(&mut self, id: SessionId, lane: Lane) {
        let from = self.session(id).lane;
        // The lane it is in counts it.
        let gain = self.lanes[from.0 as usize].members > self.lanes[lane.0 as usize].members + 1;
        if gain || from.0 as usize >= self.open_lanes() {
            let before = self.clock(self.session(id));
            self.lanes[from.0 as usize].members -= 1;
            self.lanes[lane.0 as usize].members += 1;
            self.session_mut(id).lane = lane;
            let clock = self.clock(self.session(id));
            self.session_mut(id).share.moved(before, clock);
        }
    }

    /// How many lanes sessions are sent to.
    pub(crate) fn open_lanes(&self) -> usize {
        match self.policy.packs() {
            true => self.lanes.len(),
            false => self.width,
        }
    }

    pub(crate) fn emptiest_lane(&self) -> Lane {
        let lanes = self.lanes.iter().take(self.open_lanes()).enumerate();
        let emptiest = lanes.min_by_key(|(_, lane)| (lane.members, lane.in_flight()));
        Lane(emptiest.map_or(0, |(index, _)| index as u32))
    }
}
