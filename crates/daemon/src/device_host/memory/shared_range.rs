//! A range of a job's segment, as a frame names it.
//!
//! Promise: the range is inside the segment, and stays mapped as long as the value lives, also after
//! the job has taken the segment back. The job may write to it at any time.

use std::sync::Arc;

use salus_channel::{HostBytes, HostMemory, Mapping, Part};
use salus_wire::Region;

use crate::device_host::memory::pins::PinnedOnReuse;

/// The memory of a segment, and what is known of it.
pub(crate) type MappedSegment = (Arc<Mapping>, SegmentUse);

pub(crate) struct SegmentUse {
    /// Counts the mappings of its session: arrays keep them after the job has taken the segment back.
    pub(crate) _mapped: Arc<()>,
    pub(crate) pinned: PinnedOnReuse,
}

#[derive(Clone)]
pub(crate) struct SharedRange {
    memory: Part<MappedSegment>,
    region: Region,
}

impl SharedRange {
    /// `None` if the region is not inside the segment.
    pub(crate) fn of(segment: &Arc<MappedSegment>, region: Region) -> Option<Self> {
        let memory = Part::of(segment, region.offset, region.length)?;
        Some(Self { memory, region })
    }

    pub(crate) fn region(&self) -> Region {
        self.region
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn bytes(&self) -> HostBytes<'_> {
        self.memory.bytes()
    }

    /// For the device.
    pub(crate) fn memory(&self) -> impl HostMemory + use<> {
        self.memory.clone()
    }
}
