//! Numbers by which a job names its things, as types that cannot be mixed up.
//!
//! A job chooses them, so they are untrusted: a number that names nothing is an error of the job's,
//! never a panic. Numbers are not reused within a session.

use std::fmt;

use crate::codec::{DecodeError, Reader, Wire};

macro_rules! ids {
    ($($(#[$about:meta])* $name:ident($number:ty);)*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(out)
            }
        }

        /// Travels as its number.
        impl Wire for $name {
            const MIN_BYTES: usize = <$number>::MIN_BYTES;
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(reader: &mut Reader<'_>, limit: usize) -> Result<Self, DecodeError> {
                <$number>::take(reader, limit).map(Self)
            }
        }
    )*};
}

ids! {
    /// An array.
    ArrayId(u64);
    /// A compiled program.
    ProgramId(u64);
    /// A launch or a copy.
    OperationId(u64);
    /// Something that the job waits for: a read, a profile, a report.
    RequestId(u64);
    /// A piece of shared memory.
    SegmentId(u32);
}

impl ArrayId {
    /// The array `index` places after this one, as a launch names its outputs. Past the last number
    /// it starts again at 0.
    #[must_use]
    pub fn plus(self, index: u64) -> Self {
        Self(self.0.wrapping_add(index))
    }
}
