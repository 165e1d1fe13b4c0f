//! Whether the device has the memory that a launch needs, asked before it is handed over.
//!
//! A device that enqueues says that it is out of memory when the launch has ended, and by then donated
//! arguments are gone. So what its allocator reports is compared with what the launch needs, under the
//! lane's lock. Where it is too little although the ledger had room, because memory is in use that the
//! ledger does not know of, or in pieces, the launch is not handed over: it asks the engine for that much
//! more, for which others are paged out, a few times. So does one that would be given arguments to overwrite
//! and fits only if the free pieces happen to be right; it then keeps its arguments. If it is the session's
//! own arrays that divide the memory, they are moved to the host and back. What cannot fit in the end is refused, with its arguments as they were; where that depends on scratch which was learned and not
//! said by the compiler, the device decides.
//!
//! Arrays that were reserved by others and are not allocated yet are not in what the allocator reports. What
//! is short because of them is what the retry is for (`retry.rs`).

use salus_device::{Device, MemoryUse, is_host_memory};
use salus_units::Bytes;
use salus_wire::Error;

use super::Launch;
use crate::device_host::errors::resource_exhausted;
use crate::device_host::programs::Program;
use crate::device_host::session::SessionThread;

/// How often a launch asks for more because of what the allocator reports.
const ASKS_MAX: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Whatever the allocator does. Or nothing is known.
    Yes,
    /// If the free pieces happen to be right. It does surely if there is so much more in one.
    Perhaps {
        short_bytes: u64,
    },
    No {
        short_bytes: u64,
    },
}

/// The most that an allocator leaves unused of a block that it does not divide: XLA's for GPUs gives a
/// request the whole of a free block unless as much as the request, or as this, would be left.
const WASTE_BYTES: u64 = 128 << 20;
/// On a small device less: it is this part of one.
const WASTE_PART: u64 = 64;

/// What a launch allocates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Need {
    /// Not empty ones.
    pieces: Vec<u64>,
}

impl Need {
    fn of(pieces: impl Iterator<Item = u64>) -> Self {
        Self {
            pieces: pieces.filter(|bytes| *bytes > 0).collect(),
        }
    }

    fn bytes(&self) -> u64 {
        self.pieces.iter().sum()
    }

    fn largest(&self) -> u64 {
        self.pieces.iter().copied().max().unwrap_or(0)
    }

    /// The size of a free block from which all pieces can surely be taken.
    fn in_one_block(&self, limit: u64) -> u64 {
        let waste = WASTE_BYTES.min(limit / WASTE_PART);
        match self.pieces[..] {
            [] => 0,
            [only] => only,
            _ => self
                .pieces
                .iter()
                .map(|bytes| bytes + waste.min(*bytes))
                .sum(),
        }
    }
}

fn fit(need: &Need, memory: MemoryUse) -> Fit {
    let Some(limit) = memory.limit_bytes else {
        return Fit::Yes;
    };
    let free = limit.saturating_sub(memory.bytes);
    if need.bytes() > free {
        let short_bytes = need.bytes() - free;
        return Fit::No { short_bytes };
    }
    let Some(block) = memory.largest_free_block else {
        return Fit::Yes;
    };
    // What the allocator has not taken of the device yet it can take in one piece.
    let untaken = memory
        .pool_bytes
        .map_or(0, |pool| limit.saturating_sub(pool));
    let piece = block.max(untaken);
    let wanted = need.in_one_block(limit);
    if wanted <= piece {
        Fit::Yes
    } else if need.largest() <= piece {
        let short_bytes = wanted - piece;
        Fit::Perhaps { short_bytes }
    } else {
        let short_bytes = need.largest() - piece;
        Fit::No { short_bytes }
    }
}

impl<D: Device> Launch<D> {
    /// Whether the device has room for the launch, by its own account.
    pub(super) fn fits(&self, thread: &SessionThread<D>, program: &Program<D>) -> Fit {
        if thread.host.device.description().on_host {
            return Fit::Yes;
        }
        let need = self.need(thread, program, program.scratch_bytes());
        let now = thread.host.device.memory_use();
        now.map_or(Fit::Yes, |now| fit(&need, now))
    }

    fn need(&self, thread: &SessionThread<D>, program: &Program<D>, scratch_bytes: u64) -> Need {
        let description = thread.host.device.description();
        let outputs = program.signature.outputs.iter().zip(&program.output_bytes);
        let new = outputs.filter(|(output, _)| {
            !self.takes_over(output.aliases) && !is_host_memory(description, output.memory)
        });
        Need::of(new.map(|(_, &bytes)| bytes).chain([scratch_bytes]))
    }

    /// An error if the launch cannot fit even by what its compiler said.
    pub(super) fn check_fit(
        &self,
        thread: &SessionThread<D>,
        program: &Program<D>,
    ) -> Result<(), Error> {
        let Some(now) = thread.host.device.memory_use() else {
            return Ok(());
        };
        let need = self.need(thread, program, program.said_scratch_bytes());
        if !matches!(fit(&need, now), Fit::No { .. }) {
            return Ok(());
        }
        let free = now.limit_bytes.unwrap_or(0).saturating_sub(now.bytes);
        let pieces = now.largest_free_block.map_or_else(String::new, |block| {
            format!(" in pieces of up to {:.2}", Bytes(block))
        });
        let message = format!(
            "`{}` needs {:.2} of the device, {:.2} in one piece, and {:.2} are free{pieces}, with all others \
             paged out that could be",
            program.signature.name,
            Bytes(need.bytes()),
            Bytes(need.largest()),
            Bytes(free),
        );
        Err(resource_exhausted(message).hint(
            "something beside the service's jobs may use the device; `salus serve --memory` has the \
             service count on less, and other allocators of the vendor divide memory less",
        ))
    }

    /// Whether the launch should go back to ask for more memory, given how it fits now. One that gives
    /// arguments away must fit surely, or else keep them.
    pub(super) fn wants_more(
        &mut self,
        thread: &SessionThread<D>,
        program: &Program<D>,
        fit: Fit,
    ) -> bool {
        let gives = self.gives_to_device(program);
        match fit {
            Fit::Yes => false,
            Fit::No { short_bytes } => self.asks_for(thread, program, short_bytes),
            Fit::Perhaps { short_bytes } if gives => {
                self.asks_for(thread, program, short_bytes) || self.keeps_from_now_on()
            }
            Fit::Perhaps { .. } => false,
        }
    }

    /// At last: moves the session's own arrays to host pages and back, because they may be what divides
    /// the memory.
    pub(super) fn moves_arrays_aside(&mut self, thread: &mut SessionThread<D>) -> bool {
        if std::mem::replace(&mut self.has_moved_arrays, true) {
            return false;
        }
        let moved = thread.move_aside();
        if moved {
            thread.host.notice(format_args!(
                "{}: its arrays are moved to the host and back, because free memory is in pieces",
                thread.shared.id
            ));
        }
        moved
    }

    /// The first time: it is not given its arguments when it comes again, if there is room.
    fn keeps_from_now_on(&mut self) -> bool {
        !self.gives_at_last && !std::mem::replace(&mut self.must_keep, true)
    }

    /// Whether the launch asks the engine for what the device is short of; if so, others are paged out
    /// for it.
    fn asks_for(
        &mut self,
        thread: &SessionThread<D>,
        program: &Program<D>,
        short_bytes: u64,
    ) -> bool {
        if self.asks >= ASKS_MAX || self.is_unfulfillable {
            return false;
        }
        self.asks += 1;
        let (free, room) = thread.free_and_room();
        // What is free in the ledger alone is not enough, with what it asked for before, which is its own
        // until it goes back; pieces that are given back need not be neighbours, so more is asked for each
        // time.
        let had = free.saturating_add(self.extra_bytes);
        let more = had.saturating_add(short_bytes.saturating_mul(u64::from(self.asks)));
        let most = room.saturating_sub(program.scratch_bytes() + self.arrays_bytes);
        let more = more.min(most);
        if more <= self.extra_bytes {
            return false;
        }
        self.extra_bytes = more;
        thread.host.notice(format_args!(
            "the device is {:.2} short of what `{}` needs, although the ledger has {:.2} free; others are \
             paged out for it",
            Bytes(short_bytes),
            program.signature.name,
            Bytes(free)
        ));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(used: u64, block: Option<u64>, pool: Option<u64>) -> MemoryUse {
        MemoryUse {
            bytes: used,
            peak_bytes: used,
            limit_bytes: Some(1000),
            pool_bytes: pool,
            largest_free_block: block,
        }
    }

    #[test]
    fn a_launch_fits_by_what_is_free_and_by_its_pieces() {
        let need = &Need::of([300, 0, 200].into_iter());
        assert_eq!(fit(need, memory(400, None, None)), Fit::Yes);
        assert_eq!(
            fit(need, memory(600, None, None)),
            Fit::No { short_bytes: 100 }
        );
        // The allocator may waste a sixty-fourth of the device with each piece: 15 bytes.
        assert_eq!(fit(need, memory(400, Some(530), None)), Fit::Yes);
        assert_eq!(
            fit(need, memory(400, Some(500), None)),
            Fit::Perhaps { short_bytes: 30 }
        );
        assert_eq!(
            fit(need, memory(400, Some(250), None)),
            Fit::No { short_bytes: 50 }
        );
        let only = &Need::of([300].into_iter());
        assert_eq!(fit(only, memory(400, Some(300), None)), Fit::Yes);
        // A pool that can grow.
        assert_eq!(fit(need, memory(400, Some(10), Some(470))), Fit::Yes);
        assert_eq!(
            fit(need, memory(400, Some(10), Some(1000))),
            Fit::No { short_bytes: 290 }
        );
        let silent = MemoryUse {
            bytes: 900,
            ..MemoryUse::default()
        };
        assert_eq!(fit(need, silent), Fit::Yes);
    }
}
