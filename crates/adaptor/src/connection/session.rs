//! One connection to the service: its parts, its beginning and its end.
//!
//! Job threads send ([`super::send`]) and wait for no reply, except in compilations and reads. Small
//! uploads and dropped arrays are deferred ([`super::deferred`]). Replies are read by the session's
//! dispatcher or by a job thread that waits ([`super::turns`], [`super::receive`]); they end what is
//! pending ([`super::pending`]).
//!
//! Promise: after the service is gone, everything pending ends with an error at once and nothing new
//! begins.
//! Not here: what the frames mean to arrays and programs.

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use salus_channel::{Inbox, lock};
use salus_wire::{ArrayId, ProgramId, RequestId, Welcome};

use super::deferred::Deferred;
use super::pending::Pending;
use super::receive::{self, CLOSED};
use super::segments::{Block, Segments};
use super::send::Outgoing;
use super::turns::Turns;
use super::{connect, fork, threads};
use crate::c_api::error::{Error, Result, precondition, unavailable};
use crate::calls::callbacks::Given;
use crate::objects::event::Completion;

pub(crate) struct Session {
    /// Not dropped in a forked child, which has closed its copy already.
    socket: ManuallyDrop<UnixStream>,
    /// An eventfd that ends the dispatcher's sleep.
    wakeup: OwnedFd,
    /// Where the service listens.
    path: String,
    /// What the service calls this session.
    number: u64,
    generation: u32,
    began: Instant,
    pub(super) outgoing: Outgoing,
    pub(super) deferred: Mutex<Deferred>,
    pub(super) pending: Pending,
    pub(super) turns: Turns<AtomicU64>,
    /// Locked by the thread whose turn it is to read, and so never contended.
    pub(super) inbox: Mutex<Inbox>,
    pub(super) segments: Segments,
    /// Functions of launches under way that may call back.
    pub(super) callables: Arc<Given>,
    /// Why nothing can be sent any more.
    lost: OnceLock<Error>,
    next_id: AtomicU64,
    failed_arrays: Mutex<HashMap<ArrayId, Error>>,
    /// Spares every caller the lock: uploads fail almost never.
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

impl Session {
    /// Starts the dispatcher of a socket on which the service said `Welcome`.
    pub(crate) fn start(
        socket: UnixStream,
        inbox: Inbox,
        path: String,
        welcome: &Welcome,
    ) -> Result<Arc<Self>> {
        let generation = fork::generation();
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| unavailable(format!("no eventfd could be made for the session: {e}")))?;
        fork::close_in_children(socket.as_fd());
        let session = Arc::new(Self {
            socket: ManuallyDrop::new(socket),
            wakeup,
            path,
            number: welcome.session,
            generation,
            began: Instant::now(),
            outgoing: Outgoing::default(),
            deferred: Mutex::default(),
            pending: Pending::new(welcome.window),
            turns: Turns::new(),
            inbox: Mutex::new(inbox),
            segments: Segments::default(),
            callables: Arc::default(),
            lost: OnceLock::new(),
            // 0 is left to mean nothing.
            next_id: AtomicU64::new(1),
            failed_arrays: Mutex::default(),
            any_array_failed: AtomicBool::new(false),
            dispatcher: Mutex::new(None),
        });
        let (sender, ended) = channel();
        let dispatched = Arc::clone(&session);
        let thread = threads::spawn_dispatcher(move || {
            // Dropped when the thread ends.
            let _ended = sender;
            receive::dispatch(&dispatched);
        });
        let thread = thread
            .map_err(|e| unavailable(format!("no thread could be started for the session: {e}")))?;
        *lock(&session.dispatcher) = Some(Dispatcher { thread, ended });
        Ok(session)
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    pub(super) fn wakeup(&self) -> &OwnedFd {
        &self.wakeup
    }

    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn next_array(&self) -> ArrayId {
        self.next_arrays(1)
    }

    /// The first of `count` ids in a row.
    pub(crate) fn next_arrays(&self, count: u64) -> ArrayId {
        ArrayId(self.next_ids(count))
    }

    pub(crate) fn next_program(&self) -> ProgramId {
        ProgramId(self.next_ids(1))
    }

    pub(crate) fn next_request(&self) -> RequestId {
        RequestId(self.next_ids(1))
    }

    /// Arrays, programs and requests are numbered in one sequence.
    fn next_ids(&self, count: u64) -> u64 {
        self.next_id.fetch_add(count, Ordering::Relaxed)
    }

    /// A block of `bytes` of shared memory.
    pub(crate) fn block(self: &Arc<Self>, bytes: u64) -> Result<Block> {
        self.segments.block(self, bytes)
    }

    pub(crate) fn callables(&self) -> &Given {
        &self.callables
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

    /// As [`Session::usable`], for calls that wait for a reply.
    pub(crate) fn may_wait(&self) -> Result<()> {
        if threads::in_callback() {
            return Err(precondition(
                "a completion callback waits for the service, whose answers cannot arrive before \
                 the callback returns: wait in another thread",
            ));
        }
        self.usable()
    }

    /// Waits for the end of something that a reply ends, reading in this thread if no other does.
    pub(crate) fn wait_for<'a>(&self, completion: &'a Completion) -> &'a Result<()> {
        let outcome = || completion.outcome();
        self.turns.wait_for(self, outcome, || completion.wait())
    }

    /// Has somebody read now, because a reply is expected soon.
    pub(crate) fn expect_reply(&self) {
        self.turns.want(self);
    }

    pub(super) fn array_failed(&self, array: ArrayId, error: Error) {
        lock(&self.failed_arrays).insert(array, error);
        self.any_array_failed.store(true, Ordering::Release);
    }

    /// Why an upload could not be made.
    pub(crate) fn array_failure(&self, array: ArrayId) -> Option<Error> {
        self.any_array_failed
            .load(Ordering::Acquire)
            .then(|| lock(&self.failed_arrays).get(&array).cloned())?
    }

    pub(super) fn forget_failure(&self, array: ArrayId) {
        if self.any_array_failed.load(Ordering::Relaxed) {
            lock(&self.failed_arrays).remove(&array);
        }
    }

    pub(super) fn lost_error(&self, why: &str) -> Error {
        self.lost.get().cloned().unwrap_or_else(|| {
            // A service that only closed the connection has not said why.
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

    pub(super) fn ended_error(&self) -> Error {
        self.lost_error("the connection ended")
    }

    /// Ends the stream, which the thread that reads sees.
    pub(super) fn shut_down(&self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Ends everything pending with an error, in this thread; nothing new begins.
    pub(super) fn lose(&self, why: &str) {
        let error = self.lost_error(why);
        let error = self.lost.get_or_init(|| error);
        // So that the dispatcher learns of it, if another thread did first.
        self.shut_down();
        self.pending.close(error);
    }

    /// Ends the session from our side.
    pub(crate) fn close(&self) {
        if !self.is_ours() {
            return;
        }
        let _ = self.flush_deferred_now();
        let _ = self.lost.set(precondition(
            "the JAX client that this belongs to has been destroyed",
        ));
        self.shut_down();
        self.turns.want(self);
        let dispatcher = lock(&self.dispatcher).take();
        if let Some(Dispatcher { thread, ended }) = dispatcher
            && !threads::in_callback()
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
