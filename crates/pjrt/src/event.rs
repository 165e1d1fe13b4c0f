//! Events: something that ends later, perhaps with an error.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::Error;
use crate::api::{Api, Padded};
use crate::sys::*;

/// Owned; may be dropped before it is ready, and then its callbacks still run.
pub struct Event {
    api: Api,
    raw: NonNull<PJRT_Event>,
}

// SAFETY: PJRT events may be used by any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

type Callback = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// What a callback finds behind its `user_arg`.
struct Waiting {
    api: Api,
    callback: Callback,
}

impl Event {
    /// # Safety
    /// `raw` is an event of this plugin that the caller owns, or null.
    pub(crate) unsafe fn new(api: Api, raw: *mut PJRT_Event) -> Result<Event, Error> {
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::internal("the vendor's plugin returned a null event"))?;
        Ok(Event { api, raw })
    }

    /// Calls `callback` exactly once: at once in this thread if the event is ready already, else
    /// on a thread of the vendor.
    pub fn on_ready(self, callback: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let waiting = waiting(self.api, callback);
        let mut args = Padded::<PJRT_Event_OnReady_Args>::new();
        args.event = self.raw.as_ptr();
        args.callback = Some(ready);
        args.user_arg = waiting;
        // SAFETY: the event is live; `ready` takes the box once.
        let registered = unsafe { call!(self.api, PJRT_Event_OnReady, &mut args) };
        if let Err(error) = registered {
            // SAFETY: a refused callback is never called, so the box is still ours.
            let waiting = unsafe { Box::from_raw(waiting.cast::<Waiting>()) };
            (waiting.callback)(Err(error));
        }
    }

    pub fn is_ready(&self) -> Result<bool, Error> {
        let mut args = Padded::<PJRT_Event_IsReady_Args>::new();
        args.event = self.raw.as_ptr();
        // SAFETY: the event is live.
        unsafe { call!(self.api, PJRT_Event_IsReady, &mut args) }?;
        Ok(args.is_ready)
    }

    /// Blocks until the event is ready.
    pub fn wait(&self) -> Result<(), Error> {
        let mut args = Padded::<PJRT_Event_Await_Args>::new();
        args.event = self.raw.as_ptr();
        // SAFETY: the event is live.
        unsafe { call!(self.api, PJRT_Event_Await, &mut args) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let mut args = Padded::<PJRT_Event_Destroy_Args>::new();
        args.event = self.raw.as_ptr();
        // SAFETY: owned, and not used afterwards. No caller could act on an error.
        let _ = unsafe { call!(self.api, PJRT_Event_Destroy, &mut args) };
    }
}

/// The `user_arg` for [`ready`], which takes it back.
pub(crate) fn waiting(
    api: Api,
    callback: impl FnOnce(Result<(), Error>) + Send + 'static,
) -> *mut c_void {
    let callback = Box::new(callback);
    Box::into_raw(Box::new(Waiting { api, callback })).cast()
}

/// Runs a callback for the vendor. A panic ends here: its frames are not ours to unwind.
pub(crate) unsafe extern "C-unwind" fn ready(error: *mut PJRT_Error, user_arg: *mut c_void) {
    // SAFETY: the box that `on_ready` made, handed over once.
    let waiting = unsafe { Box::from_raw(user_arg.cast::<Waiting>()) };
    let Waiting { api, callback } = *waiting;
    let result = match NonNull::new(error) {
        None => Ok(()),
        // SAFETY: a callback owns its error.
        Some(error) => Err(unsafe { api.take_error(error) }),
    };
    // The panic was reported by the hook when it happened.
    let _ = catch_unwind(AssertUnwindSafe(move || callback(result)));
}
