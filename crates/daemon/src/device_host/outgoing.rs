//! What a session tells its job, and when.
//!
//! A wake-up of the job costs tens of microseconds, so ends of iterations are told in batches: at
//! once if somebody waits for one or none was told for a while, else with the next.
//!
//! Promise: nothing stays untold for longer than [`LINGER`]; nothing here waits for the job: what
//! its socket does not take stays in a bounded buffer, and past the bound the session is broken.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use salus_channel::Outbox;
use salus_wire::{Completed, Error, FromService, Region, Released};

/// How long an end may wait for company.
pub(super) const LINGER: Duration = Duration::from_millis(1);
/// Ends told together at the most: a quarter of the window, so that the job never runs dry.
const BATCH: usize = 8;
/// Regions told together: then the job reuses its warm memory soon.
const RELEASED_BATCH: usize = 64;
/// Bytes that a job may leave unread. All it may have in flight fits many times.
const UNREAD_BYTES: usize = 16 << 20;

pub(super) struct Outgoing {
    outbox: Outbox,
    done: Vec<u64>,
    failed: Vec<(u64, Error)>,
    released: Vec<Region>,
    released_bytes: u64,
    /// The job waits for this operation and all before it.
    awaited: u64,
    /// Reads under way: their answers will carry the ends along.
    reads: u32,
    last_flush: Instant,
    /// The session's thread sleeps until it is woken.
    unwatched: bool,
    broken: bool,
}

/// What is left to do for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    Nothing,
    /// The session's thread sleeps without a time limit and must look.
    Wake,
}

impl Outgoing {
    pub(super) fn new() -> Self {
        Self {
            outbox: Outbox::default(),
            done: Vec::new(),
            failed: Vec::new(),
            released: Vec::new(),
            released_bytes: 0,
            awaited: 0,
            reads: 0,
            last_flush: Instant::now(),
            unwatched: false,
            broken: false,
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Called by the session's thread before it sleeps: how long it may, and whether it must wait
    /// for room in the socket.
    pub(super) fn before_sleep(&mut self, socket: &UnixStream) -> (Option<Duration>, bool) {
        if self.lingers() && self.last_flush.elapsed() >= LINGER {
            self.flush(socket);
        }
        let limit = self
            .lingers()
            .then(|| LINGER.saturating_sub(self.last_flush.elapsed()));
        self.unwatched = limit.is_none();
        (limit, !self.outbox.is_empty())
    }

    /// Something stays here: the session's thread must know.
    fn stay(&mut self) -> Rest {
        if std::mem::take(&mut self.unwatched) {
            Rest::Wake
        } else {
            Rest::Nothing
        }
    }

    fn lingers(&self) -> bool {
        !(self.done.is_empty() && self.failed.is_empty() && self.released.is_empty())
    }

    pub(super) fn ended(
        &mut self,
        socket: &UnixStream,
        operation: u64,
        result: Result<(), Error>,
    ) -> Rest {
        match result {
            Ok(()) => self.done.push(operation),
            Err(error) => self.failed.push((operation, error)),
        }
        let due = operation <= self.awaited
            || self.done.len() + self.failed.len() >= BATCH
            || (self.reads == 0 && self.last_flush.elapsed() >= LINGER);
        if due { self.flush(socket) } else { self.stay() }
    }

    /// The job waits for `operation`; if it has ended already, the job is told now.
    pub(super) fn awaited(&mut self, socket: &UnixStream, operation: u64) -> Rest {
        self.awaited = self.awaited.max(operation);
        if self.lingers() {
            self.flush(socket)
        } else {
            Rest::Nothing
        }
    }

    pub(super) fn released(&mut self, socket: &UnixStream, region: Region) -> Rest {
        self.released.push(region);
        self.released_bytes += region.length;
        let due = self.released.len() >= RELEASED_BATCH || self.released_bytes >= 1 << 20;
        if due { self.flush(socket) } else { self.stay() }
    }

    pub(super) fn read_begins(&mut self) {
        self.reads += 1;
    }

    pub(super) fn read_ended(&mut self, socket: &UnixStream, message: &FromService) -> Rest {
        self.reads = self.reads.saturating_sub(1);
        self.send(socket, message, None)
    }

    /// An answer that the job waits for.
    pub(super) fn send(
        &mut self,
        socket: &UnixStream,
        message: &FromService,
        descriptor: Option<OwnedFd>,
    ) -> Rest {
        self.gather();
        self.outbox.push(message, descriptor);
        self.write(socket)
    }

    pub(super) fn flush(&mut self, socket: &UnixStream) -> Rest {
        self.gather();
        self.write(socket)
    }

    fn gather(&mut self) {
        if !(self.done.is_empty() && self.failed.is_empty()) {
            let done = std::mem::take(&mut self.done);
            let failed = std::mem::take(&mut self.failed);
            self.outbox
                .push(&FromService::from(Completed { done, failed }), None);
        }
        if !self.released.is_empty() {
            let regions = std::mem::take(&mut self.released);
            self.released_bytes = 0;
            self.outbox
                .push(&FromService::from(Released { regions }), None);
        }
    }

    fn write(&mut self, socket: &UnixStream) -> Rest {
        self.last_flush = Instant::now();
        match self.outbox.flush(socket, false) {
            Ok(true) => Rest::Nothing,
            Ok(false) => {
                self.broken |= self.outbox.len() > UNREAD_BYTES;
                Rest::Wake
            }
            Err(_) => {
                self.broken = true;
                Rest::Wake
            }
        }
    }
}
