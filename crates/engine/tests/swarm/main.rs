//! A swarm of jobs: each seed draws the policy and the shape of the device and of the jobs, which
//! grow, idle, shrink, are resized, paused and misjudged, change their settings, hold what cannot be
//! moved, call back, and die at any point. The policy changes, too.
//!
//! The simulation checks after every event what must always hold (safety). Every request must be
//! answered within a bound that the engine's promises imply, and when all jobs have left, nothing may
//! be left of them (liveness). Where the jobs fall silent instead, nobody may wait who could be
//! served. Besides seeds that are always the same, some are run that were never run before. A failure
//! prints its seed: `SALUS_SEED=N cargo test -p salus-engine --test swarm` runs it alone.

mod asking;
mod bounds;
mod jobs;
mod swarm;

use salus_engine::Duration;

use swarm::Swarm;

/// Seeds that are the same every time.
const FIXED_SEEDS: u64 = 4_000;
/// Seeds that differ every time.
const FRESH_SEEDS: u64 = 400;

fn run(seed: u64, silent_after: Option<u64>, separate: bool) -> Swarm {
    let mut swarm = Swarm::new(seed, silent_after, separate);
    swarm.run();
    swarm
}

fn run_or_print_seed(seed: u64, silent_after: Option<u64>, separate: bool) -> Swarm {
    let once = std::panic::catch_unwind(|| run(seed, silent_after, separate));
    once.unwrap_or_else(|panic| {
        eprintln!("the swarm fails with SALUS_SEED={seed}");
        std::panic::resume_unwind(panic)
    })
}

/// The one that was asked for, or the fixed ones and some fresh ones.
fn seeds(fixed: u64) -> impl Iterator<Item = u64> {
    #[expect(clippy::disallowed_methods, reason = "a failed seed is run alone")]
    let one = std::env::var("SALUS_SEED").ok();
    let (fixed, fresh) = match one.as_deref().map(str::parse) {
        Some(Ok(seed)) => (seed..seed + 1, 0..0),
        Some(Err(_)) => panic!("SALUS_SEED is a whole number"),
        None => {
            let first = fastrand::u64(fixed..u64::MAX / 2);
            let fresh = first..first + FRESH_SEEDS;
            eprintln!(
                "fresh seeds: SALUS_SEED={} to {}",
                fresh.start,
                fresh.end - 1
            );
            (0..fixed, fresh)
        }
    };
    fixed.chain(fresh)
}

#[test]
fn a_swarm_of_jobs_is_served_safely_and_in_bounded_time() {
    let (mut starts, mut callbacks, mut moved, mut longest) = (0, 0, 0, 0);
    for seed in seeds(FIXED_SEEDS) {
        let swarm = run_or_print_seed(seed, None, false);
        if seed % 50 == 0 {
            let again = run(seed, None, false);
            assert_eq!(
                again.digest, swarm.digest,
                "SALUS_SEED={seed} runs two ways"
            );
        }
        starts += swarm.starts;
        callbacks += swarm.callbacks;
        moved += swarm.moved_bytes;
        longest = longest.max(swarm.longest_wait_ns);
    }
    let longest = Duration(longest);
    assert!(starts > 0 && callbacks > 0);
    eprintln!(
        "{starts} starts, {callbacks} callbacks, {moved} bytes moved, longest wait {longest:?}"
    );
}

#[test]
fn when_the_jobs_fall_silent_nobody_waits_who_could_be_served() {
    for seed in seeds(2 * FIXED_SEEDS) {
        run_or_print_seed(seed, Some(20 + seed % 300), false);
    }
}

#[test]
fn the_same_holds_on_a_device_with_memory_of_its_own() {
    let mut pages_in = 0;
    for seed in seeds(FIXED_SEEDS / 2) {
        pages_in += run_or_print_seed(seed, None, true).pages_in;
        run_or_print_seed(seed, Some(20 + seed % 300), true);
    }
    assert!(pages_in > 0, "nobody was paged in ahead of its turn");
}
