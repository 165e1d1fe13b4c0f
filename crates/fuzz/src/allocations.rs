//! Counts what a thread allocates, so that a test can bound it.
//!
//! Linked into a test binary, this replaces its allocator by the system's with a count in front.
#![expect(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread holds, less those it gave back; and the most there were.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// What `call` returns, and the most bytes that it held at once.
pub fn peak_bytes<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let (before, _) = HELD.get();
    HELD.set((before, before));
    let value = call();
    let (_, peak) = HELD.get();
    (value, peak.saturating_sub(before).unsigned_abs())
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(change: isize) {
    // A thread that ends frees memory after its counters.
    let _ = HELD.try_with(|held| {
        let (now, peak) = held.get();
        let now = now.saturating_add(change);
        held.set((now, peak.max(now)));
    });
}

// SAFETY: everything is done by the system's allocator, with the arguments as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the promises of this method, which are those of that one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both exist while one is copied to the other.
        count(size.cast_signed());
        // SAFETY: as above.
        let moved = unsafe { System.realloc(memory, layout, size) };
        count(-layout.size().cast_signed());
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_what_was_held_at_once() {
        let (sum, peak) = peak_bytes(|| {
            let first = vec![1u8; 1000];
            let sum = first.iter().map(|&byte| u64::from(byte)).sum::<u64>();
            drop(first);
            sum + vec![1u8; 3000].len() as u64
        });
        assert_eq!((sum, peak), (4000, 3000));
        assert_eq!(peak_bytes(|| ()).1, 0);
    }
}
