//! Who may share the device: iterations of two lanes side by side, where that helps.
//!
//! Of two programs that meet, it is tried: for a moment they may run side by side, for a moment they
//! may not, in turn a few times. Each time, what the whole device gets done is counted: every
//! iteration that ends, of whatever program, counts for what its program takes while the two are
//! apart. Where less gets done side by side, the two run one at a time. So everything counts that
//! differs between the two ways: caches, cores that idle, gaps between iterations, and what the
//! jobs' own hosts need.
//! The verdict holds for [`HOLDS`] and, as long as trials come to the same, twice as long each time:
//! what else runs on the machine changes, too.
//!
//! Promise: of two programs, most iterations run the way in which more got done when it was tried
//! last; those that run one at a time take turns.
//! Cost: O(log n) in the programs and pairs, which are at most [`PROGRAMS`] and [`PAIRS`].

use std::collections::BTreeMap;

use crate::engine::{Engine, Order};
use crate::lanes::{DEPTH, Iteration, Waiting};
use crate::serving::Placed;
use crate::time::{Duration, Time};
use crate::{Lane, Program, SessionId};

/// So often two programs meet before they are tried: what comes and goes is not worth it.
const MEETINGS: u32 = 8;
/// A window of a trial lasts so long, and until so many iterations of each of the two have ended.
const WINDOW: Duration = Duration(200_000_000);
const ENDS: u32 = 4;
/// Before that, as many of each: what ends first was handed over in the window before, and whoever
/// got more than its share in that one waits at first.
const LEFT_OVER: u32 = DEPTH as u32 + 1;
/// A window that lasts for so many iterations of both, and longer than that, tells nothing: one of
/// the two has paused.
const PAUSED_ENDS: u64 = 24;
const PAUSED_AFTER: Duration = Duration(2_000_000_000);
/// Rounds of a trial, each a window of either kind: so many, or fewer where all say the same, or
/// still fewer where they say it clearly.
const ROUNDS: usize = 5;
const ROUNDS_AGREED: usize = 3;
const ROUNDS_CLEAR: usize = 2;
/// What gets done side by side, in hundredths of what gets done one at a time.
const CLEARLY_MORE: u64 = 110;
const CLEARLY_LESS: u64 = 90;
const WORTH: u64 = 100;
const HOLDS: Duration = Duration(30_000_000_000);
const HOLDS_MAX: Duration = Duration(480_000_000_000);
const PROGRAMS: usize = 1024;
const PAIRS: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Pairing {
    pairs: BTreeMap<Pair, Known>,
    trial: Option<Trial>,
}

/// The lesser first.
type Pair = (Program, Program);

fn pair(one: Program, other: Program) -> Pair {
    (one.min(other), one.max(other))
}

#[derive(Debug, Default)]
struct Known {
    /// How often they met since the last verdict.
    meetings: u32,
    verdict: Option<Verdict>,
    seen_at: Time,
}

#[derive(Debug, Clone, Copy)]
struct Verdict {
    together: bool,
    holds: Duration,
    until: Time,
}

#[derive(Debug)]
struct Trial {
    pair: Pair,
    /// Whether they run one at a time in this window.
    apart: bool,
    window: Window,
    /// The last one in which they ran side by side, and how long it lasted.
    together: (Window, Duration),
    /// Of the rounds so far, as [`WORTH`].
    gains: Vec<u64>,
}

#[derive(Debug)]
struct Window {
    /// When it began, or the one before ended as long as something is left over from that.
    since: Time,
    /// Iterations of the two that do not count yet.
    left_over: [u32; 2],
    /// Iterations of the two that ended in it.
    ends: [u32; 2],
    /// Iterations of each program that ended in it, and what they took all together.
    done: BTreeMap<Program, (u64, Duration)>,
}

impl Pairing {
    /// Whether iterations of these two must not run side by side.
    fn hinder(&self, now: Time, one: Program, other: Program) -> bool {
        let pair = pair(one, other);
        if let Some(trial) = self.trial.as_ref().filter(|trial| trial.pair == pair) {
            return trial.apart;
        }
        let verdict = self.pairs.get(&pair).and_then(|known| known.verdict);
        verdict.is_some_and(|verdict| !verdict.together && now < verdict.until)
    }

    /// An iteration of `program` ended while another lane ran `other`.
    fn met(&mut self, now: Time, program: Program, other: Program) {
        let pair = pair(program, other);
        if self.pairs.len() >= PAIRS && !self.pairs.contains_key(&pair) {
            make_room(&mut self.pairs, |known| now - known.seen_at < HOLDS);
        }
        let known = self.pairs.entry(pair).or_default();
        known.seen_at = now;
        if known.verdict.is_some_and(|verdict| now < verdict.until) {
            return;
        }
        known.meetings = known.meetings.saturating_add(1);
        if known.meetings >= MEETINGS && self.trial.is_none() {
            known.meetings = 0;
            self.trial = Some(Trial::new(now, pair));
        }
    }

    /// True if two that ran side by side take turns from now on, or the other way round.
    fn ended(&mut self, now: Time, program: Program, took: Duration) -> bool {
        let Some(trial) = &mut self.trial else {
            return false;
        };
        let before = trial.apart;
        trial.ended(now, program, took);
        let changed = trial.apart != before;
        if let Some(together) = trial.verdict() {
            if let Some(known) = self.pairs.get_mut(&trial.pair) {
                known.judge(now, together);
            }
            self.trial = None;
        } else if trial.has_paused(now) {
            self.trial = None;
        }
        changed
    }
}

/// Drops what was not seen lately, and if that is little, all: it will be tried again.
fn make_room<K: Ord, V>(map: &mut BTreeMap<K, V>, seen_lately: impl Fn(&V) -> bool) {
    let before = map.len();
    map.retain(|_, value| seen_lately(value));
    if map.len() > before / 2 {
        map.clear();
    }
}

impl Known {
    fn judge(&mut self, now: Time, together: bool) {
        let same = self.verdict.filter(|before| before.together == together);
        let holds = same.map_or(HOLDS, |before| {
            Duration((2 * before.holds.0).min(HOLDS_MAX.0))
        });
        self.verdict = Some(Verdict {
            together,
            holds,
            until: now + holds,
        });
    }
}

impl Trial {
    fn new(now: Time, pair: Pair) -> Self {
        Self {
            pair,
            apart: false,
            window: Window::new(now),
            together: (Window::new(now), Duration(0)),
            gains: Vec::with_capacity(ROUNDS),
        }
    }

    fn ended(&mut self, now: Time, program: Program, took: Duration) {
        let of_pair = [self.pair.0, self.pair.1].map(|one| u32::from(one == program));
        self.window.ended(now, program, of_pair, took);
        let of_same = if self.pair.0 == self.pair.1 { 2 } else { 1 };
        let enough = self.window.ends.iter().all(|n| *n >= of_same * ENDS);
        let elapsed = now - self.window.since;
        if !enough || elapsed < WINDOW {
            return;
        }
        // The next window is of the other kind.
        let window = std::mem::replace(&mut self.window, Window::new(now));
        match self.apart {
            false => self.together = (window, elapsed),
            true => {
                let (together, time) = &self.together;
                let gained = window.value(together) * u128::from(elapsed.0);
                let before = window.value(&window) * u128::from(time.0);
                let gain = 100 * gained / before.max(1);
                self.gains.push(u64::try_from(gain).unwrap_or(u64::MAX));
            }
        }
        self.apart = !self.apart;
    }

    /// Whether they should run side by side, once it is known.
    fn verdict(&self) -> Option<bool> {
        let gains = &self.gains;
        if gains.len() >= ROUNDS {
            let mut sorted = gains.clone();
            sorted.sort_unstable();
            return Some(sorted[sorted.len() / 2] >= WORTH);
        }
        let (more, less) = match gains.len() {
            ROUNDS_AGREED.. => (WORTH, WORTH - 1),
            ROUNDS_CLEAR.. => (CLEARLY_MORE, CLEARLY_LESS),
            _ => return None,
        };
        if gains.iter().all(|gain| *gain >= more) {
            return Some(true);
        }
        let all_less = gains.iter().all(|gain| *gain <= less);
        all_less.then_some(false)
    }

    fn has_paused(&self, now: Time) -> bool {
        let typical = |program| {
            let windows = [&self.window, &self.together.0];
            let means = windows.map(|window| window.mean(program));
            means.into_iter().flatten().max().unwrap_or(0)
        };
        let both = typical(self.pair.0) + typical(self.pair.1);
        (now - self.window.since).0 > (PAUSED_ENDS * both).max(PAUSED_AFTER.0)
    }
}

impl Window {
    fn new(now: Time) -> Self {
        Self {
            since: now,
            left_over: [LEFT_OVER; 2],
            ends: [0; 2],
            done: BTreeMap::new(),
        }
    }

    fn ended(&mut self, now: Time, program: Program, of_pair: [u32; 2], took: Duration) {
        if self.left_over != [0; 2] {
            for (left, ended) in self.left_over.iter_mut().zip(of_pair) {
                *left = left.saturating_sub(ended);
            }
            if self.left_over == [0; 2] {
                self.since = now;
            }
            return;
        }
        for (ends, ended) in self.ends.iter_mut().zip(of_pair) {
            *ends += ended;
        }
        if self.done.len() < PROGRAMS || self.done.contains_key(&program) {
            let (count, sum) = self.done.entry(program).or_default();
            *count += 1;
            *sum = *sum + took;
        }
    }

    /// What an iteration of the program took here.
    fn mean(&self, program: Program) -> Option<u64> {
        let (count, sum) = self.done.get(&program)?;
        Some(sum.0 / count)
    }

    /// What the iterations of another window would have taken here. A program that did not run here
    /// counts for what it took there.
    fn value(&self, other: &Self) -> u128 {
        let of = |(program, (count, sum)): (&Program, &(u64, Duration))| {
            let mean = self.mean(*program).unwrap_or(sum.0 / count);
            u128::from(*count) * u128::from(mean)
        };
        other.done.iter().map(of).sum()
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
        let hinder = |i: &Iteration| self.pairing.hinder(now, program, i.program);
        let waits = others.any(|(_, other)| other.iterations().any(hinder));
        waits && request.waiting.need(0) <= self.ledger.free_bytes() + self.ledger.scratch_bytes()
    }

    /// Whether an earlier request would have to wait for this one to end.
    fn keeps_waiting(&self, now: Time, request: &Placed<'_>, earlier: &Placed<'_>) -> bool {
        let programs = request.waiting.program.zip(earlier.waiting.program);
        earlier.lane != request.lane
            && programs.is_some_and(|(one, other)| self.pairing.hinder(now, one, other))
    }

    /// What an iteration that ended tells about running beside others.
    pub(crate) fn learn_pairs(&mut self, now: Time, lane: Lane, program: Program, took: Duration) {
        if !self.policy.packs() {
            return;
        }
        if self.pairing.ended(now, program, took) {
            self.level_lanes();
        }
        let lanes = self.lanes.iter().enumerate();
        let others = lanes.filter(|(index, _)| *index != lane.0 as usize);
        for (_, other) in others {
            if let Some(beside) = other.runs() {
                self.pairing.met(now, program, beside);
            }
        }
    }
}
