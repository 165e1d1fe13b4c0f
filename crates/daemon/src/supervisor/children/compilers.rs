//! The compilers: started when the device host wants them, and never more than may run at once.
//!
//! A compiler speaks to the device host alone: the supervisor hands over the other end of its
//! socket and only watches its process. It may crash at any program, which the device host then learns.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::supervisor::children::process::Process;

/// A compiler that lived shorter than this did not die of a program's size.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// Then the next one waits, so that a library that cannot be loaded does not keep a core busy.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug)]
struct Compiler {
    id: u64,
    process: Process,
    started: Instant,
}

#[derive(Debug)]
pub(crate) struct Compilers {
    limit: usize,
    next_id: u64,
    running: Vec<Compiler>,
    /// How many the device host asked for and has not got.
    wanted: usize,
    not_before: Option<Instant>,
}

/// One that ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) id: u64,
    pub(crate) how: String,
}

impl Compilers {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit: limit as usize,
            next_id: 1,
            running: Vec::new(),
            wanted: 0,
            not_before: None,
        }
    }

    pub(crate) fn want(&mut self, count: u32) {
        self.wanted = (self.wanted + count as usize).min(self.limit);
    }

    /// When the next one may start, if one is to start.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        let wanted = self.wanted > 0 && self.running.len() < self.limit;
        wanted.then(|| self.not_before.unwrap_or(now))
    }

    /// Whether the next one is the first of this service.
    pub(crate) fn is_first(&self) -> bool {
        self.next_id == 1
    }

    /// Counts a new one. Returns what the device host must be told: its id, pid and socket.
    pub(crate) fn joined(
        &mut self,
        (process, control): (Process, UnixStream),
        now: Instant,
    ) -> (u64, i32, UnixStream) {
        let id = self.next_id;
        self.next_id += 1;
        self.wanted = self.wanted.saturating_sub(1);
        let pid = process.pid();
        self.running.push(Compiler {
            id,
            process,
            started: now,
        });
        (id, pid, control)
    }

    /// One could not be started: the next attempt waits.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.not_before = Some(now + PAUSE);
    }

    /// Takes out those that ended.
    pub(crate) fn reap(&mut self, now: Instant) -> Vec<Ended> {
        let mut ended = Vec::new();
        self.running.retain_mut(|compiler| {
            let Some(how) = compiler.process.ended() else {
                return true;
            };
            if now.duration_since(compiler.started) < SHORT_LIFE {
                self.not_before = Some(now + PAUSE);
            }
            ended.push(Ended {
                id: compiler.id,
                how,
            });
            false
        });
        ended
    }

    /// Has one end; `reap` finds it.
    pub(crate) fn end(&self, id: u64) {
        if let Some(compiler) = self.running.iter().find(|compiler| compiler.id == id) {
            compiler.process.signal(rustix::process::Signal::KILL);
        }
    }

    /// Ends all of them: their device host is gone.
    pub(crate) fn clear(&mut self) {
        self.running.clear();
        self.wanted = 0;
    }

    pub(crate) fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        self.running
            .iter_mut()
            .map(|compiler| &mut compiler.process)
    }
}
