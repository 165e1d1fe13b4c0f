//! Programs that call functions of their job: a call's way to the job and back.
//!
//! A launch that calls back runs to its end in a thread of its own ([`LaunchThreads`]), because the
//! session's thread must go on: the job's function may itself read arrays and launch programs. Each
//! call that is under way has a *channel*, a socket and a piece of shared memory, on which the thread
//! that runs the program asks and waits; no other thread is woken for it. The session gives its lane
//! up while it waits.
//!
//! Promise: a job that dies, answers nonsense or does not answer in time ends its own launch and
//! nothing else. What the job writes into the shared memory is copied after it has answered.
//! Not here: how the device runs such programs (`device/src/plugin/sites.rs`).

mod channel;
mod channels;
mod launch_threads;

use std::sync::{Arc, Mutex};

use salus_channel::lock;
use salus_device::{CallArray, Callbacks, Device, Style};
use salus_engine::{Calling, Event};
use salus_wire::{Error, OperationId};

pub(crate) use channels::Channels;
pub(crate) use launch_threads::LaunchThreads;

use crate::device_host::session::SharedSession;
use channel::Callee;

/// The callbacks of one launch.
pub(crate) struct Calls<D: Device> {
    session: Arc<SharedSession<D>>,
    operation: OperationId,
    calling: Calling,
    /// Calls that wait: a program may make several at the same time.
    waiting: Mutex<u32>,
}

impl<D: Device> Calls<D> {
    pub(crate) fn new(
        session: &Arc<SharedSession<D>>,
        operation: OperationId,
        calling: Calling,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            operation,
            calling,
            waiting: Mutex::new(0),
        }
    }

    /// One call more, or one less, waits. The launch gives its lane up while any does.
    fn waits(&self, more: bool) {
        let (session, calling) = (self.session.id, self.calling);
        // Held while the engine is told, so that events reach it in order.
        let mut waiting = lock(&self.waiting);
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
            self.session.host.engine.tell(event);
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
                // An error that the function raised is a return, too.
                Ok(_) => session.channels.give_back(channel),
                Err(_) => session.channels.forget(&channel),
            }
            called?
        });
        self.waits(false);
        outcome
    }
}
