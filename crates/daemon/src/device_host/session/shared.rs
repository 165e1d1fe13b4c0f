//! The half of a session that every thread may use: the thread of its job, the plugin's threads,
//! the threads that compile, the supervisor's.
//!
//! Everything else of a session belongs to its own thread alone ([`SessionThread`]).
//!
//! [`SessionThread`]: crate::device_host::session::thread::SessionThread

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use salus_channel::lock;
use salus_device::Device;
use salus_engine::{Calling, Decision, Event, SessionId};
use salus_wire::{Error, FromService, OperationId, Refused, Region, limits};

use crate::device_host::Host;
use crate::device_host::memory::arrays::{PagingTotals, Usage};
use crate::device_host::session::callbacks::Channels;
use crate::device_host::session::mailbox::{Failure, LongRead, Mailbox};
use crate::device_host::session::operations::launch::CalledBack;
use crate::device_host::session::operations::read::WaitingRead;
use crate::device_host::session::replies::{Replies, ThenDo};
use crate::device_host::session::{Identity, timespec};

pub(crate) struct SharedSession<D: Device> {
    pub(crate) id: SessionId,
    pub(crate) identity: Identity,
    pub(crate) usage: Usage,
    pub(crate) paging: PagingTotals,
    pub(crate) channels: Channels,
    pub(crate) host: Arc<Host<D>>,
    pub(super) socket: UnixStream,
    /// An eventfd that wakes the session's thread.
    wake: OwnedFd,
    /// The job is gone, and something of it may still run.
    ending: AtomicBool,
    /// Its user has ended it.
    killed: AtomicBool,
    replies: Mutex<Replies>,
    pub(super) mailbox: Mailbox<D>,
    /// Reads begun and not answered.
    reads: AtomicUsize,
    /// The thread waits until an array was read.
    awaits_reads: AtomicBool,
}

impl<D: Device> SharedSession<D> {
    /// Fails if no descriptor is left.
    pub(super) fn new(
        id: SessionId,
        identity: Identity,
        socket: UnixStream,
        host: &Arc<Host<D>>,
    ) -> Result<Self, (UnixStream, io::Error)> {
        let wake = match rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(wake) => wake,
            Err(e) => return Err((socket, e.into())),
        };
        Ok(Self {
            id,
            identity,
            usage: Usage::default(),
            paging: PagingTotals::default(),
            channels: Channels::default(),
            host: Arc::clone(host),
            socket,
            wake,
            ending: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            replies: Mutex::new(Replies::new()),
            mailbox: Mailbox::default(),
            reads: AtomicUsize::new(0),
            awaits_reads: AtomicBool::new(false),
        })
    }

    fn replies(&self) -> MutexGuard<'_, Replies> {
        lock(&self.replies)
    }

    fn then(&self, what: ThenDo) {
        if what == ThenDo::Wake {
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Sleeps until the job sends something (if `listen`), the thread is woken, or a batch of
    /// replies has waited long enough. An error ends the session.
    pub(super) fn sleep(&self, listen: bool) -> io::Result<()> {
        let before = self.replies().before_sleep(&self.socket)?;
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, listen);
        flags.set(PollFlags::OUT, before.socket_is_full);
        let mut polled = [
            PollFd::new(&self.socket, flags),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        match rustix::event::poll(&mut polled, before.timeout.map(timespec).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let [socket, wake] = polled.map(|one| one.revents());
        if !wake.is_empty() {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        if before.socket_is_full && !socket.is_empty() {
            self.replies().flush(&self.socket);
        }
        // With a full window the end of the stream is not read; a job that is gone still shows.
        if !listen && socket.contains(PollFlags::HUP) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }

    /// Sleeps until no launch runs any more. None is retried.
    pub(super) fn sleep_until_launches_ended(&self) {
        loop {
            let failed = self.mailbox.take_urgent().map(|urgent| urgent.failed);
            for failure in failed.into_iter().flatten().filter(|one| !one.is_told) {
                self.launch_ended(failure.operation, None, Err(failure.error));
            }
            if self.mailbox.unfinished() == 0 {
                return;
            }
            let mut polled = [PollFd::new(&self.wake, PollFlags::IN)];
            let _ = rustix::event::poll(&mut polled, None);
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
    }

    /// Whether its job is gone, and something of it still runs.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(SeqCst)
    }

    /// From now on nothing reaches the job, and whatever ends wakes the session's thread.
    pub(super) fn begin_end(&self) {
        self.ending.store(true, SeqCst);
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        self.channels.close();
    }

    /// Whether its user has ended it: it is gone as soon as nothing of it runs.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(SeqCst)
    }

    /// Ends the session as soon as the launch that runs has ended, whatever its job does.
    pub(crate) fn kill(&self) {
        self.killed.store(true, SeqCst);
        self.wake();
    }

    /// The engine has decided something about this session.
    pub(crate) fn deliver(&self, decision: Decision) {
        self.mailbox.add_decision(decision);
        self.wake();
    }

    /// Leaves a long copy to the session's thread.
    pub(crate) fn leave_read(&self, read: LongRead) {
        if self.mailbox.add_read(read) {
            self.wake();
        }
    }

    /// A launch that called back has ended. Its outputs enter the array table before anything is
    /// done that the job asks for from now on, because the job is told of the end after this.
    pub(super) fn leave_called_back(&self, launch: CalledBack<D>) {
        self.mailbox.add_called_back(launch);
    }

    /// Has `read` called at the end of a launch, after the job was told of it, so that one message
    /// says both. Gives it back if the launch has ended.
    pub(crate) fn when_ended(
        &self,
        operation: OperationId,
        read: WaitingRead<D>,
    ) -> Result<(), WaitingRead<D>> {
        self.mailbox.add_read_at_end(operation, read)
    }

    /// A launch has failed, and perhaps may run again: its thread decides.
    pub(crate) fn leave_failed(&self, operation: OperationId, error: Error) {
        self.mailbox.add_failure(Failure {
            operation,
            error,
            is_told: false,
        });
        self.wake();
    }

    /// A launch has ended; called from the plugin's thread.
    pub(crate) fn launch_ended(
        &self,
        operation: OperationId,
        calling: Option<Calling>,
        result: Result<(), Error>,
    ) {
        if let Err(error) = &result {
            // Before the job is told: what it asks of the outputs from then on fails alike.
            self.mailbox.add_failure(Failure {
                operation,
                error: error.clone(),
                is_told: true,
            });
        }
        let (session, failed) = (self.id, result.is_err());
        let tell = || self.host.engine.tell(Event::Ran { session, calling });
        self.end_launch(operation, result, tell);
        if failed {
            self.wake();
        }
    }

    /// Tells the job, the reads that wait for it, and the engine that a launch has ended.
    pub(super) fn end_launch(
        &self,
        operation: OperationId,
        result: Result<(), Error>,
        tell_engine: impl FnOnce(),
    ) {
        let reads = self.mailbox.launch_ending(operation);
        self.operation_ended(operation, result.clone());
        for read in reads {
            read.go_on(result.clone());
        }
        tell_engine();
        // Last, because a session that ends waits for it before it leaves the engine.
        self.mailbox.launch_ended();
        if self.is_ending() {
            self.wake();
        }
    }

    /// Whether the job may know of the end of a launch that the engine does not know of yet.
    pub(crate) fn is_telling_an_end(&self) -> bool {
        self.mailbox.is_telling_an_end()
    }

    pub(crate) fn operation_ended(&self, operation: OperationId, result: Result<(), Error>) {
        let then = self.replies().ended(&self.socket, operation, result);
        self.then(then);
    }

    pub(super) fn operation_awaited(&self, operation: OperationId) {
        let then = self.replies().awaited(&self.socket, operation);
        self.then(then);
    }

    pub(crate) fn region_released(&self, region: Region) {
        let then = self.replies().released(&self.socket, region);
        self.then(then);
    }

    /// Has the thread woken when an array is no longer read. Returns true.
    pub(crate) fn await_reads(&self) -> bool {
        self.awaits_reads.store(true, SeqCst);
        true
    }

    /// An array is no longer read by what read it.
    pub(crate) fn read_let_go(&self) {
        if self.awaits_reads.load(SeqCst) && self.awaits_reads.swap(false, SeqCst) {
            self.wake();
        }
    }

    pub(crate) fn reads_under_way(&self) -> usize {
        self.reads.load(Relaxed)
    }

    pub(crate) fn read_begins(&self) {
        self.reads.fetch_add(1, Relaxed);
        self.replies().read_begins();
    }

    pub(crate) fn read_ended(&self, message: &FromService) {
        let then = self.replies().read_ended(&self.socket, message);
        self.then(then);
        // At the limit of reads the thread takes no frames until one has ended.
        if self.reads.fetch_sub(1, AcqRel) == limits::REQUESTS {
            self.wake();
        }
    }

    pub(crate) fn send(&self, message: &FromService, descriptor: Option<OwnedFd>) {
        let then = self.replies().send(&self.socket, message, descriptor);
        self.then(then);
    }

    /// The last message that the job gets.
    pub(super) fn refuse(&self, error: Error) {
        self.send(&FromService::from(Refused { error }), None);
    }
}
