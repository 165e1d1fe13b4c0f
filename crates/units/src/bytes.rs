//! Sizes.

use std::fmt;

use crate::{Unit, decimals, joined, parse, scaled};

pub const BINARY_SIZES: &[Unit] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];
/// What people also write.
const DECIMAL_SIZES: &[Unit] = &[
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// A size as a person types it: `16GiB`, `512 MiB`, `1.5GiB`, `2GB`, `4096`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = joined(text);
    let plain = || scaled(&text, 1).filter(|_| !text.contains('.'));
    parse(&text, BINARY_SIZES)
        .or_else(|| parse(&text, DECIMAL_SIZES))
        .or_else(plain)
}

/// A size for people: `0 B`, `1.5 KiB`, `23.4 GiB`. The precision is that of the format (`{:.2}`), one
/// decimal without one. `{:#}` is as in a file: `1.25GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Bytes {
    /// This one of two sizes that are compared, with two decimals, or exactly where both would look
    /// the same.
    pub fn beside(self, other: u64) -> String {
        let shown = format!("{self:.2}");
        match self.0 != other && shown == format!("{:.2}", Self(other)) {
            true => format!("{} B", self.0),
            false => shown,
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if f.alternate() {
            let unit = BINARY_SIZES.iter().rev().find(|(_, unit)| self.0 >= *unit);
            return match unit {
                Some((name, unit)) => write!(f, "{}{name}", decimals(self.0, *unit, 2)),
                None => f.write_str("0B"),
            };
        }
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let places = f.precision().unwrap_or(1);
        // What would be shown as 1024.0 is one of the next unit.
        let too_large = 1024.0 - 0.5 / 10f64.powi(places as i32);
        let (mut value, mut unit) = (self.0 as f64 / 1024.0, 0);
        while value >= too_large && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.places$} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown() {
        for (number, text, file) in [
            (0, "0 B", "0B"),
            (1023, "1023 B", "1023B"),
            (1536, "1.5 KiB", "1.5KiB"),
            ((1 << 20) - 1, "1.0 MiB", "1024KiB"),
            (25_125_558_681, "23.4 GiB", "23.4GiB"),
            (u64::MAX, "16.0 EiB", "16777216TiB"),
        ] {
            assert_eq!(Bytes(number).to_string(), text);
            assert_eq!(format!("{:#}", Bytes(number)), file);
        }
        assert_eq!(format!("{:.2}", Bytes(1_395_864_371)), "1.30 GiB");
    }

    #[test]
    fn two_sizes_that_look_alike_are_exact() {
        let (a, b) = (1 << 30, (1 << 30) + 1);
        assert_eq!(Bytes(a).beside(b), "1073741824 B");
        assert_eq!(Bytes(a).beside(a), "1.00 GiB");
        assert_eq!(Bytes(a).beside(2 << 30), "1.00 GiB");
    }

    #[test]
    fn sizes_are_parsed_exactly() {
        for (text, bytes) in [
            ("16GiB", Some(16 << 30)),
            (" 512 MiB ", Some(512 << 20)),
            ("1.5GiB", Some(3 << 29)),
            ("2GB", Some(2_000_000_000)),
            ("2kB", Some(2_000)),
            ("2KB", Some(2_000)),
            ("4096", Some(4096)),
            ("0.000001MiB", Some(1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("16777216TiB", None),
            ("", None),
            ("GiB", None),
            (".5GiB", None),
            ("1.GiB", None),
            ("1.5", None),
            ("-1GiB", None),
            ("1e9", None),
            ("1.0000001GiB", None),
            ("1 GiB 2", None),
            ("1 2", None),
            ("5 gib", None),
        ] {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
    }
}
