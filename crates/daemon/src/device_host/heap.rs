//! The heap of the device host, from which the CPU plugin takes its arrays and scratch.
//!
//! The C library keeps what is freed for later, which is right between iterations. When arrays have
//! left for good, or for other sessions' sake, their memory goes back to the system.
#![expect(unsafe_code, reason = "the C library's heap has no safe wrapper")]

/// Below this it is not worth the 10 to 30 ms in which the heap is locked.
const WORTH_BYTES: u64 = 8 << 20;

/// Gives free memory back after `freed_bytes` have become free.
pub(super) fn trim(freed_bytes: u64) {
    if freed_bytes >= WORTH_BYTES {
        // SAFETY: may be called at any time, by any thread.
        unsafe { libc::malloc_trim(0) };
    }
}
