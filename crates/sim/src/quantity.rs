//! Times, sizes, rates and factors: how they are written in a scenario and shown in a report.
//!
//! A number has its unit right behind it, and at most six decimals. All are whole numbers of the
//! smallest unit, because sums of floats depend on their order.

use salus_engine::Duration;

use crate::words::{Problem, Word};

const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];
const RATES: &[(&str, u64)] = &[("MiB/s", 1 << 20), ("GiB/s", 1 << 30), ("TiB/s", 1 << 40)];
const FACTORS: &[(&str, u64)] = &[("x", 1000)];

/// Long enough for anybody, and sums of a million of them stay far from the end of the numbers.
const TIME_MAX: u64 = 1000 * 3_600_000_000_000;
const SIZE_MAX: u64 = 1024 << 40;
const FACTOR_MAX: u64 = 1_000_000;

pub(crate) fn time(word: &Word<'_>) -> Result<Duration, Problem> {
    let found = number(word.text, TIMES).filter(|ns| *ns <= TIME_MAX);
    found.map(Duration).ok_or_else(|| {
        let what = format!("{} is not a time", word.quoted());
        word.problem(what)
            .hint("a time is a number with ns, us, ms, s, min or h: 10ms, 1.5s; at most 1000h")
    })
}

/// A time that is not zero.
pub(crate) fn some_time(word: &Word<'_>) -> Result<Duration, Problem> {
    let found = time(word)?;
    match found.0 {
        0 => Err(word.problem(format!("{} must be more than nothing", word.quoted()))),
        _ => Ok(found),
    }
}

pub(crate) fn size(word: &Word<'_>) -> Result<u64, Problem> {
    let found = number(word.text, SIZES).filter(|bytes| *bytes <= SIZE_MAX);
    found.ok_or_else(|| {
        let what = format!("{} is not a size", word.quoted());
        word.problem(what).hint(
            "a size is a number with B, KiB, MiB, GiB or TiB: 300MiB, 1.5GiB; at most 1024TiB",
        )
    })
}

pub(crate) fn rate(word: &Word<'_>) -> Result<u64, Problem> {
    let found = number(word.text, RATES).filter(|rate| (1..=SIZE_MAX).contains(rate));
    found.ok_or_else(|| {
        let what = format!("{} is not a rate", word.quoted());
        word.problem(what)
            .hint("a rate is a number with MiB/s, GiB/s or TiB/s: 12GiB/s; more than nothing")
    })
}

/// In thousandths.
pub(crate) fn factor(word: &Word<'_>) -> Result<u64, Problem> {
    let found = number(word.text, FACTORS).filter(|factor| (1000..=FACTOR_MAX).contains(factor));
    found.ok_or_else(|| {
        let what = format!("{} is not a slow-down", word.quoted());
        word.problem(what)
            .hint("a slow-down is a number with x, from 1x to 1000x: 1.8x")
    })
}

pub(crate) fn count(word: &Word<'_>, from: u64, to: u64) -> Result<u64, Problem> {
    let digits = !word.text.is_empty() && word.text.bytes().all(|b| b.is_ascii_digit());
    let found = digits.then(|| word.text.parse().ok()).flatten();
    found.filter(|n| (from..=to).contains(n)).ok_or_else(|| {
        let what = format!("{} is not a number from {from} to {to}", word.quoted());
        word.problem(what)
    })
}

fn number(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let (_, unit) = units.iter().find(|(name, _)| *name == unit)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 6 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(*unit)?;
    let scale = 10u128.pow(part.len() as u32);
    let part = part.parse::<u128>().ok()? * u128::from(*unit) / scale;
    whole.checked_add(u64::try_from(part).ok()?)
}

/// `150ms`, `1.25s`: at most three decimals of the largest unit up to seconds.
pub fn show_time(time: Duration) -> String {
    const UNITS: [(&str, u64); 3] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    match UNITS.iter().find(|(_, unit)| time.0 >= *unit) {
        Some((name, unit)) => format!("{}{name}", decimals(time.0, *unit, 3)),
        None if time.0 == 0 => "0ms".into(),
        None => format!("{}ns", time.0),
    }
}

/// `60MiB`, `1.25GiB`: at most two decimals.
pub fn show_bytes(bytes: u64) -> String {
    match SIZES.iter().rev().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{}{name}", decimals(bytes, *unit, 2)),
        None => "0B".into(),
    }
}

/// Rounded to so many decimals, without zeros at the end.
fn decimals(value: u64, unit: u64, places: u32) -> String {
    let scale = 10u128.pow(places);
    let unit = u128::from(unit);
    let rounded = (u128::from(value) * scale + unit / 2) / unit;
    let (whole, part) = (rounded / scale, rounded % scale);
    let part = format!("{part:0places$}", places = places as usize);
    match part.trim_end_matches('0') {
        "" => whole.to_string(),
        part => format!("{whole}.{part}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_with_their_unit() {
        for (ns, text) in [
            (0, "0ms"),
            (999, "999ns"),
            (1_500, "1.5us"),
            (10_000_000, "10ms"),
            (12_345_678, "12.346ms"),
            (1_250_000_000, "1.25s"),
            (90_000_000_000, "90s"),
        ] {
            assert_eq!(show_time(Duration(ns)), text);
        }
    }

    #[test]
    fn sizes_are_shown_with_their_unit() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (60 << 20, "60MiB"),
            ((300 << 20) + (256 << 10), "300.25MiB"),
            (5 << 40, "5TiB"),
        ] {
            assert_eq!(show_bytes(bytes), text);
        }
    }

    #[test]
    fn numbers_are_read_exactly() {
        assert_eq!(number("1.5ms", TIMES), Some(1_500_000));
        assert_eq!(number("0.1s", TIMES), Some(100_000_000));
        assert_eq!(number("1.8x", FACTORS), Some(1800));
        for wrong in [
            "",
            "ms",
            "10",
            "1.ms",
            ".5ms",
            "-1ms",
            "1e3ms",
            "1.0000001s",
            "1 ms",
        ] {
            assert_eq!(number(wrong, TIMES), None, "{wrong}");
        }
        assert_eq!(number("99999999999999999999h", TIMES), None);
    }
}
