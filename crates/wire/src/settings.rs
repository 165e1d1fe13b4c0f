//! What a job's user asks for: weight, priority, deadline, work and memory limit.
//!
//! One type from the command line to the engine: `salus run` and the adaptor parse it, `Hello` and
//! `Adopt` carry it, the engine schedules by it. `Change` carries the same types one at a time.
//!
//! Promise: a value of these types is valid. A weight of 0, a deadline of 0 or a limit of 0 bytes
//! cannot be written down; text and frames that say so are refused where they are parsed or decoded.
//! Not here: what a setting does (the engine's policies), the environment variables' names.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;
use std::time::Duration;

use crate::codec::{DecodeError, Reader, Wire, wire_struct};

wire_struct! {
    /// What a job's user asks for; each policy uses the settings that it knows.
    #[derive(Copy, Eq, Default)]
    JobSettings {
        weight: Weight,
        priority: Priority,
        /// An iteration should end this long after it was ready.
        deadline: Option<NonZeroDuration>,
        /// What the job has before it.
        work: Option<Work>,
        /// The most bytes that the session may hold, on the device and in pages together.
        memory_max: Option<NonZeroU64>,
    }
}

/// A share of the device relative to others; never 0, because such a job would never run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(pub NonZeroU32);

impl Default for Weight {
    fn default() -> Self {
        Self(NonZeroU32::MIN)
    }
}

impl FromStr for Weight {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        text.parse().map(Self).map_err(|_| match text {
            "0" => SettingError(
                "expected a whole number from 1, found `0`: a weight of 0 would never run".into(),
            ),
            _ => not_a_count(text),
        })
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who goes first under the policies that know priorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    High = 1,
    #[default]
    Normal = 2,
    Low = 3,
}

impl Priority {
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

impl FromStr for Priority {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| {
            SettingError(format!(
                "expected `high`, `normal` or `low`, found `{text}`"
            ))
        })
    }
}

/// What a job has before it, as its user says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Iterations of the program that takes most of its time.
    Iterations(NonZeroU64),
    /// Time on the device.
    DeviceTime(NonZeroDuration),
}

/// A length of time in whole nanoseconds that is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NonZeroDuration(NonZeroU64);

impl NonZeroDuration {
    pub const fn from_nanos(nanoseconds: u64) -> Option<Self> {
        match NonZeroU64::new(nanoseconds) {
            Some(nanoseconds) => Some(Self(nanoseconds)),
            None => None,
        }
    }

    /// As long as can be where it would be longer, which is 584 years.
    pub fn from_micros(microseconds: NonZeroU64) -> Self {
        const PER_MICROSECOND: NonZeroU64 = NonZeroU64::MIN.saturating_add(999);
        Self(microseconds.saturating_mul(PER_MICROSECOND))
    }

    pub fn as_nanos(self) -> u64 {
        self.0.get()
    }
}

impl TryFrom<Duration> for NonZeroDuration {
    type Error = SettingError;

    fn try_from(time: Duration) -> Result<Self, SettingError> {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self::from_nanos(nanoseconds)
            .ok_or_else(|| SettingError("expected a time longer than 0".into()))
    }
}

impl From<NonZeroDuration> for Duration {
    fn from(time: NonZeroDuration) -> Self {
        Self::from_nanos(time.as_nanos())
    }
}

/// Why a text is not a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError(String);

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingError {}

/// A number of iterations, of bytes or of microseconds.
pub fn parse_count(text: &str) -> Result<NonZeroU64, SettingError> {
    text.parse().map_err(|_| not_a_count(text))
}

fn not_a_count(text: &str) -> SettingError {
    SettingError(format!("expected a whole number from 1, found `{text}`"))
}

/// Refuses 0: whoever sends it means something that this type does not say.
fn take_non_zero(reader: &mut Reader<'_>, what: &str) -> Result<NonZeroU64, DecodeError> {
    let number = NonZeroU64::new(u64::take(reader, 0)?);
    number.ok_or_else(|| DecodeError(format!("expected a {what} from 1, found 0")))
}

impl Wire for NonZeroU64 {
    const MIN_BYTES: usize = 8;

    fn put(&self, out: &mut Vec<u8>) {
        self.get().put(out);
    }

    fn take(reader: &mut Reader<'_>, _limit: usize) -> Result<Self, DecodeError> {
        take_non_zero(reader, "number")
    }
}

impl Wire for Weight {
    const MIN_BYTES: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        self.0.get().put(out);
    }

    fn take(reader: &mut Reader<'_>, _limit: usize) -> Result<Self, DecodeError> {
        let weight = NonZeroU32::new(u32::take(reader, 0)?).map(Self);
        weight.ok_or_else(|| DecodeError("expected a weight from 1, found 0".into()))
    }
}

impl Wire for NonZeroDuration {
    const MIN_BYTES: usize = 8;

    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn take(reader: &mut Reader<'_>, _limit: usize) -> Result<Self, DecodeError> {
        take_non_zero(reader, "time").map(Self)
    }
}

impl Wire for Priority {
    const MIN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }

    fn take(reader: &mut Reader<'_>, _limit: usize) -> Result<Self, DecodeError> {
        let number = u8::take(reader, 0)?;
        let found = Self::ALL.into_iter().find(|one| *one as u8 == number);
        found.ok_or_else(|| DecodeError(format!("{number} is not a priority")))
    }
}

impl Wire for Work {
    const MIN_BYTES: usize = 1 + 8;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Iterations(iterations) => (1u8, *iterations).put(out),
            Self::DeviceTime(time) => (2u8, *time).put(out),
        }
    }

    fn take(reader: &mut Reader<'_>, _limit: usize) -> Result<Self, DecodeError> {
        Ok(match u8::take(reader, 0)? {
            1 => Self::Iterations(Wire::take(reader, 0)?),
            2 => Self::DeviceTime(Wire::take(reader, 0)?),
            n => return Err(DecodeError(format!("{n} is not a kind of work"))),
        })
    }
}
