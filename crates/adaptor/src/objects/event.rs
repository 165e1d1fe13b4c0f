//! Events: when something ended, and how.
//!
//! A [`Completion`] is the state that handles, buffers and the connection share: all outputs of a
//! launch have one. A PJRT event is a handle on it; callbacks belong to the completion, so they
//! outlive the handle and may destroy it.
//!
//! Promise: no lock that a callback could need is held while it runs; a callback runs exactly once, at once if the
//! end is known already; each receives an error of its own, or NULL.
//! Not here: who ends what ([`crate::connection`]).
#![expect(unsafe_code, reason = "C entry points, and callbacks into C")]
#![allow(non_snake_case, reason = "the header's names")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use salus_channel::{lock, wait};
use salus_pjrt::sys;
use salus_wire::OperationId;

use crate::c_api::c_args::{Args, Handle, entry, field};
use crate::c_api::error::{Error, Result, into_raw, invalid, precondition};
use crate::connection::session::Session;

/// The end of a launch, a copy or a read, once it is known.
pub(crate) struct Completion {
    outcome: OnceLock<Result<()>>,
    waiting: Mutex<Waiting>,
    ended: Condvar,
    session: Arc<Session>,
    ended_by: EndedBy,
    /// Whether the service was asked to report the end at once.
    expedited: AtomicBool,
}

/// Where the end of something is learned from.
#[derive(Clone, Copy)]
pub(crate) enum EndedBy {
    /// The service, of a launch or a copy: in batches, or at once if it is asked.
    Operation(OperationId),
    /// The service, as soon as it can.
    Reply,
    /// A thread of this process.
    Job,
}

#[derive(Default)]
struct Waiting {
    callbacks: Vec<Callback>,
    /// Threads that sleep until the end; without any, waking them is saved.
    sleepers: u32,
}

type OnReady = unsafe extern "C-unwind" fn(error: *mut sys::PJRT_Error, user_arg: *mut c_void);

struct Callback {
    function: OnReady,
    argument: *mut c_void,
}

// SAFETY: the header lets callbacks run on any thread.
unsafe impl Send for Callback {}

impl Callback {
    fn call(self, outcome: &Result<()>) {
        let error = match outcome {
            Ok(()) => null_mut(),
            Err(error) => into_raw(error.clone()),
        };
        // SAFETY: the caller registered the function with this argument; it owns the error.
        unsafe { (self.function)(error, self.argument) };
    }
}

impl Completion {
    pub(crate) fn new(session: Arc<Session>, ended_by: EndedBy) -> Arc<Self> {
        Arc::new(Self {
            outcome: OnceLock::new(),
            waiting: Mutex::default(),
            ended: Condvar::new(),
            session,
            ended_by,
            expedited: AtomicBool::new(false),
        })
    }

    pub(crate) fn outcome(&self) -> Option<&Result<()>> {
        self.outcome.get()
    }

    /// Ends it and runs the callbacks in this thread. Only the first end counts.
    pub(crate) fn end(&self, outcome: Result<()>) {
        if self.outcome.set(outcome).is_err() {
            return;
        }
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        if waiting.sleepers > 0 {
            self.ended.notify_all();
        }
        if let Some(outcome) = self.outcome.get() {
            for callback in waiting.callbacks {
                callback.call(outcome);
            }
        }
    }

    /// Has the service report the end at once rather than with the next batch.
    pub(crate) fn expedite(&self) {
        if let EndedBy::Operation(operation) = self.ended_by
            && self.outcome.get().is_none()
            && !self.expedited.swap(true, Ordering::Relaxed)
        {
            self.session.ask_for_end(operation);
        }
    }

    pub(crate) fn is_expedited(&self) -> bool {
        self.expedited.load(Ordering::Relaxed)
    }

    /// Blocks until the end is known.
    pub(crate) fn wait(&self) -> &Result<()> {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(outcome) = self.outcome.get() {
                return outcome;
            }
            waiting.sleepers += 1;
            waiting = wait(&self.ended, waiting);
        }
    }

    fn on_ready(&self, callback: Callback) {
        let mut waiting = lock(&self.waiting);
        match self.outcome.get() {
            None => waiting.callbacks.push(callback),
            Some(outcome) => {
                drop(waiting);
                callback.call(outcome);
            }
        }
    }
}

/// What C holds as `PJRT_Event`.
pub(crate) enum Event {
    /// Ended before anybody could ask.
    Ended(Result<()>),
    Of {
        completion: Arc<Completion>,
        /// Whether somebody who registers a callback waits for it. JAX registers one at each launch
        /// and waits for none of these: telling their ends in batches saves a wake-up a step.
        prompt: bool,
    },
}

impl Handle for Event {
    type Raw = sys::PJRT_Event;
}

impl Event {
    pub(crate) fn ready() -> Box<Self> {
        Box::new(Self::Ended(Ok(())))
    }

    pub(crate) fn failed(error: Error) -> Box<Self> {
        Box::new(Self::Ended(Err(error)))
    }

    pub(crate) fn of(completion: Arc<Completion>, prompt: bool) -> Box<Self> {
        Box::new(Self::Of { completion, prompt })
    }

    fn outcome(&self) -> Option<&Result<()>> {
        match self {
            Self::Ended(outcome) => Some(outcome),
            Self::Of { completion, .. } => completion.outcome(),
        }
    }

    fn expedite(&self, waits: bool) {
        if let Self::Of { completion, prompt } = self
            && (waits || *prompt)
        {
            completion.expedite();
        }
    }
}

entry! { sure
    fn PJRT_Event_Destroy(args: PJRT_Event_Destroy_Args) {
        // In a forked child too: it owns a copy of its memory, and nothing is sent.
        drop(args.own::<Event>(field!(Call.event)));
        Ok(())
    }
}

entry! {
    fn PJRT_Event_IsReady(args: PJRT_Event_IsReady_Args) {
        let event = args.handle::<Event>(field!(Call.event))?;
        let ready = event.outcome().is_some();
        if !ready {
            // Somebody who polls waits, too.
            event.expedite(false);
        }
        args.put(field!(Call.is_ready), ready)
    }

    fn PJRT_Event_Error(args: PJRT_Event_Error_Args) {
        let event = args.handle::<Event>(field!(Call.event))?;
        match event.outcome() {
            Some(outcome) => outcome.clone(),
            None => Err(precondition("the event is not ready yet: await it before asking how it ended")),
        }
    }

    fn PJRT_Event_Await(args: PJRT_Event_Await_Args) {
        let event = args.handle::<Event>(field!(Call.event))?;
        match event {
            Event::Ended(outcome) => outcome.clone(),
            Event::Of { completion, .. } => {
                if completion.outcome().is_none() {
                    completion.session.may_wait()?;
                    event.expedite(true);
                }
                match completion.ended_by {
                    EndedBy::Job => completion.wait(),
                    _ => completion.session.wait_for(completion),
                }
                .clone()
            }
        }
    }

    fn PJRT_Event_OnReady(args: PJRT_Event_OnReady_Args) {
        on_ready(&args)
    }
}

fn on_ready(args: &Args<'_, sys::PJRT_Event_OnReady_Args>) -> Result<()> {
    type Call = sys::PJRT_Event_OnReady_Args;
    let event = args.handle::<Event>(field!(Call.event))?;
    let Some(function) = args.read(field!(Call.callback))? else {
        return Err(invalid("`callback` of PJRT_Event_OnReady_Args is NULL"));
    };
    let argument = args.read(field!(Call.user_arg))?;
    let callback = Callback { function, argument };
    match event {
        Event::Ended(outcome) => {
            // The callback may destroy the event, and the outcome with it.
            let outcome = outcome.clone();
            callback.call(&outcome);
        }
        Event::Of { completion, prompt } => {
            // Likewise: the completion must outlive the handle.
            let (completion, prompt) = (Arc::clone(completion), *prompt);
            completion.on_ready(callback);
            if prompt {
                completion.expedite();
            }
        }
    }
    Ok(())
}
