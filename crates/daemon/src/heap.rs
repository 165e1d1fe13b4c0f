//! The heap of the device host, where the CPU plugin allocates arrays and scratch.
//!
//! It keeps freed memory for later, which is right between iterations. When arrays are deleted or paged
//! out, their memory goes back to the system.
#![expect(unsafe_code, reason = "the C library's heap has no safe wrapper")]

use std::sync::OnceLock;

/// How free memory goes back to the system. Our binary brings a heap of its own and says how; a Python that
/// is the device host has the C library's.
pub type GiveBack = fn();

static GIVE_BACK: OnceLock<GiveBack> = OnceLock::new();

pub(crate) fn gives_back_by(give_back: GiveBack) {
    // Set twice it is the same.
    let _ = GIVE_BACK.set(give_back);
}

/// The C library's way.
pub fn trim_c_library() {
    // SAFETY: may be called at any time, by any thread.
    unsafe { libc::malloc_trim(0) };
}

/// Trimming locks the heap for 10 to 30 ms, which less memory is not worth.
const TRIM_BYTES_MIN: u64 = 8 << 20;

/// Gives free memory back to the system after `freed_bytes` have become free.
pub(crate) fn trim(freed_bytes: u64) {
    if freed_bytes >= TRIM_BYTES_MIN {
        GIVE_BACK.get_or_init(|| trim_c_library)();
    }
}
