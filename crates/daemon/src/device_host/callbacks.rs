//! Programs that call functions of their job: the way of a call to the job and back.
//!
//! A launch that calls back runs to its end in a thread of its own ([`Launchers`]), because the
//! session's thread must go on: the job's function may itself read arrays and launch programs. Each
//! call that is under way has a *channel*, a socket and a piece of shared memory, on which the thread
//! that runs the program asks and waits; nobody else is woken for it. The session gives its lane up
//! while it waits.
//!
//! Promise: a job that dies, answers nonsense or does not answer in time ends its own launch and
//! nothing else. What the job writes into the shared memory is copied after it has answered.
//! Not here: how the device runs such programs (`device/src/callbacks.rs`).
#![expect(
    unsafe_code,
    reason = "copies between a program's arrays and shared memory"
)]

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use salus_channel::{Inbox, Segment, send_all};
use salus_device::{CallArray, Callbacks, Device, Shape, Style};
use salus_engine::{Calling, Event};
use salus_wire::{
    CallbackArray, CallbackCall, CallbackChannel, CallbackMemory, Error, FromCallbacks,
    FromService, ToCallbacks, limits,
};

use super::session::{Session, timespec};

const DEADLINE_EXCEEDED: u32 = 4;
const RESOURCE_EXHAUSTED: u32 = 8;
const INVALID_ARGUMENT: u32 = 3;
const UNAVAILABLE: u32 = 14;

/// Operands and results begin at multiples of this: enough for every element, and for the job's
/// vector instructions.
const ALIGNMENT: u64 = 64;
/// The least memory of a channel; most callbacks print a few numbers.
const MEMORY_BYTES: u64 = 64 << 10;
/// The most. A program that gives more to a callback had better give it in parts.
const MEMORY_BYTES_MAX: u64 = 16 << 30;

/// The channels of a session.
#[derive(Default)]
pub(super) struct Channels {
    state: Mutex<State>,
    /// Launches that call back are numbered here: the job's own numbers are a claim.
    launches: AtomicU64,
}

#[derive(Default)]
struct State {
    idle: Vec<Channel>,
    /// The sockets of all channels, so that whoever waits on one can be stopped.
    sockets: Vec<Arc<UnixStream>>,
    closed: bool,
}

struct Channel {
    socket: Arc<UnixStream>,
    inbox: Inbox,
    memory: Option<Segment>,
}

impl Channels {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    /// How many there are, and how many of them nobody uses.
    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        let state = self.lock();
        (state.sockets.len(), state.idle.len())
    }

    /// For a launch that calls back.
    pub(super) fn next_calling(&self) -> Calling {
        Calling(self.launches.fetch_add(1, Relaxed))
    }

    /// Nobody waits for the job any more: it is gone, or its session ends.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        for socket in &state.sockets {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// An idle channel, or a new one of which the job is told.
    fn take<D: Device>(&self, session: &Session<D>) -> Result<Channel, Error> {
        let mut state = self.lock();
        if state.closed {
            return Err(gone("its session has ended"));
        }
        if let Some(channel) = state.idle.pop() {
            return Ok(channel);
        }
        let count = state.sockets.len();
        if count >= limits::CALLBACK_CHANNELS {
            return Err(Error {
                code: RESOURCE_EXHAUSTED,
                message: format!(
                    "{count} callbacks of this job are under way, the most that may be at once; \
                     callbacks that launch programs which call back themselves should not nest \
                     deeply"
                ),
            });
        }
        let pair = UnixStream::pair();
        let (ours, theirs) = pair.map_err(|e| no_channel(&e))?;
        // A job that does not take what it is sent is not waited for any longer than for an answer.
        let limit = session.host.callback_limit;
        let limited = ours.set_write_timeout(Some(limit));
        limited.map_err(|e| no_channel(&e))?;
        let ours = Arc::new(ours);
        state.sockets.push(Arc::clone(&ours));
        drop(state);
        let channel = count as u32;
        let told = FromService::from(CallbackChannel { channel });
        session.send(&told, Some(theirs.into()));
        Ok(Channel {
            socket: ours,
            inbox: Inbox::default(),
            memory: None,
        })
    }

    fn give_back(&self, channel: Channel) {
        self.lock().idle.push(channel);
    }

    /// The channel is of no use any more.
    fn forget(&self, channel: &Channel) {
        let _ = channel.socket.shutdown(std::net::Shutdown::Both);
        let mut state = self.lock();
        state
            .sockets
            .retain(|socket| !Arc::ptr_eq(socket, &channel.socket));
    }
}

/// The functions that a job gave with one of its launches.
pub(super) struct Calls<D: Device> {
    session: Arc<Session<D>>,
    operation: u64,
    calling: Calling,
    /// Calls that wait: a program may make several at the same time.
    waiting: Mutex<u32>,
}

impl<D: Device> Calls<D> {
    pub(super) fn new(session: &Arc<Session<D>>, operation: u64, calling: Calling) -> Self {
        Self {
            session: Arc::clone(session),
            operation,
            calling,
            waiting: Mutex::new(0),
        }
    }

    /// One call more or less waits. The launch gives its lane up as long as any does.
    fn waits(&self, more: bool) {
        let (session, calling) = (self.session.id, self.calling);
        // Held while the engine is told, so that it hears of it in order.
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        let event = match (*waiting, more) {
            (0, true) => Some(Event::CallbackBegan { session, calling }),
            (1, false) => Some(Event::CallbackEnded { session, calling }),
            _ => None,
        };
        *waiting = match more {
            true => *waiting + 1,
            false => *waiting - 1,
        };
        if let Some(event) = event {
            self.session.host.scheduling.tell(event, None);
        }
    }
}

impl<D: Device> Callbacks for Calls<D> {
    fn call(
        &self,
        callback: u64,
        style: Style,
        operands: &[CallArray<'_>],
        results: &[CallArray<'_>],
    ) -> Result<(), Error> {
        let session = &self.session;
        let limit = session.host.callback_limit;
        self.waits(true);
        let outcome = session.channels.take(session).and_then(|mut channel| {
            let who = Callee {
                operation: self.operation,
                callback,
                style,
            };
            let called = channel.call(&who, operands, results, limit);
            match &called {
                // What the function raised is an answer, too.
                Ok(_) => session.channels.give_back(channel),
                Err(_) => session.channels.forget(&channel),
            }
            called?
        });
        self.waits(false);
        outcome
    }
}

/// What is called.
struct Callee {
    operation: u64,
    callback: u64,
    style: Style,
}

impl Channel {
    /// The outer error is the channel's, the inner one the function's.
    fn call(
        &mut self,
        callee: &Callee,
        operands: &[CallArray<'_>],
        results: &[CallArray<'_>],
        limit: Duration,
    ) -> Result<Result<(), Error>, Error> {
        if operands.len().max(results.len()) > limits::CALLBACK_ARRAYS {
            return Err(Error {
                code: INVALID_ARGUMENT,
                message: format!(
                    "a callback has {} operands and {} results, and may have {} of each; stack \
                     arrays of one shape before they are given to it",
                    operands.len(),
                    results.len(),
                    limits::CALLBACK_ARRAYS
                ),
            });
        }
        let mut end = 0;
        let told_operands = lay_out(operands, &[], &mut end);
        let lies_there = operands.iter().zip(&told_operands);
        let lies_there: Vec<_> = lies_there.map(|(array, told)| (array.data, told)).collect();
        let told_results = lay_out(results, &lies_there, &mut end);
        let memory = self.memory(end)?;
        for (told, operand) in told_operands.iter().zip(operands) {
            if let Some(to) = memory.range(told.offset, told.bytes) {
                // SAFETY: `bytes` are readable at `data` until the call returns, and mapped at `to`.
                unsafe { std::ptr::copy_nonoverlapping(operand.data, to, operand.bytes) };
            }
        }
        let call = CallbackCall {
            operation: callee.operation,
            callback: callee.callback,
            buffers: callee.style == Style::Buffers,
            operands: told_operands.clone(),
            results: told_results.clone(),
        };
        let sent = send_all(&*self.socket, &ToCallbacks::from(call), None);
        sent.map_err(|e| gone(&e.to_string()))?;
        if let Err(error) = self.answer(limit)? {
            return Ok(Err(error));
        }
        let memory = self.memory(end)?;
        for (told, result) in told_results.iter().zip(results) {
            if let Some(from) = memory.range(told.offset, told.bytes) {
                // SAFETY: as above, the other way round; the job may change the bytes meanwhile, and
                // any bytes are a value.
                unsafe { std::ptr::copy_nonoverlapping(from, result.data, result.bytes) };
            }
        }
        Ok(Ok(()))
    }

    /// The channel's memory, which the job is told of when it is made.
    fn memory(&mut self, bytes: u64) -> Result<&Segment, Error> {
        let fits = |memory: &Segment| memory.len() as u64 >= bytes;
        if !self.memory.as_ref().is_some_and(fits) {
            let size = bytes.next_power_of_two().max(MEMORY_BYTES);
            if bytes > MEMORY_BYTES_MAX {
                return Err(Error {
                    code: RESOURCE_EXHAUSTED,
                    message: format!(
                        "a callback has {bytes} bytes of operands and results, and may have \
                         {MEMORY_BYTES_MAX}"
                    ),
                });
            }
            let segment = Segment::create(size, false).map_err(|e| no_channel(&e))?;
            let descriptor = segment.as_fd().try_clone_to_owned();
            let descriptor = descriptor.map_err(|e| no_channel(&e))?;
            let told = ToCallbacks::from(CallbackMemory { bytes: size });
            let sent = send_all(&*self.socket, &told, Some(descriptor));
            sent.map_err(|e| gone(&e.to_string()))?;
            self.memory = Some(segment);
        }
        Ok(self.memory.as_ref().expect("made above"))
    }

    fn answer(&mut self, limit: Duration) -> Result<Result<(), Error>, Error> {
        let deadline = Instant::now() + limit;
        loop {
            match self.inbox.take::<FromCallbacks>() {
                Ok(Some(received)) => {
                    let FromCallbacks::CallbackReturn(returned) = received.message;
                    return Ok(returned.error.map_or(Ok(()), Err));
                }
                Ok(None) => {}
                Err(e) => return Err(gone(&format!("it sent what is not a frame: {e}"))),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error {
                    code: DEADLINE_EXCEEDED,
                    message: format!(
                        "a callback of this job did not return within {} s\n\nhint: \
                         `[limits] callback_seconds` of salus.toml sets how long one may take",
                        limit.as_secs()
                    ),
                });
            }
            let mut polled = [PollFd::new(&*self.socket, PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&timespec(left))) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(e) => return Err(gone(&e.to_string())),
            }
            match self.inbox.fill(&*self.socket, false) {
                Ok(0) => return Err(gone("it closed the connection")),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(gone(&e.to_string())),
            }
        }
    }
}

/// Gives each array its place behind `end`, and moves that; an array that lies where one of `others`
/// does has the same place.
fn lay_out(
    arrays: &[CallArray<'_>],
    others: &[(*mut u8, &CallbackArray)],
    end: &mut u64,
) -> Vec<CallbackArray> {
    let place = |array: &CallArray<'_>| {
        let same = |(data, told): &&(*mut u8, &CallbackArray)| {
            *data == array.data && told.bytes == array.bytes as u64 && array.bytes > 0
        };
        let offset = match others.iter().find(same) {
            Some((_, told)) => told.offset,
            None => {
                let offset = end.next_multiple_of(ALIGNMENT);
                *end = offset + array.bytes as u64;
                offset
            }
        };
        CallbackArray {
            shape: Shape {
                element_type: array.element_type,
                dims: array.dims.to_vec(),
                minor_to_major: None,
            },
            offset,
            bytes: array.bytes as u64,
        }
    };
    arrays.iter().map(place).collect()
}

fn gone(why: &str) -> Error {
    Error {
        code: UNAVAILABLE,
        message: format!("the job that a program calls back into has gone away ({why})"),
    }
}

fn no_channel(why: &dyn std::fmt::Display) -> Error {
    Error {
        code: RESOURCE_EXHAUSTED,
        message: format!("nothing is left to reach a callback with: {why}"),
    }
}

/// Threads that run launches which call back. They are kept: starting one costs as much as a small
/// program.
#[derive(Default)]
pub(super) struct Launchers {
    idle: Arc<Idle>,
}

/// Where each thread that has nothing to do waits for its next task; it ends when this is gone.
type Idle = Mutex<Vec<Sender<Task>>>;
type Task = Box<dyn FnOnce() + Send>;

/// Idle threads that are kept.
const IDLE_MAX: usize = 8;

impl Launchers {
    /// Runs the task in a thread of its own.
    pub(super) fn run(&self, mut task: Task) -> io::Result<()> {
        while let Some(thread) = self.pop() {
            // It may have ended meanwhile.
            match thread.send(task) {
                Ok(()) => return Ok(()),
                Err(back) => task = back.0,
            }
        }
        let idle = Arc::downgrade(&self.idle);
        std::thread::Builder::new()
            .name("calls-back".into())
            // The plugin may run the program inline here.
            .stack_size(8 << 20)
            .spawn(move || {
                task();
                while let Some(task) = next_task(&idle) {
                    task();
                }
            })?;
        Ok(())
    }

    fn pop(&self) -> Option<Sender<Task>> {
        self.idle.lock().expect("no panic under this lock").pop()
    }
}

/// Waits for it, unless enough others do or nobody will come with one any more.
fn next_task(idle: &Weak<Idle>) -> Option<Task> {
    let (sender, tasks) = channel();
    {
        let idle = idle.upgrade()?;
        let mut idle = idle.lock().expect("no panic under this lock");
        if idle.len() >= IDLE_MAX {
            return None;
        }
        idle.push(sender);
    }
    tasks.recv().ok()
}
