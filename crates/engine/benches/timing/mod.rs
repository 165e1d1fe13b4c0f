//! How the benches measure: the median of batches, at several numbers of sessions.

use std::time::Instant;

/// Batches that are measured; the median of this many is steady to a few percent.
const BATCHES: u64 = 400;

/// The numbers of sessions, and how many batches are measured at each.
pub(crate) fn sizes() -> (&'static [u64], u64) {
    // Without `--bench` it runs as a test, which is over at once.
    match std::env::args().any(|arg| arg == "--bench") {
        true => (&[10, 100, 1_000, 10_000, 100_000], BATCHES),
        false => (&[10, 100], 2),
    }
}

/// What a step takes, in ns: the median of the batches. Steps of a batch are timed together, because
/// reading the clock takes time as well.
pub(crate) fn median_ns(batches: u64, batch: u64, mut step: impl FnMut()) -> f64 {
    let mut times: Vec<u128> = Vec::new();
    for _ in 0..batches {
        let start = Instant::now();
        for _ in 0..batch {
            step();
        }
        times.push(start.elapsed().as_nanos());
    }
    times.sort_unstable();
    times[times.len() / 2] as f64 / batch as f64
}
