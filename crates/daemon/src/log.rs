//! Log lines of the service's own processes: time, level, text, to standard error.
//!
//! Promise: text from a job cannot forge a line or drive a terminal; a log that cannot be written
//! stops nothing.

use std::cmp::Ordering;
use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use salus_units::utc;
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

/// Lets a number of lines a minute through: what jobs can cause must not fill a disk.
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

#[cfg(test)]
mod tests {
    use super::*;

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
