//! A vendor for tests: a table of a chosen length, whose functions do what a test needs.
//!
//! It plays older plugins (short tables, missing slots), newer ones (that demand longer structs)
//! and clumsy ones (errors, wrong versions).

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Error;
use crate::api::{Api, Padded};
use crate::event::Event;
use crate::sys::*;

/// Leaks a table that says it has `struct_size` bytes, in memory that has no more, but for the
/// version.
fn table(struct_size: usize, version: (c_int, c_int)) -> Api {
    let words = vec![0u64; struct_size.div_ceil(8).max(5)].leak();
    let table: *mut PJRT_Api = words.as_mut_ptr().cast();
    let function = move |offset: usize, function: *const ()| {
        if offset + 8 <= struct_size {
            // SAFETY: within the leaked words.
            unsafe { table.byte_add(offset).cast::<*const ()>().write(function) };
        }
    };
    // SAFETY: five words are a size, a pointer and a version.
    unsafe {
        (&raw mut (*table).struct_size).write(struct_size);
        (&raw mut (*table).pjrt_api_version.major_version).write(version.0);
        (&raw mut (*table).pjrt_api_version.minor_version).write(version.1);
    }
    macro_rules! set {
        ($($slot:ident = $function:ident;)*) => {
            $(function(std::mem::offset_of!(PJRT_Api, $slot), $function as *const ());)*
        };
    }
    set! {
        PJRT_Error_Destroy = error_destroy;
        PJRT_Error_Message = error_message;
        PJRT_Error_GetCode = error_code;
        PJRT_Event_Destroy = event_destroy;
        PJRT_Event_OnReady = event_on_ready;
        PJRT_Client_ProcessIndex = demanding;
        PJRT_Client_Destroy = failing;
    }
    let table = NonNull::new(table).expect("vectors are not null");
    // SAFETY: as a plugin would, and the table is leaked.
    unsafe { Api::new(table) }
}

/// Errors that were made and not yet destroyed. Each is a leaked number, its code.
static ERRORS: AtomicUsize = AtomicUsize::new(0);

fn new_error(code: u32) -> *mut PJRT_Error {
    ERRORS.fetch_add(1, Ordering::SeqCst);
    Box::into_raw(Box::new(code)).cast()
}

unsafe extern "C" fn error_destroy(args: *mut PJRT_Error_Destroy_Args) {
    // SAFETY: made by `new_error`, destroyed once.
    drop(unsafe { Box::from_raw((*args).error.cast::<u32>()) });
    ERRORS.fetch_sub(1, Ordering::SeqCst);
}

unsafe extern "C" fn error_message(args: *mut PJRT_Error_Message_Args) {
    let message = "the fake says no";
    // SAFETY: the caller's arguments are writable.
    unsafe {
        (*args).message = message.as_ptr().cast();
        (*args).message_size = message.len();
    }
}

unsafe extern "C" fn error_code(args: *mut PJRT_Error_GetCode_Args) -> *mut PJRT_Error {
    // SAFETY: made by `new_error`.
    unsafe { (*args).code = *(*args).error.cast::<u32>() };
    std::ptr::null_mut()
}

unsafe extern "C" fn event_destroy(_: *mut PJRT_Event_Destroy_Args) -> *mut PJRT_Error {
    std::ptr::null_mut()
}

/// Runs the callback at once with an error; or refuses it if the event is the odd one.
unsafe extern "C" fn event_on_ready(args: *mut PJRT_Event_OnReady_Args) -> *mut PJRT_Error {
    // SAFETY: the caller's arguments are readable, and the callback is as the header says.
    unsafe {
        if (*args).event.addr() == 1 {
            return new_error(PJRT_Error_Code_FAILED_PRECONDITION);
        }
        let callback = (*args).callback.expect("a callback is given");
        callback(new_error(PJRT_Error_Code_ABORTED), (*args).user_arg);
    }
    std::ptr::null_mut()
}

/// A newer plugin's function: wants 64 bytes more than this crate's struct has, and reads them.
unsafe extern "C" fn demanding(args: *mut PJRT_Client_ProcessIndex_Args) -> *mut PJRT_Error {
    let own = size_of::<PJRT_Client_ProcessIndex_Args>() + 64;
    // SAFETY: as many bytes as the caller says are readable.
    unsafe {
        if (*args).struct_size < own {
            return new_error(PJRT_Error_Code_INVALID_ARGUMENT);
        }
        let bytes = std::slice::from_raw_parts(args.cast::<u8>(), (*args).struct_size);
        assert!(
            bytes[16..].iter().all(|&byte| byte == 0),
            "what nobody set is zero"
        );
        (*args).process_index = 7;
    }
    std::ptr::null_mut()
}

unsafe extern "C" fn failing(_: *mut PJRT_Client_Destroy_Args) -> *mut PJRT_Error {
    new_error(PJRT_Error_Code_DATA_LOSS)
}

/// One test for all that counts errors: the count is the process's.
#[test]
fn errors_become_ours_and_are_destroyed() {
    let api = table(size_of::<PJRT_Api>(), (0, 81));
    let mut args = Padded::<PJRT_Client_Destroy_Args>::new();
    // SAFETY: the fake reads nothing.
    let error = unsafe { call!(api, PJRT_Client_Destroy, &mut args) };
    assert_eq!(
        error,
        Err(Error::new(PJRT_Error_Code_DATA_LOSS, "the fake says no"))
    );

    let (sender, receiver) = std::sync::mpsc::channel();
    for address in [8, 1] {
        // SAFETY: the fake never follows the pointer.
        let event = unsafe { Event::new(api, std::ptr::without_provenance_mut(address)) };
        let sender = sender.clone();
        let callback = move |result: Result<(), Error>| {
            sender.send(result).expect("the test listens");
        };
        event.expect("not null").on_ready(callback);
    }
    let codes: Vec<u32> = receiver
        .try_iter()
        .map(|r| r.expect_err("errors").code)
        .collect();
    assert_eq!(
        codes,
        [PJRT_Error_Code_ABORTED, PJRT_Error_Code_FAILED_PRECONDITION]
    );
    assert_eq!(
        ERRORS.load(Ordering::SeqCst),
        0,
        "every error was destroyed"
    );
}

#[test]
fn arguments_are_longer_than_a_newer_plugin_demands() {
    let api = table(size_of::<PJRT_Api>() + 400, (0, 112));
    let mut args = Padded::<PJRT_Client_ProcessIndex_Args>::new();
    // SAFETY: the fake reads the arguments only.
    unsafe { call!(api, PJRT_Client_ProcessIndex, &mut args) }.expect("long enough");
    assert_eq!(args.process_index, 7);
}

#[test]
fn slots_beyond_an_older_table_do_not_exist() {
    let end = std::mem::offset_of!(PJRT_Api, PJRT_Client_Destroy);
    let api = table(end, (0, 40));
    assert_eq!(api.version(), Some((0, 40)));
    let mut args = Padded::<PJRT_Client_Destroy_Args>::new();
    // SAFETY: there is nothing to call.
    let error = unsafe { call!(api, PJRT_Client_Destroy, &mut args) };
    let error = error.expect_err("the table ends before it");
    assert!(error.is_unimplemented());
    assert!(error.message.contains("0.40") && error.message.contains("PJRT_Client_Destroy"));
    let mut args = Padded::<PJRT_Client_Devices_Args>::new();
    let whole = table(size_of::<PJRT_Api>(), (0, 81));
    // SAFETY: the slot is null.
    let null = unsafe { call!(whole, PJRT_Client_Devices, &mut args) };
    assert!(null.expect_err("null").is_unimplemented());
    assert_eq!(table(24, (0, 81)).version(), None);
}

#[test]
fn a_panic_in_a_callback_stays_on_our_side() {
    let api = table(size_of::<PJRT_Api>(), (0, 81));
    let waiting: *mut c_void = crate::event::waiting(api, |_| panic!("on purpose"));
    // SAFETY: made for this call.
    unsafe { crate::event::ready(std::ptr::null_mut(), waiting) };
}
