//! Shared memory: memfds that cannot shrink, mapped for as long as anything uses them.
//!
//! Promise: a segment made from another process's descriptor cannot fault here later, because it is
//! refused unless it is sealed against shrinking and at least as long as announced.
//! Not here: copies from and to it (`host_memory.rs`), and who may use which part of it. Its contents
//! are untrusted: another process may change them at any time, so they are copied before they are
//! judged.
#![expect(unsafe_code, reason = "the one module that maps shared memory")]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::host_memory::{HostBytes, HostMemory};

/// What `statfs` says of an ordinary memfd.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A mapping of a whole memfd, readable and writable, and its descriptor.
#[derive(Debug)]
pub struct Segment {
    mapping: Mapping,
    descriptor: OwnedFd,
}

/// A segment's memory, which stays mapped without the descriptor.
#[derive(Debug)]
pub struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access goes through raw copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Segment {
    /// A new segment. `populate` touches its pages now, because the first touch of a page costs
    /// eight times a warm copy.
    pub fn create(bytes: u64, populate: bool) -> io::Result<Self> {
        let descriptor = memfd()?;
        rustix::fs::ftruncate(&descriptor, bytes.max(1))?;
        rustix::fs::fcntl_add_seals(
            &descriptor,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
        Self::map(descriptor, bytes.max(1), populate)
    }

    /// Another process's segment of at least `bytes`.
    pub fn open(descriptor: OwnedFd, bytes: u64) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(&descriptor)
            .map_err(|e| io::Error::other(format!("a segment is not a memfd ({e})")))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::other(
                "a segment is not sealed against shrinking",
            ));
        }
        // Huge pages have seals, too, but where none is left, touching one ends the process.
        if rustix::fs::fstatfs(&descriptor)?.f_type as u64 != TMPFS_MAGIC {
            return Err(io::Error::other("a segment is not of ordinary pages"));
        }
        let there = rustix::fs::fstat(&descriptor)?.st_size;
        if bytes == 0 || u64::try_from(there).unwrap_or(0) < bytes {
            return Err(io::Error::other(format!(
                "a segment of {bytes} bytes is announced and its descriptor has {there}"
            )));
        }
        Self::map(descriptor, bytes, false)
    }

    fn map(descriptor: OwnedFd, bytes: u64, populate: bool) -> io::Result<Self> {
        let len = usize::try_from(bytes).map_err(io::Error::other)?;
        let mut flags = MapFlags::SHARED;
        if populate {
            flags |= MapFlags::POPULATE;
        }
        // SAFETY: a new mapping at an address that the kernel chooses; it aliases nothing of ours.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                &descriptor,
                0,
            )?
        };
        let address =
            NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self {
            mapping: Mapping { address, len },
            descriptor,
        })
    }

    /// Parts the memory from its descriptor: a process with thousands of segments would otherwise
    /// run out of descriptors.
    pub fn into_parts(self) -> (Mapping, OwnedFd) {
        (self.mapping, self.descriptor)
    }
}

impl std::ops::Deref for Segment {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}

impl Mapping {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it.
    pub fn bytes(&self) -> HostBytes<'_> {
        HostBytes::of(self)
    }

    /// The address of a range, if it is inside the segment.
    pub fn range(&self, offset: u64, length: u64) -> Option<*mut u8> {
        Some(self.bytes().range(offset, length)?.as_ptr())
    }

    /// A copy of a range: what is judged must not change meanwhile.
    pub fn copy_out(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        Some(self.bytes().range(offset, length)?.to_vec())
    }

    /// Copies `data` in; false if it does not fit.
    pub fn copy_in(&self, offset: u64, data: &[u8]) -> bool {
        let range = self.bytes().range(offset, data.len() as u64);
        range.inspect(|range| range.write(data)).is_some()
    }
}

// SAFETY: mapped in `Segment::map`, readable and writable, and sealed against shrinking; unmapped
// when it is dropped. No reference to it is ever made.
unsafe impl HostMemory for Mapping {
    fn span(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.address, self.len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `Segment::map` with this length and nobody else unmaps it.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.len) };
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Bytes in a memfd of their own, to be sent with a frame that names their length. Nobody can change
/// them any more, so the same one may be sent to many.
pub fn blob(data: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd()?);
    file.write_all(data)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

/// A copy of the bytes that [`blob`] was given.
pub fn open_blob(descriptor: OwnedFd, bytes: u64) -> io::Result<Vec<u8>> {
    // Only memfds have seals, and reading one never waits.
    rustix::fs::fcntl_get_seals(&descriptor)
        .map_err(|e| io::Error::other(format!("a blob is not a memfd ({e})")))?;
    let file = File::from(descriptor);
    let there = file.metadata()?.len();
    if there < bytes {
        return Err(io::Error::other(format!(
            "a blob of {bytes} bytes is announced and its descriptor has {there}"
        )));
    }
    let mut data = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    file.read_exact_at(&mut data, 0)?;
    Ok(data)
}

/// A text that a frame carries, or that comes with it in a blob of at most `limit` bytes.
pub fn text_of(inside: String, blob: Option<OwnedFd>, limit: usize) -> io::Result<String> {
    let Some(blob) = blob else {
        return Ok(inside);
    };
    let bytes = u64::try_from(rustix::fs::fstat(&blob)?.st_size).unwrap_or(u64::MAX);
    if bytes > limit as u64 {
        return Err(io::Error::other(format!(
            "a text of {bytes} bytes, and {limit} is the limit"
        )));
    }
    String::from_utf8(open_blob(blob, bytes)?).map_err(io::Error::other)
}

/// The text as a frame carries it, or nothing and a blob where it is too long for one.
pub fn with_text(text: String, longest: usize) -> io::Result<(String, Option<OwnedFd>)> {
    match text.len() <= longest {
        true => Ok((text, None)),
        false => Ok((String::new(), Some(blob(text.as_bytes())?))),
    }
}

fn memfd() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(rustix::fs::memfd_create(c"salus", flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_no_segment() {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // Not every kernel has them.
        let Ok(descriptor) = rustix::fs::memfd_create(c"huge", flags) else {
            return;
        };
        rustix::fs::ftruncate(&descriptor, 1 << 30).expect("a size of whole pages");
        rustix::fs::fcntl_add_seals(&descriptor, SealFlags::SHRINK).expect("it takes seals");
        let refused = Segment::open(descriptor, 4096).expect_err("not ordinary");
        assert_eq!(refused.to_string(), "a segment is not of ordinary pages");
    }

    #[test]
    fn nobody_changes_a_blob_that_was_sent() {
        let sent = blob(b"what all sessions read").expect("memory");
        let theirs = File::from(sent.try_clone().expect("a descriptor"));
        assert!(theirs.write_at(b"forged", 0).is_err());
        assert!(theirs.set_len(4).is_err() && theirs.set_len(1 << 20).is_err());
        assert!(rustix::fs::fcntl_add_seals(&theirs, SealFlags::FUTURE_WRITE).is_err());
        let read = open_blob(sent, 22).expect("all of it is there");
        assert_eq!(read, b"what all sessions read");
    }
}
