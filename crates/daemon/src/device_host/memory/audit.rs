//! Audit: compares the ledger with what the device itself says is in use.
//!
//! On the CPU device arrays and scratch are memory of this process: its anonymous pages, except for
//! arrays in segments. What the process has allocated since the device was opened, beyond what the
//! ledger says, is the drift: kernels' own buffers, packed weights, what the heap keeps. The headroom
//! is meant for it; a drift beyond the headroom is logged and shown.
//!
//! A device that reports its memory is asked instead. Its peak also shows how much scratch a program
//! needs that its compiler does not report.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use salus_device::Device;

use crate::log;

pub(crate) struct Audit {
    source: Source,
    /// In use when the device had just been opened.
    before_bytes: u64,
    headroom_bytes: u64,
    /// The part of the device's peak that neither ledger nor headroom explain and that was not yet
    /// attributed to a program.
    unexplained_bytes: AtomicU64,
    /// Whether the drift was logged: once, until it is gone.
    logged: AtomicBool,
}

enum Source {
    Device,
    Process,
    None,
}

impl Audit {
    pub(crate) fn new(device: &impl Device, headroom_bytes: u64) -> Self {
        let source = match (device.memory_use(), device.description().on_host) {
            (Some(_), _) => Source::Device,
            (None, true) => Source::Process,
            (None, false) => Source::None,
        };
        let mut audit = Self {
            source,
            before_bytes: 0,
            headroom_bytes,
            unexplained_bytes: AtomicU64::new(0),
            logged: AtomicBool::new(false),
        };
        audit.before_bytes = audit.used_bytes(device).unwrap_or(0);
        audit
    }

    fn used_bytes(&self, device: &impl Device) -> Option<u64> {
        match self.source {
            Source::Device => device.memory_use().map(|usage| usage.bytes),
            Source::Process => anonymous_bytes(),
            Source::None => None,
        }
    }

    /// What a program that ended just now used beyond its estimate: by how much the device's peak
    /// has grown and `known_peak`, the ledger's, has not.
    pub(crate) fn unexpected_bytes(
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

    /// Bytes in use beyond the `known` ones, which are the ledger's; `None` if there is no way to know.
    pub(crate) fn drift_bytes(&self, device: &impl Device, known: u64) -> Option<u64> {
        let used = self.used_bytes(device)?.saturating_sub(self.before_bytes);
        let drift = used.saturating_sub(known);
        let is_large = drift > self.headroom_bytes;
        if is_large && !self.logged.swap(true, Relaxed) {
            log::warn(format_args!(
                "the device host uses {drift} bytes more than the ledger says, and the headroom is \
                 {} bytes; `salus serve --memory` leaves more to the rest of the machine",
                self.headroom_bytes
            ));
        }
        if !is_large {
            self.logged.store(false, Relaxed);
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
