//! From samples to a judgement.
//!
//! One pair of runs says nothing below 20 % on a shared machine, so everything here is about
//! medians of many rounds. How far a median may be off is found by the bootstrap: the rounds are
//! drawn again and again with replacement, and the middle 95 % of the statistic's values are its
//! interval. That also works for a quotient of medians, for which no table has a formula.
//!
//! Promise: the same samples give the same numbers; the random draws have a fixed seed.
//! Not here: where samples come from.

use fastrand::Rng;
use serde_json::{Value, json};

/// Below this the smallest and the largest sample hold the median with less than 95 % confidence,
/// so there is no interval.
pub(crate) const ROUNDS_MIN: usize = 6;
/// Draws per interval: enough that its ends move by less than they are printed with.
const DRAWS: usize = 2000;

/// The middle of some samples, and how they and it may vary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) p15: f64,
    pub(crate) p85: f64,
    pub(crate) interval: Interval,
}

/// A value and the interval that holds it with a confidence of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    Missed,
    /// The target is inside the interval: these samples cannot tell.
    WithinNoise,
    /// There is none: the number is for comparison.
    NoTarget,
    /// It did not run.
    Failed,
}

impl Verdict {
    /// Whether a value of at most `target` was shown.
    pub(crate) fn at_most(measured: Interval, target: f64) -> Self {
        if measured.high <= target {
            Self::Met
        } else if measured.low > target {
            Self::Missed
        } else {
            Self::WithinNoise
        }
    }

    /// What may be said if the machine was busy with something else: more processes get more of
    /// a machine that is fought for, so that the comparison is no longer one of equals.
    #[must_use]
    pub(crate) fn unless_busy(self, busy: bool) -> Self {
        if busy { Self::WithinNoise } else { self }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::WithinNoise => "within noise",
            Self::NoTarget => "no target",
            Self::Failed => "failed",
        }
    }
}

impl Interval {
    /// A value that was counted, not estimated.
    pub(crate) fn exact(value: f64) -> Self {
        Self {
            value,
            low: value,
            high: value,
        }
    }

    pub(crate) fn json(self) -> Value {
        json!({ "value": self.value, "ci95": [self.low, self.high] })
    }
}

impl Spread {
    pub(crate) fn of(samples: &[f64]) -> Self {
        let sorted = sorted(samples.iter().copied());
        Self {
            median: quantile(&sorted, 0.5),
            p15: quantile(&sorted, 0.15),
            p85: quantile(&sorted, 0.85),
            interval: estimate(samples.len(), |draw| {
                median(draw.iter().map(|&i| samples[i]))
            }),
        }
    }

    pub(crate) fn json(self) -> Value {
        json!({
            "median": self.median,
            "p15": self.p15,
            "p85": self.p85,
            "ci95": [self.interval.low, self.interval.high],
        })
    }
}

/// Ratios of Salus to direct beside those of direct to direct, round by round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) through: Spread,
    /// What the machine's noise alone makes of 1.
    pub(crate) floor: Spread,
    /// The first median over the second: what targets are about.
    pub(crate) quotient: Interval,
}

impl Comparison {
    /// Both have one ratio per round.
    pub(crate) fn of(through: &[f64], floor: &[f64]) -> Self {
        assert_eq!(through.len(), floor.len(), "both of the same rounds");
        let quotient = estimate(through.len(), |draw| {
            let middle = |ratios: &[f64]| median(draw.iter().map(|&i| ratios[i]));
            middle(through) / middle(floor)
        });
        Self {
            through: Spread::of(through),
            floor: Spread::of(floor),
            quotient,
        }
    }

    pub(crate) fn json(self) -> Value {
        json!({
            "salus_to_direct": self.through.json(),
            "direct_to_direct": self.floor.json(),
            "quotient": self.quotient.json(),
        })
    }
}

/// A statistic over `rounds` rounds with its interval. `statistic` is given the indices of the
/// rounds that it shall be computed from, some of them several times.
pub(crate) fn estimate(rounds: usize, statistic: impl Fn(&[usize]) -> f64) -> Interval {
    let all: Vec<usize> = (0..rounds).collect();
    let value = statistic(&all);
    if rounds < ROUNDS_MIN {
        return Interval {
            value,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
        };
    }
    let mut random = Rng::with_seed(0x5a1_0b5);
    let mut draw = all;
    let values = sorted((0..DRAWS).map(|_| {
        for index in &mut draw {
            *index = random.usize(..rounds);
        }
        statistic(&draw)
    }));
    Interval {
        value,
        low: quantile(&values, 0.025),
        high: quantile(&values, 0.975),
    }
}

/// NaN of nothing.
pub(crate) fn median(samples: impl Iterator<Item = f64>) -> f64 {
    quantile(&sorted(samples), 0.5)
}

/// The value below which the share `q` of the samples is.
pub(crate) fn quantile_of(samples: &[f64], q: f64) -> f64 {
    quantile(&sorted(samples.iter().copied()), q)
}

fn sorted(samples: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The value below which the share `q` of the sorted samples is; between two of them, a straight
/// line.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = q * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

pub(crate) fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

pub(crate) fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

pub(crate) fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples around `centre`, evenly up to ± `width`.
    fn noisy(centre: f64, width: f64, count: usize, seed: u64) -> Vec<f64> {
        let mut random = Rng::with_seed(seed);
        (0..count)
            .map(|_| centre + width * (2.0 * random.f64() - 1.0))
            .collect()
    }

    #[test]
    fn medians_and_quantiles() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
        assert!(median([].into_iter()).is_nan());
        assert_eq!(quantile(&[7.0], 0.85), 7.0);
        assert_eq!(quantile(&[0.0, 10.0], 0.15), 1.5);
    }

    #[test]
    fn one_outlier_moves_nothing() {
        let mut samples = noisy(1.0, 0.01, 41, 1);
        samples.push(50.0);
        let spread = Spread::of(&samples);
        assert!((spread.median - 1.0).abs() < 0.005, "{spread:?}");
        assert!(spread.interval.high < 1.01, "{spread:?}");
    }

    #[test]
    fn intervals_narrow_with_the_number_of_rounds() {
        let width = |rounds| {
            let interval = Spread::of(&noisy(1.0, 0.2, rounds, 2)).interval;
            interval.high - interval.low
        };
        assert!(width(240) < width(60) && width(60) < width(12));
    }

    #[test]
    fn intervals_hold_the_true_median_about_as_often_as_promised() {
        let held = (0..200).filter(|&seed| {
            let interval = Spread::of(&noisy(1.0, 0.2, 40, 100 + seed)).interval;
            (interval.low..=interval.high).contains(&1.0)
        });
        let held = held.count();
        assert!((175..=200).contains(&held), "{held} of 200");
    }

    #[test]
    fn a_quotient_is_free_of_what_both_ratios_share() {
        // In each round the first direct block was slow or fast, which moves both ratios.
        let shared = noisy(1.0, 0.2, 60, 3);
        let ratios = |factor: f64| shared.iter().map(|s| factor / s).collect::<Vec<_>>();
        let quotient = Comparison::of(&ratios(1.03), &ratios(1.0)).quotient;
        assert!((quotient.value - 1.03).abs() < 1e-9, "{quotient:?}");
        assert!((quotient.high - quotient.low) < 1e-9, "{quotient:?}");
    }

    #[test]
    fn verdicts() {
        let interval = |low, high| Interval {
            value: (low + high) / 2.0,
            low,
            high,
        };
        for (low, high, verdict) in [
            (0.98, 1.02, Verdict::Met),
            (1.021, 1.05, Verdict::Missed),
            (1.01, 1.03, Verdict::WithinNoise),
            (1.02, 1.03, Verdict::WithinNoise),
        ] {
            assert_eq!(Verdict::at_most(interval(low, high), 1.02), verdict);
        }
        assert_eq!(Verdict::at_most(Interval::exact(2.0), 2.0), Verdict::Met);
        let unknown = Interval::exact(f64::NAN);
        assert_eq!(Verdict::at_most(unknown, 2.0), Verdict::WithinNoise);
    }

    #[test]
    fn few_rounds_decide_nothing() {
        let same = [0.9; ROUNDS_MIN];
        let verdict = |rounds: usize| Verdict::at_most(Spread::of(&same[..rounds]).interval, 1.0);
        assert_eq!(verdict(ROUNDS_MIN - 1), Verdict::WithinNoise);
        assert_eq!(verdict(ROUNDS_MIN), Verdict::Met);
        assert_eq!(Verdict::Met.unless_busy(true), Verdict::WithinNoise);
        assert_eq!(Verdict::Missed.unless_busy(false), Verdict::Missed);
    }

    #[test]
    fn the_same_samples_give_the_same_interval() {
        let samples = noisy(1.0, 0.2, 30, 5);
        assert_eq!(Spread::of(&samples), Spread::of(&samples));
    }
}
