//! How a slot is written down, and what keeps its panics here.

use std::panic::{AssertUnwindSafe, catch_unwind};

use salus_pjrt::sys::PJRT_Error;

use crate::c_api::error::{Error, Outcome, raw};

/// Declares slots of the table: `args` is the caller's struct, the block an [`Outcome`].
macro_rules! slots {
    ($(
        $(#[$doc:meta])*
        fn $slot:ident($args:ident: $type:ident) $body:block
    )*) => {$(
        $(#[$doc])*
        pub(crate) unsafe extern "C" fn $slot(
            args: *mut salus_pjrt::sys::$type,
        ) -> *mut salus_pjrt::sys::PJRT_Error {
            // SAFETY: the caller of a slot follows the header: the struct is as long as that of
            // API 0.81 or longer, handles in it are live and ours, lists are as long as it says.
            $crate::c_api::slot::fenced(stringify!($slot), || unsafe {
                #[allow(unused_variables, reason = "some slots look at no field")]
                let $args = &mut *args;
                $body
            })
        }
    )*};
}
pub(crate) use slots;

pub(crate) fn fenced(slot: &str, body: impl FnOnce() -> Outcome) -> *mut PJRT_Error {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    raw(outcome.unwrap_or_else(|_| Err(Error::internal(format!("the stand-in panics in {slot}")))))
}
