//! Who may share the device: iterations of two lanes side by side, where that helps.
//!
//! For two programs, what an iteration takes is measured while the other lane runs the other program
//! and while it runs nothing. Side by side they do, in the time in which one of them alone would do
//! one iteration, `alone ÷ together` of each: where those add up to less than one and a bit, they
//! hinder each other and run one at a time. They are tried together first, then apart until both
//! were measured; a verdict is looked into again after [`REMEMBERED`], because what else runs on the
//! machine changes, too.
//!
//! Promise: of two programs, most iterations run the way that was faster when it was measured last.
//! Cost: O(log n) in the pairs, which are at most [`PAIRS`].

use std::collections::BTreeMap;

use crate::Program;
use crate::time::{Duration, Time};

/// What side by side must gain to be worth it, in hundredths of doing one after the other.
const WORTH: u64 = 105;
/// Iterations of each that are measured together, and then apart.
const MEASURED: u32 = 6;
const REMEMBERED: Duration = Duration(30_000_000_000);
const PAIRS: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Pairing {
    pairs: BTreeMap<(Program, Program), Pair>,
}

#[derive(Debug, Default)]
struct Pair {
    /// Of the program that comes first in the pair, and of the other.
    measured: [Measured; 2],
    verdict: Option<Verdict>,
}

#[derive(Debug, Clone, Copy)]
struct Verdict {
    together: bool,
    until: Time,
}

#[derive(Debug, Default)]
struct Measured {
    together: Mean,
    alone: Mean,
}

#[derive(Debug, Default)]
struct Mean {
    count: u32,
    sum: Duration,
}

impl Mean {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.sum = self.sum + time;
    }

    fn enough(&self) -> bool {
        self.count >= MEASURED
    }

    fn mean(&self) -> u64 {
        self.sum.0 / u64::from(self.count.max(1))
    }
}

fn key(one: Program, other: Program) -> (Program, Program) {
    (one.min(other), one.max(other))
}

impl Pairing {
    /// Whether an iteration of `one` may start while another lane runs `other`.
    pub(crate) fn together(&self, now: Time, one: Program, other: Program) -> bool {
        let Some(pair) = self.pairs.get(&key(one, other)) else {
            return true;
        };
        match pair.verdict {
            Some(verdict) if now < verdict.until => verdict.together,
            Some(_) => true,
            None => !pair.measured.iter().all(|m| m.together.enough()),
        }
    }

    /// An iteration of `program` ran while another lane ran `other` all the time.
    pub(crate) fn ran_together(
        &mut self,
        now: Time,
        program: Program,
        other: Program,
        took: Duration,
    ) {
        if self.pairs.len() >= PAIRS && !self.pairs.contains_key(&key(program, other)) {
            self.pairs.pop_first();
        }
        let pair = self.pairs.entry(key(program, other)).or_default();
        if pair.verdict.is_some_and(|verdict| now >= verdict.until) {
            *pair = Pair::default();
        }
        let side = usize::from(program > other);
        pair.measured[side].together.add(took);
        if program == other {
            pair.measured[1].together.add(took);
        }
        pair.judge(now);
    }

    /// An iteration of `program` ran while no other lane ran anything, and `other` waits.
    pub(crate) fn ran_alone(
        &mut self,
        now: Time,
        program: Program,
        other: Program,
        took: Duration,
    ) {
        if let Some(pair) = self.pairs.get_mut(&key(program, other)) {
            let side = usize::from(program > other);
            pair.measured[side].alone.add(took);
            if program == other {
                pair.measured[1].alone.add(took);
            }
            pair.judge(now);
        }
    }
}

impl Pair {
    fn judge(&mut self, now: Time) {
        let known = |m: &Measured| m.together.enough() && m.alone.enough();
        if self.verdict.is_some() || !self.measured.iter().all(known) {
            return;
        }
        let speed = |m: &Measured| 100 * m.alone.mean() / m.together.mean().max(1);
        let gain: u64 = self.measured.iter().map(speed).sum();
        self.verdict = Some(Verdict {
            together: gain >= WORTH,
            until: now + REMEMBERED,
        });
    }
}
