//! Execute contexts: callers destroy them when a launch call has returned, and a stream runs it later.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use salus_pjrt::sys::*;

use crate::c_api::inner::call;
use crate::c_api::slot::slots;
use crate::client::Raw;

/// Who uses each: its caller, and launches.
static USERS: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);

/// A launch's share of a context, which may be none.
pub(crate) struct Context(Raw<PJRT_ExecuteContext>);

impl Context {
    pub(crate) fn share(raw: *mut PJRT_ExecuteContext) -> Context {
        if !raw.is_null() {
            let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
            *users.get_or_insert_default().entry(raw.addr()).or_default() += 1;
        }
        Context(Raw(raw))
    }

    pub(crate) fn raw(&self) -> *mut PJRT_ExecuteContext {
        self.0.0
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let context = self.0.0;
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        let table = users.get_or_insert_default();
        let Some(count) = table.get_mut(&context.addr()) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            table.remove(&context.addr());
            // SAFETY: nobody uses it any more.
            let _ = unsafe {
                call!(PJRT_ExecuteContext_Destroy(
                    PJRT_ExecuteContext_Destroy_Args { context }
                ))
            };
        }
    }
}

slots! {
    fn PJRT_ExecuteContext_Create(args: PJRT_ExecuteContext_Create_Args) {
        let made = call!(PJRT_ExecuteContext_Create(PJRT_ExecuteContext_Create_Args {}))?;
        // The caller's share, which it gives back by destroying it.
        std::mem::forget(Context::share(made.context));
        args.context = made.context;
        Ok(())
    }

    fn PJRT_ExecuteContext_Destroy(args: PJRT_ExecuteContext_Destroy_Args) {
        drop(Context(Raw(args.context)));
        Ok(())
    }
}
