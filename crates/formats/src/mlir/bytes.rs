//! Reads the primitives of MLIR bytecode from untrusted bytes.
//!
//! Promise: a cursor never leaves the slice it was given.
//! Not here: alignment. Only sections with resources are aligned, and those are not understood.

#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    pub(super) fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    /// Up to the next NUL, which is taken too and left out.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.rest.iter().position(|&byte| byte == 0)?;
        let text = self.take(length as u64)?;
        self.byte()?;
        Some(text)
    }

    /// The zeros at the low end of the first byte count the bytes that follow; a one ends them.
    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = self.byte()?;
        let more = first.trailing_zeros();
        let mut bytes = [0; 8];
        if more == 8 {
            bytes.copy_from_slice(self.take(8)?);
            return Some(u64::from_le_bytes(bytes));
        }
        bytes[0] = first;
        for byte in bytes.iter_mut().skip(1).take(more as usize) {
            *byte = self.byte()?;
        }
        Some(u64::from_le_bytes(bytes) >> (more + 1))
    }

    /// A number that shares its varint with a flag in the lowest bit.
    pub(super) fn flagged(&mut self) -> Option<(u64, bool)> {
        let both = self.varint()?;
        Some((both >> 1, both & 1 == 1))
    }

    pub(super) fn blob(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()?;
        self.take(length)
    }

    /// A section's number and content. One that asks for alignment has its high bit set and is
    /// therefore none of the numbers the caller knows.
    pub(super) fn section(&mut self) -> Option<(u8, &'a [u8])> {
        let id = self.byte()?;
        Some((id, self.blob()?))
    }
}
