//! One session: the service's record of one connected job, and the thread that serves it.
//!
//! The thread sleeps until the job sends frames or the engine grants a turn; then it takes what is
//! there, does what can be done in order, and sleeps again. Threads of the plugin tell ends through
//! [`Session`]; everything else of a session belongs to its thread alone ([`Operations`]).

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use salus_channel::Inbox;
use salus_device::{Device, Done};
use salus_engine::{Calling, Decision, Engine, Event, Lane, Refusal, SessionId, Wishes};
use salus_wire::{
    Adopt, Error, FromService, Refused, Region, SessionClosed, ToService, Welcome, limits,
};

use super::Host;
use super::arrays::{Moves, Usage};
use super::callbacks::Channels;
use super::heap;
use super::launch::Ran;
use super::operations::{Breach, INVALID_ARGUMENT, Operations, RESOURCE_EXHAUSTED};
use super::outgoing::{Outgoing, Rest};
use super::terms;

/// The job's process as the kernel and the job itself named it.
pub(crate) struct Identity {
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    pub(crate) user: String,
    pub(crate) name: String,
}

pub(crate) struct Session<D: Device> {
    pub(crate) id: SessionId,
    pub(crate) identity: Identity,
    pub(crate) usage: Usage,
    /// The most that it may hold, from its start.
    pub(crate) memory_max: Option<u64>,
    /// What its user asked for at its start.
    pub(crate) wishes: Wishes,
    pub(crate) moves: Moves,
    socket: UnixStream,
    wake: OwnedFd,
    closing: AtomicBool,
    /// Its user has ended it.
    killed: AtomicBool,
    outgoing: Mutex<Outgoing>,
    left: Mutex<Left<D>>,
    /// Reads begun and not answered.
    reads: AtomicUsize,
    pub(super) channels: Channels,
    pub(super) host: Arc<Host<D>>,
}

/// With fewer iterations a job tells nothing about others.
const HISTORY_ITERATIONS: u64 = 10;
const CANCELLED: u32 = 1;

/// What other threads leave for the session's thread.
struct Left<D: Device> {
    /// The engine's answer to the operation at the head of the queue.
    answer: Option<Answer>,
    /// Arrays are to leave the device.
    page_out: Option<u64>,
    /// Launches that ended: their donated arguments can be dropped without blocking.
    ended: Vec<u64>,
    /// Launches started and not ended, each with the reads that wait for its end.
    running: HashMap<u64, Vec<Done>>,
    /// Launches whose end this session has not yet heard of in full.
    unfinished: u32,
    /// Copies to the host that are too long for a thread of the plugin.
    reads: Vec<Box<dyn FnOnce() + Send>>,
    /// Launches that called back and have ended: their outputs have no names yet.
    ran: Vec<Ran<D>>,
    /// The thread has ended: whatever is left here now would stay for ever.
    closed: bool,
}

impl<D: Device> Left<D> {
    fn new() -> Self {
        Self {
            answer: None,
            page_out: None,
            ended: Vec::new(),
            running: HashMap::new(),
            unfinished: 0,
            reads: Vec::new(),
            ran: Vec::new(),
            closed: false,
        }
    }
}

/// What the engine says to an operation that needs memory or a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Start(Lane),
    Refuse(Refusal),
}

impl<D: Device> Session<D> {
    /// Makes the record and its thread; the thread owns both.
    pub(super) fn start(host: &Arc<Host<D>>, adopt: Adopt, socket: UnixStream) {
        let wake = match rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(wake) => wake,
            Err(e) => {
                refuse(&socket, format!("no descriptor is left for it: {e}"));
                host.supervisor.send(SessionClosed {
                    session: adopt.session,
                });
                return;
            }
        };
        let session = Arc::new(Self {
            id: SessionId(adopt.session),
            identity: Identity {
                pid: adopt.pid,
                uid: adopt.uid,
                user: adopt.user,
                name: adopt.name,
            },
            usage: Usage::default(),
            memory_max: host.session_limit(adopt.terms.memory_max),
            wishes: terms::wishes(&adopt.terms),
            moves: Moves::default(),
            socket,
            wake,
            closing: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            outgoing: Mutex::new(Outgoing::new()),
            left: Mutex::new(Left::new()),
            reads: AtomicUsize::new(0),
            channels: Channels::default(),
            host: Arc::clone(host),
        });
        let welcome = Welcome {
            protocol: adopt.protocol,
            session: adopt.session,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: host.device.description().clone(),
            window: limits::LAUNCHES,
        };
        // Before anybody can have heard of it: a change that is asked for at once finds it.
        host.scheduling.open(&session);
        let owned = Arc::clone(&session);
        // The plugin may run a program inline here, so the stack is as large as a main thread's.
        let started = std::thread::Builder::new()
            .name(format!("session-{}", adopt.session))
            .stack_size(8 << 20)
            .spawn(move || {
                owned.send(&FromService::from(welcome), None);
                owned.serve();
            });
        if let Err(e) = started {
            refuse(
                &session.socket,
                format!("no thread can be started for it: {e}"),
            );
            host.scheduling.close(session.id);
            host.supervisor.send(SessionClosed {
                session: adopt.session,
            });
        }
    }

    fn serve(self: Arc<Self>) {
        let mut operations = Operations::new(&self, &self.host);
        let mut inbox = Inbox::default();
        while let Ok(true) = self.take_frames(&mut inbox, &mut operations) {
            operations.progress();
            if self.sleep(operations.accepts()).is_err() {
                break;
            }
            if self.is_killed() {
                self.refuse(CANCELLED, "the job was ended with `salus job`".into());
                break;
            }
        }
        // The job is gone, or it broke the protocol: nothing that waits will be started.
        self.closing.store(true, SeqCst);
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        self.channels.close();
        self.host.programs.withdraw(self.identity.uid, self.id);
        self.host
            .scheduling
            .tell(Event::Withdrew { session: self.id }, None);
        // A turn that was granted meanwhile is given back unused; after `Withdrew` none is granted.
        let granted = matches!(self.take_answer(), Some(Answer::Start(_)));
        if let Some(unused) = operations.unused_turn().filter(|_| granted) {
            self.host.scheduling.tell(unused, None);
        }
        operations.abandon();
        while self.left().unfinished > 0 {
            let mut polled = [PollFd::new(&self.wake, PollFlags::IN)];
            let _ = rustix::event::poll(&mut polled, None);
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        let held = self.resident_bytes();
        drop(operations);
        self.close_left();
        self.host.programs.forget_unused();
        heap::trim(held);
        self.host.drift_bytes();
        self.note_history();
        self.host.scheduling.close(self.id);
        self.host
            .supervisor
            .send(SessionClosed { session: self.id.0 });
    }

    /// What the job came to, for the next of its kind.
    fn note_history(&self) {
        let told = self.host.scheduling.look(|engine, _| {
            let account = engine.account(self.id)?;
            let program = engine.main_program(self.id)?;
            let much = account.iterations >= HISTORY_ITERATIONS;
            much.then_some((program, account.device_time))
        });
        if let Some((program, total)) = told {
            self.host.history.note(program, total);
        }
    }

    /// Reads and decodes what is there. False when the session is over.
    fn take_frames(&self, inbox: &mut Inbox, operations: &mut Operations<D>) -> io::Result<bool> {
        while operations.accepts() {
            let broken = match inbox.take::<ToService>() {
                Ok(Some(received)) => operations.accept(received).err(),
                Ok(None) => match inbox.fill(&self.socket, false) {
                    Ok(0) => return Ok(false),
                    Ok(_) => None,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e),
                },
                Err(e) => Some(Breach::Protocol(e.to_string())),
            };
            match broken {
                None => {}
                Some(Breach::Protocol(how)) => {
                    let message = format!("the job's library broke the protocol: {how}");
                    self.refuse(INVALID_ARGUMENT, message);
                    return Ok(false);
                }
                Some(Breach::Limit(message)) => {
                    self.refuse(RESOURCE_EXHAUSTED, message);
                    return Ok(false);
                }
            }
        }
        Ok(!self.outgoing().is_broken())
    }

    /// Sleeps until the job sends something, a turn is granted, or something lingers no longer.
    fn sleep(&self, listen: bool) -> io::Result<()> {
        let (timeout, stuck) = self.outgoing().before_sleep(&self.socket);
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, listen);
        flags.set(PollFlags::OUT, stuck);
        let mut polled = [
            PollFd::new(&self.socket, flags),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        match rustix::event::poll(&mut polled, timeout.map(timespec).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let [socket, wake] = polled.map(|one| one.revents());
        if !wake.is_empty() {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        if stuck && !socket.is_empty() {
            self.outgoing().flush(&self.socket);
        }
        // A full queue leaves the end of the stream unread; a peer that is gone still shows.
        if !listen && socket.contains(PollFlags::HUP) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }

    /// The last thing that the job hears.
    fn refuse(&self, code: u32, message: String) {
        let error = Error { code, message };
        self.send(&FromService::from(Refused { error }), None);
    }

    /// Whether its job is gone, and something of it still runs.
    pub(super) fn is_ending(&self) -> bool {
        self.closing.load(SeqCst)
    }

    /// Whether its user has ended it: it is gone as soon as nothing of it runs.
    pub(super) fn is_killed(&self) -> bool {
        self.killed.load(SeqCst)
    }

    /// Ends the session at the next boundary, whatever its job does.
    pub(super) fn kill(&self) {
        self.killed.store(true, SeqCst);
        self.wake();
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().expect("no panic under this lock")
    }

    fn left(&self) -> MutexGuard<'_, Left<D>> {
        self.left.lock().expect("no panic under this lock")
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn see_to(&self, rest: Rest) {
        if rest == Rest::Wake {
            self.wake();
        }
    }

    /// The engine has decided something about this session.
    pub(super) fn decided(&self, decision: Decision, wake: bool) {
        let mut left = self.left();
        match decision {
            Decision::Start { lane, .. } => left.answer = Some(Answer::Start(lane)),
            Decision::Refuse { why, .. } => left.answer = Some(Answer::Refuse(why)),
            Decision::PageOut { bytes, .. } => left.page_out = Some(bytes),
        }
        drop(left);
        if wake {
            self.wake();
        }
    }

    pub(super) fn take_answer(&self) -> Option<Answer> {
        self.left().answer.take()
    }

    pub(super) fn take_page_out(&self) -> Option<u64> {
        self.left().page_out.take()
    }

    fn resident_bytes(&self) -> u64 {
        let held = |engine: &Engine, _| engine.ledger().holding(self.id).copied();
        let holding = self.host.scheduling.look(held);
        holding.map_or(0, |holding| holding.resident_bytes)
    }

    pub(super) fn take_ended(&self) -> Vec<u64> {
        std::mem::take(&mut self.left().ended)
    }

    pub(super) fn take_reads(&self) -> Vec<Box<dyn FnOnce() + Send>> {
        std::mem::take(&mut self.left().reads)
    }

    /// Leaves a long copy to the session's thread.
    pub(super) fn leave_read(&self, read: Box<dyn FnOnce() + Send>) {
        let mut left = self.left();
        if left.closed {
            return;
        }
        left.reads.push(read);
        drop(left);
        self.wake();
    }

    /// Lets go of what was left: a read holds its array, and may be left after the launch that
    /// made the array ready was told.
    fn close_left(&self) {
        let mut left = self.left();
        left.closed = true;
        let reads = std::mem::take(&mut left.reads);
        let ran = std::mem::take(&mut left.ran);
        drop(left);
        drop((reads, ran));
    }

    /// A launch that called back has ended. Its outputs get their names before anything is done that
    /// the job asks for from now on, because it is told of the end only after this.
    pub(super) fn leave_ran(&self, ran: Ran<D>) {
        self.left().ran.push(ran);
    }

    pub(super) fn take_ran(&self) -> Vec<Ran<D>> {
        std::mem::take(&mut self.left().ran)
    }

    pub(super) fn launch_started(&self, operation: u64) {
        let mut left = self.left();
        left.running.insert(operation, Vec::new());
        left.unfinished += 1;
    }

    /// Has `read` called at the end of a launch, after the job was told of it, so that one message
    /// says both. Gives it back if the launch has ended.
    pub(super) fn when_ended(&self, operation: u64, read: Done) -> Result<(), Done> {
        match self.left().running.get_mut(&operation) {
            Some(reads) => {
                reads.push(read);
                Ok(())
            }
            None => Err(read),
        }
    }

    /// A launch that was granted a turn has ended.
    pub(super) fn launch_ended(
        &self,
        operation: u64,
        calling: Option<Calling>,
        result: Result<(), Error>,
    ) {
        let session = self.id;
        self.tell_end(operation, result, Event::Ran { session, calling }, None);
    }

    /// A launch that was granted a turn could not be started; the session's own thread tells it.
    pub(super) fn launch_failed(&self, operation: u64, calling: Option<Calling>, error: Error) {
        let session = self.id;
        let event = Event::DidNotRun { session, calling };
        self.tell_end(operation, Err(error), event, Some(session));
    }

    fn tell_end(
        &self,
        operation: u64,
        result: Result<(), Error>,
        event: Event,
        here: Option<SessionId>,
    ) {
        let reads = self.left().running.remove(&operation);
        self.operation_ended(operation, result.clone());
        for read in reads.into_iter().flatten() {
            read(result.clone());
        }
        self.host.scheduling.tell(event, here);
        // Last, because a session that closes waits for it before it leaves the engine.
        let mut left = self.left();
        left.ended.push(operation);
        left.unfinished -= 1;
        drop(left);
        if self.closing.load(SeqCst) {
            self.wake();
        }
    }

    /// A launch that was granted a turn did not start and will ask for another.
    pub(super) fn launch_put_off(&self, operation: u64) {
        let event = Event::DidNotRun {
            session: self.id,
            calling: None,
        };
        self.host.scheduling.tell(event, Some(self.id));
        let mut left = self.left();
        left.running.remove(&operation);
        left.unfinished -= 1;
    }

    pub(super) fn operation_ended(&self, operation: u64, result: Result<(), Error>) {
        let rest = self.outgoing().ended(&self.socket, operation, result);
        self.see_to(rest);
    }

    pub(super) fn operation_awaited(&self, operation: u64) {
        let rest = self.outgoing().awaited(&self.socket, operation);
        self.see_to(rest);
    }

    pub(super) fn region_released(&self, region: Region) {
        let rest = self.outgoing().released(&self.socket, region);
        self.see_to(rest);
    }

    pub(super) fn reads_under_way(&self) -> usize {
        self.reads.load(Relaxed)
    }

    pub(super) fn read_begins(&self) {
        self.reads.fetch_add(1, Relaxed);
        self.outgoing().read_begins();
    }

    pub(super) fn read_ended(&self, message: &FromService) {
        let rest = self.outgoing().read_ended(&self.socket, message);
        self.see_to(rest);
        // With as many as there may be, the thread takes no frames until there are fewer.
        if self.reads.fetch_sub(1, AcqRel) == limits::REQUESTS {
            self.wake();
        }
    }

    pub(super) fn send(&self, message: &FromService, descriptor: Option<OwnedFd>) {
        let rest = self.outgoing().send(&self.socket, message, descriptor);
        self.see_to(rest);
    }
}

pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

fn refuse(socket: &UnixStream, why: String) {
    let message = format!("the session could not be opened: {why}");
    let refused = FromService::from(Refused {
        error: Error { code: 8, message },
    });
    let _ = salus_channel::send_all(socket, &refused, None);
}
