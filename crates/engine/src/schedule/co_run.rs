//! Co-running: which programs run side by side in two lanes, and which interfere.
//!
//! Of two programs that meet, it is tried: for a moment they may run side by side, for a moment they
//! may not, in turn a few times. Each time, what the whole device gets done is counted: every
//! iteration that ends, of whatever program, counts for what its program takes while the two run
//! apart. Where less gets done side by side, the two interfere and run one at a time. So everything
//! counts that differs between the two ways: caches, cores that idle, gaps between iterations, and
//! what the jobs' own hosts need. The verdict holds for [`VERDICT_HOLDS`] and, as long as trials agree,
//! twice as long each time: what else runs on the machine changes, too.
//!
//! Promise: of two programs, most iterations run the way in which more got done when it was tried
//! last; those that run one at a time take turns.
//! Cost: O(log n) in the programs and pairs, which are at most [`PROGRAMS`] and [`PAIRS`].

use std::collections::BTreeMap;

use super::lanes::{DEPTH, Iteration, Waiting};
use super::queues::Order;
use super::select::Placed;
use crate::engine::Engine;
use crate::event::{Lane, Program, SessionId};
use crate::time::{Duration, Time};

/// How often two programs meet before they are tried: what comes and goes is not worth it.
const MEETINGS: u32 = 8;
/// A window of a trial lasts at least 200 ms, which evens out what the hosts do,
const WINDOW: Duration = Duration(200_000_000);
/// and until this many iterations of each of the two have ended, and as many in each of the two lanes: one
/// lane alone does as much in both kinds of windows.
const WINDOW_ENDS: u32 = 4;
/// Before that, this many of each do not count: the first to end were handed over in the window
/// before, and a session that got more than its share in that one waits at first.
const LEFT_OVER: u32 = DEPTH as u32 + 1;
/// A window that lasts longer than this many iterations of both, and longer than 2 s, tells nothing:
/// one of the two has paused.
const PAUSED_ENDS: u64 = 24;
const PAUSED_AFTER: Duration = Duration(2_000_000_000);
/// Rounds of a trial, each a window of either kind: this many, or fewer where all agree, or still
/// fewer where they agree clearly.
const ROUNDS: usize = 5;
const ROUNDS_AGREED: usize = 3;
const ROUNDS_CLEAR: usize = 2;
/// What gets done side by side, in percent of what gets done one at a time: where the two agree
/// clearly, and from where co-running is worth it.
const CLEARLY_MORE_PERCENT: u64 = 110;
const CLEARLY_LESS_PERCENT: u64 = 90;
const WORTH_PERCENT: u64 = 100;
/// How long a verdict holds at first, 30 s, and at most, 8 minutes: a trial costs a second or two.
const VERDICT_HOLDS: Duration = Duration(30_000_000_000);
const VERDICT_HOLDS_MAX: Duration = Duration(480_000_000_000);
/// They bound memory.
const PROGRAMS: usize = 1024;
const PAIRS: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct CoRun {
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
    /// Where they met.
    lanes: [Lane; 2],
    /// Whether they run one at a time in this window.
    apart: bool,
    window: Window,
    /// The last one in which they ran side by side, and how long it lasted.
    together: (Window, Duration),
    /// What got done side by side in each round so far, in percent as [`WORTH_PERCENT`].
    gains_percent: Vec<u64>,
}

#[derive(Debug)]
struct Window {
    /// When it began, or when the one before ended as long as something is left over from that.
    since: Time,
    /// Iterations of the two that do not count yet.
    left_over: [u32; 2],
    /// Iterations of the two that ended in it.
    ends: [u32; 2],
    /// Iterations of either that ended in each of the two lanes.
    ends_in_lanes: [u32; 2],
    /// How many iterations of each program ended in it, and what they took together.
    done: BTreeMap<Program, (u64, Duration)>,
}

impl CoRun {
    /// Whether iterations of these two must not run side by side.
    fn interfere(&self, now: Time, one: Program, other: Program) -> bool {
        let pair = pair(one, other);
        if let Some(trial) = self.trial.as_ref().filter(|trial| trial.pair == pair) {
            return trial.apart;
        }
        let verdict = self.pairs.get(&pair).and_then(|known| known.verdict);
        verdict.is_some_and(|verdict| !verdict.together && now < verdict.until)
    }

    /// An iteration of `program` ended while another lane ran `other`.
    fn met(&mut self, now: Time, lanes: [Lane; 2], program: Program, other: Program) {
        let pair = pair(program, other);
        if self.pairs.len() >= PAIRS && !self.pairs.contains_key(&pair) {
            forget_old(&mut self.pairs, |known| now - known.seen_at < VERDICT_HOLDS);
        }
        let known = self.pairs.entry(pair).or_default();
        known.seen_at = now;
        if known.verdict.is_some_and(|verdict| now < verdict.until) {
            return;
        }
        known.meetings = known.meetings.saturating_add(1);
        if known.meetings >= MEETINGS && self.trial.is_none() {
            known.meetings = 0;
            self.trial = Some(Trial::new(now, pair, lanes));
        }
    }

    /// True if two that ran side by side take turns from now on, or the other way round.
    fn ended(&mut self, now: Time, lane: Lane, program: Program, took: Duration) -> bool {
        let Some(trial) = &mut self.trial else {
            return false;
        };
        let before = trial.apart;
        trial.ended(now, lane, program, took);
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

/// Forgets what was not seen lately, and if that is little, all: there will be another trial.
fn forget_old<K: Ord, V>(map: &mut BTreeMap<K, V>, seen_lately: impl Fn(&V) -> bool) {
    let before = map.len();
    map.retain(|_, value| seen_lately(value));
    if map.len() > before / 2 {
        map.clear();
    }
}

impl Known {
    fn judge(&mut self, now: Time, together: bool) {
        let same = self.verdict.filter(|before| before.together == together);
        let holds = same.map_or(VERDICT_HOLDS, |before| {
            Duration((2 * before.holds.0).min(VERDICT_HOLDS_MAX.0))
        });
        self.verdict = Some(Verdict {
            together,
            holds,
            until: now + holds,
        });
    }
}

impl Trial {
    fn new(now: Time, pair: Pair, lanes: [Lane; 2]) -> Self {
        Self {
            pair,
            lanes,
            apart: false,
            window: Window::new(now),
            together: (Window::new(now), Duration(0)),
            gains_percent: Vec::with_capacity(ROUNDS),
        }
    }

    fn ended(&mut self, now: Time, lane: Lane, program: Program, took: Duration) {
        let of_pair = [self.pair.0, self.pair.1].map(|one| u32::from(one == program));
        let is_of_pair = of_pair != [0; 2];
        let in_lanes = self.lanes.map(|one| u32::from(is_of_pair && one == lane));
        self.window.ended(now, program, [of_pair, in_lanes], took);
        let ends = self.window.ends.iter().chain(&self.window.ends_in_lanes);
        let enough = ends.min().is_some_and(|fewest| *fewest >= WINDOW_ENDS);
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
                self.gains_percent
                    .push(u64::try_from(gain).unwrap_or(u64::MAX));
            }
        }
        self.apart = !self.apart;
    }

    /// Whether they should run side by side, once it is known.
    fn verdict(&self) -> Option<bool> {
        let gains = &self.gains_percent;
        if gains.len() >= ROUNDS {
            let mut sorted = gains.clone();
            sorted.sort_unstable();
            return Some(sorted[sorted.len() / 2] >= WORTH_PERCENT);
        }
        let (more, less) = match gains.len() {
            ROUNDS_AGREED.. => (WORTH_PERCENT, WORTH_PERCENT - 1),
            ROUNDS_CLEAR.. => (CLEARLY_MORE_PERCENT, CLEARLY_LESS_PERCENT),
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
            ends_in_lanes: [0; 2],
            done: BTreeMap::new(),
        }
    }

    fn ended(
        &mut self,
        now: Time,
        program: Program,
        [of_pair, in_lanes]: [[u32; 2]; 2],
        took: Duration,
    ) {
        if self.left_over != [0; 2] {
            for (left, ended) in self.left_over.iter_mut().zip(of_pair) {
                *left = left.saturating_sub(ended);
            }
            if self.left_over == [0; 2] {
                self.since = now;
            }
            return;
        }
        let ends = self.ends.iter_mut().chain(&mut self.ends_in_lanes);
        for (ends, ended) in ends.zip(of_pair.into_iter().chain(in_lanes)) {
            *ends += ended;
        }
        if self.done.len() < PROGRAMS || self.done.contains_key(&program) {
            let (count, sum) = self.done.entry(program).or_default();
            *count += 1;
            *sum = *sum + took;
        }
    }

    /// The mean time of the program's iterations in this window.
    fn mean(&self, program: Program) -> Option<u64> {
        let (count, sum) = self.done.get(&program)?;
        Some(sum.0 / count)
    }

    /// What the iterations of another window would have taken in this one. A program that did not run
    /// in this one counts for what it took in the other.
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
    /// or two that interfere would not take turns.
    pub(super) fn first_without_interference(&self) -> Option<(Order, SessionId)> {
        let mut heads: Vec<Placed<'_>> = self.heads().collect();
        heads.sort_unstable_by_key(|head| head.order);
        let mut apart = Vec::new();
        for head in &heads {
            let keeps = |earlier: &&Placed<'_>| self.keeps_waiting(head, earlier);
            if self.waits_for_others(head) {
                apart.push(head);
            } else if !apart.iter().any(keeps) {
                return Some((head.order, head.waiting.session));
            }
        }
        None
    }

    /// Whether a lane's request may run beside what runs in others, by the same rule.
    pub(super) fn may_co_run(&self, lane: Lane, order: &Order, waiting: &Waiting) -> bool {
        if !self.queues.arrangement().co_runs {
            return true;
        }
        let request = Placed {
            lane,
            order: self.queues.among_all(lane, *order),
            waiting,
        };
        let mut earlier = self.heads().filter(|head| head.order < request.order);
        let keeps_waiting = |earlier: Placed<'_>| {
            self.waits_for_others(&earlier) && self.keeps_waiting(&request, &earlier)
        };
        !self.waits_for_others(&request) && !earlier.any(keeps_waiting)
    }

    /// Whether the request waits for others to end, because it would interfere with them. For one
    /// that would not fit even then, room is made first.
    fn waits_for_others(&self, request: &Placed<'_>) -> bool {
        let Some(program) = request.waiting.program else {
            return false;
        };
        let lanes = self.queues.lanes().iter().enumerate();
        let mut others =
            lanes.filter(|(lane, other)| *lane != request.lane.index() && other.in_flight() > 0);
        let interferes = |i: &Iteration| self.co_run.interfere(self.now, program, i.program);
        let waits = others.any(|(_, other)| other.iterations().any(interferes));
        waits && request.waiting.need(0) <= self.memory.without_arrays()
    }

    /// Whether an earlier request would have to wait for this one to end.
    fn keeps_waiting(&self, request: &Placed<'_>, earlier: &Placed<'_>) -> bool {
        let programs = request.waiting.program.zip(earlier.waiting.program);
        earlier.lane != request.lane
            && programs.is_some_and(|(one, other)| self.co_run.interfere(self.now, one, other))
    }

    /// What an iteration that ended tells about running beside others.
    pub(crate) fn learn_interference(&mut self, lane: Lane, program: Program, took: Duration) {
        if !self.queues.arrangement().co_runs {
            return;
        }
        if self.co_run.ended(self.now, lane, program, took) {
            self.queues.level_lanes();
        }
        let lanes = self.queues.lanes().iter().enumerate();
        let others = lanes.filter(|(index, _)| *index != lane.index());
        for (index, other) in others {
            if let Some(beside) = other.runs() {
                let lanes = [lane, Lane(index as u32)];
                self.co_run.met(self.now, lanes, program, beside);
            }
        }
    }
}
