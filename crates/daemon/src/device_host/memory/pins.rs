//! Pinned host memory: registered with a device that has memory of its own, so that transfers from and
//! to it need no copy of the vendor's.
//!
//! The system cannot move or swap pinned memory, so there is a limit on it. Registering takes as long as
//! some copies: it is done for memory that is used again.
//!
//! Promise: what is pinned never exceeds the limit, and is unregistered before it is unmapped.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use salus_channel::Mapping;
use salus_device::{Device, Error, HostMemory, Registration};

use crate::log;

/// Less memory is not worth registering, and smaller transfers from and to it are not worth it.
const PINNED_BYTES_MIN: u64 = 1 << 20;

type Register = dyn Fn(Arc<dyn HostMemory>) -> Result<Option<Registration>, Error> + Send + Sync;

pub(crate) struct Pins {
    register: Box<Register>,
    bytes_max: u64,
    bytes: AtomicU64,
    /// The device cannot do it.
    given_up: AtomicBool,
}

/// Memory that is pinned until this is dropped.
pub(crate) struct Pin {
    registration: Option<Registration>,
    bytes: u64,
    pins: Arc<Pins>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        drop(self.registration.take());
        self.pins.bytes.fetch_sub(self.bytes, AcqRel);
    }
}

impl Pins {
    /// For a device, which may have no use for it.
    pub(crate) fn new<D: Device>(device: &Arc<D>, bytes_max: u64) -> Arc<Self> {
        let device = Arc::clone(device);
        let is_useful = !device.description().on_host;
        Arc::new(Self {
            register: Box::new(move |memory| device.register(memory)),
            bytes_max,
            bytes: AtomicU64::new(0),
            given_up: AtomicBool::new(!is_useful),
        })
    }

    /// Bytes that are pinned now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Acquire)
    }

    /// Pins memory. `None` if it is not worth it, there is too much already, or the device cannot.
    pub(crate) fn pin(self: &Arc<Self>, memory: &Arc<Mapping>) -> Option<Pin> {
        let bytes = memory.len() as u64;
        if bytes < PINNED_BYTES_MIN || self.given_up.load(Relaxed) {
            return None;
        }
        let fits = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        self.bytes.fetch_update(AcqRel, Acquire, fits).ok()?;
        let mut pin = Pin {
            registration: None,
            bytes,
            pins: Arc::clone(self),
        };
        match (self.register)(Arc::clone(memory) as Arc<dyn HostMemory>) {
            Ok(registration) => pin.registration = registration,
            Err(error) => log::warn(format_args!(
                "the device cannot register {bytes} bytes of host memory, so transfers are copied \
                 once more from now on: {error}"
            )),
        }
        if pin.registration.is_none() {
            self.given_up.store(true, Relaxed);
            return None;
        }
        Some(pin)
    }
}

/// A job's memory that is pinned when it is used a second time for a large transfer: most of it is
/// never used again.
#[derive(Default)]
pub(crate) struct PinnedOnReuse {
    transfers: AtomicU32,
    pin: OnceLock<Option<Pin>>,
}

impl PinnedOnReuse {
    /// This many bytes of the memory are about to be read or written by the device.
    pub(crate) fn used(&self, bytes: u64, memory: &Arc<Mapping>, pins: &Arc<Pins>) {
        if bytes >= PINNED_BYTES_MIN && self.transfers.fetch_add(1, Relaxed) == 1 {
            self.pin.get_or_init(|| pins.pin(memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use salus_channel::Segment;
    use salus_device::{Clock, ScriptedConfig, ScriptedDevice};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn device(on_host: bool) -> Arc<ScriptedDevice> {
        Arc::new(ScriptedDevice::open(&ScriptedConfig {
            lanes: 1,
            capacity_bytes: 1 << 20,
            clock: Clock::Manual,
            on_host,
        }))
    }

    fn memory(bytes: u64) -> Arc<Mapping> {
        let segment = Segment::create(bytes, false).expect("memory");
        Arc::new(segment.into_parts().0)
    }

    #[test]
    fn no_more_is_pinned_than_the_limit_and_all_is_unpinned() {
        let device = device(false);
        let pins = Pins::new(&device, 5 * MIB);
        let first = pins.pin(&memory(3 * MIB)).expect("there is room");
        assert!(pins.pin(&memory(3 * MIB)).is_none(), "6 of 5");
        assert!(pins.pin(&memory(MIB / 2)).is_none(), "not worth it");
        let second = pins.pin(&memory(2 * MIB)).expect("just as much as may be");
        assert_eq!(
            (pins.bytes(), device.registered().ranges.len()),
            (5 * MIB, 2)
        );
        drop(first);
        assert_eq!(pins.bytes(), 2 * MIB);
        drop(second);
        assert!(device.registered().ranges.is_empty());
        assert_eq!(device.registered().calls, 2);
    }

    #[test]
    fn a_jobs_memory_is_pinned_when_it_is_used_again() {
        let device = device(false);
        let pins = Pins::new(&device, 64 * MIB);
        let (memory, reuse) = (memory(4 * MIB), PinnedOnReuse::default());
        reuse.used(2 * MIB, &memory, &pins);
        reuse.used(1000, &memory, &pins);
        assert_eq!(pins.bytes(), 0);
        for _ in 0..3 {
            reuse.used(2 * MIB, &memory, &pins);
        }
        assert_eq!((pins.bytes(), device.registered().calls), (4 * MIB, 1));
        drop((reuse, memory));
        assert!(device.registered().ranges.is_empty());
    }

    #[test]
    fn where_memory_is_shared_nothing_is_pinned() {
        let device = device(true);
        let pins = Pins::new(&device, 64 * MIB);
        assert!(pins.pin(&memory(4 * MIB)).is_none());
        assert_eq!(device.registered().calls, 0);
    }
}
