//! A trial: a scenario's run with times in ms, and jobs that are drawn at random.

use fastrand::Rng;
use salus_engine::{Policy, Time};
use salus_sim::{Run, Scenario};

/// Iterations of a job that does not end within any trial.
pub(crate) const ENDLESS: u64 = 50_000;
/// A request that has waited for this long goes before all others, in ms.
pub(crate) const AGING_LIMIT: u64 = salus_engine::AGING_LIMIT.0 / 1_000_000;
/// When jobs that [`all_at_once`] lets come have the device for themselves, in ms.
pub(crate) const ALL_THERE: u64 = 100_200;

pub(crate) fn ms(n: u64) -> Time {
    Time(n * 1_000_000)
}

pub(crate) fn parse(text: &str) -> Scenario {
    Scenario::parse(text).unwrap_or_else(|problem| panic!("{problem}\n{text}"))
}

pub(crate) fn start(text: &str) -> Run {
    Run::recorded(&parse(text))
}

pub(crate) trait Trial {
    fn until_ms(&mut self, ms: u64) -> &mut Self;
    /// When the job's last iteration ended.
    fn done_at(&self, job: &str) -> u64;
    /// When its first iteration began.
    fn began_at(&self, job: &str) -> u64;
    fn used_ms(&self, job: &str, from: u64, to: u64) -> u64;
    fn longest_wait_ms(&self, job: &str) -> u64;
    /// For how long the first two lanes worked at once, in hundredths of the time.
    fn overlap(&self, from: u64, to: u64) -> u64;
}

impl Trial for Run {
    fn until_ms(&mut self, n: u64) -> &mut Self {
        self.until(ms(n))
    }

    fn done_at(&self, job: &str) -> u64 {
        self.finished_at(job).expect("it ended").0 / 1_000_000
    }

    fn began_at(&self, job: &str) -> u64 {
        let first = self.history_of(job).next();
        first.expect("it ran").began.0 / 1_000_000
    }

    fn used_ms(&self, job: &str, from: u64, to: u64) -> u64 {
        self.used(job, ms(from), ms(to)).0 / 1_000_000
    }

    fn longest_wait_ms(&self, job: &str) -> u64 {
        assert!(self.history_of(job).next().is_some(), "{job} ran");
        self.longest_wait(job).0.div_ceil(1_000_000)
    }

    fn overlap(&self, from: u64, to: u64) -> u64 {
        let runs = |lane: u32| self.history().iter().filter(move |ran| ran.lane.0 == lane);
        let both = runs(0).flat_map(|one| {
            let beside = move |other| one.time_beside(other, ms(from), ms(to)).0;
            runs(1).map(beside)
        });
        both.sum::<u64>() / 10_000 / (to - from)
    }
}

/// The lines of jobs that become ready while two iterations of another one run: all are there when
/// it is decided which is next, and what each of their programs takes is known. `jobs` are what
/// stands behind their names, `j0`, `j1`, …; `lengths` what stands for their iterations' length.
pub(crate) fn all_at_once(policy: Policy, jobs: &[(String, String)]) -> Run {
    let mut text = format!("policy {}\n", policy.name());
    // Before the others, so that their programs are known.
    for (nth, (length, _)) in jobs.iter().enumerate() {
        text.push_str(&format!("before{nth}: 3 x {length}\n"));
    }
    text.push_str("first: from 100s, 2 x 100ms\n");
    for (nth, (length, rest)) in jobs.iter().enumerate() {
        let from = arrives_at(nth);
        text.push_str(&format!("j{nth}: from {from}ms, {rest} x {length}\n"));
    }
    let mut scenario = parse(&text);
    for nth in 0..jobs.len() {
        scenario.share_program(&format!("j{nth}"), &format!("before{nth}"));
    }
    Run::recorded(&scenario)
}

/// In ms: before the first of the two iterations has ended.
pub(crate) fn arrives_at(nth: usize) -> u64 {
    let at = 100_012 + 12 * nth as u64;
    assert!(at < 100_100, "too many jobs");
    at
}

/// What stands for how long iterations take.
pub(crate) fn length(random: &mut Rng, from_ms: u64, to_ms: u64) -> (u64, String) {
    let length = random.u64(from_ms..to_ms);
    (length, format!("{length}ms"))
}
