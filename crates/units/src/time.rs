//! Times.

use std::fmt;
use std::time::Duration;

use crate::{Unit, decimals, joined, parse};

/// In nanoseconds.
pub const TIMES: &[Unit] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// What people also write.
const MINUTE: &[Unit] = &[("m", 60_000_000_000)];

/// A time as a person types it: `20ms`, `1.5s`, `10m`, `10 min`, `2h`.
pub fn parse_time(text: &str) -> Option<Duration> {
    let text = joined(text);
    parse(&text, TIMES)
        .or_else(|| parse(&text, MINUTE))
        .map(Duration::from_nanos)
}

/// A time for people: `0 ms`, `1.2 s`, `3 min 20 s`, `5 h 02 min`. `{:#}` is as in a file: `1.25s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Duration);

impl Time {
    /// Of milliseconds as a report has them. One that is no time is `None`.
    pub fn from_ms(ms: f64) -> Option<Self> {
        Duration::try_from_secs_f64(ms / 1000.0).ok().map(Self)
    }
}

/// Milliseconds of a report for people; `?` if they are no time.
pub fn show_ms(ms: f64) -> String {
    Time::from_ms(ms).map_or_else(|| "?".into(), |time| time.to_string())
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            let ns = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
            let unit = TIMES[1..4].iter().rev().find(|(_, unit)| ns >= *unit);
            return match unit {
                Some((name, unit)) => write!(f, "{}{name}", decimals(ns, *unit, 3)),
                None if ns == 0 => f.write_str("0ms"),
                None => write!(f, "{ns}ns"),
            };
        }
        let ms = self.0.as_secs_f64() * 1000.0;
        let seconds = (ms / 1000.0).round() as u64;
        match seconds {
            0..60 if ms < 999.5 => write!(f, "{ms:.0} ms"),
            0..60 => write!(f, "{:.1} s", ms / 1000.0),
            60..3600 => write!(f, "{} min {:02} s", seconds / 60, seconds % 60),
            _ => write!(f, "{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown() {
        for (ms, text) in [
            (0.0, "0 ms"),
            (12.4, "12 ms"),
            (999.6, "1.0 s"),
            (1234.0, "1.2 s"),
            (59_400.0, "59.4 s"),
            (200_000.0, "3 min 20 s"),
            (18_120_000.0, "5 h 02 min"),
        ] {
            let shown = Time::from_ms(ms).map(|time| time.to_string());
            assert_eq!(shown.as_deref(), Some(text));
        }
        assert_eq!(Time::from_ms(f64::NAN), None);
        assert_eq!(show_ms(-1.0), "?");
        assert_eq!(show_ms(1234.0), "1.2 s");
        for (ns, text) in [
            (0, "0ms"),
            (999, "999ns"),
            (1_500, "1.5us"),
            (12_345_678, "12.346ms"),
            (1_250_000_000, "1.25s"),
            (90_000_000_000, "90s"),
        ] {
            assert_eq!(format!("{:#}", Time(Duration::from_nanos(ns))), text);
        }
    }

    #[test]
    fn times_are_parsed_exactly() {
        for (text, us) in [
            ("20ms", 20_000),
            ("1.5s", 1_500_000),
            ("10m", 600_000_000),
            ("10 min", 600_000_000),
            ("2h", 7_200_000_000),
            ("250us", 250),
            ("0s", 0),
        ] {
            let parsed = parse_time(text);
            assert_eq!(parsed, Some(Duration::from_micros(us)), "{text}");
        }
        for text in ["", "20", "ms", "-5ms", "1e3s", "1.2.3s", "5 days", "infs"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
