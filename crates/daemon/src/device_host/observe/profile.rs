//! Profiles: a job's profiler asks when the launches of its session ran.
//!
//! Promise: a job learns nothing of what others ran; however often it asks, others are not slowed.

use std::time::{Duration, Instant};

use salus_device::Device;
use salus_wire::{AskProfile, FromService, Profiled, Wire};

use crate::device_host::errors::resource_exhausted;
use crate::device_host::session::SessionThread;

/// Looking through a full ring holds the lock that every launch needs for half a millisecond: this
/// often, it costs others half a percent at most.
const REFILL_EVERY: Duration = Duration::from_millis(100);
/// A few short profiles one after another are usual.
const PROFILES_MAX: u32 = 20;
/// How long a profile waits for threads of the plugin that are telling of ends: microseconds, unless all cores
/// are busy.
const TELLING_MAX: Duration = Duration::from_millis(50);

/// How many profiles a session may ask for now.
pub(crate) struct Allowance {
    left: u32,
    refilled: Instant,
}

impl Allowance {
    pub(crate) fn full(now: Instant) -> Self {
        Self {
            left: PROFILES_MAX,
            refilled: now,
        }
    }

    /// Takes one; false if there is none.
    fn take(&mut self, now: Instant) -> bool {
        let times = now.duration_since(self.refilled).as_nanos() / REFILL_EVERY.as_nanos();
        let more = u32::try_from(times).unwrap_or(u32::MAX);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(PROFILES_MAX);
            self.refilled = now;
        }
        let some = self.left > 0;
        self.left = self.left.saturating_sub(1);
        some
    }
}

impl<D: Device> SessionThread<D> {
    pub(crate) fn answer_profile(&mut self, asked: &AskProfile) {
        let refused = |message: String| Profiled {
            request: asked.request,
            bytes: 0,
            error: Some(resource_exhausted(message)),
        };
        if !self.profiles.take(Instant::now()) {
            let message = format!(
                "more than {PROFILES_MAX} profiles were asked for at once; ask again in {} ms",
                REFILL_EVERY.as_millis()
            );
            return self.shared.send(&FromService::from(refused(message)), None);
        }
        // The job hears of an end before the engine does, and asks for what has ended.
        let began = Instant::now();
        while self.shared.is_telling_an_end() && began.elapsed() < TELLING_MAX {
            std::thread::yield_now();
        }
        let profile = self.host.engine.profile(self.shared.id, asked.since_ns);
        let mut data = Vec::new();
        profile.put(&mut data);
        let (message, blob) = match salus_channel::blob(&data) {
            Ok(blob) => {
                let profiled = Profiled {
                    request: asked.request,
                    bytes: data.len() as u64,
                    error: None,
                };
                (profiled, Some(blob))
            }
            Err(e) => {
                let bytes = data.len();
                let message = format!("there is no memory for a profile of {bytes} bytes: {e}");
                (refused(message), None)
            }
        };
        self.shared.send(&FromService::from(message), blob);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_held_back_and_a_pause_pays_for_more() {
        let begun = Instant::now();
        let mut allowance = Allowance::full(begun);
        let taken = (0..100).filter(|_| allowance.take(begun)).count();
        assert_eq!(taken, PROFILES_MAX as usize);
        assert!(!allowance.take(begun + REFILL_EVERY / 2));
        assert!(allowance.take(begun + REFILL_EVERY));
        assert!(!allowance.take(begun + REFILL_EVERY));
        let later = begun + REFILL_EVERY * 10_000;
        let taken = (0..100).filter(|_| allowance.take(later)).count();
        assert_eq!(taken, PROFILES_MAX as usize);
    }
}
