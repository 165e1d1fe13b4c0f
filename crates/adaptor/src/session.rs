//! One connection to the service: what is sent, what is awaited, and the end of it.
//!
//! Job threads write frames under one lock and wait for no answer, except in compilations and
//! reads. Small uploads and dropped arrays are collected and ride with the next frame. The dispatcher
//! ([`crate::dispatch`]) reads the answers and ends what is pending.
//!
//! Promise: frames leave in the order in which their calls were made; after the service is gone,
//! everything pending ends with an error at once and nothing new begins.
//! Cost: a launch takes two short locks and one `sendmsg`.
//! Not here: what the frames mean to arrays and programs.

use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use salus_channel::Outbox;
use salus_wire::{AskUsage, Await, ToService, Usage, Welcome};

use crate::callbacks::Given;
use crate::connect;
use crate::dispatch;
use crate::error::{Error, Result, precondition, unavailable};
use crate::event::Completion;
use crate::fork;
use crate::host_copy::Fetch;
use crate::lock;
use crate::reader::{CLOSED, Reader};
use crate::riders::Riders;
use crate::segments::Segments;

pub(crate) struct Session {
    /// Not dropped in a forked child, which has closed its copy already.
    pub(crate) socket: ManuallyDrop<UnixStream>,
    /// Wakes a dispatcher that sleeps without a timeout.
    pub(crate) poke: OwnedFd,
    /// Where the service listens.
    path: String,
    /// What the service calls this session.
    number: u64,
    generation: u32,
    /// Launches and copies that may be in flight.
    window: u32,
    pub(crate) outgoing: Mutex<Outgoing>,
    pub(crate) riders: Mutex<Riders>,
    pub(crate) pending: Mutex<Pending>,
    /// Held while frames are read and handled.
    pub(crate) reader: Mutex<Reader>,
    /// The dispatcher leaves the socket to job threads.
    pub(crate) away: AtomicBool,
    /// Somebody waits for a frame and does not read.
    pub(crate) wanted: AtomicBool,
    /// A place among what is pending became free, or the session ended.
    room: Condvar,
    /// Why nothing can be sent any more.
    lost: OnceLock<Error>,
    next_id: AtomicU64,
    pub(crate) segments: Segments,
    /// Functions of launches under way that may call back.
    pub(crate) callables: Arc<Given>,
    failed_arrays: Mutex<HashMap<u64, Error>>,
    /// Spares every reader the lock: uploads fail almost never.
    any_array_failed: AtomicBool,
    dispatcher: Mutex<Option<Dispatcher>>,
}

/// The thread that listens, and what is closed when it ends.
struct Dispatcher {
    thread: JoinHandle<()>,
    ended: Receiver<()>,
}

/// How long `PJRT_Client_Destroy` waits for a callback that runs. A callback that waits for the
/// very thread that destroys the client must not hang the job.
const GOODBYE: Duration = Duration::from_secs(2);

/// Which part of a full window should become free before a thread that waits for a place goes on.
const ROOM_PART: u32 = 4;

#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) outbox: Outbox,
    /// Grows with each launch and copy, in the order sent.
    last_operation: u64,
}

/// What the service has yet to answer.
#[derive(Default)]
pub(crate) struct Pending {
    /// In the order sent, so ascending.
    pub(crate) operations: VecDeque<(u64, Arc<Completion>)>,
    /// Places of the window in use; those of `operations` and of launches about to be sent.
    pub(crate) in_flight: u32,
    pub(crate) fetches: HashMap<u64, Fetch>,
    /// Signatures by program, profiles by request: one sequence of ids.
    pub(crate) blobs: HashMap<u64, Sender<Blob>>,
    pub(crate) questions: HashMap<u64, Sender<Result<Usage>>>,
    /// Threads that sleep until there is room; without any, waking them is saved.
    sleepers: u32,
    /// Nothing is added any more.
    pub(crate) closed: bool,
}

/// The memfd of an answer that no frame holds and its length, or why there is none.
pub(crate) type Blob = Result<(OwnedFd, u64)>;

impl Session {
    /// Starts the dispatcher of a socket on which the service said `Welcome`.
    pub(crate) fn start(
        socket: UnixStream,
        inbox: salus_channel::Inbox,
        path: String,
        welcome: &Welcome,
    ) -> Result<Arc<Self>> {
        let generation = fork::generation();
        let poke = rustix::event::eventfd(
            0,
            rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK,
        )
        .map_err(|e| unavailable(format!("no eventfd could be made for the session: {e}")))?;
        fork::close_in_children(socket.as_fd());
        let session = Arc::new(Self {
            socket: ManuallyDrop::new(socket),
            poke,
            path,
            number: welcome.session,
            generation,
            window: welcome.window.max(1),
            outgoing: Mutex::default(),
            riders: Mutex::default(),
            pending: Mutex::default(),
            reader: Mutex::new(Reader::new(inbox)),
            away: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            room: Condvar::new(),
            lost: OnceLock::new(),
            // 0 is left to mean nothing.
            next_id: AtomicU64::new(1),
            segments: Segments::default(),
            callables: Arc::default(),
            failed_arrays: Mutex::default(),
            any_array_failed: AtomicBool::new(false),
            dispatcher: Mutex::new(None),
        });
        let (sender, ended) = channel();
        let thread = dispatch::start(Arc::clone(&session), sender)
            .map_err(|e| unavailable(format!("no thread could be started for the session: {e}")))?;
        *lock(&session.dispatcher) = Some(Dispatcher { thread, ended });
        Ok(session)
    }

    /// Ids of arrays, programs and requests: `count` in a row, of which this is the first.
    pub(crate) fn next_ids(&self, count: u64) -> u64 {
        self.next_id.fetch_add(count, Ordering::Relaxed)
    }

    /// Whether this is the process that made the session.
    pub(crate) fn is_ours(&self) -> bool {
        fork::is_current(self.generation)
    }

    /// An error if nothing can be sent: forked, closed or lost.
    pub(crate) fn usable(&self) -> Result<()> {
        if !self.is_ours() {
            return Err(precondition(
                "this process was forked from one that uses Salus, and a session cannot be used by \
                 both: create the JAX client after the fork, or start workers by spawn \
                 (multiprocessing.set_start_method(\"spawn\"))",
            ));
        }
        match self.lost.get() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// As [`Session::usable`], for calls that wait for an answer.
    pub(crate) fn may_wait(&self) -> Result<()> {
        if dispatch::is_telling() {
            return Err(precondition(
                "a completion callback waits for the service, whose answers cannot arrive before \
                 the callback returns: wait in another thread",
            ));
        }
        self.usable()
    }

    /// Writes frames, after what waited for them to ride with.
    pub(crate) fn transmit<R>(&self, compose: impl FnOnce(&mut Outgoing) -> R) -> Result<R> {
        self.usable()?;
        let mut outgoing = lock(&self.outgoing);
        self.carry_riders(&mut outgoing.outbox);
        let result = compose(&mut outgoing);
        self.flush(outgoing)?;
        Ok(result)
    }

    pub(crate) fn send(&self, message: impl Into<ToService>) -> Result<()> {
        let message = message.into();
        self.transmit(|outgoing| outgoing.outbox.push(&message, None))
            .map(|_| ())
    }

    fn flush(&self, mut outgoing: MutexGuard<'_, Outgoing>) -> Result<()> {
        // The dispatcher must not wait for the service to read, or both could wait for each other;
        // it writes the rest when the socket takes it.
        let wait = !dispatch::is_telling();
        match outgoing.outbox.flush(self.socket.as_fd(), wait) {
            Ok(_) => Ok(()),
            Err(e) => {
                drop(outgoing);
                // The dispatcher hears the end of the stream and fails what is pending.
                let _ = self.socket.shutdown(std::net::Shutdown::Both);
                Err(self.lost_error(&e.to_string()))
            }
        }
    }

    /// Sends a launch or a copy: `frame` gets its number. Waits for a place in the window first.
    pub(crate) fn operate(
        self: &Arc<Self>,
        frame: impl FnOnce(u64) -> ToService,
    ) -> Result<Arc<Completion>> {
        self.usable()?;
        self.take_place()?;
        let mut sent = None;
        let result = self.transmit(|outgoing| {
            outgoing.last_operation += 1;
            let operation = outgoing.last_operation;
            let completion = Completion::new(Arc::clone(self), Some(operation));
            let mut pending = lock(&self.pending);
            if pending.closed {
                return;
            }
            // Before the frame leaves, because the answer may come at once.
            pending
                .operations
                .push_back((operation, Arc::clone(&completion)));
            drop(pending);
            outgoing.outbox.push(&frame(operation), None);
            sent = Some(completion);
        });
        match (result, sent) {
            (Ok(()), Some(completion)) => Ok(completion),
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(self.lost_error("the connection ended")),
        }
    }

    fn take_place(&self) -> Result<()> {
        let mut pending = lock(&self.pending);
        while pending.in_flight >= self.window {
            if dispatch::is_telling() {
                drop(pending);
                return self.may_wait();
            }
            if pending.closed {
                break;
            }
            // So that the service does not sit on a batch that would let us go on. Not for the
            // first: going on one at a time costs two wake-ups each, and with most of the window
            // still ahead the device does not run dry.
            let some = (self.window / ROOM_PART) as usize;
            let operations = &pending.operations;
            let one = operations.get(some.min(operations.len().saturating_sub(1)));
            let one = one.map(|(_, completion)| Arc::clone(completion));
            if let Some(one) = one.filter(|one| !one.is_asked()) {
                drop(pending);
                one.hurry();
                pending = lock(&self.pending);
                continue;
            }
            pending = self.wait_for_room(pending);
        }
        if pending.closed {
            drop(pending);
            return Err(self.lost_error("the connection ended"));
        }
        pending.in_flight += 1;
        Ok(())
    }

    /// Sleeps until something pending ended, or the session.
    pub(crate) fn wait_for_room<'a>(
        &self,
        mut pending: MutexGuard<'a, Pending>,
    ) -> MutexGuard<'a, Pending> {
        pending.sleepers += 1;
        self.call_dispatcher();
        self.room
            .wait(pending)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes who waits for room.
    pub(crate) fn made_room(&self, mut pending: MutexGuard<'_, Pending>) {
        let sleepers = std::mem::take(&mut pending.sleepers);
        drop(pending);
        if sleepers > 0 {
            self.room.notify_all();
        }
    }

    /// Asks the service what this session holds.
    pub(crate) fn usage(&self) -> Result<Usage> {
        self.may_wait()?;
        let request = self.next_ids(1);
        let (sender, answer) = channel();
        let mut pending = lock(&self.pending);
        if !pending.closed {
            pending.questions.insert(request, sender);
        }
        drop(pending);
        if let Err(error) = self.send(AskUsage { request }) {
            lock(&self.pending).questions.remove(&request);
            return Err(error);
        }
        self.call_dispatcher();
        // Every question is answered, at the latest when the session ends.
        answer
            .recv()
            .unwrap_or_else(|_| Err(self.lost_error("the connection ended")))
    }

    /// Asks the service to tell the end of an operation at once.
    pub(crate) fn ask(&self, operation: u64) {
        // If it cannot be sent, the session is lost and the operation ends with that.
        let _ = self.send(Await { operation });
        self.call_dispatcher();
    }

    pub(crate) fn wake_dispatcher(&self) {
        let _ = rustix::io::write(&self.poke, &1u64.to_ne_bytes());
    }

    pub(crate) fn array_failed(&self, array: u64, error: Error) {
        lock(&self.failed_arrays).insert(array, error);
        self.any_array_failed.store(true, Ordering::Release);
    }

    /// Why an upload could not be made.
    pub(crate) fn array_failure(&self, array: u64) -> Option<Error> {
        self.any_array_failed
            .load(Ordering::Acquire)
            .then(|| lock(&self.failed_arrays).get(&array).cloned())?
    }

    pub(crate) fn forget_failure(&self, array: u64) {
        if self.any_array_failed.load(Ordering::Relaxed) {
            lock(&self.failed_arrays).remove(&array);
        }
    }

    fn lost_error(&self, why: &str) -> Error {
        self.lost.get().cloned().unwrap_or_else(|| {
            // Whoever only closed the connection has not said why.
            let asked = (why == CLOSED).then(|| connect::fate(&self.path, self.number));
            let fate = asked.flatten();
            unavailable(format!(
                "the Salus service at {} has gone away ({}): this job's device state is lost; \
                 start the job again once `salus ps` answers",
                self.path,
                fate.as_deref().unwrap_or(why)
            ))
        })
    }

    /// Ends everything pending with an error, in this thread; nothing new begins.
    pub(crate) fn lose(&self, why: &str) {
        let error = self.lost_error(why);
        let error = self.lost.get_or_init(|| error);
        // So that the dispatcher hears of it, if it was another thread that did.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let mut pending = lock(&self.pending);
        pending.closed = true;
        let operations = std::mem::take(&mut pending.operations);
        let fetches = std::mem::take(&mut pending.fetches);
        let blobs = std::mem::take(&mut pending.blobs);
        let questions = std::mem::take(&mut pending.questions);
        self.made_room(pending);
        for (_, answer) in blobs {
            let _ = answer.send(Err(error.clone()));
        }
        for (_, answer) in questions {
            let _ = answer.send(Err(error.clone()));
        }
        for (_, completion) in operations {
            completion.end(Err(error.clone()));
        }
        for (_, fetch) in fetches {
            fetch.completion.end(Err(error.clone()));
        }
    }

    /// Ends the session from our side.
    pub(crate) fn close(&self) {
        if !self.is_ours() {
            return;
        }
        let _ = self.transmit(|_| ());
        let _ = self.lost.set(precondition(
            "the JAX client that this belongs to has been destroyed",
        ));
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        self.call_dispatcher();
        let dispatcher = lock(&self.dispatcher).take();
        if let Some(Dispatcher { thread, ended }) = dispatcher
            && !dispatch::is_telling()
            && ended.recv_timeout(GOODBYE) == Err(RecvTimeoutError::Disconnected)
        {
            let _ = thread.join();
        }
    }
}

impl Drop for Session {
    #[expect(
        unsafe_code,
        reason = "drops the socket, or leaves a forked child's alone"
    )]
    fn drop(&mut self) {
        if self.is_ours() {
            fork::forget(self.socket.as_raw_fd());
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.socket) };
        }
    }
}
