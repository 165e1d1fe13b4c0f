//! Segments of shared memory that a job has announced, mapped into this process.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use salus_channel::Segment;
use salus_wire::{Region, SegmentId, limits};

use crate::device_host::memory::pins::{PinnedOnReuse, Pins};
use crate::device_host::memory::shared_range::{MappedSegment, SegmentUse, SharedRange};
use crate::device_host::session::frames::Breach;

pub(crate) struct JobSegments {
    announced: HashMap<SegmentId, Arc<MappedSegment>>,
    /// Cloned into each mapping, so that its count says how many there are: arrays keep a mapping after
    /// the job has taken the segment back, so the limit is on mappings.
    mapped: Arc<()>,
    /// For those that large transfers use again and again; `None` if the device has no use for it.
    pins: Option<Arc<Pins>>,
}

impl JobSegments {
    pub(crate) fn new(pins: Option<Arc<Pins>>) -> Self {
        Self {
            announced: HashMap::new(),
            mapped: Arc::default(),
            pins,
        }
    }

    /// Maps a segment that the job announces.
    pub(crate) fn map(
        &mut self,
        segment: salus_wire::Segment,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), Breach> {
        let (id, bytes) = (segment.id, segment.bytes);
        let descriptor = descriptor.ok_or_else(|| {
            Breach::Limit(format!(
                "the service has no descriptor left for segment {id} of the job's memory; end jobs, \
                 or start the service with a higher limit of open files (`ulimit -n`)"
            ))
        })?;
        if self.announced.contains_key(&id) {
            return Err(format!("segment {id} is announced twice").into());
        }
        // One count is that of `self.mapped`.
        let mapped = Arc::strong_count(&self.mapped) - 1;
        if mapped >= limits::SEGMENTS || bytes > limits::SEGMENT_BYTES {
            return Err(Breach::Limit(format!(
                "the job shares {mapped} pieces of memory with the service and wants one more, of \
                 {bytes} bytes; it may have {} of at most {} bytes",
                limits::SEGMENTS,
                limits::SEGMENT_BYTES
            )));
        }
        let opened = Segment::open(descriptor, bytes).map_err(|e| e.to_string())?;
        let memory = Arc::new(opened.into_parts().0);
        let used = SegmentUse {
            _mapped: Arc::clone(&self.mapped),
            pinned: PinnedOnReuse::default(),
        };
        self.announced.insert(id, Arc::new((memory, used)));
        Ok(())
    }

    /// The job has taken a segment back.
    pub(crate) fn forget(&mut self, id: SegmentId) {
        self.announced.remove(&id);
    }

    /// Checks a region that the job names.
    pub(crate) fn range(&self, region: Region) -> Result<SharedRange, String> {
        let segment = self
            .announced
            .get(&region.segment)
            .ok_or_else(|| format!("segment {} was never announced", region.segment))?;
        let range = SharedRange::of(segment, region);
        if let (Some(_), Some(pins)) = (&range, &self.pins) {
            let (memory, used) = &**segment;
            used.pinned.used(region.length, memory, pins);
        }
        range.ok_or_else(|| {
            format!(
                "{} bytes at {} are outside segment {} of {} bytes",
                region.length,
                region.offset,
                region.segment,
                segment.0.len()
            )
        })
    }
}
