//! A step whose result is read each time: the time that Salus adds, in round trips of a bare
//! socket.
//!
//! The bare round trip is a fourth part of every round, measured between this process and an echo.
//! What a round trip costs depends on what the cores did before it and on whether a second one takes
//! part (measurements on virtual machines differ eightfold), so it is taken under four conditions:
//! after a pause as long as the step, as a job waits while the device works, wherever the system
//! places the two ends; the same with the ends on two cores; after as much work; and in a tight loop.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use salus_daemon::config::Problem;
use serde_json::{Value, json};

use crate::contenders::helper_processes::{PING_BYTES, start_echo};
use crate::contenders::{AGAIN, DIRECT, Reference, SALUS, SIDES};
use crate::measure::rounds::Rounds;
use crate::measure::statistics::{Spread, Verdict, estimate, median};
use crate::report::{Finding, microseconds, ratio};
use crate::rows::ratio_rows::NAMES;
use crate::rows::row_table::Row;
use crate::rows::run::Run;

/// The part of a round after those of the sides.
const PING: usize = SIDES;
/// The mean, not the median of a block: a loop's speed is the mean, and so is what a slow round
/// trip now and then costs.
const STEP: &str = "step_us";

/// Which round trip a target counts in: both come after a pause as long as the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundTrip {
    /// The system chooses cores for the two ends: often the same one, which wakes none.
    AsPlaced,
    /// The ends run on two cores, and wake the other's.
    AcrossCores,
}

impl RoundTrip {
    fn key(self) -> &'static str {
        match self {
            Self::AsPlaced => "pause_us",
            Self::AcrossCores => "apart_us",
        }
    }
}

/// An echo that does not answer within this never will.
const ANSWER_TIME: Duration = Duration::from_secs(10);

pub(crate) fn measure(
    run: &mut Run<'_>,
    row: &'static Row,
    target: f64,
    unit: RoundTrip,
) -> Result<Vec<Finding>, Problem> {
    let (block, count) = (run.pace.block(), run.pace.rounds(row));
    let warm = run.pace.warm();
    let mut echo = Echo::start()?;
    let (sides, progress) = run.sides()?;
    let prepared = sides.prepare(row.name, warm)?;
    let first = sides.block(DIRECT, row.name, block)?;
    let mut step = Duration::from_secs_f64(first[STEP].as_f64().unwrap_or(0.0).max(0.0) / 1e6);
    let rounds = Rounds::take(
        count,
        SIDES + 1,
        |done| progress.rounds(done, count),
        |part| {
            if part == PING {
                return echo.block(block, step);
            }
            let sample = sides.block(part, row.name, block)?;
            if let (DIRECT, Some(us)) = (part, sample[STEP].as_f64()) {
                step = Duration::from_secs_f64(us / 1e6);
            }
            Ok(sample)
        },
    )?;
    sides.drop_row(row.name)?;
    let reference = run.reference;
    Ok(vec![finding(
        row, target, unit, reference, &rounds, &prepared,
    )?])
}

fn finding(
    row: &'static Row,
    target: f64,
    unit: RoundTrip,
    reference: Reference,
    rounds: &Rounds,
    prepared: &Value,
) -> Result<Finding, Problem> {
    let differences = |part: usize| -> Result<Vec<f64>, Problem> {
        let (one, direct) = (rounds.column(part, STEP)?, rounds.column(DIRECT, STEP)?);
        Ok(one.iter().zip(&direct).map(|(a, b)| a - b).collect())
    };
    let (added, floor) = (differences(SALUS)?, differences(AGAIN)?);
    let trips = rounds.column(PING, unit.key())?;
    let in_trips = estimate(trips.len(), |draw| {
        let middle = |column: &[f64]| median(draw.iter().map(|&i| column[i]));
        (middle(&added) - middle(&floor)) / middle(&trips)
    });
    let direct_us = median(rounds.column(DIRECT, STEP)?.into_iter());
    let salus_us = median(rounds.column(SALUS, STEP)?.into_iter());
    let (added, floor, trip) = (Spread::of(&added), Spread::of(&floor), Spread::of(&trips));
    let other =
        |key: &str| -> Result<f64, Problem> { Ok(median(rounds.column(PING, key)?.into_iter())) };
    let (tight_us, busy_us) = (other("tight_us")?, other("busy_us")?);
    let pause_us = other(RoundTrip::AsPlaced.key())?;
    let apart_us = other(RoundTrip::AcrossCores.key())?;
    let name = reference.name();
    let mut names = NAMES.to_vec();
    names.push("round_trip");
    Ok(Finding {
        measured: ratio(in_trips),
        floor: format!("{:.2}", floor.median / trip.median),
        target: format!("≤ {target}"),
        verdict: Verdict::at_most(in_trips, target).unless_busy(rounds.busy()),
        detail: format!(
            "{name} {}, Salus {}, which adds {} (p15–p85 {:.0}–{:.0}), {name}/{name} {}; \
             round trip {} after a pause as long, {} across two cores, {} after as much work, {} in \
             a tight loop; {}",
            microseconds(direct_us),
            microseconds(salus_us),
            microseconds(added.median),
            added.p15,
            added.p85,
            microseconds(floor.median),
            microseconds(pause_us),
            microseconds(apart_us),
            microseconds(busy_us),
            microseconds(tight_us),
            rounds.remark(),
        ),
        numbers: json!({
            "unit": "round trips",
            "target": target,
            "measured": in_trips.json(),
            "direct_us": direct_us,
            "salus_us": salus_us,
            "salus_added_us": added.json(),
            "direct_added_us": floor.json(),
            "round_trip_us": {
                "counted": trip.json(),
                "pause": pause_us,
                "apart": apart_us,
                "busy": busy_us,
                "tight": tight_us,
            },
            "arguments": prepared["arguments"],
            "rounds": rounds.json(&names),
        }),
        ..Finding::of(row)
    })
}

/// A process that sends back what it gets.
struct Echo {
    child: Child,
    socket: UnixStream,
}

impl Echo {
    fn start() -> Result<Self, Problem> {
        let started = start_echo().and_then(|(child, socket)| {
            socket.set_read_timeout(Some(ANSWER_TIME))?;
            Ok(Self { child, socket })
        });
        started.map_err(|e| Problem::new(format!("the echo cannot be started: {e}")))
    }

    /// Half of `time` for pings with pauses, and a quarter more across cores; a quarter each for the
    /// other conditions.
    fn block(&mut self, time: Duration, step: Duration) -> Result<Value, Problem> {
        let mut measure = || -> io::Result<Value> {
            // Untimed: the echo's first answer after a long sleep is no example.
            self.pings(time / 10, || {})?;
            let pause = self.pings(time / 2, || std::thread::sleep(step))?;
            let apart = self.across_cores(|echo| {
                echo.pings(time / 10, || {})?;
                echo.pings(time / 4, || std::thread::sleep(step))
            })?;
            let busy = self.pings(time / 4, || {
                let begin = Instant::now();
                while begin.elapsed() < step {
                    std::hint::spin_loop();
                }
            })?;
            let tight = self.pings(time / 4, || {})?;
            Ok(json!({
                (RoundTrip::AsPlaced.key()): mean(&pause),
                (RoundTrip::AcrossCores.key()): mean(&apart),
                "pause_median_us": median(pause.iter().copied()),
                "busy_us": mean(&busy),
                "tight_us": mean(&tight),
                "pings": pause.len(),
            }))
        };
        measure().map_err(|e| Problem::new(format!("the echo does not answer: {e}")))
    }

    /// Runs something with the echo and this thread on two cores, if there are two.
    fn across_cores<T>(&mut self, body: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        let echo = Pid::from_child(&self.child);
        let allowed = sched_getaffinity(None)?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        if let (Some(one), Some(other)) = (cores.next(), cores.next()) {
            let only = |core| {
                let mut set = CpuSet::new();
                set.set(core);
                set
            };
            sched_setaffinity(None, &only(one))?;
            sched_setaffinity(Some(echo), &only(other))?;
        }
        let outcome = body(self);
        sched_setaffinity(None, &allowed)?;
        sched_setaffinity(Some(echo), &allowed)?;
        outcome
    }

    /// Round trips in µs, each after whatever comes `between`.
    fn pings(&mut self, time: Duration, between: impl Fn()) -> io::Result<Vec<f64>> {
        let mut trips = Vec::new();
        let mut ping = [0; PING_BYTES];
        let end = Instant::now() + time;
        while trips.is_empty() || Instant::now() < end {
            between();
            let sent = Instant::now();
            self.socket.write_all(&ping)?;
            self.socket.read_exact(&mut ping)?;
            trips.push(sent.elapsed().as_secs_f64() * 1e6);
        }
        Ok(trips)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
