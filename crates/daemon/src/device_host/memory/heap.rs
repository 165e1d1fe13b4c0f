//! The heap of the device host, where the CPU plugin allocates arrays and scratch.
//!
//! The C library keeps freed memory for later, which is right between iterations. When arrays are
//! deleted or paged out, their memory goes back to the system.
#![expect(unsafe_code, reason = "the C library's heap has no safe wrapper")]

/// Trimming locks the heap for 10 to 30 ms, which less memory is not worth.
const TRIM_BYTES_MIN: u64 = 8 << 20;

/// Gives free memory back to the system after `freed_bytes` have become free.
pub(crate) fn trim(freed_bytes: u64) {
    if freed_bytes >= TRIM_BYTES_MIN {
        // SAFETY: may be called at any time, by any thread.
        unsafe { libc::malloc_trim(0) };
    }
}
