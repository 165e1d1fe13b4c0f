//! The retry of a launch for which the device was out of memory although the ledger had room.
//!
//! It asks for more scratch than its program needs, so that others are paged out for it, and the program
//! is given more from now on, because later launches of it need it as much. A device that enqueues may be
//! short for reasons that are not the program's, as memory in pieces, and says only when the launch has
//! ended that it was: there the program is given less at once, and the launch is tried more often, with
//! more each time, the last time with all that there is.
//!
//! Where the program was kept from overwriting its arguments, which takes memory, it is allowed to in the
//! very last attempt: if that fails, too, they are lost with it.

use salus_device::Device;

use super::Launch;
use crate::device_host::session::SessionThread;

/// The least that a program is given beyond what was free when the device refused it.
const MORE_SCRATCH_BYTES: u64 = 1 << 20;
/// How often a launch is retried on a device that enqueues.
const RETRIES_MAX: u32 = 3;
/// One part in this many of the device is asked for by the second retry.
const SECOND_PART: u64 = 4;

impl<D: Device> Launch<D> {
    /// Whether the launch may be retried; if so, it asks for more memory from now on.
    pub(super) fn may_retry(&mut self, thread: &SessionThread<D>) -> bool {
        let most = match thread.host.device.description().on_host {
            true => 1,
            false => RETRIES_MAX,
        };
        let Some(program) = self.program.as_ref().filter(|_| self.tries < most) else {
            return self.gives_up_arguments();
        };
        let (free, room) = thread.free_and_room();
        let scratch = program.scratch_bytes();
        // What was free was not enough, and the arrays must still fit beside the scratch.
        let limit = room.saturating_sub(scratch + self.arrays_bytes);
        let step = (scratch / 8).max(MORE_SCRATCH_BYTES);
        // What it asked for before is its own until it goes back.
        let had = free.saturating_add(self.extra_bytes);
        let more = match self.tries {
            0 => had.saturating_add(step),
            1 => had.saturating_add(room / SECOND_PART),
            _ => limit,
        };
        let more = more.min(limit);
        if more == 0 || (self.tries > 0 && more <= self.extra_bytes) {
            return self.gives_up_arguments();
        }
        thread.host.notice(format_args!(
            "the device is out of memory for `{}`, although the ledger has {free} bytes free; \
             the launch is retried with {more} bytes more",
            program.signature.name
        ));
        if most == 1 {
            program.learn(more);
        } else {
            program.learn(step.min(more));
            self.extra_bytes = more.saturating_sub(step);
        }
        self.tries += 1;
        true
    }

    /// Whether it was the copies of donated arguments that there was no room for, perhaps: then it is
    /// tried without, for the last time.
    fn gives_up_arguments(&mut self) -> bool {
        let gives = std::mem::take(&mut self.keeps_for_retry);
        if gives {
            self.gives_at_last = true;
            // All that there is.
            self.extra_bytes = u64::MAX;
            self.keep.clone_from(&self.kept_by_job);
        }
        gives
    }
}

impl<D: Device> SessionThread<D> {
    /// What the ledger can give away now, and at all.
    pub(crate) fn free_and_room(&self) -> (u64, u64) {
        self.host.engine.look(|engine, _| {
            let ledger = engine.ledger();
            (ledger.free_bytes(), ledger.room().device_bytes)
        })
    }
}
