//! Events: all that a caller sees are ours, because what they stand for happens on our threads.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use salus_pjrt::sys::*;

use crate::c_api::error::{Error, Outcome};
use crate::c_api::slot::slots;

type Waiter = Box<dyn FnOnce(&Outcome) + Send>;

#[derive(Default)]
pub(crate) struct Event {
    state: Mutex<State>,
    happened: Condvar,
}

#[derive(Default)]
struct State {
    outcome: Option<Outcome>,
    waiters: Vec<Waiter>,
}

impl Event {
    pub(crate) fn new() -> Arc<Event> {
        Arc::default()
    }

    pub(crate) fn over(outcome: Outcome) -> Arc<Event> {
        let event = Event::new();
        event.set(outcome);
        event
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Happens; the first outcome stays.
    pub(crate) fn set(&self, outcome: Outcome) {
        let mut state = self.lock();
        if state.outcome.is_some() {
            return;
        }
        state.outcome = Some(outcome.clone());
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        self.happened.notify_all();
        for waiter in waiters {
            waiter(&outcome);
        }
    }

    /// Runs `waiter` when it has happened: now, or on the thread that sets it.
    pub(crate) fn on_ready(&self, waiter: impl FnOnce(&Outcome) + Send + 'static) {
        let mut state = self.lock();
        match state.outcome.clone() {
            None => state.waiters.push(Box::new(waiter)),
            Some(outcome) => {
                drop(state);
                waiter(&outcome);
            }
        }
    }

    pub(crate) fn poll(&self) -> Option<Outcome> {
        self.lock().outcome.clone()
    }

    pub(crate) fn wait(&self) -> Outcome {
        let mut state = self.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            state = self
                .happened
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// For a caller, who destroys it.
pub(crate) fn give(event: Arc<Event>) -> *mut PJRT_Event {
    Box::into_raw(Box::new(event)).cast()
}

/// # Safety
/// A live event of [`give`].
unsafe fn event<'a>(raw: *mut PJRT_Event) -> &'a Arc<Event> {
    // SAFETY: the caller's promise.
    unsafe { &*raw.cast::<Arc<Event>>() }
}

/// What a caller's callback is called with.
struct Callback {
    function: unsafe extern "C-unwind" fn(*mut PJRT_Error, *mut std::ffi::c_void),
    user_arg: *mut std::ffi::c_void,
}

// SAFETY: PJRT's callbacks may be called by any thread.
unsafe impl Send for Callback {}

impl Callback {
    fn call(self, outcome: &Outcome) {
        let error = crate::c_api::error::raw(outcome.clone());
        // SAFETY: called once, with an error that the callback owns.
        unsafe { (self.function)(error, self.user_arg) };
    }
}

slots! {
    fn PJRT_Event_Destroy(args: PJRT_Event_Destroy_Args) {
        if !args.event.is_null() {
            drop(Box::from_raw(args.event.cast::<Arc<Event>>()));
        }
        Ok(())
    }

    fn PJRT_Event_IsReady(args: PJRT_Event_IsReady_Args) {
        args.is_ready = event(args.event).poll().is_some();
        Ok(())
    }

    fn PJRT_Event_Error(args: PJRT_Event_Error_Args) {
        let outcome = event(args.event).poll();
        outcome.unwrap_or_else(|| Err(Error::invalid("the event has not happened yet")))
    }

    fn PJRT_Event_Await(args: PJRT_Event_Await_Args) {
        event(args.event).wait()
    }

    fn PJRT_Event_OnReady(args: PJRT_Event_OnReady_Args) {
        let function = args.callback.ok_or_else(|| Error::invalid("no callback"))?;
        let callback = Callback { function, user_arg: args.user_arg };
        // A share of its own: the callback may destroy the caller's.
        let event = Arc::clone(event(args.event));
        event.on_ready(move |outcome| callback.call(outcome));
        Ok(())
    }
}
