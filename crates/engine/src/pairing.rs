//! Who may share the device: iterations of two lanes side by side, where that helps.
//!
//! For two programs, what an iteration takes is measured while the other lane runs the other program
//! and while no lane runs anything. Side by side they do, in the time in which one of them alone would
//! do one iteration, `alone ÷ together` of each: where those add up to less than one and a bit, they
//! hinder each other and run one at a time. A program that was not seen often runs beside others;
//! then it is measured alone. Both the measure and the verdict are looked into again after
//! [`REMEMBERED`], because what else runs on the machine changes, too.
//!
//! Promise: of two programs, most iterations run the way that was faster when it was measured last;
//! those that run one at a time take turns.
//! Cost: O(log n) in the programs and pairs, which are at most [`PROGRAMS`] and [`PAIRS`].

use std::collections::BTreeMap;

use crate::engine::{Engine, Order};
use crate::lanes::{Ended, Iteration, Waiting};
use crate::serving::Placed;
use crate::time::{Duration, Time};
use crate::{Lane, Program, SessionId};

/// What side by side must gain to be worth it, in hundredths of doing one after the other.
const WORTH: u64 = 105;
/// Iterations that make a measure.
const MEASURED: u32 = 7;
/// After so many times that, one of two is enough to judge: an iteration of the other lasts so long
/// that something else always runs beside it as well.
const OFTEN: u32 = 4;
const REMEMBERED: Duration = Duration(30_000_000_000);
const PROGRAMS: usize = 1024;
const PAIRS: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Pairing {
    programs: BTreeMap<Program, Alone>,
    pairs: BTreeMap<(Program, Program), Pair>,
}

/// What iterations of a program take while nothing else runs.
#[derive(Debug, Default)]
struct Alone {
    typical: Typical,
    until: Time,
    /// How often others ran beside it.
    beside: u32,
    seen_at: Time,
}

#[derive(Debug, Default)]
struct Pair {
    /// Of the program that comes first in the pair, and of the other.
    together: [Typical; 2],
    verdict: Option<Verdict>,
    seen_at: Time,
}

#[derive(Debug, Clone, Copy)]
struct Verdict {
    together: bool,
    until: Time,
}

/// What the last iterations took, of which the middle counts: on a busy machine some take much
/// longer, and a mean of few would follow those.
#[derive(Debug, Default)]
struct Typical {
    count: u32,
    last: [u64; MEASURED as usize],
}

impl Typical {
    fn add(&mut self, time: Duration) {
        self.last[(self.count % MEASURED) as usize] = time.0;
        self.count = self.count.saturating_add(1);
    }

    fn enough(&self) -> bool {
        self.count >= MEASURED
    }

    /// Of as many as make a measure.
    fn time(&self) -> u64 {
        let mut sorted = self.last;
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    }
}

fn key(one: Program, other: Program) -> (Program, Program) {
    (one.min(other), one.max(other))
}

impl Pairing {
    /// Whether iterations of these two may run side by side.
    fn together(&self, now: Time, one: Program, other: Program) -> bool {
        !self.hinder(now, one, other)
            && !self.wants_to_be_alone(now, one)
            && !self.wants_to_be_alone(now, other)
    }

    fn hinder(&self, now: Time, one: Program, other: Program) -> bool {
        let pair = self.pairs.get(&key(one, other));
        let verdict = pair.and_then(|pair| pair.verdict);
        verdict.is_some_and(|verdict| !verdict.together && now < verdict.until)
    }

    /// It runs often, and what it takes alone is not known, or not any more.
    pub(crate) fn wants_to_be_alone(&self, now: Time, program: Program) -> bool {
        self.programs.get(&program).is_some_and(|alone| {
            alone.beside >= MEASURED && (!alone.typical.enough() || now >= alone.until)
        })
    }

    /// An iteration of `program` ran while no other lane ran anything.
    pub(crate) fn ran_alone(&mut self, now: Time, program: Program, took: Duration) {
        let alone = self.program(now, program);
        alone.typical.add(took);
        alone.until = now + REMEMBERED;
    }

    /// An iteration of `program` ran while other lanes ran something.
    pub(crate) fn ran_beside_others(&mut self, now: Time, program: Program) {
        let alone = self.program(now, program);
        alone.beside = alone.beside.saturating_add(1);
    }

    /// An iteration of `program` ran while another lane ran `other` all the time.
    pub(crate) fn ran_together(
        &mut self,
        now: Time,
        program: Program,
        other: Program,
        took: Duration,
    ) {
        let key = key(program, other);
        if let Some(pair) = self.pairs.get_mut(&key)
            && pair.verdict.is_some_and(|verdict| now < verdict.until)
        {
            pair.seen_at = now;
            return;
        }
        let alone = |program| self.programs.get(&program).filter(|a| a.typical.enough());
        let alone = [key.0, key.1].map(|program| alone(program).map(|a| a.typical.time()));
        if self.pairs.len() >= PAIRS && !self.pairs.contains_key(&key) {
            make_room(&mut self.pairs, |pair| now - pair.seen_at < REMEMBERED);
        }
        let pair = self.pairs.entry(key).or_default();
        if pair.verdict.is_some() {
            *pair = Pair::default();
        }
        pair.seen_at = now;
        pair.together[usize::from(program > other)].add(took);
        if program == other {
            pair.together[1].add(took);
        }
        pair.judge(now, alone);
    }

    fn program(&mut self, now: Time, program: Program) -> &mut Alone {
        if self.programs.len() >= PROGRAMS && !self.programs.contains_key(&program) {
            make_room(&mut self.programs, |alone| now - alone.seen_at < REMEMBERED);
        }
        let alone = self.programs.entry(program).or_default();
        alone.seen_at = now;
        alone
    }
}

/// Drops what was not seen lately, and if that is little, all: it will be measured again.
fn make_room<K: Ord, V>(map: &mut BTreeMap<K, V>, seen_lately: impl Fn(&V) -> bool) {
    let before = map.len();
    map.retain(|_, value| seen_lately(value));
    if map.len() > before / 2 {
        map.clear();
    }
}

impl Pair {
    fn judge(&mut self, now: Time, alone: [Option<u64>; 2]) {
        let speed = |side: usize| {
            let together = &self.together[side];
            let alone = alone[side].filter(|_| together.enough())?;
            Some(100 * alone / together.time().max(1))
        };
        let often = |side: usize| self.together[side].count >= OFTEN * MEASURED;
        let gain = match (speed(0), speed(1)) {
            (Some(one), Some(other)) => one + other,
            (Some(one), None) if often(0) => 2 * one,
            (None, Some(other)) if often(1) => 2 * other,
            _ => return,
        };
        self.verdict.get_or_insert(Verdict {
            together: gain >= WORTH,
            until: now + REMEMBERED,
        });
    }
}

impl Engine {
    /// The first request that may run beside what runs in other lanes. Earlier ones that may not
    /// wait until that has ended: nothing goes before them that they would have to wait for as well,
    /// or two that should run one at a time would not take turns.
    pub(crate) fn first_that_helps(&self, now: Time) -> Option<(Order, SessionId)> {
        let mut heads: Vec<Placed<'_>> = self.heads().collect();
        heads.sort_unstable_by_key(|head| head.order);
        let mut apart = Vec::new();
        for head in &heads {
            let keeps = |earlier: &&Placed<'_>| self.keeps_waiting(now, head, earlier);
            if self.waits_apart(now, head) {
                apart.push(head);
            } else if !apart.iter().any(keeps) {
                return Some((head.order, head.waiting.session));
            }
        }
        None
    }

    /// Whether a lane's request may run beside what runs in others, by the same rule.
    pub(crate) fn helps(&self, now: Time, lane: usize, order: &Order, waiting: &Waiting) -> bool {
        if !self.policy.packs() {
            return true;
        }
        let request = Placed {
            lane,
            order: self.among_all(lane, *order),
            waiting,
        };
        let mut earlier = self.heads().filter(|head| head.order < request.order);
        let keeps_waiting = |earlier: Placed<'_>| {
            self.waits_apart(now, &earlier) && self.keeps_waiting(now, &request, &earlier)
        };
        !self.waits_apart(now, &request) && !earlier.any(keeps_waiting)
    }

    /// Whether the request waits for others to end, because it should not run beside them. For one
    /// that would not fit even then, room is made first.
    fn waits_apart(&self, now: Time, request: &Placed<'_>) -> bool {
        let Some(program) = request.waiting.program else {
            return false;
        };
        let lanes = self.lanes.iter().enumerate();
        let mut others =
            lanes.filter(|(lane, other)| *lane != request.lane && other.in_flight() > 0);
        let hinder = |i: &Iteration| i.alone || self.pairing.hinder(now, program, i.program);
        let waits = match self.pairing.wants_to_be_alone(now, program) {
            true => others.next().is_some(),
            false => others.any(|(_, other)| other.iterations().any(hinder)),
        };
        waits && request.waiting.need(0) <= self.ledger.free_bytes() + self.ledger.scratch_bytes()
    }

    /// Whether an earlier request would have to wait for this one to end.
    fn keeps_waiting(&self, now: Time, request: &Placed<'_>, earlier: &Placed<'_>) -> bool {
        let programs = request.waiting.program.zip(earlier.waiting.program);
        earlier.lane != request.lane
            && programs.is_some_and(|(one, other)| !self.pairing.together(now, one, other))
    }

    /// What an iteration that ended tells about running beside others.
    pub(crate) fn learn_pairs(&mut self, now: Time, lane: Lane, ended: &Ended, took: Duration) {
        let others_busy = self.others_busy(now, lane);
        // The one that now runs here began when this one ended.
        if let Some(next) = self.lanes[lane.0 as usize].head_mut() {
            next.others_busy = others_busy;
        }
        if !self.policy.packs() || took == Duration(0) {
            return;
        }
        let overlap = Duration(others_busy.0.saturating_sub(ended.others_busy.0));
        if overlap.0 <= took.0 / 20 {
            self.pairing.ran_alone(now, ended.program, took);
            return;
        }
        self.pairing.ran_beside_others(now, ended.program);
        if overlap.0 < took.0 / 10 * 9 {
            return;
        }
        let others = self.lanes.iter().enumerate();
        for (_, other) in others.filter(|(index, _)| *index != lane.0 as usize) {
            if let Some(beside) = other.runs_since(ended.began + Duration(took.0 / 10)) {
                self.pairing.ran_together(now, ended.program, beside, took);
            }
        }
    }

    /// How long the other lanes had something to run so far, all together.
    pub(crate) fn others_busy(&self, now: Time, lane: Lane) -> Duration {
        let others = self.lanes.iter().enumerate();
        let others = others.filter(|(index, _)| *index != lane.0 as usize);
        others.fold(Duration(0), |sum, (_, other)| sum + other.busy(now))
    }
}
