//! How far an experiment is, on standard error: a line that is rewritten on a terminal, elsewhere one at
//! each tenth.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use salus_units::Time;

use crate::output;

pub(super) struct Progress {
    began: Instant,
    terminal: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            terminal: io::stderr().is_terminal(),
        }
    }

    /// `done` of equal parts are done.
    pub(super) fn show(&self, part: &str, done: u64, of: u64) {
        let each = self.began.elapsed().as_secs_f64() / done.max(1) as f64;
        let left = Duration::try_from_secs_f64(each * (of - done) as f64);
        let left = Time(left.unwrap_or_default());
        let tenth = |done: u64| done * 10 / of.max(1);
        if self.terminal {
            self.rewrite(&format!("{part} {done} of {of}, about {left} left"));
        } else if tenth(done) > tenth(done - 1) {
            output::note(&format!("{part} {done} of {of}, about {left} left"));
        }
    }

    /// A part begins that takes longer than those before it.
    pub(super) fn begin(&self, part: &str, done: u64, of: u64) {
        let line = format!("{part} {} of {of}", done + 1);
        match self.terminal {
            true => self.rewrite(&line),
            false => output::note(&line),
        }
    }

    fn rewrite(&self, line: &str) {
        let mut out = io::stderr().lock();
        let line = format!("\r\x1b[K{line}");
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }

    pub(super) fn end(&self) {
        if self.terminal {
            let _ = io::stderr().lock().write_all(b"\r\x1b[K");
        }
    }
}
