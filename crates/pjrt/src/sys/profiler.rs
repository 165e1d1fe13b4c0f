//! The Profiler extension (type 1) and the table of functions that it leads to.
//!
//! Neither is in a wheel: the ends of the structs are constants in `tests/header.rs`. XLA's own
//! client sets `struct_size` in those of errors only: the others must be read without it. Newer
//! headers have functions behind `collect_data`; an older client wants the table to end there.

use std::ffi::{c_char, c_int, c_void};

use super::PJRT_Extension_Base;

opaque! { PLUGIN_Profiler, PLUGIN_Profiler_Error }

plain! { PLUGIN_Profiler_Error_Destroy_Args {
    struct_size: usize,
    r#priv: *mut c_void,
    error: *mut PLUGIN_Profiler_Error,
} }
plain! { PLUGIN_Profiler_Error_Message_Args {
    struct_size: usize,
    r#priv: *mut c_void,
    error: *const PLUGIN_Profiler_Error,
    message: *const c_char,
    message_size: usize,
} }
plain! { PLUGIN_Profiler_Error_GetCode_Args {
    struct_size: usize,
    r#priv: *mut c_void,
    error: *const PLUGIN_Profiler_Error,
    code: c_int,
} }
plain! { PLUGIN_Profiler_Create_Args {
    struct_size: usize,
    options: *const c_char,
    options_size: usize,
    profiler: *mut PLUGIN_Profiler,
} }
plain! { PLUGIN_Profiler_Destroy_Args { struct_size: usize, profiler: *mut PLUGIN_Profiler } }
plain! { PLUGIN_Profiler_Start_Args { struct_size: usize, profiler: *mut PLUGIN_Profiler } }
plain! { PLUGIN_Profiler_Stop_Args { struct_size: usize, profiler: *mut PLUGIN_Profiler } }
plain! { PLUGIN_Profiler_CollectData_Args {
    struct_size: usize,
    profiler: *mut PLUGIN_Profiler,
    buffer: *mut u8,
    buffer_size_in_bytes: usize,
} }

type Entry<Args> = Option<unsafe extern "C" fn(args: *mut Args) -> *mut PLUGIN_Profiler_Error>;

plain! { PLUGIN_Profiler_Api {
    struct_size: usize,
    r#priv: *mut c_void,
    error_destroy: Option<unsafe extern "C" fn(args: *mut PLUGIN_Profiler_Error_Destroy_Args)>,
    error_message: Option<unsafe extern "C" fn(args: *mut PLUGIN_Profiler_Error_Message_Args)>,
    error_get_code: Entry<PLUGIN_Profiler_Error_GetCode_Args>,
    create: Entry<PLUGIN_Profiler_Create_Args>,
    destroy: Entry<PLUGIN_Profiler_Destroy_Args>,
    start: Entry<PLUGIN_Profiler_Start_Args>,
    stop: Entry<PLUGIN_Profiler_Stop_Args>,
    collect_data: Entry<PLUGIN_Profiler_CollectData_Args>,
} }

/// The extension as it is chained to the table; callers chain one to arguments of theirs, too.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PJRT_Profiler_Extension {
    pub base: PJRT_Extension_Base,
    pub profiler_api: *const PLUGIN_Profiler_Api,
    /// Of a caller's arguments only.
    pub traceme_context_id: i64,
}
