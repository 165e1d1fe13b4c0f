//! Host memory that is registered with the scripted device.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use salus_channel::lock;

use crate::failure::{INVALID_ARGUMENT, error};
use crate::{Error, HostBytes, HostMemory, Registration};

/// What is registered now, and what was.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Lengths by address.
    pub ranges: BTreeMap<usize, usize>,
    pub calls: u64,
    /// The most bytes at once.
    pub peak_bytes: usize,
}

struct Range {
    all: Arc<Mutex<Registered>>,
    memory: Arc<dyn HostMemory>,
}

impl Drop for Range {
    fn drop(&mut self) {
        let start = HostBytes::of(&*self.memory).as_ptr().addr();
        lock(&self.all).ranges.remove(&start);
    }
}

/// Refuses memory of which a part is registered already, as a vendor does.
pub(super) fn register(
    all: &Arc<Mutex<Registered>>,
    memory: Arc<dyn HostMemory>,
) -> Result<Registration, Error> {
    let bytes = HostBytes::of(&*memory);
    let (start, len) = (bytes.as_ptr().addr(), bytes.len());
    let mut registered = lock(all);
    let mut ranges = registered.ranges.iter();
    if ranges.any(|(other, bytes)| *other < start + len && start < other + bytes) {
        return Err(error(INVALID_ARGUMENT, "the memory is registered already"));
    }
    registered.ranges.insert(start, len);
    registered.calls += 1;
    let bytes = registered.ranges.values().sum();
    registered.peak_bytes = registered.peak_bytes.max(bytes);
    drop(registered);
    let all = Arc::clone(all);
    Ok(Box::new(Range { all, memory }))
}
