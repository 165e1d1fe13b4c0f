//! What the service has yet to answer, and who waits for it.
//!
//! Promise: after [`Pending::close`] nothing is added any more, and every waiting thread learns of it.
//! Not here: sending, and what the replies mean.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use salus_channel::{lock, wait};
use salus_wire::{OperationId, ProgramId, RequestId, Usage, limits};

use crate::c_api::error::{Error, Result};
use crate::calls::read::ReadInto;
use crate::objects::event::Completion;

pub(super) struct Pending {
    /// Launches and copies that may be in flight.
    window: usize,
    state: Mutex<State>,
    /// Something pending ended, or the session.
    room: Condvar,
}

#[derive(Default)]
struct State {
    /// In the order sent, so ascending.
    operations: VecDeque<(OperationId, Arc<Completion>)>,
    reads: HashMap<RequestId, ReadInto>,
    requests: HashMap<Asked, Sender<Result<Reply>>>,
    /// Threads that sleep until there is room; without any, waking them is saved.
    sleepers: u32,
    closed: bool,
}

/// What a thread waits for: a program to be compiled, or something else.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    Program(ProgramId),
    Request(RequestId),
}

/// What answers a request.
pub(super) enum Reply {
    /// The memfd of a text that no frame holds, and its length.
    Blob(OwnedFd, u64),
    Usage(Usage),
}

/// The session has ended.
pub(super) struct Closed;

/// More are in flight than the service allows.
pub(super) struct Full(pub(super) ReadInto);

impl Pending {
    pub(super) fn new(window: u32) -> Self {
        Self {
            window: window.max(1) as usize,
            state: Mutex::default(),
            room: Condvar::new(),
        }
    }

    /// Adds a launch or a copy; `None` if the window is full.
    pub(super) fn add_operation(
        &self,
        operation: OperationId,
        completion: impl FnOnce() -> Arc<Completion>,
    ) -> std::result::Result<Option<Arc<Completion>>, Closed> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Closed);
        }
        if state.operations.len() >= self.window {
            return Ok(None);
        }
        let completion = completion();
        let added = Arc::clone(&completion);
        state.operations.push_back((operation, added));
        Ok(Some(completion))
    }

    /// Blocks until the window may have a place. Returns first whose end the service should be asked
    /// for, if it was not yet: a `part` of the window becomes free with it.
    pub(super) fn wait_for_place(
        &self,
        part: usize,
    ) -> std::result::Result<Option<Arc<Completion>>, Closed> {
        let state = lock(&self.state);
        let operations = &state.operations;
        if !state.closed && operations.len() >= self.window {
            let index = (self.window / part).min(operations.len() - 1);
            let one = operations.get(index).map(|(_, completion)| completion);
            if let Some(one) = one.filter(|one| !one.is_expedited()) {
                return Ok(Some(Arc::clone(one)));
            }
            return self.sleep(state).map(|()| None);
        }
        if state.closed { Err(Closed) } else { Ok(None) }
    }

    /// Adds a read; gives it back if too many are in flight.
    pub(super) fn add_read(
        &self,
        request: RequestId,
        read: ReadInto,
    ) -> std::result::Result<(), Full> {
        let mut state = lock(&self.state);
        if state.closed {
            // Sending it fails, too, and says why.
            return Ok(());
        }
        if state.reads.len() >= limits::REQUESTS {
            return Err(Full(read));
        }
        state.reads.insert(request, read);
        Ok(())
    }

    /// Blocks until a read may perhaps be added.
    pub(super) fn wait_for_read(&self) {
        let state = lock(&self.state);
        if state.reads.len() >= limits::REQUESTS && !state.closed {
            // If the session ended, adding one shows it.
            let _ = self.sleep(state);
        }
    }

    /// Sleeps until there is room, or the session has ended.
    fn sleep(&self, mut state: MutexGuard<'_, State>) -> std::result::Result<(), Closed> {
        state.sleepers += 1;
        let state = wait(&self.room, state);
        if state.closed { Err(Closed) } else { Ok(()) }
    }

    /// Removes a read that was answered, or could not be sent.
    pub(super) fn take_read(&self, request: RequestId) -> Option<ReadInto> {
        let mut state = lock(&self.state);
        let read = state.reads.remove(&request);
        self.made_room(state);
        read
    }

    /// Adds a request for which a thread waits; its reply comes through the channel.
    pub(super) fn add_request(&self, request: Asked) -> Receiver<Result<Reply>> {
        let (sender, reply) = channel();
        let mut state = lock(&self.state);
        if !state.closed {
            state.requests.insert(request, sender);
        }
        reply
    }

    pub(super) fn forget_request(&self, request: Asked) {
        lock(&self.state).requests.remove(&request);
    }

    pub(super) fn reply(&self, request: Asked, reply: Result<Reply>) {
        let sender = lock(&self.state).requests.remove(&request);
        if let Some(sender) = sender {
            // Nobody may wait any more.
            let _ = sender.send(reply);
        }
    }

    /// Ends operations that were waited for, in this thread.
    pub(super) fn complete(&self, done: Vec<OperationId>, failed: Vec<(OperationId, Error)>) {
        let mut ended: Vec<(Arc<Completion>, Result<()>)> =
            Vec::with_capacity(done.len() + failed.len());
        let outcomes = done
            .into_iter()
            .map(|operation| (operation, Ok(())))
            .chain(failed.into_iter().map(|(operation, e)| (operation, Err(e))));
        let mut state = lock(&self.state);
        for (operation, outcome) in outcomes {
            let found = state
                .operations
                .binary_search_by_key(&operation, |(operation, _)| *operation);
            if let Some((_, completion)) = found.ok().and_then(|i| state.operations.remove(i)) {
                ended.push((completion, outcome));
            }
        }
        self.made_room(state);
        for (completion, outcome) in ended {
            completion.end(outcome);
        }
    }

    /// Ends everything with an error, in this thread; nothing is added any more.
    pub(super) fn close(&self, error: &Error) {
        let mut state = lock(&self.state);
        state.closed = true;
        let operations = std::mem::take(&mut state.operations);
        let reads = std::mem::take(&mut state.reads);
        let requests = std::mem::take(&mut state.requests);
        self.made_room(state);
        for (_, sender) in requests {
            let _ = sender.send(Err(error.clone()));
        }
        for (_, completion) in operations {
            completion.end(Err(error.clone()));
        }
        for (_, read) in reads {
            read.end(Some(error.clone()));
        }
    }

    /// Wakes the threads that wait for room.
    fn made_room(&self, mut state: MutexGuard<'_, State>) {
        let sleepers = std::mem::take(&mut state.sleepers);
        drop(state);
        if sleepers > 0 {
            self.room.notify_all();
        }
    }
}
