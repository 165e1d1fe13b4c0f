//! Log lines of the service's own processes: time, level, text, to standard error.
//!
//! Promise: text from a job cannot forge a line or drive a terminal; a log that cannot be written
//! stops nothing.

use std::cmp::Ordering;
use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use salus_wire::limits;

/// Something that an operator may want to know later.
pub fn info(text: impl fmt::Display) {
    line("info", &text.to_string());
}

/// Something that went wrong and was dealt with.
pub fn warn(text: impl fmt::Display) {
    line("warn", &text.to_string());
}

/// Something that went wrong and stays wrong.
pub fn error(text: impl fmt::Display) {
    line("error", &text.to_string());
}

fn line(level: &str, text: &str) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let text = tame(text);
    // One write a line, so that lines of several processes do not mix.
    let line = format!("{} {level:5} {text}\n", utc(now));
    if cfg!(test) {
        eprint!("{line}");
    } else {
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }
}

/// Lets so many lines a minute through: what others can cause must not fill a disk.
#[derive(Debug)]
pub(crate) struct Quota {
    most: u32,
    since: Option<Instant>,
    lines: u32,
}

impl Quota {
    const TIME: Duration = Duration::from_secs(60);

    pub(crate) fn of(lines_a_minute: u32) -> Self {
        Self {
            most: lines_a_minute,
            since: None,
            lines: 0,
        }
    }

    pub(crate) fn warn(&mut self, now: Instant, text: impl fmt::Display) {
        self.line(now, "warn", &text.to_string());
    }

    pub(crate) fn info(&mut self, now: Instant, text: impl fmt::Display) {
        self.line(now, "info", &text.to_string());
    }

    fn line(&mut self, now: Instant, level: &str, text: &str) {
        if self
            .since
            .is_none_or(|since| now.duration_since(since) > Self::TIME)
        {
            self.since = Some(now);
            self.lines = 0;
        }
        self.lines = self.lines.saturating_add(1);
        match self.lines.cmp(&self.most) {
            Ordering::Less => line(level, text),
            Ordering::Equal => line(
                level,
                &format!("{text} (more of these are not shown for a minute)"),
            ),
            Ordering::Greater => {}
        }
    }
}

/// The text with control characters escaped, and what else makes a line look like another: ends of
/// lines and paragraphs, and marks that turn the direction of writing.
pub fn tame(text: &str) -> String {
    let misleads = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if misleads(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// A name that a job gave to itself or to one of its programs, as it may be shown anywhere: no longer
/// than a name may be on the wire.
pub(crate) fn tame_name(name: &str) -> String {
    let mut tamed = tame(name);
    tamed.truncate(tamed.floor_char_boundary(limits::NAME_BYTES));
    tamed
}

/// `2025-11-16T00:31:05Z`; the civil date from days by the usual 400-year cycle.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_763_253_065), "2025-11-16T00:31:05Z");
    }

    #[test]
    fn lines_beyond_the_quota_are_left_out_until_a_minute_is_over() {
        let mut quota = Quota::of(3);
        let start = Instant::now();
        for n in 0..1000 {
            quota.info(start, format_args!("line {n}"));
        }
        assert_eq!((quota.lines, quota.since), (1000, Some(start)));
        let later = start + Duration::from_secs(61);
        quota.info(later, "again");
        assert_eq!((quota.lines, quota.since), (1, Some(later)));
    }

    #[test]
    fn a_name_cannot_start_a_line_of_its_own() {
        assert_eq!(tame("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
        assert_eq!(tame("a\u{9b}2J\r\u{7f}"), "a\\u{9b}2J\\r\\u{7f}");
        assert_eq!(
            tame("gpj.\u{202e}niart\u{2028}"),
            "gpj.\\u{202e}niart\\u{2028}"
        );
        assert_eq!(tame("größe 模型"), "größe 模型");
    }

    #[test]
    fn a_name_stays_within_its_limit() {
        let long = tame_name(&"\u{1b}".repeat(limits::NAME_BYTES));
        assert!(long.len() <= limits::NAME_BYTES && long.starts_with("\\u{1b}\\u{1b}"));
        let wide = tame_name(&"模".repeat(limits::NAME_BYTES));
        assert!(wide.len() <= limits::NAME_BYTES && wide.chars().all(|c| c == '模'));
    }
}
