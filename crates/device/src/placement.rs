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

    /// Its number among the memories of all lanes, lane by lane; an error if the device has no such
    /// lane or memory.
    pub fn number(self, description: &Description) -> Result<usize, Error> {
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
        Ok(lane as usize * memories + memory as usize)
    }
}
