//! Chance with a seed: small, and the same everywhere.

use salus_engine::Duration;

use crate::scenario::Span;

#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix: a counter whose bits are mixed.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Anything from the span's low to its high end, each equally likely.
    pub(crate) fn within(&mut self, span: Span) -> Duration {
        let lengths = u128::from(span.high.0 - span.low.0) + 1;
        let drawn = (u128::from(self.next()) * lengths) >> 64;
        Duration(span.low.0 + drawn as u64)
    }

    /// A time between two independent events that are so far apart on average. Von Neumann's way:
    /// it only compares, so that no machine's logarithm is asked.
    pub(crate) fn exponential(&mut self, mean: Duration) -> Duration {
        let mut whole = 0u64;
        loop {
            let first = self.next();
            let (mut last, mut falling) = (first, 1u32);
            loop {
                let next = self.next();
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
        let span = Span {
            low: Duration(10),
            high: Duration(13),
            seed: 0,
        };
        let mut random = Random::new(7);
        let mut seen = [0; 4];
        for _ in 0..1000 {
            seen[(random.within(span).0 - 10) as usize] += 1;
        }
        assert!(seen.iter().all(|n| *n > 200), "{seen:?}");
    }
}
