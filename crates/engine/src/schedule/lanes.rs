//! Lanes: in-order queues of the device, each with a slice of its memory for scratch.
//!
//! Iterations of one lane run one at a time, so its size is the largest scratch among those handed
//! to it: it grows when one is handed over and shrinks when one ends. Lanes run side by side, so
//! their sizes add up. While one iteration runs the next is handed over, so that the device has no
//! gap between them; at most [`DEPTH`] are started and not ended.
//!
//! An iteration that calls back into its job has the lane for itself: the device does not order it
//! with others. While it waits for the job's callback, the lane serves others. When it goes on it
//! does so at once, beside what was handed over meanwhile; nothing more is handed over until it ends
//! or calls back again. Where several went on that way, one is handed over for each that calls back
//! again: they may never all wait at the same time.
//!
//! Promise: a lane's size covers whatever runs in it, and nothing else.
//! Not here: which session is in which lane, and how many lanes are open (`queues.rs`).

use std::collections::{BTreeMap, VecDeque};

use super::queues::Order;
use crate::event::{Calling, Demand, Program, SessionId};
use crate::policies::{CLASSES, Rank};
use crate::time::{Duration, Time};

/// How many iterations a lane is handed at once: one runs, one follows it without a gap. A third would
/// only delay the session that becomes ready next.
pub const DEPTH: usize = 2;

#[derive(Debug, Default)]
pub(crate) struct LaneState {
    /// Oldest first; the device runs them in this order, and beside them those that call back.
    iterations: VecDeque<Iteration>,
    /// Started, and waiting for their jobs' callbacks.
    in_callback: Vec<Iteration>,
    /// Iterations that left for a callback and were not replaced by another.
    vacant: usize,
    /// When the last one ended: the next cannot have begun earlier.
    last_end: Time,
    /// When the first in order became the first. A device that runs small programs at once may end the
    /// second before it.
    led_since: Time,
    /// Whose copies to the device are to be handed over before anything else, if something runs.
    pages_in: Option<SessionId>,
    /// Who was paged in ahead of its turn: one iteration of another goes first.
    lets_pass: Option<SessionId>,
    /// The session of the last one that ended.
    last_session: Option<SessionId>,
    /// The largest scratch of `iterations`.
    size_bytes: u64,
    /// Ready launches of the lane's sessions whose arguments are all on the device.
    pub(super) resident: BTreeMap<Order, Waiting>,
    /// Ready launches with paged-out arguments; the others may be backfilled where these must wait.
    pub(super) paged: BTreeMap<Order, Waiting>,
    /// Virtual time of what was started last, by the policy's class; it never goes back.
    pub(super) clocks: [u128; CLASSES],
    /// Added to virtual times where they are compared with those of other lanes.
    pub(super) shifts: [u128; CLASSES],
    /// Sessions whose arrays are in this lane.
    pub(super) members: u32,
}

/// A request in a queue, with what it takes: a demand does not change while it is queued.
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
        Self {
            session,
            program: demand.program(),
            calls_back: demand.calling().is_some(),
            array_bytes: demand.new_bytes + demand.paged_bytes,
            scratch_bytes: demand.scratch_bytes(),
        }
    }

    /// Bytes beyond those that it has, in a lane of this size.
    pub(crate) fn need(&self, lane_bytes: u64) -> u64 {
        self.array_bytes + self.scratch_bytes.saturating_sub(lane_bytes)
    }
}

#[derive(Debug)]
pub(crate) struct Iteration {
    pub(crate) session: SessionId,
    pub(crate) program: Program,
    /// The order of its request among those of all lanes, when it was started.
    pub(crate) order: Order,
    /// How many had been started then, with this one.
    pub(crate) nth: u64,
    pub(crate) started_at: Time,
    pub(crate) scratch_bytes: u64,
    /// The estimate that its session was charged with when it was started.
    pub(crate) expected: Duration,
    /// Which one it is, if it calls back.
    pub(crate) calling: Option<Calling>,
    /// Device time before its last callback.
    pub(crate) used: Duration,
}

/// What an iteration took.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) program: Program,
    pub(crate) took: Duration,
    pub(crate) expected: Duration,
    /// Whether its request had aged.
    pub(crate) aged: bool,
    /// Whether the iteration before it in the lane was another session's.
    pub(crate) switched: bool,
    /// The lane's size before and after.
    pub(crate) resized: (u64, u64),
}

impl LaneState {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether nothing more may be handed to it, whatever it is.
    pub(crate) fn is_full(&self) -> bool {
        self.iterations.len() >= DEPTH && self.vacant == 0
    }

    /// Iterations handed over and not ended, without those that wait for a callback.
    pub(crate) fn in_flight(&self) -> usize {
        self.iterations.len()
    }

    /// Iterations that the device runs one after the other: what is handed over next waits for them.
    fn in_order(&self) -> usize {
        let in_order = self.iterations.iter().filter(|i| i.calling.is_none());
        in_order.count()
    }

    pub(crate) fn has_members(&self) -> bool {
        self.members > 0
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.iterations.is_empty() && self.resident.is_empty() && self.paged.is_empty()
    }

    /// The session whose iteration runs: the first in order, or if there is none one that calls back.
    pub(crate) fn head(&self) -> Option<SessionId> {
        self.runs_first().map(|i| i.session)
    }

    fn runs_first(&self) -> Option<&Iteration> {
        let mut in_order = self.iterations.iter().filter(|i| i.calling.is_none());
        in_order.next().or(self.iterations.front())
    }

    /// What runs now, and since when: the first in order, and those that call back.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&Iteration, Time)> {
        let first = self.iterations.iter().find(|i| i.calling.is_none());
        let first = first.map(|i| (i, i.started_at.max(self.led_since)));
        let beside = self.iterations.iter().filter(|i| i.calling.is_some());
        first.into_iter().chain(beside.map(|i| (i, i.started_at)))
    }

    /// Whether the device works for the session: its iteration is the first in order, or calls back.
    pub(crate) fn is_at_work_for(&self, session: SessionId) -> bool {
        let calls = |i: &Iteration| i.session == session && i.calling.is_some();
        self.head() == Some(session) || self.iterations.iter().any(calls)
    }

    /// What was handed to it; the first of them runs.
    pub(crate) fn iterations(&self) -> impl Iterator<Item = &Iteration> {
        self.iterations.iter()
    }

    /// What runs.
    pub(crate) fn runs(&self) -> Option<Program> {
        self.runs_first().map(|i| i.program)
    }

    /// Bytes by which the lane must grow for this scratch.
    pub(crate) fn growth(&self, scratch_bytes: u64) -> u64 {
        scratch_bytes.saturating_sub(self.size_bytes)
    }

    /// What its size would be if only iterations were in it that were started after the `nth` and are
    /// later in order than `order`.
    pub(crate) fn size_since(&self, nth: u64, order: Option<Order>) -> u64 {
        let since = self.iterations.iter();
        let since = since.filter(|i| i.nth > nth && Some(i.order) > order);
        since.map(|i| i.scratch_bytes).max().unwrap_or(0)
    }

    /// Returns the size before and after.
    pub(crate) fn start(&mut self, iteration: Iteration) -> (u64, u64) {
        self.vacant = match self.iterations.is_empty() {
            true => 0,
            false => self.vacant.saturating_sub(1),
        };
        self.lets_pass = None;
        let before = self.size_bytes;
        self.size_bytes = before.max(iteration.scratch_bytes);
        self.iterations.push_back(iteration);
        (before, self.size_bytes)
    }

    /// Whether a request that calls back, or does not, may be handed over now if the lane may have
    /// `depth` iterations in order. While something runs, copies go before what comes after them. One that calls back runs alone, and a first in order that waits
    /// for that is not overtaken.
    pub(crate) fn lets_in(&self, calls_back: bool, depth: usize) -> bool {
        if self.iterations.is_empty() {
            return true;
        }
        if self.pages_in.is_some() {
            return false;
        }
        let has_place = self.in_order() < depth;
        if self.iterations.iter().any(|i| i.calling.is_some()) {
            return has_place && self.vacant > 0;
        }
        let heads = [&self.resident, &self.paged].into_iter();
        let first = heads
            .filter_map(BTreeMap::first_key_value)
            .min_by_key(|(order, _)| *order);
        has_place && !calls_back && !first.is_some_and(|(_, first)| first.calls_back)
    }

    /// A session is paged in ahead of its turn.
    pub(crate) fn begin_page_in(&mut self, session: SessionId) {
        self.pages_in = Some(session);
        self.lets_pass = Some(session);
    }

    /// Its copies were handed over.
    pub(crate) fn page_in_begun(&mut self, session: SessionId) {
        self.pages_in.take_if(|other| *other == session);
    }

    /// The session asks for nothing any more.
    pub(crate) fn withdraw(&mut self, session: SessionId) {
        self.page_in_begun(session);
        self.lets_pass.take_if(|other| *other == session);
    }

    /// Who lets another go first.
    pub(super) fn lets_pass(&self) -> Option<SessionId> {
        self.lets_pass
    }

    /// The iteration waits for its job's callback.
    pub(crate) fn callback_began(
        &mut self,
        session: SessionId,
        calling: Calling,
        now: Time,
    ) -> Option<()> {
        let at = self.find(session, Some(calling))?;
        let mut iteration = self.iterations.remove(at)?;
        iteration.used = iteration.used + (now - iteration.started_at);
        self.in_callback.push(iteration);
        self.vacant += 1;
        Some(())
    }

    /// The iteration goes on.
    pub(crate) fn callback_ended(
        &mut self,
        session: SessionId,
        calling: Calling,
        now: Time,
    ) -> Option<()> {
        let is_it = |i: &Iteration| i.session == session && i.calling == Some(calling);
        let at = self.in_callback.iter().position(is_it)?;
        let mut iteration = self.in_callback.remove(at);
        iteration.started_at = now;
        self.iterations.push_back(iteration);
        self.vacant = self.vacant.saturating_sub(1);
        Some(())
    }

    /// Whether iterations wait for their jobs' callbacks.
    pub(crate) fn awaits_jobs(&self) -> bool {
        !self.in_callback.is_empty()
    }

    /// Whether an iteration of the session was handed over, has not ended and waits for no callback.
    pub(crate) fn holds(&self, session: SessionId) -> bool {
        self.iterations.iter().any(|i| i.session == session)
    }

    /// The session's oldest iteration that does not call back, or the one that does.
    fn find(&self, session: SessionId, calling: Option<Calling>) -> Option<usize> {
        let is_it = |i: &Iteration| i.session == session && i.calling == calling;
        self.iterations.iter().position(is_it)
    }

    /// The session's oldest iteration here has ended, or the one that calls back.
    pub(crate) fn end(
        &mut self,
        session: SessionId,
        calling: Option<Calling>,
        now: Time,
    ) -> Option<Ended> {
        let at = self.find(session, calling)?;
        let iteration = self.iterations.remove(at)?;
        let began = match calling {
            // It ran since it was handed over or went on, whatever ended beside it meanwhile.
            Some(_) => iteration.started_at,
            // What was handed over early began when its predecessor ended, not when it was handed
            // over. The trace repeats this (`daemon/src/device_host/observe/trace/lanes.rs`).
            None => iteration.started_at.max(self.last_end),
        };
        if calling.is_none() {
            self.last_end = self.last_end.max(now);
            let mut before = self.iterations.iter().take(at);
            if before.all(|i| i.calling.is_some()) {
                self.led_since = now;
            }
        }
        let before = self.last_session.replace(session);
        let switched = before.is_some_and(|before| before != session);
        let resized = self.shrink();
        Some(Ended {
            program: iteration.program,
            took: iteration.used + (now - began),
            expected: iteration.expected,
            aged: iteration.order.rank == Rank::AGED,
            switched,
            resized,
        })
    }

    /// The session's last iteration here, or the one that calls back, did not run. Returns what its
    /// session was charged with, and the lane's size before and after.
    pub(crate) fn did_not_run(
        &mut self,
        session: SessionId,
        calling: Option<Calling>,
    ) -> Option<(Duration, (u64, u64))> {
        let is_it = |i: &Iteration| i.session == session && i.calling == calling;
        let at = self.iterations.iter().rposition(is_it)?;
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
