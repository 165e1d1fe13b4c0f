//! How far the run is, on standard error: one line that is rewritten on a terminal, one line per
//! row elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use salus_console::output;
use salus_units::Time;

use crate::rows::row_table::{Pace, Row};

pub(crate) struct Progress {
    /// What one of them is called.
    word: &'static str,
    rows: Vec<(&'static str, f64)>,
    row: usize,
    /// Seconds that the rows before the current one were expected to take.
    expected: f64,
    began: Instant,
    row_began: Instant,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new(rows: &[&'static Row], pace: Pace) -> Self {
        let rows = rows.iter().map(|row| (row.name, pace.seconds(row)));
        Self {
            terminal: io::stderr().is_terminal(),
            ..Self::in_lines("row", rows.collect())
        }
    }

    /// Over things that print lines themselves, with the seconds that each is expected to take.
    pub(crate) fn in_lines(word: &'static str, rows: Vec<(&'static str, f64)>) -> Self {
        Self {
            word,
            rows,
            row: 0,
            expected: 0.0,
            began: Instant::now(),
            row_began: Instant::now(),
            terminal: false,
        }
    }

    /// The next row begins.
    pub(crate) fn begin(&mut self) {
        self.row_began = Instant::now();
        if !self.terminal {
            let left = self.left(0.0);
            output::note(&format!("{}, about {left} left", self.place()));
        }
    }

    /// `done` of its rounds are done.
    pub(crate) fn rounds(&self, done: usize, of: usize) {
        if self.terminal {
            let left = self.left(done as f64 / of as f64);
            let place = self.place();
            let line = format!("\r\x1b[K{place}: round {done} of {of}, about {left} left");
            let mut out = io::stderr().lock();
            let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        }
    }

    /// The row is over.
    pub(crate) fn end(&mut self) {
        self.expected += self.rows.get(self.row).map_or(0.0, |row| row.1);
        self.row += 1;
        if self.terminal {
            let _ = io::stderr().lock().write_all(b"\r\x1b[K");
        }
    }

    fn place(&self) -> String {
        let name = self.rows.get(self.row).map_or("", |row| row.0);
        let word = self.word;
        format!("{word} {} of {}, {name}", self.row + 1, self.rows.len())
    }

    /// Where it is and how long it goes on, as a line.
    pub(crate) fn say(&self) {
        let current = self.rows.get(self.row).map_or(0.0, |row| row.1);
        let expected = (self.slower() * current).max(1.0);
        // Never done before it is: an experiment may take longer than was thought.
        let share = (self.row_began.elapsed().as_secs_f64() / expected).min(0.9);
        output::note(&format!(
            "{}, about {} left",
            self.place(),
            self.left(share)
        ));
    }

    /// Expectations were made on another machine.
    fn slower(&self) -> f64 {
        let elapsed = self.row_began.duration_since(self.began).as_secs_f64();
        match self.expected > 0.0 {
            true => elapsed / self.expected,
            false => 1.0,
        }
    }

    /// The time left, with `share` of the current row done.
    fn left(&self, share: f64) -> Time {
        let slower = self.slower();
        let later: f64 = self.rows.iter().skip(self.row + 1).map(|row| row.1).sum();
        let current = self.rows.get(self.row).map_or(0.0, |row| row.1);
        let current = if share > 0.05 {
            self.row_began.elapsed().as_secs_f64() * (1.0 / share - 1.0)
        } else {
            slower * current
        };
        Time(Duration::try_from_secs_f64(current + slower * later).unwrap_or_default())
    }
}
