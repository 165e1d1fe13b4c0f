//! Memory of this process that a job or a device may touch, too: how long it may be used, and all
//! copies from and to it.
//!
//! A job writes to its segments whenever it likes, and a device to what it was given, so no Rust
//! reference to such memory is ever made: it is passed on as a value that implements [`HostMemory`],
//! and read and written by raw copies of [`HostBytes`]. A copy that races with a writer holds
//! arbitrary bytes, and any bytes are valid; therefore what is judged is copied first.
//!
//! Promise: safe code that only has these types cannot read, write or unmap memory that it should
//! not.
//! Cost: a copy is one `memcpy`; keeping a range alive is one reference count.
//! Not here: which job may use which range (the daemon), and what the bytes mean.
#![expect(
    unsafe_code,
    reason = "the one module that copies from and to shared memory"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// Host memory that stays where it is for as long as the value lives, even if the value is moved.
///
/// # Safety
/// From when the value is made until it is dropped:
/// - `span` returns the same range every time, and all its bytes are mapped, readable and writable,
///   from any thread; an empty range may be anywhere;
/// - the range is not unmapped, freed or used for anything else;
/// - no Rust reference to any byte of it exists, because its bytes may change at any time: another
///   process or the device may write them.
///
/// Holding one says nothing about what the bytes are, who else reads or writes them, or how the
/// range is aligned: see [`HostBytes::is_aligned`].
pub unsafe trait HostMemory: Send + Sync + 'static {
    fn span(&self) -> NonNull<[u8]>;
}

// SAFETY: the first field keeps its promise, and the second does not touch the range.
unsafe impl<M: HostMemory, K: Send + Sync + 'static> HostMemory for (M, K) {
    fn span(&self) -> NonNull<[u8]> {
        self.0.span()
    }
}

// SAFETY: what is shared lives at least as long as each of its owners.
unsafe impl<M: HostMemory> HostMemory for Arc<M> {
    fn span(&self) -> NonNull<[u8]> {
        (**self).span()
    }
}

/// A part of some memory, which keeps all of it.
#[derive(Debug)]
pub struct Part<M> {
    whole: Arc<M>,
    offset: usize,
    len: usize,
}

impl<M: HostMemory> Part<M> {
    /// `None` if the range is not inside.
    pub fn of(whole: &Arc<M>, offset: u64, len: u64) -> Option<Self> {
        let part = HostBytes::of(&**whole).range(offset, len)?;
        Some(Self {
            offset: offset as usize,
            len: part.len(),
            whole: Arc::clone(whole),
        })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn bytes(&self) -> HostBytes<'_> {
        HostBytes::of(self)
    }
}

impl<M> Clone for Part<M> {
    fn clone(&self) -> Self {
        Self {
            whole: Arc::clone(&self.whole),
            ..*self
        }
    }
}

// SAFETY: `of` compared the range with the whole, which is always the same and lives as long.
unsafe impl<M: HostMemory> HostMemory for Part<M> {
    fn span(&self) -> NonNull<[u8]> {
        let start = self.whole.span().cast::<u8>();
        // SAFETY: the offset is inside the whole, or one past its end.
        let start = unsafe { start.add(self.offset) };
        NonNull::slice_from_raw_parts(start, self.len)
    }
}

/// Zeroed memory of the heap, aligned as the CPU plugin wants what it is to wrap without a copy.
#[derive(Debug)]
pub struct HeapMemory(NonNull<[u8]>);

/// Vendors wrap host memory without a copy from this alignment on.
pub const HOST_ALIGNMENT: usize = 64;

// SAFETY: the memory belongs to the value, not to a thread, and is accessed by raw copies only.
unsafe impl Send for HeapMemory {}
// SAFETY: as above.
unsafe impl Sync for HeapMemory {}

impl HeapMemory {
    pub fn zeroed(len: usize) -> Self {
        let layout = Self::layout(len);
        if len == 0 {
            return Self(NonNull::slice_from_raw_parts(NonNull::dangling(), 0));
        }
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Self(NonNull::slice_from_raw_parts(start, len)),
            None => handle_alloc_error(layout),
        }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let memory = Self::zeroed(bytes.len());
        memory.bytes().write(bytes);
        memory
    }

    pub fn bytes(&self) -> HostBytes<'_> {
        HostBytes::of(self)
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, HOST_ALIGNMENT).expect("no memory is that large")
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            // SAFETY: allocated in `zeroed` with this layout, and nobody else frees it.
            unsafe { dealloc(self.0.cast().as_ptr(), Self::layout(self.0.len())) };
        }
    }
}

// SAFETY: allocated once, freed when it is dropped, and only used by its address.
unsafe impl HostMemory for HeapMemory {
    fn span(&self) -> NonNull<[u8]> {
        self.0
    }
}

/// A range of host memory that stays mapped for `'a`: what can be copied from and to.
///
/// Equal are ranges of the same length at the same address, whatever the bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostBytes<'a> {
    span: NonNull<[u8]>,
    mapped: PhantomData<&'a ()>,
}

impl<'a> HostBytes<'a> {
    pub fn of(memory: &'a (impl HostMemory + ?Sized)) -> Self {
        Self {
            span: memory.span(),
            mapped: PhantomData,
        }
    }

    /// Bytes of our own.
    pub fn of_slice(bytes: &'a mut [u8]) -> Self {
        Self {
            span: NonNull::from(bytes),
            mapped: PhantomData,
        }
    }

    /// `len` bytes from `start` on, which may be null if `len` is 0.
    ///
    /// # Safety
    /// For `'a` the bytes are mapped, readable and writable, and no Rust reference to them exists.
    pub unsafe fn from_raw(start: *mut u8, len: usize) -> Self {
        let start = NonNull::new(start).unwrap_or(NonNull::dangling());
        Self {
            span: NonNull::slice_from_raw_parts(start, len),
            mapped: PhantomData,
        }
    }

    pub fn len(self) -> usize {
        self.span.len()
    }

    pub fn is_empty(self) -> bool {
        self.span.is_empty()
    }

    /// For the vendor's C, and to compare.
    pub fn as_ptr(self) -> *mut u8 {
        self.span.cast().as_ptr()
    }

    pub fn is_aligned(self, alignment: usize) -> bool {
        self.as_ptr().addr().is_multiple_of(alignment)
    }

    /// `None` if the range is not inside.
    pub fn range(self, offset: u64, len: u64) -> Option<Self> {
        let end = offset.checked_add(len)?;
        if end > self.len() as u64 {
            return None;
        }
        // SAFETY: the offset is inside the range, or one past its end.
        let start = unsafe { self.span.cast::<u8>().add(offset as usize) };
        Some(Self {
            span: NonNull::slice_from_raw_parts(start, len as usize),
            mapped: PhantomData,
        })
    }

    /// A copy of the bytes: what is judged must not change meanwhile.
    pub fn to_vec(self) -> Vec<u8> {
        let mut copy = Vec::<u8>::with_capacity(self.len());
        // SAFETY: the bytes are mapped, and as many are reserved in `copy`, which is no part of
        // them; a concurrent writer only makes them arbitrary, and any bytes are valid `u8`s.
        unsafe {
            std::ptr::copy_nonoverlapping(self.as_ptr(), copy.as_mut_ptr(), self.len());
            copy.set_len(self.len());
        }
        copy
    }

    /// Copies the bytes out. Panics unless `target` is as long.
    pub fn read(self, target: &mut [u8]) {
        assert_eq!(self.len(), target.len(), "a copy of another length");
        // SAFETY: both are mapped for that length; no reference to host memory exists, so `target`
        // is not part of it.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), target.as_mut_ptr(), self.len()) };
    }

    /// Copies `source` in. Panics unless it is as long.
    pub fn write(self, source: &[u8]) {
        assert_eq!(self.len(), source.len(), "a copy of another length");
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), self.as_ptr(), self.len()) };
    }

    /// Copies the bytes to another range, which may overlap this one. Panics unless it is as long.
    pub fn copy_to(self, target: HostBytes<'_>) {
        assert_eq!(self.len(), target.len(), "a copy of another length");
        // SAFETY: both are mapped for that length.
        unsafe { std::ptr::copy(self.as_ptr(), target.as_ptr(), self.len()) };
    }

    /// Has the system provide new memory now, page by page, so that others who map memory need not
    /// wait. Writes zeros.
    pub fn touch(self) {
        for offset in (0..self.len()).step_by(4096) {
            // SAFETY: inside the range, which is mapped and writable.
            unsafe { self.as_ptr().add(offset).write_volatile(0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_inside_and_keeps_the_whole() {
        let whole = Arc::new(HeapMemory::copy_of(&[1, 2, 3, 4]));
        for (offset, len) in [(0, 5), (5, 0), (3, 2), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(Part::of(&whole, offset, len).is_none(), "{len} at {offset}");
        }
        let end = Part::of(&whole, 4, 0).expect("empty, at the end");
        assert!(end.is_empty() && end.bytes().to_vec().is_empty());
        let part = Part::of(&whole, 1, 2).expect("inside");
        drop(whole);
        let copy = HeapMemory::zeroed(2);
        part.bytes().copy_to(copy.bytes());
        assert_eq!(copy.bytes().to_vec(), [2, 3]);
        assert_ne!(copy.bytes(), part.bytes());
        assert_eq!(part.clone().bytes(), part.bytes());
        assert!(copy.bytes().is_aligned(HOST_ALIGNMENT));
    }

    #[test]
    fn ranges_of_one_memory_may_overlap() {
        let memory = HeapMemory::copy_of(&[1, 2, 3, 4]);
        let range = |at| memory.bytes().range(at, 3).expect("inside");
        range(0).copy_to(range(1));
        assert_eq!(memory.bytes().to_vec(), [1, 1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "another length")]
    fn a_copy_of_another_length_is_a_bug() {
        HeapMemory::zeroed(4).bytes().write(&[0; 5]);
    }
}
