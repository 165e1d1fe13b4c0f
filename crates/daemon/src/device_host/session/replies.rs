//! What a session tells its job, and when: completions are sent in batches.
//!
//! A wake-up of the job costs tens of microseconds. So the end of an operation is told at once if the
//! job waits for this one, if it failed, or if nothing was told for a while; otherwise it waits for
//! the next reply, or until the batch is full.
//!
//! Promise: nothing stays untold for longer than [`BATCH_WAIT`]; nothing here waits for the job: what
//! its socket does not take stays in a bounded buffer, and past the bound the session is broken.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use salus_channel::Outbox;
use salus_wire::{Completed, Error, FromService, OperationId, Region, Released, limits};

/// How long a completion may wait for others: one wake-up in 5 ms costs a job about 1 %.
const BATCH_WAIT: Duration = Duration::from_millis(5);
/// Completions in a batch at the most: a quarter of the window, so that the job never runs dry.
const COMPLETION_BATCH: usize = 8;
/// Regions in a batch at the most: the job should reuse its memory while it is warm in the caches.
const RELEASE_BATCH: usize = 64;
/// Bytes of regions in a batch at the most: about what the caches hold.
const RELEASE_BATCH_BYTES: u64 = 1 << 20;
/// Operations that a job can wait for at once, and as many that have ended meanwhile. An operation
/// that is forgotten waits for its batch, and nothing worse.
const AWAITED_MAX: usize = 2 * limits::LAUNCHES as usize;
/// Bytes that a job may leave unread: many times what it may have in flight.
const UNREAD_BYTES_MAX: usize = 16 << 20;

pub(crate) struct Replies {
    outbox: Outbox,
    /// The batch: operations that ended, those that failed, and regions that the job may reuse.
    done: Vec<OperationId>,
    failed: Vec<(OperationId, Error)>,
    released: Vec<Region>,
    released_bytes: u64,
    /// The job waits for these operations.
    awaited: Vec<OperationId>,
    /// Reads under way: their replies will take the batch along.
    reads: u32,
    last_flush: Instant,
    /// The session's thread sleeps without a time limit.
    unwatched: bool,
    broken: bool,
}

/// What the caller must do after it has let go of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThenDo {
    Nothing,
    /// Wake the session's thread, which sleeps without a time limit or must see that it is broken.
    Wake,
}

/// How the session's thread sleeps.
pub(crate) struct BeforeSleep {
    /// Until the batch must be sent.
    pub(crate) timeout: Option<Duration>,
    /// Something is left that the socket has not taken.
    pub(crate) socket_is_full: bool,
}

impl Replies {
    pub(crate) fn new() -> Self {
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

    /// Called by the session's thread before it sleeps. Fails if the session is broken.
    pub(crate) fn before_sleep(&mut self, socket: &UnixStream) -> io::Result<BeforeSleep> {
        if self.has_batch() && self.last_flush.elapsed() >= BATCH_WAIT {
            self.flush(socket);
        }
        if self.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let timeout = self
            .has_batch()
            .then(|| BATCH_WAIT.saturating_sub(self.last_flush.elapsed()));
        self.unwatched = timeout.is_none();
        Ok(BeforeSleep {
            timeout,
            socket_is_full: !self.outbox.is_empty(),
        })
    }

    /// Something waits in the batch: the session's thread must sleep with a time limit.
    fn wait_for_batch(&mut self) -> ThenDo {
        if std::mem::take(&mut self.unwatched) {
            ThenDo::Wake
        } else {
            ThenDo::Nothing
        }
    }

    fn has_batch(&self) -> bool {
        !(self.done.is_empty() && self.failed.is_empty() && self.released.is_empty())
    }

    /// An operation has ended: adds it to the batch, which is sent if it should not wait.
    pub(crate) fn ended(
        &mut self,
        socket: &UnixStream,
        operation: OperationId,
        result: Result<(), Error>,
    ) -> ThenDo {
        match result {
            Ok(()) => self.done.push(operation),
            Err(error) => self.failed.push((operation, error)),
        }
        let awaited = self.awaited.iter().position(|one| *one == operation);
        if let Some(position) = awaited {
            self.awaited.remove(position);
        }
        let send_now = awaited.is_some()
            || !self.failed.is_empty()
            || self.done.len() >= COMPLETION_BATCH
            || (self.reads == 0 && self.last_flush.elapsed() >= BATCH_WAIT);
        if send_now {
            self.flush(socket)
        } else {
            self.wait_for_batch()
        }
    }

    /// The job waits for `operation`; if it has ended already, the job is told now.
    pub(crate) fn awaited(&mut self, socket: &UnixStream, operation: OperationId) -> ThenDo {
        if self.done.contains(&operation) {
            return self.flush(socket);
        }
        // It has not ended, or its end was sent before the request came; those stay here until they
        // are the oldest.
        if self.awaited.len() >= AWAITED_MAX {
            self.awaited.remove(0);
        }
        self.awaited.push(operation);
        ThenDo::Nothing
    }

    /// The job may reuse a region: adds it to the batch.
    pub(crate) fn released(&mut self, socket: &UnixStream, region: Region) -> ThenDo {
        self.released.push(region);
        self.released_bytes += region.length;
        let send_now =
            self.released.len() >= RELEASE_BATCH || self.released_bytes >= RELEASE_BATCH_BYTES;
        if send_now {
            self.flush(socket)
        } else {
            self.wait_for_batch()
        }
    }

    pub(crate) fn read_begins(&mut self) {
        self.reads += 1;
    }

    pub(crate) fn read_ended(&mut self, socket: &UnixStream, message: &FromService) -> ThenDo {
        self.reads = self.reads.saturating_sub(1);
        self.send(socket, message, None)
    }

    /// Sends a reply that the job waits for, with the batch before it.
    pub(crate) fn send(
        &mut self,
        socket: &UnixStream,
        message: &FromService,
        descriptor: Option<OwnedFd>,
    ) -> ThenDo {
        self.pack_batch();
        self.outbox.push(message, descriptor);
        self.write(socket)
    }

    pub(crate) fn flush(&mut self, socket: &UnixStream) -> ThenDo {
        self.pack_batch();
        self.write(socket)
    }

    fn pack_batch(&mut self) {
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

    fn write(&mut self, socket: &UnixStream) -> ThenDo {
        self.last_flush = Instant::now();
        match self.outbox.flush(socket, false) {
            Ok(true) => ThenDo::Nothing,
            Ok(false) => {
                self.broken |= self.outbox.len() > UNREAD_BYTES_MAX;
                ThenDo::Wake
            }
            Err(_) => {
                self.broken = true;
                ThenDo::Wake
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use salus_channel::Inbox;

    use super::*;

    /// Something was told just now, so that completions wait for a batch.
    fn talking() -> (Replies, UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("two sockets");
        let mut replies = Replies::new();
        // Far in the future: no batch is sent because of the time.
        replies.last_flush += Duration::from_secs(3600);
        (replies, ours, theirs)
    }

    /// What the job has been told so far, a list for each frame.
    fn told(theirs: &UnixStream) -> Vec<(Vec<u64>, usize)> {
        let mut inbox = Inbox::default();
        let mut frames = Vec::new();
        while inbox.fill(theirs, false).is_ok() {
            while let Some(frame) = inbox.take::<FromService>().expect("a frame") {
                let FromService::Completed(ends) = frame.message else {
                    panic!("{:?}", frame.message)
                };
                let done = ends.done.iter().map(|operation| operation.0).collect();
                frames.push((done, ends.failed.len()));
            }
        }
        frames
    }

    #[test]
    fn ends_wait_for_the_one_that_is_awaited() {
        let (mut replies, ours, theirs) = talking();
        replies.awaited(&ours, OperationId(3));
        replies.ended(&ours, OperationId(1), Ok(()));
        replies.ended(&ours, OperationId(2), Ok(()));
        assert_eq!(told(&theirs), []);
        replies.ended(&ours, OperationId(3), Ok(()));
        assert_eq!(told(&theirs), [(vec![1, 2, 3], 0)]);
    }

    #[test]
    fn an_end_that_waits_for_its_batch_is_told_when_it_is_awaited() {
        let (mut replies, ours, theirs) = talking();
        replies.ended(&ours, OperationId(1), Ok(()));
        replies.awaited(&ours, OperationId(2));
        assert_eq!(told(&theirs), []);
        replies.awaited(&ours, OperationId(1));
        assert_eq!(told(&theirs), [(vec![1], 0)]);
    }

    #[test]
    fn a_failure_and_a_full_batch_are_told_at_once() {
        let (mut replies, ours, theirs) = talking();
        replies.ended(&ours, OperationId(1), Ok(()));
        let message = "burnt".to_owned();
        replies.ended(
            &ours,
            OperationId(2),
            Err(Error::new(salus_wire::ErrorCode::Internal, message)),
        );
        assert_eq!(told(&theirs), [(vec![1], 1)]);
        replies.last_flush += Duration::from_secs(3600);
        let batch = 3..3 + COMPLETION_BATCH as u64;
        for operation in batch.clone() {
            assert_eq!(told(&theirs), []);
            replies.ended(&ours, OperationId(operation), Ok(()));
        }
        assert_eq!(told(&theirs), [(batch.collect(), 0)]);
    }

    #[test]
    fn a_job_that_awaits_without_end_takes_no_memory() {
        let (mut replies, ours, theirs) = talking();
        for operation in 0..100_000 {
            replies.awaited(&ours, OperationId(operation));
        }
        assert!(replies.awaited.len() <= AWAITED_MAX);
        // The latest are not forgotten.
        replies.ended(&ours, OperationId(99_999), Ok(()));
        assert_eq!(told(&theirs), [(vec![99_999], 0)]);
    }
}
