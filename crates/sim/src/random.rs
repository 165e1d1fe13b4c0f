//! Chance with a seed.
//!
//! Promise: equal seeds give equal draws on every machine. Only 64-bit draws are used: `fastrand`
//! computes them alike everywhere. Its sequence may change with its version, which `Cargo.lock`
//! holds and a test below watches: if it changes, so do the expected reports.

use salus_engine::Duration;

use crate::scenario::Span;

#[derive(Debug)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Anything from the span's low to its high end, each equally likely.
    pub(crate) fn within(&mut self, span: Span) -> Duration {
        Duration(self.0.u64(span.low.0..=span.high.0))
    }

    /// A whole number below this one, each equally likely.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    /// A time between two independent events that are `mean` apart on average. Von Neumann's method:
    /// it only compares, because logarithms differ between machines.
    pub(crate) fn exponential(&mut self, mean: Duration) -> Duration {
        let mut whole = 0u64;
        loop {
            let first = self.0.u64(..);
            let (mut last, mut falling) = (first, 1u32);
            loop {
                let next = self.0.u64(..);
                if next >= last {
                    break;
                }
                last = next;
                falling += 1;
            }
            if falling % 2 == 1 {
                let part = (u128::from(mean.0) * u128::from(first)) >> 64;
                return Duration(mean.0.saturating_mul(whole).saturating_add(part as u64));
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span {
        low: Duration(10),
        high: Duration(13),
        seed: 0,
    };

    #[test]
    fn the_sequence_is_the_one_of_the_expected_reports() {
        let mut random = Random::new(7);
        let draws = [(); 4].map(|()| random.0.u64(..));
        let expected = [
            14_266_376_187_910_451_857,
            4_104_141_878_723_513_376,
            13_250_119_348_504_322_419,
            8_875_224_889_773_325_713,
        ];
        assert_eq!(draws, expected);
        let draws = [(); 8].map(|()| random.within(SPAN).0);
        assert_eq!(draws, [10, 10, 13, 10, 10, 11, 12, 10]);
    }

    #[test]
    fn independent_events_have_their_mean_and_their_spread() {
        let mut random = Random::new(3);
        let mut times: Vec<u64> = (0..20_000)
            .map(|_| random.exponential(Duration(1_000_000)).0)
            .collect();
        let mean = times.iter().sum::<u64>() / times.len() as u64;
        assert!(mean.abs_diff(1_000_000) < 30_000, "{mean}");
        // The median is the mean times ln 2.
        times.sort_unstable();
        let median = times[times.len() / 2];
        assert!(median.abs_diff(693_147) < 30_000, "{median}");
    }

    #[test]
    fn what_is_drawn_stays_within_its_bounds_and_reaches_them() {
        let mut random = Random::new(7);
        let mut seen = [0; 4];
        for _ in 0..1000 {
            seen[(random.within(SPAN).0 - 10) as usize] += 1;
        }
        assert!(seen.iter().all(|n| *n > 200), "{seen:?}");
    }
}
