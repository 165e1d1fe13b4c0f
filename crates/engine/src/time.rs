//! Points and lengths of time, in whole nanoseconds.

use std::ops::{Add, Sub};

use salus_wire::NonZeroDuration;

/// A point in time: nanoseconds since the engine's user began to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time(pub u64);

/// A length of time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Duration(pub u64);

impl From<NonZeroDuration> for Duration {
    fn from(length: NonZeroDuration) -> Self {
        Self(length.as_nanos())
    }
}

impl Sub for Time {
    type Output = Duration;

    /// Zero where the clock seems to go back: threads read it in one order and report in another.
    fn sub(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl Add for Duration {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}
