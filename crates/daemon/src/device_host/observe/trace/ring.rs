//! Records in a ring: when it is full, the newest takes the place of the oldest.
//!
//! What takes time is recorded when it ends, with its beginning, so that each record is complete
//! although those around it may be gone.
//!
//! Promise: the ring takes its memory page by page as it fills, and none after that.

use salus_engine::{Duration, Lane, Policy, Program, Refusal, SessionId, Time};

/// One record; small, because there are many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
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
        /// Paged out; otherwise paged in.
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
    PolicyChanged {
        at: Time,
        policy: Policy,
    },
    Memory(Memory),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Iteration {
    pub(crate) session: SessionId,
    pub(crate) program: Program,
    pub(crate) lane: Lane,
    /// It has not ended yet.
    pub(crate) runs: bool,
    /// Since the launch before, its host has waited for something.
    pub(crate) reads: bool,
    pub(crate) ready: Time,
    pub(crate) started: Time,
    /// How long it waited for memory before it was started.
    pub(crate) memory: Duration,
    pub(crate) began: Time,
    pub(crate) ended: Time,
}

/// The ledger's sums from a time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Memory {
    pub(crate) at: Time,
    pub(crate) resident_bytes: u64,
    pub(crate) paged_bytes: u64,
    pub(crate) scratch_bytes: u64,
}

/// 4 MiB of them: a minute of iterations of a millisecond, ten of larger ones.
pub(crate) const RECORDS: usize = 1 << 16;
const _: () = assert!(size_of::<Record>() <= 64);

pub(crate) struct Ring {
    records: Vec<Record>,
    capacity: usize,
    /// How many records were ever written, which is the number of the next.
    written: u64,
    /// The memory record that was overwritten last: what held when the oldest record was written.
    memory_before: Memory,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            records: Vec::with_capacity(capacity),
            capacity,
            written: 0,
            memory_before: Memory::default(),
        }
    }

    pub(crate) fn push(&mut self, record: Record) {
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

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// The number of the oldest record that is still there.
    pub(crate) fn oldest(&self) -> u64 {
        self.written - self.records.len() as u64
    }

    pub(crate) fn memory_before(&self) -> Memory {
        self.memory_before
    }

    /// At most `most` records from number `from` on, which must still be there.
    pub(crate) fn some(&self, from: u64, most: usize) -> &[Record] {
        let place = (from % self.capacity as u64) as usize;
        let left = (self.written - from) as usize;
        let end = self.records.len().min(place + most.min(left));
        &self.records[place..end]
    }
}
