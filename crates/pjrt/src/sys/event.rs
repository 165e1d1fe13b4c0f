//! Events.

use std::ffi::c_void;

use super::PJRT_Error;

opaque! { PJRT_Event }

args! { PJRT_Event_Destroy_Args { event: *mut PJRT_Event } }
args! { PJRT_Event_IsReady_Args { event: *mut PJRT_Event, is_ready: bool } }
args! { PJRT_Event_Error_Args { event: *mut PJRT_Event } }
args! { PJRT_Event_Await_Args { event: *mut PJRT_Event } }
pub type PJRT_Event_OnReadyCallback =
    Option<unsafe extern "C-unwind" fn(error: *mut PJRT_Error, user_arg: *mut c_void)>;

args! { PJRT_Event_OnReady_Args {
    event: *mut PJRT_Event,
    callback: PJRT_Event_OnReadyCallback,
    user_arg: *mut c_void,
} }
