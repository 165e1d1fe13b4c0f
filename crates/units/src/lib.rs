//! Sizes, times and dates: how people write them and how they are shown, in one place.
//!
//! [`Bytes`] and [`Time`] print themselves for people (`23.4 GiB`, `1.2 s`) and, with `{:#}`, as they
//! are written in a file (`23.4GiB`, `1.2s`). [`parse_bytes`] and [`parse_time`] read what a person
//! types. [`utc`] is the date of a log line.
//!
//! Promise: parsing is exact. Numbers are whole numbers of the smallest unit, because sums of floats
//! depend on their order.
//! Not here: who asks for a size or a time, and what is wrong with one that does not parse.

mod bytes;
mod date;
mod time;

pub use bytes::{BINARY_SIZES, Bytes, parse_bytes};
pub use date::{utc, utc_minutes};
pub use time::{TIMES, Time, parse_time, show_ms};

/// A unit's name and how many of the smallest unit it is.
pub type Unit = (&'static str, u64);

/// Decimals that a number may be written with.
const DECIMALS_MAX: usize = 6;

/// A decimal number directly followed by a unit of the list: `1.5GiB`, `20ms`. Parts of the smallest
/// unit are dropped.
pub fn parse(text: &str, units: &[Unit]) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, name) = text.split_at(unit_at);
    let (_, unit) = units.iter().find(|(known, _)| *known == name)?;
    scaled(number, *unit)
}

/// Without the spaces that a person may write around the number and before the unit.
fn joined(text: &str) -> String {
    let text = text.trim();
    match text.split_once(char::is_whitespace) {
        Some((number, unit)) if unit.trim_start().starts_with(char::is_alphabetic) => {
            format!("{number}{}", unit.trim_start())
        }
        _ => text.to_owned(),
    }
}

/// `number` times `unit`.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > DECIMALS_MAX {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let scale = 10u128.pow(part.len() as u32);
    let part = part.parse::<u128>().ok()? * u128::from(unit) / scale;
    whole.checked_add(u64::try_from(part).ok()?)
}

/// Rounded to this many decimals, without zeros at the end.
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
