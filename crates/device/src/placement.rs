//! Where an array is, or will be: a memory of a lane.

use crate::failure::{INVALID_ARGUMENT, error};
use crate::{Description, Error};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    pub lane: u32,
    /// Index into the description's memories: every lane has all of them.
    pub memory: u32,
}

impl Placement {
    /// The default memory of a lane.
    pub fn default_in(lane: u32, description: &Description) -> Self {
        Self {
            lane,
            memory: description.default_memory,
        }
    }

    pub fn is_default(self, description: &Description) -> bool {
        self.memory == description.default_memory
    }

    /// Whether it is host memory that a device with memory of its own reads and writes, too.
    pub fn is_host(self, description: &Description) -> bool {
        is_host_memory(description, self.memory)
    }

    /// An error if the device has no such lane or memory.
    pub fn check(self, description: &Description) -> Result<(), Error> {
        let Self { lane, memory } = self;
        let (lanes, memories) = (description.lanes, description.memories.len());
        if lane >= lanes || memory as usize >= memories {
            return Err(error(
                INVALID_ARGUMENT,
                format!(
                    "there is no memory {memory} of lane {lane}; the device has {lanes} lanes of \
                     {memories} memories each"
                ),
            ));
        }
        Ok(())
    }
}

/// As PJRT names memories of the host.
const HOST_KINDS: [&str; 2] = ["pinned_host", "unpinned_host"];

/// Whether the device has memory of its own, and this one of its memories is the host's.
pub fn is_host_memory(description: &Description, memory: u32) -> bool {
    let is_host_kind = |memory: &crate::Memory| HOST_KINDS.contains(&memory.kind.as_str());
    !description.on_host
        && description
            .memories
            .get(memory as usize)
            .is_some_and(is_host_kind)
}
