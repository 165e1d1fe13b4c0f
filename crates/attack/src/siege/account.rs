//! How long the device worked for the attackers, from the service's own record.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use salus_harness::Service;
use salus_wire::Recording;

use super::jobs::Job;

/// How often the record is read: often enough that none of it is forgotten before.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How far back it is read: further than to the last time, however late that was.
const RECORD_SECONDS: u32 = 10;

#[derive(Default)]
pub(super) struct Account {
    /// What had come together when it was looked.
    sums: Mutex<Vec<(Instant, Duration)>>,
}

impl Account {
    /// Adds up until the attack is over.
    pub(super) fn watch(&self, service: &Service, jobs: &[Job], over: &AtomicBool) {
        let mut seen_ns = None;
        let mut sum = Duration::ZERO;
        self.note(sum);
        loop {
            let last = over.load(Ordering::Relaxed);
            // What is not had counts for nothing, which makes the ratio larger and not smaller.
            if let Ok(recording) = service.recording(RECORD_SECONDS) {
                sum += attackers(&recording, jobs, seen_ns.unwrap_or(recording.until_ns));
                seen_ns = Some(recording.until_ns);
                self.note(sum);
            }
            if last {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn note(&self, sum: Duration) {
        if let Ok(mut sums) = self.sums.lock() {
            sums.push((Instant::now(), sum));
        }
    }

    pub(super) fn between(&self, began: Instant, ended: Instant) -> Duration {
        let sums = self
            .sums
            .lock()
            .map(|sums| sums.clone())
            .unwrap_or_default();
        let at = |time: Instant| {
            let after = sums.iter().position(|(when, _)| *when >= time);
            match after {
                None => sums.last().map_or(Duration::ZERO, |(_, sum)| *sum),
                Some(0) => sums[0].1,
                Some(after) => {
                    let ((from, low), (to, high)) = (sums[after - 1], sums[after]);
                    let part = (time - from).as_secs_f64() / (to - from).as_secs_f64().max(1e-9);
                    low + (high - low).mul_f64(part.clamp(0.0, 1.0))
                }
            }
        };
        at(ended).saturating_sub(at(began))
    }
}

/// Device time of sessions that are no job's, after `since_ns`.
fn attackers(recording: &Recording, jobs: &[Job], since_ns: u64) -> Duration {
    let good: BTreeSet<i32> = jobs
        .iter()
        .flat_map(|job| job.pids.lock().map(|pids| pids.clone()).unwrap_or_default())
        .collect();
    let good: BTreeSet<u64> = recording
        .sessions
        .iter()
        .filter(|session| good.contains(&session.pid))
        .map(|session| session.session)
        .collect();
    let time = recording
        .iterations
        .iter()
        .filter(|iteration| !good.contains(&iteration.session))
        .map(|iteration| {
            let (began, ended) = (iteration.began_ns.max(since_ns), iteration.ended_ns);
            ended.saturating_sub(began)
        });
    Duration::from_nanos(time.sum())
}
