//! Numbers as people read and write them.

use std::time::Duration;

use salus_engine::Policy;
use salus_wire::Priority;

/// `0 B`, `1.5 KiB`, `23.4 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: &[&str] = &["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be shown as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A size as a person types it: `1.3GiB`, `800 MiB`, `4096`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let bytes = salus_daemon::config::parse_bytes(text).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "a size is due, such as 1.3GiB, 800MiB or 4096".into())
}

/// A time as a person types it: `20ms`, `1.5s`, `10m`, `2h`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    const UNITS: &[(&str, f64)] = &[
        ("us", 1e-6),
        ("ms", 1e-3),
        ("min", 60.0),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let text = text.trim();
    let seconds = UNITS.iter().find_map(|(name, unit)| {
        let number = text.strip_suffix(name)?.trim_end();
        let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let number: f64 = number.parse().ok().filter(|_| plain)?;
        Some(number * unit)
    });
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "a time from now is due, such as 20ms, 1.5s, 10m or 2h".into())
}

pub(crate) fn parse_weight(text: &str) -> Result<u32, String> {
    let weight = text.parse().ok().filter(|weight| *weight > 0);
    weight.ok_or_else(|| "a whole number from 1 is due: a weight of 0 would never run".into())
}

pub(crate) fn parse_priority(text: &str) -> Result<Priority, String> {
    Priority::named(text).ok_or_else(|| "`high`, `normal` or `low` is due".into())
}

pub(crate) fn parse_policy(text: &str) -> Result<Policy, String> {
    Policy::named(text).ok_or_else(|| {
        let names = Policy::ALL.map(Policy::name);
        format!("there are {}", names.join(", "))
    })
}

/// `0 ms`, `1.2 s`, `3 min 20 s`, `5 h 02 min`.
pub(crate) fn milliseconds(ms: f64) -> String {
    if !ms.is_finite() || ms < 0.0 {
        return "?".into();
    }
    let seconds = (ms / 1000.0).round() as u64;
    match seconds {
        0..60 if ms < 999.5 => format!("{ms:.0} ms"),
        0..60 => format!("{:.1} s", ms / 1000.0),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (25_125_558_681, "23.4 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn times_as_they_are_typed() {
        for (text, ms) in [
            ("20ms", 20.0),
            ("1.5s", 1500.0),
            ("10m", 600_000.0),
            ("10 min", 600_000.0),
            ("2h", 7_200_000.0),
            ("250us", 0.25),
        ] {
            let time = parse_time(text).map(|time| time.as_secs_f64() * 1e3);
            assert_eq!(time, Ok(ms), "{text}");
        }
        for text in [
            "", "20", "ms", "-5ms", "0s", "1e3s", "1.2.3s", "5 days", "infs",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        assert!(parse_weight("0").is_err());
        assert!(parse_policy("fairr").is_err());
    }

    #[test]
    fn times() {
        for (number, text) in [
            (0.0, "0 ms"),
            (12.4, "12 ms"),
            (999.6, "1.0 s"),
            (1234.0, "1.2 s"),
            (59_400.0, "59.4 s"),
            (200_000.0, "3 min 20 s"),
            (18_120_000.0, "5 h 02 min"),
            (f64::NAN, "?"),
        ] {
            assert_eq!(milliseconds(number), text);
        }
    }
}
