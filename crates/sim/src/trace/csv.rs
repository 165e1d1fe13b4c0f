//! Reads CSV line by line: columns by name, numbers exactly, and errors that name the place.
//!
//! Numbers are whole numbers of the smallest unit, because sums of floats depend on their order.
//! Not here: quotes and line breaks within a field, which no trace needs.

use salus_engine::Duration;

use crate::scenario::tokens::{Problem, Token};

/// A file's header: where each of the wanted columns is.
#[derive(Debug)]
pub(crate) struct Header {
    /// In the order in which they were asked for.
    places: Vec<usize>,
    names: Vec<&'static str>,
    /// How many columns there are, wanted or not.
    width: usize,
    /// The last column is free text, in which commas may be.
    ends_in_text: bool,
}

impl Header {
    /// Finds the columns in the first line, in any order and among others.
    pub(crate) fn read(
        line: &str,
        number: usize,
        names: &[&'static str],
        text: Option<&str>,
    ) -> Result<Self, Problem> {
        let fields: Vec<Token<'_>> = fields(line, number, usize::MAX).collect();
        let mut places = Vec::new();
        for name in names {
            let found = fields.iter().position(|field| field.text == *name);
            let Some(place) = found else {
                let end = fields.last().unwrap_or(&NOTHING);
                let problem = Problem {
                    line: number,
                    column: 1,
                    what: format!(
                        "the column `{name}` is missing; the last is {}",
                        end.quoted()
                    ),
                    hint: None,
                };
                return Err(problem.hint(format!("the columns are {}", names.join(","))));
            };
            places.push(place);
        }
        Ok(Self {
            places,
            names: names.to_vec(),
            width: fields.len(),
            ends_in_text: text.is_some_and(|text| {
                let last = fields.last();
                last.is_some_and(|last| last.text == text)
            }),
        })
    }

    /// The wanted fields of a line.
    pub(crate) fn row<'a>(&self, line: &'a str, number: usize) -> Result<Vec<Token<'a>>, Problem> {
        let most = match self.ends_in_text {
            true => self.width,
            false => usize::MAX,
        };
        let fields: Vec<Token<'a>> = fields(line, number, most).collect();
        let last = fields.last().unwrap_or(&NOTHING);
        if fields.len() < self.width {
            let missing = self.places.iter().position(|place| *place >= fields.len());
            let missing = missing.map_or("the last", |at| self.names[at]);
            let what = format!(
                "the line ends after {} of {} fields: `{missing}` is missing",
                fields.len(),
                self.width
            );
            return Err(last.problem(what).hint("is the file cut off?"));
        }
        if fields.len() > self.width {
            let what = format!("expected {} fields, found {}", self.width, fields.len());
            return Err(last.problem(what));
        }
        Ok(self.places.iter().map(|place| fields[*place]).collect())
    }
}

const NOTHING: Token<'static> = Token {
    text: "",
    line: 1,
    column: 1,
};

/// Lines that are not empty, with their numbers.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines());
    lines.filter(|(_, line)| !line.trim().is_empty())
}

/// At most this many; the last has the rest.
fn fields(line: &str, number: usize, most: usize) -> impl Iterator<Item = Token<'_>> {
    let mut column = 1;
    line.splitn(most, ',').map(move |field| {
        let text = field.trim();
        let blank = field.len() - field.trim_start().len();
        let token = Token {
            text: unquoted(text),
            line: number,
            column: column + blank,
        };
        column += field.chars().count() + 1;
        token
    })
}

fn unquoted(text: &str) -> &str {
    let inner = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    inner.unwrap_or(text)
}

/// A decimal number times `unit`; parts of one are dropped. `None` if it is none, or too large.
pub(crate) fn scaled(text: &str, unit: u64) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || part.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    // More decimals than anything here is divided into.
    let part = &part[..part.len().min(18)];
    let scale = 10u128.pow(part.len() as u32);
    let part = part.parse::<u128>().ok()? * u128::from(unit) / scale;
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    whole.checked_add(u64::try_from(part).ok()?)
}

/// `12.5`: as many decimals as it has.
pub(crate) fn show_seconds(time: Duration) -> String {
    const SECOND: u64 = 1_000_000_000;
    let part = format!("{:09}", time.0 % SECOND);
    match part.trim_end_matches('0') {
        "" => (time.0 / SECOND).to_string(),
        part => format!("{}.{part}", time.0 / SECOND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_exactly() {
        assert_eq!(scaled("12.5", 1_000_000_000), Some(12_500_000_000));
        assert_eq!(scaled("0.1000000000000000000001", 10), Some(1));
        assert_eq!(scaled("265.44", 1 << 20), Some(278_334_013));
        for wrong in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "1e3",
            "1 2",
            "inf",
            "99999999999999999999",
        ] {
            assert_eq!(scaled(wrong, 1_000_000_000), None, "{wrong}");
        }
    }

    #[test]
    fn seconds_are_shown_as_they_are_read() {
        for text in ["0", "12.5", "3.000000001", "86400"] {
            let read = scaled(text, 1_000_000_000).map(Duration);
            assert_eq!(read.map(show_seconds).as_deref(), Some(text));
        }
    }
}
