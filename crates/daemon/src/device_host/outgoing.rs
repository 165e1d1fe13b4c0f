//! What a session tells its job, and when.
//!
//! A wake-up of the job costs tens of microseconds, so ends of iterations are told in batches: at
//! once if somebody waits for this one, if it failed or if none was told for a while, else with the
//! next.
//!
//! Promise: nothing stays untold for longer than [`LINGER`]; nothing here waits for the job: what
//! its socket does not take stays in a bounded buffer, and past the bound the session is broken.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use salus_channel::Outbox;
use salus_wire::{Completed, Error, FromService, Region, Released, limits};

/// How long an end may wait for company.
const LINGER: Duration = Duration::from_millis(5);
/// Ends told together at the most: a quarter of the window, so that the job never runs dry.
const BATCH: usize = 8;
/// Regions told together: then the job reuses its warm memory soon.
const RELEASED_BATCH: usize = 64;
/// Operations that a job can wait for at once, and as many that have ended meanwhile. Forgetting one
/// would only mean that its end lingers.
const AWAITED: usize = 2 * limits::LAUNCHES as usize;
/// Bytes that a job may leave unread. All it may have in flight fits many times.
const UNREAD_BYTES: usize = 16 << 20;

pub(super) struct Outgoing {
    outbox: Outbox,
    done: Vec<u64>,
    failed: Vec<(u64, Error)>,
    released: Vec<Region>,
    released_bytes: u64,
    /// The job waits for these operations.
    awaited: Vec<u64>,
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
            awaited: Vec::new(),
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
        let awaited = self.awaited.iter().position(|one| *one == operation);
        if let Some(position) = awaited {
            self.awaited.remove(position);
        }
        let due = awaited.is_some()
            || !self.failed.is_empty()
            || self.done.len() >= BATCH
            || (self.reads == 0 && self.last_flush.elapsed() >= LINGER);
        if due { self.flush(socket) } else { self.stay() }
    }

    /// The job waits for `operation`; if it has ended already, the job is told now.
    pub(super) fn awaited(&mut self, socket: &UnixStream, operation: u64) -> Rest {
        if self.done.contains(&operation) {
            return self.flush(socket);
        }
        // Either it has yet to end, or the job was told while it asked; of those some remain here.
        if self.awaited.len() >= AWAITED {
            self.awaited.remove(0);
        }
        self.awaited.push(operation);
        Rest::Nothing
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

#[cfg(test)]
mod tests {
    use salus_channel::Inbox;

    use super::*;

    /// Something was told just now, so that ends linger.
    fn talking() -> (Outgoing, UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("two sockets");
        let mut outgoing = Outgoing::new();
        // As far away as can be: no end is due because of the time.
        outgoing.last_flush += Duration::from_secs(3600);
        (outgoing, ours, theirs)
    }

    /// What the job has been told by now, a list for each frame.
    fn told(theirs: &UnixStream) -> Vec<(Vec<u64>, usize)> {
        let mut inbox = Inbox::default();
        let mut frames = Vec::new();
        while inbox.fill(theirs, false).is_ok() {
            while let Some(frame) = inbox.take::<FromService>().expect("a frame") {
                let FromService::Completed(ends) = frame.message else {
                    panic!("{:?}", frame.message)
                };
                frames.push((ends.done, ends.failed.len()));
            }
        }
        frames
    }

    #[test]
    fn ends_wait_for_the_one_that_is_awaited() {
        let (mut outgoing, ours, theirs) = talking();
        outgoing.awaited(&ours, 3);
        outgoing.ended(&ours, 1, Ok(()));
        outgoing.ended(&ours, 2, Ok(()));
        assert_eq!(told(&theirs), []);
        outgoing.ended(&ours, 3, Ok(()));
        assert_eq!(told(&theirs), [(vec![1, 2, 3], 0)]);
    }

    #[test]
    fn an_end_that_lingers_is_told_when_it_is_awaited() {
        let (mut outgoing, ours, theirs) = talking();
        outgoing.ended(&ours, 1, Ok(()));
        outgoing.awaited(&ours, 2);
        assert_eq!(told(&theirs), []);
        outgoing.awaited(&ours, 1);
        assert_eq!(told(&theirs), [(vec![1], 0)]);
    }

    #[test]
    fn a_failure_and_a_full_batch_are_told_at_once() {
        let (mut outgoing, ours, theirs) = talking();
        outgoing.ended(&ours, 1, Ok(()));
        let message = "burnt".to_owned();
        outgoing.ended(&ours, 2, Err(Error { code: 13, message }));
        assert_eq!(told(&theirs), [(vec![1], 1)]);
        outgoing.last_flush += Duration::from_secs(3600);
        let batch = 3..3 + BATCH as u64;
        for operation in batch.clone() {
            assert_eq!(told(&theirs), []);
            outgoing.ended(&ours, operation, Ok(()));
        }
        assert_eq!(told(&theirs), [(batch.collect(), 0)]);
    }

    #[test]
    fn a_job_that_awaits_without_end_takes_no_memory() {
        let (mut outgoing, ours, theirs) = talking();
        for operation in 0..100_000 {
            outgoing.awaited(&ours, operation);
        }
        assert!(outgoing.awaited.len() <= AWAITED);
        // The latest are not forgotten.
        outgoing.ended(&ours, 99_999, Ok(()));
        assert_eq!(told(&theirs), [(vec![99_999], 0)]);
    }
}
