//! Sending: frames leave in the order in which their calls were made.
//!
//! Job threads write under one lock and wait for no reply, but for requests of what only the service
//! knows (programs, profiles, usage). A launch or a copy needs a place in the session's window first; a
//! full window blocks the thread until the service has completed some.
//!
//! Promise: whatever was deferred leaves before every later frame; a thread in a callback never waits
//! for the service to read.
//! Cost: a launch takes three uncontended locks (frames, pending, deferred) and one `sendmsg`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use salus_channel::{Outbox, lock};
use salus_wire::{AskUsage, Await, OperationId, ReadArray, RequestId, ToService, Usage, limits};

use super::pending::{Asked, Full, Reply};
use super::session::Session;
use super::threads;
use super::turns::Link;
use crate::c_api::error::{Result, internal, precondition, unavailable};
use crate::calls::read::ReadInto;
use crate::objects::event::{Completion, EndedBy};

/// Which part of a full window should become free before a thread that waits for a place goes on.
const ROOM_PART: usize = 4;

/// More than a socket's buffer holds in frames that are read at once.
const LAST_READS: u32 = 64;

/// The frames that were not written yet. As a rule there are none when the lock is free.
#[derive(Default)]
pub(super) struct Outgoing(Mutex<Frames>);

#[derive(Default)]
struct Frames {
    outbox: Outbox,
    /// Grows with each launch and copy, in the order sent.
    last_operation: u64,
}

impl Session {
    /// Writes a frame, after everything deferred.
    pub(crate) fn send(&self, message: impl Into<ToService>) -> Result<()> {
        self.usable()?;
        let message = message.into();
        let mut frames = lock(&self.outgoing.0);
        lock(&self.deferred).flush_into(&mut frames.outbox);
        frames.outbox.push(&message, None);
        self.flush(frames)
    }

    /// Has a frame precede the next one that is sent.
    pub(super) fn queue(&self, message: &ToService, descriptor: OwnedFd) {
        lock(&self.outgoing.0)
            .outbox
            .push(message, Some(descriptor));
    }

    /// Writes everything deferred.
    pub(super) fn flush_deferred_now(&self) -> Result<()> {
        self.usable()?;
        let mut frames = lock(&self.outgoing.0);
        lock(&self.deferred).flush_into(&mut frames.outbox);
        self.flush(frames)
    }

    /// Likewise, by the dispatcher: if a thread is sending, that one takes it along, or the next look
    /// finds it again.
    pub(super) fn flush_deferred_if_idle(&self) {
        if let Ok(mut frames) = self.outgoing.0.try_lock() {
            lock(&self.deferred).flush_into(&mut frames.outbox);
            // An error shows as the end of the stream.
            let _ = frames.outbox.flush(self.socket().as_fd(), false);
        }
    }

    /// Whether a write in a callback left something; all others write everything or wait.
    pub(super) fn has_unsent(&self) -> bool {
        match self.outgoing.0.try_lock() {
            Ok(frames) => !frames.outbox.is_empty(),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => false,
        }
    }

    /// Writes what the socket takes of it.
    pub(super) fn write_unsent(&self) {
        if let Ok(mut frames) = self.outgoing.0.try_lock() {
            // An error shows as the end of the stream.
            let _ = frames.outbox.flush(self.socket().as_fd(), false);
        }
    }

    fn flush(&self, mut frames: MutexGuard<'_, Frames>) -> Result<()> {
        // A thread that handles frames must not wait for the service to read, or both could wait for
        // each other; the dispatcher writes the rest when the socket takes it.
        let wait = !threads::in_callback();
        match frames.outbox.flush(self.socket().as_fd(), wait) {
            Ok(_) => Ok(()),
            Err(e) => {
                drop(frames);
                if wait {
                    self.hear_last_words();
                }
                // The thread that reads sees the end of the stream and fails what is pending.
                self.shut_down();
                Err(self.lost_error(&e.to_string()))
            }
        }
    }

    /// A service that ends a session says why and closes the connection, and a write may fail before
    /// that was read: reads what is left.
    fn hear_last_words(&self) {
        for _ in 0..LAST_READS {
            if self.is_over() {
                return;
            }
            if let Err(why) = self.receive() {
                return self.fail(&why);
            }
        }
    }

    /// Sends a launch or a copy: `frame` gets its number. Waits for a place in the window first.
    pub(crate) fn operate(
        self: &Arc<Self>,
        frame: impl FnOnce(OperationId) -> ToService,
    ) -> Result<Arc<Completion>> {
        loop {
            self.usable()?;
            let mut frames = lock(&self.outgoing.0);
            let operation = OperationId(frames.last_operation + 1);
            // Before the frame leaves, because the reply may come at once.
            let added = self.pending.add_operation(operation, || {
                Completion::new(Arc::clone(self), EndedBy::Operation(operation))
            });
            let Some(completion) = added.map_err(|_| self.ended_error())? else {
                drop(frames);
                self.wait_for_place()?;
                continue;
            };
            frames.last_operation = operation.0;
            lock(&self.deferred).flush_into(&mut frames.outbox);
            frames.outbox.push(&frame(operation), None);
            self.flush(frames)?;
            return Ok(completion);
        }
    }

    /// Blocks until the window has a place, which another thread may take first.
    fn wait_for_place(&self) -> Result<()> {
        if threads::in_callback() {
            return self.may_wait();
        }
        let _following = self.turns.follow(self);
        // So that the service does not keep back a batch of completions that would let us go on. Not the
        // first: going on one at a time costs two wake-ups each, and with most of the window still
        // ahead the device does not run dry.
        let wait = || self.pending.wait_for_place(ROOM_PART);
        while let Some(one) = wait().map_err(|_| self.ended_error())? {
            one.expedite();
        }
        Ok(())
    }

    /// Sends a read, which `into` ends when it is answered. `message` gets its number.
    pub(crate) fn send_read(
        &self,
        mut into: ReadInto,
        message: impl FnOnce(RequestId) -> ReadArray,
    ) -> Result<()> {
        let request = self.next_request();
        while let Err(Full(back)) = self.pending.add_read(request, into) {
            if threads::in_callback() {
                return Err(precondition(format!(
                    "{} reads are in flight, which is the limit",
                    limits::REQUESTS
                )));
            }
            into = back;
            let _following = self.turns.follow(self);
            self.pending.wait_for_read();
        }
        self.send(message(request)).inspect_err(|_| {
            self.pending.take_read(request);
        })
    }

    /// Sends a request that is answered by a blob, and waits for that; with a timeout, not forever.
    pub(crate) fn request_blob(
        &self,
        request: Asked,
        message: impl Into<ToService>,
        timeout: Option<Duration>,
    ) -> Result<(OwnedFd, u64)> {
        match self.request(request, message, timeout)? {
            Reply::Blob(descriptor, bytes) => Ok((descriptor, bytes)),
            Reply::Usage(_) => Err(internal(
                "the service sent a usage where a blob was expected",
            )),
        }
    }

    /// Asks the service what this session holds.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let request = self.next_request();
        match self.request(Asked::Request(request), AskUsage { request }, None)? {
            Reply::Usage(usage) => Ok(usage),
            Reply::Blob(..) => Err(internal(
                "the service sent a blob where a usage was expected",
            )),
        }
    }

    fn request(
        &self,
        request: Asked,
        message: impl Into<ToService>,
        timeout: Option<Duration>,
    ) -> Result<Reply> {
        self.may_wait()?;
        let reply = self.pending.add_request(request);
        let sent = self.send(message);
        let _following = self.turns.follow(self);
        let received = sent.and_then(|()| match timeout {
            // Every request is answered, at the latest when the session ends.
            None => reply.recv().map_err(|_| self.ended_error()),
            Some(timeout) => reply
                .recv_timeout(timeout)
                .map_err(|_| unavailable(format!("the service did not reply within {timeout:?}"))),
        });
        if received.is_err() {
            self.pending.forget_request(request);
        }
        received?
    }

    /// Asks the service to report the end of an operation at once.
    pub(crate) fn ask_for_end(&self, operation: OperationId) {
        // If it cannot be sent, the session is lost and the operation ends with that.
        let _ = self.send(Await { operation });
        self.turns.want(self);
    }
}
