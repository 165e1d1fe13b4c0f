//! The ledger's sums as they change, thinned: iterations change them too often to note each time.
//!
//! Promise: at most two records per [`GAP`]; sums that held for that long are recorded with their own
//! time.

use salus_engine::{Duration, Ledger, Time};

use super::ring::Memory;

/// 10 ms: a picture of ten seconds has a thousand columns.
pub(crate) const GAP: Duration = Duration(10_000_000);

#[derive(Debug, Default)]
pub(crate) struct Thinned {
    noted: Memory,
    /// The sums now, if they were not recorded.
    held: Option<Memory>,
}

impl Thinned {
    /// The sums now, if they were not recorded.
    pub(crate) fn held(&self) -> Option<Memory> {
        self.held
    }

    /// What to record now, in this order.
    pub(crate) fn look(&mut self, now: Time, ledger: &Ledger) -> [Option<Memory>; 2] {
        let memory = Memory {
            at: now,
            resident_bytes: ledger.resident_bytes(),
            paged_bytes: ledger.paged_bytes(),
            scratch_bytes: ledger.scratch_bytes(),
        };
        self.changed(memory)
    }

    fn changed(&mut self, memory: Memory) -> [Option<Memory>; 2] {
        let latest = self.held.unwrap_or(self.noted);
        let same = Memory {
            at: latest.at,
            ..memory
        };
        if same == latest {
            return [None, None];
        }
        if memory.at - self.noted.at < GAP {
            self.held = Some(memory);
            return [None, None];
        }
        // The sums until now are worth a record only if they held for long.
        let held = self.held.take();
        let held = held.filter(|held| memory.at - held.at >= GAP);
        self.noted = memory;
        [held, Some(memory)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(at_ms: u64, resident_bytes: u64) -> Memory {
        Memory {
            at: Time(at_ms * 1_000_000),
            resident_bytes,
            ..Memory::default()
        }
    }

    #[test]
    fn quick_changes_are_left_out_and_what_lasts_is_not() {
        let mut thinned = Thinned::default();
        let mut noted = Vec::new();
        let changes = [
            (20, 1),
            (21, 2),
            (22, 1),
            (23, 7),
            (90, 3),
            (91, 4),
            (99, 4),
            (101, 5),
        ];
        for (at_ms, bytes) in changes {
            noted.extend(thinned.changed(memory(at_ms, bytes)).into_iter().flatten());
        }
        let expected = [(20, 1), (23, 7), (90, 3), (91, 4), (101, 5)];
        // (91, 4) held for ten milliseconds, until (101, 5).
        assert_eq!(noted, expected.map(|(at, bytes)| memory(at, bytes)));
        assert_eq!(thinned.held(), None);
    }

    #[test]
    fn a_change_every_microsecond_makes_few_records() {
        let mut thinned = Thinned::default();
        let mut count = 0;
        for us in 0..1_000_000 {
            let mut memory = memory(0, us % 1000);
            memory.at = Time(us * 1000);
            count += thinned.changed(memory).into_iter().flatten().count();
        }
        assert!(count <= 200, "{count} in a second");
    }
}
