//! The ledger against reality.
//!
//! On the CPU device arrays and scratch are memory of this process: its anonymous pages, but for
//! arrays that lie in segments. What it holds beyond what the ledger says, since the device was
//! opened, is the drift: kernels' own buffers, packed weights, what the heap keeps. The headroom is
//! there for it; a larger one is logged and shown.
//!
//! A device that reports its memory is asked instead, and its peak also teaches what scratch a
//! program takes that its compiler does not count.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use salus_device::Device;

use crate::log;

pub(crate) struct Reality {
    source: Source,
    /// What was held when the device had just been opened.
    before_bytes: u64,
    headroom_bytes: u64,
    /// Of the device's peak, what neither ledger nor headroom explain and no program has learned.
    unexplained_bytes: AtomicU64,
    /// A drift is logged once until it is gone.
    told: AtomicBool,
}

enum Source {
    Device,
    Process,
    None,
}

impl Reality {
    pub(super) fn new(device: &impl Device, headroom_bytes: u64) -> Self {
        let source = match (device.memory_use(), device.description().on_host) {
            (Some(_), _) => Source::Device,
            (None, true) => Source::Process,
            (None, false) => Source::None,
        };
        let mut reality = Self {
            source,
            before_bytes: 0,
            headroom_bytes,
            unexplained_bytes: AtomicU64::new(0),
            told: AtomicBool::new(false),
        };
        reality.before_bytes = reality.held_bytes(device).unwrap_or(0);
        reality
    }

    fn held_bytes(&self, device: &impl Device) -> Option<u64> {
        match self.source {
            Source::Device => device.memory_use().map(|usage| usage.bytes),
            Source::Process => anonymous_bytes(),
            Source::None => None,
        }
    }

    /// What a program that ended just now has taken beyond what was thought: what the device's peak
    /// has grown by and `known_peak`, the ledger's, has not.
    pub(super) fn surprise_bytes(
        &self,
        device: &impl Device,
        known_peak: impl FnOnce() -> u64,
    ) -> u64 {
        if !matches!(self.source, Source::Device) {
            return 0;
        }
        let peak = device.memory_use().map_or(0, |usage| usage.peak_bytes);
        let explained = self.before_bytes + known_peak() + self.headroom_bytes;
        let unexplained = peak.saturating_sub(explained);
        let before = self.unexplained_bytes.fetch_max(unexplained, Relaxed);
        unexplained.saturating_sub(before)
    }

    /// Bytes held beyond the `known` ones, which are the ledger's; `None` where nobody tells.
    pub(super) fn drift_bytes(&self, device: &impl Device, known: u64) -> Option<u64> {
        let held = self.held_bytes(device)?.saturating_sub(self.before_bytes);
        let drift = held.saturating_sub(known);
        let is_large = drift > self.headroom_bytes;
        if is_large && !self.told.swap(true, Relaxed) {
            log::warn(format_args!(
                "the device host holds {drift} bytes more than the ledger says, and the headroom is \
                 {} bytes; `salus serve --memory` leaves more to the rest of the machine",
                self.headroom_bytes
            ));
        }
        if !is_large {
            self.told.store(false, Relaxed);
        }
        Some(drift)
    }
}

/// Anonymous memory of this process that is in use.
fn anonymous_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
