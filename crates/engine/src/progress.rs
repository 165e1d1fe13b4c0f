//! What iterations take, and what a session still has before it: learned, not declared.
//!
//! The time of a program's iterations is the median of its last runs. What remains of a session is
//! known from its user (so many iterations, or so much time), else from what earlier sessions with
//! the same programs came to, else not at all. Whoever exceeds what was expected is taken to need as
//! much again as it has exceeded it by, and whoever had twice as much, as long again as it had: a
//! wrong estimate costs others little (measured in `tests/policies.rs`).

use std::collections::BTreeMap;

use crate::policies::las;
use crate::time::Duration;
use crate::{Program, Work};

/// Of each program's runs so many are kept.
const SAMPLES: usize = 9;
/// Programs of which runs are kept; the least recently run is forgotten first.
const PROGRAMS: usize = 4096;
/// Programs of one session that are counted.
const COUNTED: usize = 64;
/// So often a program must have run before it is taken for the session's iteration: what prepares
/// the work runs once or twice.
const REPEATED: u64 = 3;

/// What iterations took, by program.
#[derive(Debug, Default)]
pub struct Estimates {
    programs: BTreeMap<Program, Runs>,
    /// By last run, to forget the oldest.
    by_use: BTreeMap<u64, Program>,
    uses: u64,
}

#[derive(Debug)]
struct Runs {
    /// The last ones, in a ring.
    times: [Duration; SAMPLES],
    count: u64,
    last_use: u64,
}

impl Runs {
    fn quartile(&self, nth: usize) -> Duration {
        let mut times = self.times;
        let known = &mut times[..SAMPLES.min(self.count as usize)];
        known.sort_unstable();
        known[known.len() * nth / 4]
    }
}

impl Estimates {
    /// Median, and the spread between the lower and the upper quartile.
    pub fn of(&self, program: Program) -> Option<(Duration, Duration)> {
        let runs = self.programs.get(&program)?;
        let spread = Duration(runs.quartile(3).0 - runs.quartile(1).0);
        Some((runs.quartile(2), spread))
    }

    pub(crate) fn median(&self, program: Program) -> Option<Duration> {
        let runs = self.programs.get(&program)?;
        Some(runs.quartile(2))
    }

    pub(crate) fn ran(&mut self, program: Program, took: Duration) {
        self.uses += 1;
        let last_use = self.uses;
        let runs = self.programs.entry(program).or_insert_with(|| Runs {
            times: [Duration(0); SAMPLES],
            count: 0,
            last_use,
        });
        self.by_use.remove(&runs.last_use);
        runs.last_use = last_use;
        self.by_use.insert(last_use, program);
        runs.times[runs.count as usize % SAMPLES] = took;
        runs.count += 1;
        if self.programs.len() > PROGRAMS
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.programs.remove(&oldest);
        }
    }
}

/// What a session has done, and what was said of the rest.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    counted: BTreeMap<Program, Counted>,
    /// What all its iterations took.
    time: Duration,
    /// The program that has taken most of the session's time.
    main: Option<Program>,
    /// What sessions like it came to, if any were seen.
    pub(crate) recalled: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    runs: u64,
    time: Duration,
}

impl Progress {
    pub(crate) fn ran(&mut self, program: Program, took: Duration) {
        self.time = self.time + took;
        if self.counted.len() >= COUNTED && !self.counted.contains_key(&program) {
            return;
        }
        let counted = self.counted.entry(program).or_default();
        counted.runs += 1;
        counted.time = counted.time + took;
        let time = counted.time;
        if self.main_counted().is_none_or(|main| time >= main.time) {
            self.main = Some(program);
        }
    }

    fn main_counted(&self) -> Option<Counted> {
        self.counted.get(&self.main?).copied()
    }

    pub(crate) fn main(&self) -> Option<Program> {
        self.main
    }

    /// Device time that the session will still need.
    pub(crate) fn remaining(&self, wish: Option<Work>, attained: Duration) -> Option<Duration> {
        let total = match wish {
            Some(Work::Time(total)) => Some(total),
            Some(Work::Iterations(iterations)) => self.total_of(iterations),
            None => None,
        };
        total
            .or(self.recalled)
            .map(|total| left_of(total, attained))
    }

    /// What so many iterations come to, with all that runs around them.
    fn total_of(&self, iterations: u64) -> Option<Duration> {
        let main = self.main_counted().filter(|main| main.runs >= REPEATED)?;
        let each = self.time.0 / main.runs;
        Some(Duration(each.saturating_mul(iterations)))
    }
}

fn left_of(total: Duration, attained: Duration) -> Duration {
    let exceeded = attained.0.saturating_sub(total.0);
    let left = total.0.saturating_sub(attained.0);
    match exceeded {
        0 => Duration(left),
        // Not nothing, or it would be first of all the moment it proves wrong.
        _ if exceeded < total.0 => Duration(exceeded.max(total.0 / 8)),
        // In steps, or two of the kind would take turns at every iteration.
        _ => las::level(attained),
    }
}
