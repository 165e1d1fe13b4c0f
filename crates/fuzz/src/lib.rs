//! A fuzzer for `cargo test`: mutates seeds, holds a parser to its properties, repeats exactly.
//!
//! A target is a closure that panics where a property does not hold, and returns whether it
//! accepted its input. Accepted inputs are mutated further, so that a run moves away from its seeds
//! without becoming noise. A failing input is made smaller and printed in hexadecimal; saved among
//! the seeds, it is tried first from then on.
//!
//! A run is bounded by a count, not by time, and draws from a fixed seed: `SALUS_FUZZ_COUNT` and
//! `SALUS_SEED` make it longer and different. Fuzzers that follow coverage need a nightly
//! compiler; on a stable one they draw bytes by chance from another seed on every run, and bytes by
//! chance do not get past the first length of these formats.
//!
//! Promise: equal seeds, counts and code give equal runs, whatever the machine's load.
//! Cost: a mutation takes about a microsecond, the target the rest.
//! Not here: what is fuzzed. Each crate's `tests/` has its targets.

mod allocations;
mod mutate;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

use fastrand::Rng;

pub use allocations::peak_bytes;
pub use mutate::bytes as mutate_bytes;

/// Accepted inputs that are kept for further mutation. Enough for variety, few enough that each
/// is mutated many times in a run of some thousands.
const KEPT_MAX: usize = 64;
/// Inputs that grow beyond this are cut: long ones cost time and find nothing that short ones do not.
const INPUT_BYTES_MAX: usize = 1 << 14;
/// Inputs tried to make a failing one smaller.
const SHRINK_STEPS_MAX: usize = 20_000;

/// A way to change an input.
pub type Mutation = fn(&mut Rng, &mut Vec<u8>);

/// One run over one parser.
pub struct Fuzz {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    mutations: Vec<Mutation>,
    count: u64,
}

impl Fuzz {
    /// `count` inputs are tried unless `SALUS_FUZZ_COUNT` is another number.
    pub fn new(name: &'static str, count: u64) -> Self {
        Self {
            name,
            seeds: Vec::new(),
            mutations: vec![mutate::bytes],
            count: from_environment("SALUS_FUZZ_COUNT").unwrap_or(count),
        }
    }

    pub fn seed(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.seeds.push(bytes.into());
        self
    }

    /// Every file in a folder and its subfolders, except for Markdown.
    ///
    /// # Panics
    /// If there is none, because a target without seeds tests nothing.
    pub fn seeds_of(mut self, folder: impl AsRef<Path>) -> Self {
        let folder = folder.as_ref();
        let before = self.seeds.len();
        read_folder(folder, &mut self.seeds);
        let found = self.seeds.len() - before;
        assert!(found > 0, "no seeds in {}", folder.display());
        self
    }

    /// Changes inputs in this way as well, as often as in each other way.
    pub fn mutation(mut self, mutation: Mutation) -> Self {
        self.mutations.push(mutation);
        self
    }

    /// Tries the seeds, then mutations of them.
    ///
    /// # Panics
    /// If `target` panics; what it panicked with is shown for the smallest such input that was found.
    pub fn run(mut self, target: impl Fn(&[u8]) -> bool) {
        if self.seeds.is_empty() {
            self.seeds.push(Vec::new());
        }
        let number = from_environment("SALUS_SEED").unwrap_or(1);
        let mut random = Rng::with_seed(number);
        self.attempt(&[], number, 0, &target);
        for seed in &self.seeds {
            self.attempt(seed, number, 0, &target);
        }
        let mut kept: Vec<Vec<u8>> = Vec::new();
        let (mut accepted, began) = (0u64, Instant::now());
        for attempt in 1..=self.count {
            let from = match random.bool() {
                true if !kept.is_empty() => &kept,
                _ => &self.seeds,
            };
            let mut input = from[random.usize(..from.len())].clone();
            for _ in 0..random.u32(1..6) {
                let mutation = self.mutations[random.usize(..self.mutations.len())];
                mutation(&mut random, &mut input);
            }
            if random.u32(..8) == 0 {
                let other = &self.seeds[random.usize(..self.seeds.len())];
                mutate::splice(&mut random, &mut input, other);
            }
            input.truncate(INPUT_BYTES_MAX);
            if self.attempt(&input, number, attempt, &target) {
                accepted += 1;
                match kept.len() < KEPT_MAX {
                    true => kept.push(input),
                    false => kept[random.usize(..KEPT_MAX)] = input,
                }
            }
        }
        let (name, count, seconds) = (self.name, self.count, began.elapsed().as_secs_f64());
        let rate = count as f64 / seconds;
        eprintln!("{name}: {count} inputs, {accepted} accepted, {rate:.0} per second");
    }

    fn attempt(
        &self,
        input: &[u8],
        number: u64,
        attempt: u64,
        target: &impl Fn(&[u8]) -> bool,
    ) -> bool {
        if let Ok(accepted) = catch_unwind(AssertUnwindSafe(|| target(input))) {
            return accepted;
        }
        let small = shrink(input, target);
        let digits: String = small.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!(
            "`{}` fails at input {attempt} of SALUS_SEED={number}; made smaller ({} bytes):\n{digits}",
            self.name,
            small.len()
        );
        target(&small);
        panic!("`{}` fails for some runs of an input only", self.name);
    }
}

/// The smallest failing input that leaving out parts of `input` leads to.
fn shrink(input: &[u8], target: &impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut small = input.to_vec();
    let mut steps = 0;
    let mut part = small.len().div_ceil(2);
    while part > 0 && steps < SHRINK_STEPS_MAX {
        let mut at = 0;
        while at < small.len() && steps < SHRINK_STEPS_MAX {
            let end = small.len().min(at + part);
            let shorter = [&small[..at], &small[end..]].concat();
            steps += 1;
            match catch_unwind(AssertUnwindSafe(|| target(&shorter))) {
                Ok(_) => at += part,
                Err(_) => small = shorter,
            }
        }
        part /= 2;
    }
    std::panic::set_hook(hook);
    small
}

fn read_folder(folder: &Path, to: &mut Vec<Vec<u8>>) {
    let entries = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    // Listings come in any order, and a run is to be the same everywhere.
    paths.sort();
    for path in paths {
        if path.is_dir() {
            read_folder(&path, to);
        } else if path.extension().is_none_or(|ending| ending != "md") {
            let bytes = std::fs::read(&path)
                .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
            to.push(bytes);
        }
    }
}

/// A number in the environment, if one is there.
///
/// # Panics
/// If something else is there, because a run with another seed or count than asked for misleads.
pub fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}: expected a whole number, found `{text}`")))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn inputs(seed: &[u8]) -> Vec<Vec<u8>> {
        let tried = RefCell::new(Vec::new());
        Fuzz::new("inputs", 500).seed(seed).run(|input| {
            tried.borrow_mut().push(input.to_vec());
            input.len() % 2 == 0
        });
        tried.into_inner()
    }

    #[test]
    fn a_run_repeats_exactly() {
        let once = inputs(b"seed");
        assert_eq!(once, inputs(b"seed"));
        assert_ne!(once, inputs(b"other"));
    }

    #[test]
    fn a_failing_input_is_made_small() {
        let fails = |input: &[u8]| {
            assert!(!input.contains(&7) || !input.contains(&9));
            true
        };
        let noise: Vec<u8> = (0..=255).collect();
        let mut small = shrink(&noise, &fails);
        small.sort_unstable();
        assert_eq!(small, [7, 9]);
    }

    #[test]
    #[should_panic(expected = "found it")]
    fn what_a_target_panics_with_is_shown() {
        Fuzz::new("panics", 10_000).seed(b"abc").run(|input| {
            assert!(!input.starts_with(b"b"), "found it");
            false
        });
    }
}
