//! The retry of a launch for which the device was out of memory although the ledger had room.
//!
//! The program is given more scratch than its compiler said, so that others are paged out for it:
//! this launch asks once more, and later ones of the program ask for it at once.

use salus_device::Device;

use super::Launch;
use crate::device_host::session::SessionThread;
use crate::log;

/// The least that a program is given beyond what was free when the device refused it.
const MORE_SCRATCH_BYTES: u64 = 1 << 20;

impl<D: Device> Launch<D> {
    /// Whether the launch may be retried; if so, its program asks for more memory from now on.
    pub(super) fn may_retry(&mut self, thread: &SessionThread<D>) -> bool {
        let Some(program) = self.program.as_ref().filter(|_| !self.is_retry) else {
            return false;
        };
        let (free, room) = thread.host.engine.look(|engine, _| {
            let ledger = engine.ledger();
            (ledger.free_bytes(), ledger.room().device_bytes)
        });
        let scratch = program.scratch_bytes();
        // What was free was not enough, and the arrays must still fit beside the scratch.
        let more = free + (scratch / 8).max(MORE_SCRATCH_BYTES);
        let more = more.min(room.saturating_sub(scratch + self.arrays_bytes));
        if more > 0 {
            log::warn(format_args!(
                "the device is out of memory for `{}`, although the ledger has {free} bytes free; \
                 the launch is retried with {more} bytes more",
                program.signature.name
            ));
            program.learn(more);
            self.is_retry = true;
        }
        self.is_retry
    }
}
