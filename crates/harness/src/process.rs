//! A process that ends with us, with its standard error in a file.
//!
//! A [`Process`] that is dropped has ended and is reaped.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use salus_daemon::config::Problem;

use crate::keeper::{Ending, Keeper};
use crate::watch::Watch;

/// Environment that would make the work differ from what is measured or tested.
const FOREIGN: &[&str] = &["JAX", "SALUS_", "PJRT_", "XLA_", "XDG_", "NPROC", "LIBTPU"];
/// What stays: by the first, the end-to-end tests find what was left running; the second says how the
/// stand-in for an accelerator behaves.
const KEPT: [&str; 2] = ["SALUS_TEST_MARK", salus_wire::env::STANDIN];
/// How many lines of the log of a process that failed are shown.
const TAIL_LINES: usize = 12;
/// A process that was asked to end, and takes longer, is killed. Services end their children first.
const END_TIME: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Process {
    child: Child,
    watch: Watch,
    ending: Ending,
    log: PathBuf,
}

impl Process {
    /// `configure` sets arguments, variables and standard streams.
    pub fn start(
        keeper: &Keeper,
        program: &OsStr,
        ending: Ending,
        log: &Path,
        configure: impl FnOnce(&mut Command),
    ) -> Result<Self, Problem> {
        let shown = Path::new(program).display();
        let failed = |e: io::Error| Problem::new(format!("`{shown}` cannot be started: {e}"));
        let errors = File::options().append(true).create(true).open(log);
        let mut command = keeper.command(program, ending);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_foreign(name)) {
            command.env_remove(name);
        }
        command.stderr(errors.map_err(failed)?).stdin(Stdio::null());
        configure(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        let watch = Watch::of(child.id()).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        });
        Ok(Self {
            watch: watch.map_err(failed)?,
            child,
            ending,
            log: log.to_owned(),
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard input, if that is a pipe; once.
    pub fn input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its standard output, if that is a pipe; once.
    pub fn output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.watch.signal(signal)
    }

    /// Its exit status, if it ends by itself within `time`.
    pub fn ended_within(&mut self, time: Duration) -> Option<ExitStatus> {
        self.watch.ended_within(time);
        self.child.try_wait().ok().flatten()
    }

    /// What it wrote to standard error.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// `what`, how the process ended if it did, and the end of what it wrote.
    pub fn problem(&mut self, what: &str) -> Problem {
        let ended = match self.child.try_wait() {
            Ok(Some(status)) => format!(" ({status})"),
            _ => String::new(),
        };
        let tail: String = self
            .log_tail()
            .lines()
            .map(|line| format!("\n  {line}"))
            .collect();
        Problem::new(format!("{what}{ended}{tail}"))
    }

    /// Ends it in its own way and waits for that; kills it if it takes too long. Says whether it
    /// ended by itself.
    pub fn end(&mut self) -> bool {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.watch.signal(self.ending.signal());
        }
        let ended = self.watch.ended_within(END_TIME);
        if !ended {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn is_foreign(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    !KEPT.contains(&&*name) && FOREIGN.iter().any(|prefix| name.starts_with(prefix))
}
