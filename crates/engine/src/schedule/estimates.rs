//! Estimates of device time: of a program's iterations, and of what a session still needs.
//!
//! The estimate for a program is the median of its last runs. What remains of a session is estimated
//! from its user's settings (a number of iterations, or device time), otherwise from the history of
//! earlier sessions with the same programs, otherwise not at all. A session that exceeds its estimate
//! is taken to need as much again as it has exceeded it by, and one that had twice as much, as long
//! again as it had: a wrong estimate costs others little (measured in `tests/policies`).
//!
//! Cost: O(log n) in the programs, which are at most [`PROGRAMS`].

use std::collections::BTreeMap;

use salus_wire::Work;

use crate::event::Program;
use crate::policies::las;
use crate::time::Duration;

/// Runs kept per program: an odd number, few enough to follow a change quickly.
const SAMPLES: usize = 9;
/// Programs of which runs are kept; the least recently run is forgotten first. It bounds memory.
const PROGRAMS: usize = 4096;
/// Programs counted per session; it bounds memory, and the main one is among the first.
const COUNTED: usize = 64;
/// How often a program must have run before it is taken for the session's iteration: what prepares
/// the work runs once or twice.
const REPEATED: u64 = 3;

/// What iterations of each program took.
#[derive(Debug, Default)]
pub struct Estimates {
    programs: BTreeMap<Program, Runs>,
    /// Programs by their last run, to forget the least recent.
    by_use: BTreeMap<u64, Program>,
    uses: u64,
}

#[derive(Debug)]
struct Runs {
    /// The last runs, in a ring.
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

/// What a session has run, from which its remaining device time is estimated.
#[derive(Debug, Default)]
pub(crate) struct SessionEstimate {
    counted: BTreeMap<Program, Counted>,
    /// What all its iterations took together.
    time: Duration,
    /// The program that has taken most of the session's time.
    main: Option<Program>,
    /// Device time used by earlier sessions with the same programs, if there were any.
    from_history: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    runs: u64,
    time: Duration,
}

impl SessionEstimate {
    pub(crate) fn set_history(&mut self, total: Duration) {
        self.from_history = Some(total);
    }

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
    pub(crate) fn remaining(&self, work: Option<Work>, attained: Duration) -> Option<Duration> {
        let total = match work {
            Some(Work::DeviceTime(total)) => Some(total.into()),
            Some(Work::Iterations(iterations)) => self.total_of(iterations.get()),
            None => None,
        };
        total
            .or(self.from_history)
            .map(|total| left_of(total, attained))
    }

    /// Device time of this many iterations, with all that runs around them.
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
