//! Receiving: frames of the service are read and handled, by the dispatcher or by a job thread.
//!
//! Handling a frame ends what it answers and runs the job's callbacks, in the thread that read it. No
//! lock is held meanwhile but the inbox's, which only the reader takes.
//!
//! Promise: a callback that would wait for the service gets an error ([`Session::may_wait`]); the
//! dispatcher never waits for the service to read, and ends when the connection does.
//! Not here: which thread reads and when it sleeps ([`super::turns`]).

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use salus_channel::{Inbox, Received, lock};
use salus_wire::FromService;

use super::pending::{Asked, Reply};
use super::session::Session;
use super::threads::InCallback;
use super::turns::{DeferredState, Link};
use crate::calls::callbacks;

/// Why a session is over of whose end nothing was said.
pub(super) const CLOSED: &str = "it closed the connection";

/// The dispatcher's life.
pub(super) fn dispatch(session: &Session) {
    let ended = catch_unwind(AssertUnwindSafe(|| {
        // The service may have sent more than `Welcome`.
        let taken = session.take_frames(&mut lock(&session.inbox));
        let Err(why) = taken.and_then(|()| session.turns.dispatch(session));
        let _in_callback = InCallback::begin();
        session.lose(&why);
    }));
    if ended.is_err() {
        // A job must not hang because we have a bug.
        session.lose("Salus has a bug: the thread that listens to it panicked");
    }
}

impl Link for Session {
    fn now(&self) -> Duration {
        self.age()
    }

    fn wake(&self) {
        let _ = rustix::io::write(self.wakeup(), &1u64.to_ne_bytes());
    }

    fn await_bytes(&self) -> Result<(), String> {
        let mut sockets = [PollFd::from_borrowed_fd(
            self.socket().as_fd(),
            PollFlags::IN,
        )];
        match poll(&mut sockets, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(format!("poll: {e}")),
        }
    }

    fn sleep(&self, listens: bool, timeout: Option<Duration>) -> Result<bool, String> {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.as_secs() as _,
            tv_nsec: t.subsec_nanos() as _,
        });
        let mut interest = PollFlags::empty();
        if listens {
            interest |= PollFlags::IN;
        }
        if self.has_unsent() {
            interest |= PollFlags::OUT;
        }
        let mut fds = [
            PollFd::from_borrowed_fd(self.wakeup().as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.socket().as_fd(), interest),
        ];
        // Without interest in the socket, its end would still wake us, again and again.
        let count = if interest.is_empty() { 1 } else { 2 };
        match poll(&mut fds[..count], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("poll: {e}")),
        }
        if !fds[0].revents().is_empty() {
            let mut count = [0; 8];
            let _ = rustix::io::read(self.wakeup(), &mut count);
        }
        let socket = fds[1].revents();
        if socket.contains(PollFlags::OUT) {
            self.write_unsent();
        }
        Ok(!(socket - PollFlags::OUT).is_empty())
    }

    fn receive(&self) -> Result<(), String> {
        let mut inbox = lock(&self.inbox);
        match inbox.fill(self.socket().as_fd(), false) {
            Ok(0) => return Err(CLOSED.into()),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Err(CLOSED.into()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e.to_string()),
        }
        self.take_frames(&mut inbox)
    }

    fn fail(&self, why: &str) {
        let _in_callback = InCallback::begin();
        self.lose(why);
    }

    fn is_over(&self) -> bool {
        self.usable().is_err()
    }

    fn look_at_deferred<R>(&self, look: impl FnOnce(DeferredState) -> R) -> R {
        let deferred = lock(&self.deferred);
        look(deferred.state())
    }

    fn flush_deferred(&self) {
        self.flush_deferred_if_idle();
    }
}

impl Session {
    /// Handles frames that were read already.
    fn take_frames(&self, inbox: &mut Inbox) -> Result<(), String> {
        let _in_callback = InCallback::begin();
        loop {
            match inbox.take::<FromService>() {
                Ok(Some(frame)) => self.handle(frame)?,
                Ok(None) => return Ok(()),
                Err(e) => return Err(format!("it sent what is not a frame: {e}")),
            }
        }
    }

    fn handle(&self, frame: Received<FromService>) -> Result<(), String> {
        match frame.message {
            FromService::Completed(body) => self.pending.complete(body.done, body.failed),
            FromService::ReadDone(done) => {
                if let Some(read) = self.pending.take_read(done.request) {
                    read.end(done.error);
                }
            }
            FromService::Compiled(compiled) => {
                let descriptor = frame
                    .descriptor
                    .ok_or("it compiled and sent no signature")?;
                let signature = Reply::Blob(descriptor, compiled.bytes);
                self.pending
                    .reply(Asked::Program(compiled.program), Ok(signature));
            }
            FromService::CompileFailed(failed) => {
                self.pending
                    .reply(Asked::Program(failed.program), Err(failed.error));
            }
            FromService::Profiled(profiled) => {
                let reply = match (profiled.error, frame.descriptor) {
                    (Some(error), _) => Err(error),
                    (None, Some(descriptor)) => Ok(Reply::Blob(descriptor, profiled.bytes)),
                    (None, None) => return Err("it sent a profile without its memory".into()),
                };
                self.pending.reply(Asked::Request(profiled.request), reply);
            }
            FromService::Usage(usage) => {
                let request = Asked::Request(usage.request);
                self.pending.reply(request, Ok(Reply::Usage(usage)));
            }
            FromService::Released(released) => {
                for region in &released.regions {
                    self.segments.released(self, region);
                }
            }
            FromService::CallbackChannel(_) => {
                let socket = frame
                    .descriptor
                    .ok_or("it sent a channel without its socket")?;
                callbacks::start(Arc::clone(&self.callables), socket)?;
            }
            FromService::ArrayFailed(failed) => self.array_failed(failed.array, failed.error),
            // The last word of a service that ends the session by itself.
            FromService::Refused(refused) => return Err(refused.error.to_string()),
            FromService::Welcome(_) | FromService::Answer(_) | FromService::Trace(_) => {
                return Err("it sent a frame that has no place in a session".into());
            }
        }
        Ok(())
    }
}
