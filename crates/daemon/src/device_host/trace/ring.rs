//! Records in a ring: when it is full, the newest takes the place of the oldest.
//!
//! Whatever takes time is written when it ends, with its beginning, so that each record is whole
//! although those around it may be gone.
//!
//! Promise: the ring takes its memory page by page as it fills, and none after that.

use salus_engine::{Duration, Lane, Policy, Program, Refusal, SessionId, Time};

/// One record; small, because there are many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    Iteration(Iteration),
    /// A wait that led to no iteration.
    Waited {
        session: SessionId,
        ready: Time,
        until: Time,
        memory: Duration,
    },
    Moved {
        session: SessionId,
        /// To the host, and not back.
        out: bool,
        asked_bytes: u64,
        bytes: u64,
        began: Time,
        ended: Time,
    },
    Paused {
        session: SessionId,
        began: Time,
        ended: Time,
    },
    Compiled {
        session: SessionId,
        began: Time,
        ended: Time,
    },
    Refused {
        session: SessionId,
        at: Time,
        why: Refusal,
    },
    Ordered {
        at: Time,
        policy: Policy,
    },
    Memory(Memory),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Iteration {
    pub(super) session: SessionId,
    pub(super) program: Program,
    pub(super) lane: Lane,
    /// It has not ended yet.
    pub(super) runs: bool,
    pub(super) ready: Time,
    pub(super) started: Time,
    /// How long memory was lacking before it was started.
    pub(super) memory: Duration,
    pub(super) began: Time,
    pub(super) ended: Time,
}

/// What the ledger says from a time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Memory {
    pub(super) at: Time,
    pub(super) resident_bytes: u64,
    pub(super) paged_bytes: u64,
    pub(super) scratch_bytes: u64,
}

/// 4 MiB of them: a minute of iterations of a millisecond, ten of larger ones.
pub(super) const RECORDS: usize = 1 << 16;
const _: () = assert!(size_of::<Record>() <= 64);

pub(super) struct Ring {
    records: Vec<Record>,
    capacity: usize,
    /// How many were ever written: the number of the next.
    written: u64,
    /// The memory record that was overwritten last: what held when the oldest record was written.
    memory_before: Memory,
}

impl Ring {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            records: Vec::with_capacity(capacity),
            capacity,
            written: 0,
            memory_before: Memory::default(),
        }
    }

    pub(super) fn push(&mut self, record: Record) {
        if self.records.len() < self.capacity {
            self.records.push(record);
        } else {
            let place = (self.written % self.capacity as u64) as usize;
            let oldest = std::mem::replace(&mut self.records[place], record);
            if let Record::Memory(memory) = oldest {
                self.memory_before = memory;
            }
        }
        self.written += 1;
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The number of the oldest record that is still there.
    pub(super) fn oldest(&self) -> u64 {
        self.written - self.records.len() as u64
    }

    pub(super) fn memory_before(&self) -> Memory {
        self.memory_before
    }

    /// At most so many records from this number on, which must still be there.
    pub(super) fn some(&self, from: u64, most: usize) -> &[Record] {
        let place = (from % self.capacity as u64) as usize;
        let left = (self.written - from) as usize;
        let end = self.records.len().min(place + most.min(left));
        &self.records[place..end]
    }
}
