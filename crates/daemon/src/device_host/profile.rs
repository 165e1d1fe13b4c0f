//! A job's profiler asks when the launches of its session ran.
//!
//! Promise: what others ran is not told; however often a job asks, others are not slowed by it.

use std::time::{Duration, Instant};

use salus_device::Device;
use salus_wire::{AskProfile, Error, FromService, Profiled, Wire};

use super::operations::{Operations, RESOURCE_EXHAUSTED};

/// Looking through a full ring takes half a millisecond of a lock that every launch needs, so that
/// this often costs others half a percent at most.
const APART: Duration = Duration::from_millis(100);
/// Short profiles one after another are no flood.
const AT_ONCE: u32 = 20;

/// How many profiles a session may ask for.
pub(super) struct Allowance {
    left: u32,
    refilled: Instant,
}

impl Allowance {
    pub(super) fn full(now: Instant) -> Self {
        Self {
            left: AT_ONCE,
            refilled: now,
        }
    }

    /// Takes one; false if there is none.
    fn take(&mut self, now: Instant) -> bool {
        let times = now.duration_since(self.refilled).as_nanos() / APART.as_nanos();
        let more = u32::try_from(times).unwrap_or(u32::MAX);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(AT_ONCE);
            self.refilled = now;
        }
        let some = self.left > 0;
        self.left = self.left.saturating_sub(1);
        some
    }
}

impl<D: Device> Operations<D> {
    pub(super) fn answer_profile(&mut self, asked: &AskProfile) {
        let refused = |message: String| Profiled {
            request: asked.request,
            bytes: 0,
            error: Some(Error {
                code: RESOURCE_EXHAUSTED,
                message,
            }),
        };
        if !self.profiles.take(Instant::now()) {
            let message = format!(
                "more than {AT_ONCE} profiles were asked for at once; ask again in {} ms",
                APART.as_millis()
            );
            return self
                .session
                .send(&FromService::from(refused(message)), None);
        }
        let profile = self
            .host
            .scheduling
            .profile(self.session.id, asked.since_ns);
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
        self.session.send(&FromService::from(message), blob);
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
        assert_eq!(taken, AT_ONCE as usize);
        assert!(!allowance.take(begun + APART / 2));
        assert!(allowance.take(begun + APART));
        assert!(!allowance.take(begun + APART));
        let later = begun + APART * 10_000;
        let taken = (0..100).filter(|_| allowance.take(later)).count();
        assert_eq!(taken, AT_ONCE as usize);
    }
}
