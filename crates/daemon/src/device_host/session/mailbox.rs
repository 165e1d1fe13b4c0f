//! What other threads leave for a session's thread: the engine's decisions, launches that ended,
//! long reads.
//!
//! Promise: the thread takes everything with one lock, and looks for decisions between two
//! operations without any.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, MutexGuard};

use salus_channel::lock;
use salus_device::{Device, Done};
use salus_engine::Decision;
use salus_wire::OperationId;

use crate::device_host::clocked_engine::Decided;
use crate::device_host::session::operations::launch::CalledBack;

pub(crate) struct Mailbox<D: Device> {
    contents: Mutex<Contents<D>>,
    /// Set while `contents.mail` has decisions.
    has_decisions: AtomicBool,
}

struct Contents<D: Device> {
    mail: Mail<D>,
    /// Launches started and not ended, each with the reads that wait for its end.
    running: HashMap<OperationId, Vec<Done>>,
    /// Launches started whose end has not yet been dealt with in full.
    unfinished: u32,
    /// The thread has ended and takes nothing any more.
    closed: bool,
}

pub(crate) type LongRead = Box<dyn FnOnce() + Send>;

pub(crate) struct Mail<D: Device> {
    pub(crate) decided: Decided,
    /// Launches that ended: their donated arguments can be dropped without blocking.
    pub(crate) ended: Vec<OperationId>,
    /// Copies to the host that are too long for a thread of the plugin.
    pub(crate) reads: Vec<LongRead>,
    /// Launches that called back and have ended: their outputs are not in the array table yet.
    pub(crate) called_back: Vec<CalledBack<D>>,
}

impl<D: Device> Default for Mail<D> {
    fn default() -> Self {
        Self {
            decided: Decided::default(),
            ended: Vec::new(),
            reads: Vec::new(),
            called_back: Vec::new(),
        }
    }
}

impl<D: Device> Default for Mailbox<D> {
    fn default() -> Self {
        let contents = Contents {
            mail: Mail::default(),
            running: HashMap::new(),
            unfinished: 0,
            closed: false,
        };
        Self {
            contents: Mutex::new(contents),
            has_decisions: AtomicBool::new(false),
        }
    }
}

impl<D: Device> Mailbox<D> {
    fn lock(&self) -> MutexGuard<'_, Contents<D>> {
        lock(&self.contents)
    }

    pub(crate) fn take(&self) -> Mail<D> {
        let mut contents = self.lock();
        self.has_decisions.store(false, Release);
        std::mem::take(&mut contents.mail)
    }

    /// Takes the decisions alone. Costs one atomic load if there are none.
    pub(crate) fn take_decided(&self) -> Decided {
        if !self.has_decisions.load(Acquire) {
            return Decided::default();
        }
        let mut contents = self.lock();
        self.has_decisions.store(false, Release);
        std::mem::take(&mut contents.mail.decided)
    }

    pub(crate) fn add_decision(&self, decision: Decision) {
        let mut contents = self.lock();
        contents.mail.decided.add(decision);
        self.has_decisions.store(true, Release);
    }

    /// False if the session's thread has ended; then the read is dropped.
    pub(crate) fn add_read(&self, read: LongRead) -> bool {
        let mut contents = self.lock();
        if !contents.closed {
            contents.mail.reads.push(read);
            return true;
        }
        // It holds an array: that is freed outside the lock.
        drop(contents);
        drop(read);
        false
    }

    pub(crate) fn add_called_back(&self, launch: CalledBack<D>) {
        self.lock().mail.called_back.push(launch);
    }

    pub(crate) fn launch_started(&self, operation: OperationId) {
        let mut contents = self.lock();
        contents.running.insert(operation, Vec::new());
        contents.unfinished += 1;
    }

    /// Has `read` called at the end of a launch. Gives it back if the launch has ended.
    pub(crate) fn add_read_at_end(&self, operation: OperationId, read: Done) -> Result<(), Done> {
        match self.lock().running.get_mut(&operation) {
            Some(reads) => {
                reads.push(read);
                Ok(())
            }
            None => Err(read),
        }
    }

    /// A launch ends: returns the reads that wait for it.
    pub(crate) fn launch_ending(&self, operation: OperationId) -> Vec<Done> {
        let reads = self.lock().running.remove(&operation);
        reads.unwrap_or_default()
    }

    /// Job and engine know that the launch has ended.
    pub(crate) fn launch_ended(&self, operation: OperationId) {
        let mut contents = self.lock();
        contents.mail.ended.push(operation);
        contents.unfinished -= 1;
    }

    /// A launch did not start after all.
    pub(crate) fn launch_put_back(&self, operation: OperationId) {
        let mut contents = self.lock();
        contents.running.remove(&operation);
        contents.unfinished -= 1;
    }

    pub(crate) fn unfinished(&self) -> u32 {
        self.lock().unfinished
    }

    /// Drops everything, now and from now on: a read holds its array, and may be left here after the
    /// launch that made the array ready has ended.
    pub(crate) fn close(&self) {
        let mut contents = self.lock();
        contents.closed = true;
        let mail = std::mem::take(&mut contents.mail);
        drop(contents);
        drop(mail);
    }
}
