//! Reads and shows times, sizes, rates and factors, in scenarios and reports.
//!
//! A number has its unit right behind it, and at most six decimals. All are whole numbers of the
//! smallest unit, because sums of floats depend on their order.

use salus_engine::Duration;
use salus_units::{BINARY_SIZES, Bytes, TIMES, Time, Unit, parse};

use crate::scenario::tokens::{Problem, Token};

const RATES: &[Unit] = &[("MiB/s", 1 << 20), ("GiB/s", 1 << 30), ("TiB/s", 1 << 40)];
const FACTORS: &[Unit] = &[("x", 1000)];

/// Long enough for anybody, and the sum of a million of them does not overflow.
const TIME_MAX: u64 = 1000 * 3_600_000_000_000;
const SIZE_MAX: u64 = 1024 << 40;
const FACTOR_MAX: u64 = 1_000_000;

pub(crate) fn time(word: &Token<'_>) -> Result<Duration, Problem> {
    let found = parse(word.text, TIMES).filter(|ns| *ns <= TIME_MAX);
    found.map(Duration).ok_or_else(|| {
        let what = format!("{} is not a time", word.quoted());
        word.problem(what)
            .hint("a time is a number with ns, us, ms, s, min or h: 10ms, 1.5s; at most 1000h")
    })
}

/// A time that is not zero.
pub(crate) fn some_time(word: &Token<'_>) -> Result<Duration, Problem> {
    let found = time(word)?;
    match found.0 {
        0 => Err(word.problem(format!("{} must be more than zero", word.quoted()))),
        _ => Ok(found),
    }
}

pub(crate) fn size(word: &Token<'_>) -> Result<u64, Problem> {
    let found = parse(word.text, BINARY_SIZES).filter(|bytes| *bytes <= SIZE_MAX);
    found.ok_or_else(|| {
        let what = format!("{} is not a size", word.quoted());
        word.problem(what).hint(
            "a size is a number with B, KiB, MiB, GiB or TiB: 300MiB, 1.5GiB; at most 1024TiB",
        )
    })
}

pub(crate) fn rate(word: &Token<'_>) -> Result<u64, Problem> {
    let found = parse(word.text, RATES).filter(|rate| (1..=SIZE_MAX).contains(rate));
    found.ok_or_else(|| {
        let what = format!("{} is not a rate", word.quoted());
        word.problem(what)
            .hint("a rate is a number with MiB/s, GiB/s or TiB/s: 12GiB/s; more than zero")
    })
}

/// In thousandths.
pub(crate) fn factor(word: &Token<'_>) -> Result<u64, Problem> {
    let found = parse(word.text, FACTORS).filter(|factor| (1000..=FACTOR_MAX).contains(factor));
    found.ok_or_else(|| {
        let what = format!("{} is not a slow-down", word.quoted());
        word.problem(what)
            .hint("a slow-down is a number with x, from 1x to 1000x: 1.8x")
    })
}

pub(crate) fn count(word: &Token<'_>, from: u64, to: u64) -> Result<u64, Problem> {
    let digits = !word.text.is_empty() && word.text.bytes().all(|b| b.is_ascii_digit());
    let found = digits.then(|| word.text.parse().ok()).flatten();
    found.filter(|n| (from..=to).contains(n)).ok_or_else(|| {
        let found = word.quoted();
        word.problem(format!(
            "expected a whole number from {from} to {to}, found {found}"
        ))
    })
}

/// `150ms`, `1.25s`: at most three decimals of the largest unit up to seconds.
pub fn show_time(time: Duration) -> String {
    format!("{:#}", Time(std::time::Duration::from_nanos(time.0)))
}

/// `60MiB`, `1.25GiB`: at most two decimals.
pub fn show_bytes(bytes: u64) -> String {
    format!("{:#}", Bytes(bytes))
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
        assert_eq!(parse("1.5ms", TIMES), Some(1_500_000));
        assert_eq!(parse("0.1s", TIMES), Some(100_000_000));
        assert_eq!(parse("1.8x", FACTORS), Some(1800));
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
            assert_eq!(parse(wrong, TIMES), None, "{wrong}");
        }
        assert_eq!(parse("99999999999999999999h", TIMES), None);
    }
}
