//! Reads the service's frames, in one of two threads.
//!
//! As a rule the dispatcher reads. A job's thread that waits for an answer may read in its stead:
//! it then hears the answer itself instead of being woken by the dispatcher, which saves one of the
//! two wake-ups of a read. Because such threads come back soon (a training loop that looks at its
//! loss), the dispatcher leaves the socket alone for a moment after each, unless somebody wants it
//! to listen.
//!
//! Promise: at any time at most one thread reads; whoever waits for a frame has somebody who reads
//! it, at once or after [`LEASE`] where nobody waits.
//! Not here: when the dispatcher sleeps ([`crate::dispatch`]).

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use salus_channel::{Inbox, Received};
use salus_wire::FromService;

use crate::callbacks;
use crate::dispatch::Telling;
use crate::error::{Error, Result};
use crate::event::Completion;
use crate::lock;
use crate::session::{Blob, Session};

/// Why a session is over of whose end nothing was said.
pub(crate) const CLOSED: &str = "it closed the connection";
/// For so long after a job's thread has read, the dispatcher expects another one to come. Frames
/// that nobody waits for may lie in the socket for that time.
pub(crate) const LEASE: Duration = Duration::from_millis(5);

/// The receiving end of a session.
pub(crate) struct Reader {
    inbox: Inbox,
    /// A job's thread reads.
    attended: bool,
    /// Threads that wait for another one's reading.
    followers: u32,
    /// When the last job's thread stopped reading.
    left: Option<Instant>,
}

impl Reader {
    pub(crate) fn new(inbox: Inbox) -> Self {
        Self {
            inbox,
            attended: false,
            followers: 0,
            left: None,
        }
    }

    /// What is left of the time for which the dispatcher leaves the socket to job threads.
    pub(crate) fn lease(&self) -> Option<Duration> {
        LEASE
            .checked_sub(self.left?.elapsed())
            .filter(|rest| !rest.is_zero())
    }

    pub(crate) fn is_attended(&self) -> bool {
        self.attended
    }

    /// Reads what is there and does what it says. The error says why the session is over.
    pub(crate) fn read(&mut self, session: &Session) -> std::result::Result<(), String> {
        match self.inbox.fill(session.socket.as_fd(), false) {
            Ok(0) => return Err(CLOSED.into()),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Err(CLOSED.into()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e.to_string()),
        }
        self.take_frames(session)
    }

    /// Does what frames say that were read already.
    pub(crate) fn take_frames(&mut self, session: &Session) -> std::result::Result<(), String> {
        // Callbacks run below; what they may not do, `Session::may_wait` tells them.
        let _telling = Telling::begin();
        loop {
            match self.inbox.take::<FromService>() {
                Ok(Some(frame)) => handle(session, frame)?,
                Ok(None) => return Ok(()),
                Err(e) => return Err(format!("it sent what is not a frame: {e}")),
            }
        }
    }
}

impl Session {
    /// Waits for the end of something, reading frames in this thread if no other job's thread does.
    pub(crate) fn attend<'a>(&self, completion: &'a Completion) -> &'a Result<()> {
        let mut reader = lock(&self.reader);
        if let Some(outcome) = completion.outcome() {
            return outcome;
        }
        if reader.attended {
            reader.followers += 1;
            drop(reader);
            let outcome = completion.wait();
            lock(&self.reader).followers -= 1;
            return outcome;
        }
        reader.attended = true;
        let outcome = loop {
            if let Some(outcome) = completion.outcome() {
                break outcome;
            }
            drop(reader);
            let awaited = self.await_bytes();
            reader = lock(&self.reader);
            if let Err(why) = awaited.and_then(|()| reader.read(self)) {
                drop(reader);
                let _telling = Telling::begin();
                // Ends the completion, too.
                self.lose(&why);
                reader = lock(&self.reader);
            }
        };
        reader.attended = false;
        let others = reader.followers > 0;
        reader.left = (!others).then(Instant::now);
        drop(reader);
        if others || self.wanted.load(Ordering::SeqCst) || self.usable().is_err() {
            self.call_dispatcher();
        }
        outcome
    }

    /// Sleeps until there is something to read.
    fn await_bytes(&self) -> std::result::Result<(), String> {
        let mut sockets = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        match poll(&mut sockets, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(format!("poll: {e}")),
        }
    }

    /// Has the dispatcher listen now, because somebody waits who does not read.
    pub(crate) fn call_dispatcher(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        if self.away.load(Ordering::SeqCst) {
            self.wake_dispatcher();
        }
    }
}

fn handle(session: &Session, frame: Received<FromService>) -> std::result::Result<(), String> {
    match frame.message {
        FromService::Completed(body) => completed(session, body.done, body.failed),
        FromService::Fetched(fetched) => {
            let mut pending = lock(&session.pending);
            let fetch = pending.fetches.remove(&fetched.request);
            session.made_room(pending);
            if let Some(fetch) = fetch {
                fetch.end(fetched.error);
            }
        }
        FromService::Compiled(compiled) => {
            let descriptor = frame
                .descriptor
                .ok_or("it compiled and sent no signature")?;
            answer_blob(session, compiled.program, Ok((descriptor, compiled.bytes)));
        }
        FromService::CompileFailed(failed) => {
            answer_blob(session, failed.program, Err(failed.error));
        }
        FromService::Profiled(profiled) => {
            let blob = match (profiled.error, frame.descriptor) {
                (Some(error), _) => Err(error),
                (None, Some(descriptor)) => Ok((descriptor, profiled.bytes)),
                (None, None) => return Err("it sent a profile without its memory".into()),
            };
            answer_blob(session, profiled.request, blob);
        }
        FromService::Usage(usage) => {
            let answer = lock(&session.pending).questions.remove(&usage.request);
            if let Some(answer) = answer {
                let _ = answer.send(Ok(usage));
            }
        }
        FromService::Released(released) => {
            for region in &released.regions {
                session.segments.released(session, region);
            }
        }
        FromService::CallbackChannel(_) => {
            let socket = frame
                .descriptor
                .ok_or("it sent a channel without its socket")?;
            callbacks::start(Arc::clone(&session.callables), socket)?;
        }
        FromService::ArrayFailed(failed) => session.array_failed(failed.array, failed.error),
        // The last word of a service that ends the session by itself.
        FromService::Refused(refused) => return Err(refused.error.message),
        FromService::Welcome(_) | FromService::Answer(_) | FromService::Trace(_) => {
            return Err("it sent a frame that has no place in a session".into());
        }
    }
    Ok(())
}

fn answer_blob(session: &Session, id: u64, blob: Blob) {
    let answer = lock(&session.pending).blobs.remove(&id);
    if let Some(answer) = answer {
        let _ = answer.send(blob);
    }
}

fn completed(session: &Session, done: Vec<u64>, failed: Vec<(u64, Error)>) {
    let mut ended: Vec<(Arc<Completion>, Result<()>)> =
        Vec::with_capacity(done.len() + failed.len());
    let outcomes = done
        .into_iter()
        .map(|operation| (operation, Ok(())))
        .chain(failed.into_iter().map(|(operation, e)| (operation, Err(e))));
    let mut pending = lock(&session.pending);
    for (operation, outcome) in outcomes {
        let found = pending
            .operations
            .binary_search_by_key(&operation, |(operation, _)| *operation);
        if let Some((_, completion)) = found.ok().and_then(|i| pending.operations.remove(i)) {
            pending.in_flight = pending.in_flight.saturating_sub(1);
            ended.push((completion, outcome));
        }
    }
    session.made_room(pending);
    for (completion, outcome) in ended {
        completion.end(outcome);
    }
}
