//! Numbers as people read them.

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
