//! The heap of our processes, and of the vendor's plugin in them, whose calls of `malloc` come here.
//!
//! A launch on the CPU plugin allocates some hundred small things in one thread that another frees, and its
//! scratch, which may be large. For the first the C library's heap takes a lock and searches its free lists,
//! and it returns the second to the system only to have it faulted in again. mimalloc does neither.
//!
//! Without the feature `mimalloc` it is the C library's heap, which can check itself: `make fuzz` builds
//! such a binary.

#[cfg(feature = "mimalloc")]
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Gives free memory back to the system.
#[cfg(feature = "mimalloc")]
#[expect(unsafe_code, reason = "the crate has no safe wrapper")]
pub(crate) fn give_back() {
    // SAFETY: may be called at any time, by any thread.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

#[cfg(not(feature = "mimalloc"))]
pub(crate) use salus_daemon::heap::trim_c_library as give_back;
