//! What other threads leave for a session's thread: the engine's decisions, launches that ended or
//! failed, long reads.
//!
//! Promise: the thread takes everything with one lock, and looks for decisions between two
//! operations without any.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, MutexGuard};

use salus_channel::lock;
use salus_device::Device;
use salus_engine::Decision;
use salus_wire::{Error, OperationId};

use crate::device_host::clocked_engine::Decided;
use crate::device_host::session::operations::launch::CalledBack;
use crate::device_host::session::operations::read::WaitingRead;

pub(crate) struct Mailbox<D: Device> {
    contents: Mutex<Contents<D>>,
    /// Set while `contents` has decisions or failures.
    is_urgent: AtomicBool,
}

struct Contents<D: Device> {
    mail: Mail<D>,
    /// Launches started and not ended, each with the reads that wait for its end.
    running: HashMap<OperationId, Vec<WaitingRead<D>>>,
    /// Launches started whose end has not yet been dealt with in full.
    unfinished: u32,
    failed: Vec<Failure>,
    /// The thread has ended and takes nothing any more.
    closed: bool,
}

/// What the thread looks for between two operations.
pub(crate) struct Urgent {
    pub(crate) decided: Decided,
    pub(crate) ended: Vec<OperationId>,
    pub(crate) failed: Vec<Failure>,
}

/// A launch that was started and failed.
pub(crate) struct Failure {
    pub(crate) operation: OperationId,
    pub(crate) error: Error,
    /// The job and the engine know. If not, the session's thread decides whether it is retried.
    pub(crate) is_told: bool,
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
            failed: Vec::new(),
            closed: false,
        };
        Self {
            contents: Mutex::new(contents),
            is_urgent: AtomicBool::new(false),
        }
    }
}

impl<D: Device> Mailbox<D> {
    fn lock(&self) -> MutexGuard<'_, Contents<D>> {
        lock(&self.contents)
    }

    pub(crate) fn take(&self) -> Mail<D> {
        let mut contents = self.lock();
        std::mem::take(&mut contents.mail)
    }

    /// Takes the decisions and what they follow from. Costs one atomic load if there are none.
    pub(crate) fn take_urgent(&self) -> Option<Urgent> {
        if !self.is_urgent.load(Acquire) {
            return None;
        }
        let mut contents = self.lock();
        self.is_urgent.store(false, Release);
        Some(Urgent {
            decided: std::mem::take(&mut contents.mail.decided),
            ended: std::mem::take(&mut contents.mail.ended),
            failed: std::mem::take(&mut contents.failed),
        })
    }

    pub(crate) fn add_failure(&self, failure: Failure) {
        self.lock().failed.push(failure);
        self.is_urgent.store(true, Release);
    }

    pub(crate) fn add_decision(&self, decision: Decision) {
        let mut contents = self.lock();
        contents.mail.decided.add(decision);
        self.is_urgent.store(true, Release);
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
    pub(crate) fn add_read_at_end(
        &self,
        operation: OperationId,
        read: WaitingRead<D>,
    ) -> Result<(), WaitingRead<D>> {
        match self.lock().running.get_mut(&operation) {
            Some(reads) => {
                reads.push(read);
                Ok(())
            }
            None => Err(read),
        }
    }

    /// A launch ends: returns the reads that wait for it. The thread lets go of its arguments before it
    /// acts on what the engine decides from now on, which may be to page them out.
    pub(crate) fn launch_ending(&self, operation: OperationId) -> Vec<WaitingRead<D>> {
        let mut contents = self.lock();
        contents.mail.ended.push(operation);
        contents.running.remove(&operation).unwrap_or_default()
    }

    /// Job and engine know that a launch has ended.
    pub(crate) fn launch_ended(&self) {
        self.lock().unfinished -= 1;
    }

    /// A launch did not start after all, or is to start again. Returns the reads that wait for it.
    pub(crate) fn launch_put_back(&self, operation: OperationId) -> Vec<WaitingRead<D>> {
        let mut contents = self.lock();
        contents.unfinished -= 1;
        contents.running.remove(&operation).unwrap_or_default()
    }

    /// Whether the job may know of the end of a launch that the engine does not know of yet.
    pub(crate) fn is_telling_an_end(&self) -> bool {
        let contents = self.lock();
        contents.unfinished as usize > contents.running.len()
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
