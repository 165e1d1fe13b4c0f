//! The ledger against reality.
//!
//! On the CPU device arrays and scratch are memory of this process: its anonymous pages, but for
//! arrays that lie in segments. What it holds beyond what the ledger says, since the device was
//! opened, is the drift: kernels' own buffers, packed weights, what the heap keeps. The headroom is
//! there for it; a larger one is logged and shown.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// What the process held when the device had just been opened.
pub(crate) struct Reality {
    before_bytes: Option<u64>,
    headroom_bytes: u64,
    /// A drift is logged once until it is gone.
    told: AtomicBool,
}

impl Reality {
    pub(super) fn new(on_host: bool, headroom_bytes: u64) -> Self {
        Self {
            before_bytes: on_host.then(anonymous_bytes).flatten(),
            headroom_bytes,
            told: AtomicBool::new(false),
        }
    }

    /// Bytes held beyond the `known` ones, which are the ledger's; `None` where the device does not tell.
    pub(super) fn drift_bytes(&self, known: u64) -> Option<u64> {
        let held = anonymous_bytes()?.saturating_sub(self.before_bytes?);
        let drift = held.saturating_sub(known);
        let is_large = drift > self.headroom_bytes;
        if is_large && !self.told.swap(true, Relaxed) {
            eprintln!(
                "salus device host: it holds {drift} bytes more than the ledger says, and the \
                 headroom is {} bytes; `salus serve --memory` leaves more to the rest of the machine",
                self.headroom_bytes
            );
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
