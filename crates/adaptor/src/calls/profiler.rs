//! The Profiler extension: `jax.profiler.trace` has the device's time.
//!
//! JAX makes a profiler when a trace begins and asks it for what it saw at the end. The service
//! always remembers what ran, so nothing is sent at the beginning and a step costs nothing
//! more; at the end each session of this process is asked when its launches ran.
//!
//! Promise: no function here fails. Without a session, or where the service does not answer, a
//! profile is empty: a job must not end for want of one.
//! Not here: the vendor's own profiler, what ran inside a launch.
#![expect(unsafe_code, reason = "C entry points")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use salus_channel::lock;
use salus_pjrt::sys::{self, CStruct};
use salus_wire::{AskProfile, Profile, Reader, Wire};

use crate::c_api::api_table::Padded;
use crate::c_api::error::{Result, internal, unavailable};
use crate::calls::xspace::{Plane, space};
use crate::connection::pending::Asked;
use crate::connection::session::Session;
use crate::objects::client::Client;

/// JAX may hold Python's lock meanwhile, so that no other thread of the job goes on.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The sessions of this process.
static CLIENTS: Mutex<Vec<Weak<Client>>> = Mutex::new(Vec::new());

/// A session that profiles should know of.
pub(crate) fn remember(client: &Arc<Client>) {
    let mut clients = lock(&CLIENTS);
    clients.retain(|known| known.strong_count() > 0);
    clients.push(Arc::downgrade(client));
}

/// What C holds as `PLUGIN_Profiler`.
#[derive(Default)]
struct Profiler(Mutex<State>);

#[derive(Default)]
struct State {
    /// When it was started, in nanoseconds since 1970; `None` while it is not.
    since_ns: Option<u64>,
    /// What it saw, an `XSpace`.
    seen: Vec<u8>,
}

impl Profiler {
    fn start(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        *lock(&self.0) = State {
            since_ns: Some(now),
            seen: Vec::new(),
        };
    }

    fn stop(&self) {
        let Some(since_ns) = lock(&self.0).since_ns.take() else {
            return;
        };
        let clients: Vec<Arc<Client>> = lock(&CLIENTS).iter().filter_map(Weak::upgrade).collect();
        let profiles: Vec<Option<Profile>> = clients
            .iter()
            .map(|client| client.session.profile(since_ns).ok())
            .collect();
        let sessions = profiles.iter().zip(&clients).enumerate();
        let planes: Vec<Plane<'_>> = sessions
            .filter_map(|(number, (profile, client))| {
                Some(Plane {
                    number,
                    platform: &client.platform_name,
                    since_ns,
                    profile: profile.as_ref()?,
                })
            })
            .collect();
        lock(&self.0).seen = space(&planes);
    }
}

impl Session {
    /// Asks the service when launches of this session ran since then.
    fn profile(&self, since_ns: u64) -> Result<Profile> {
        let request = self.next_request();
        let message = AskProfile { request, since_ns };
        let (descriptor, bytes) =
            self.request_blob(Asked::Request(request), message, Some(TIMEOUT))?;
        let profile = salus_channel::open_blob(descriptor, bytes)
            .map_err(|e| unavailable(format!("a profile could not be read: {e}")))?;
        Profile::take(&mut Reader::new(&profile), 0).map_err(|e| {
            internal(format!(
                "the service sent a profile that cannot be read: {e}"
            ))
        })
    }
}

/// The functions that the extension leads to. XLA's client leaves `struct_size` of their arguments
/// unset, so nothing here looks at it; it refuses a table of any other size than its own.
pub(crate) static API: Padded<sys::PLUGIN_Profiler_Api> = Padded::new(sys::PLUGIN_Profiler_Api {
    struct_size: sys::PLUGIN_Profiler_Api::END,
    r#priv: null_mut(),
    error_destroy: Some(error_destroy),
    error_message: Some(error_message),
    error_get_code: Some(error_get_code),
    create: Some(create),
    destroy: Some(destroy),
    start: Some(start),
    stop: Some(stop),
    collect_data: Some(collect_data),
});

// No error is ever made; these are for callers that ask all the same.

unsafe extern "C" fn error_destroy(_args: *mut sys::PLUGIN_Profiler_Error_Destroy_Args) {}

unsafe extern "C" fn error_message(args: *mut sys::PLUGIN_Profiler_Error_Message_Args) {
    // SAFETY: the caller has room for an answer.
    if let Some(args) = unsafe { args.as_mut() } {
        args.message = c"".as_ptr();
        args.message_size = 0;
    }
}

unsafe extern "C" fn error_get_code(
    args: *mut sys::PLUGIN_Profiler_Error_GetCode_Args,
) -> *mut sys::PLUGIN_Profiler_Error {
    // SAFETY: the caller has room for an answer.
    if let Some(args) = unsafe { args.as_mut() } {
        args.code = sys::PJRT_Error_Code_OK as _;
    }
    null_mut()
}

unsafe extern "C" fn create(
    args: *mut sys::PLUGIN_Profiler_Create_Args,
) -> *mut sys::PLUGIN_Profiler_Error {
    // SAFETY: the caller has room for an answer.
    if let Some(args) = unsafe { args.as_mut() } {
        args.profiler = Box::into_raw(Box::<Profiler>::default()).cast();
    }
    null_mut()
}

unsafe extern "C" fn destroy(
    args: *mut sys::PLUGIN_Profiler_Destroy_Args,
) -> *mut sys::PLUGIN_Profiler_Error {
    // SAFETY: what `create` gave, once, or NULL.
    unsafe {
        if let Some(args) = args.as_ref()
            && !args.profiler.is_null()
        {
            drop(Box::from_raw(args.profiler.cast::<Profiler>()));
        }
    }
    null_mut()
}

/// Calls `what` with the profiler that the caller names, if it names one.
///
/// # Safety
/// It is what `create` gave, and not destroyed, or NULL.
unsafe fn with(profiler: *mut sys::PLUGIN_Profiler, what: impl FnOnce(&Profiler)) {
    // SAFETY: the caller's promise.
    if let Some(profiler) = unsafe { profiler.cast::<Profiler>().as_ref() } {
        let _ = catch_unwind(AssertUnwindSafe(|| what(profiler)));
    }
}

unsafe extern "C" fn start(
    args: *mut sys::PLUGIN_Profiler_Start_Args,
) -> *mut sys::PLUGIN_Profiler_Error {
    // SAFETY: the caller names a profiler of ours.
    unsafe {
        if let Some(args) = args.as_ref() {
            with(args.profiler, Profiler::start);
        }
    }
    null_mut()
}

unsafe extern "C" fn stop(
    args: *mut sys::PLUGIN_Profiler_Stop_Args,
) -> *mut sys::PLUGIN_Profiler_Error {
    // SAFETY: the caller names a profiler of ours.
    unsafe {
        if let Some(args) = args.as_ref() {
            with(args.profiler, Profiler::stop);
        }
    }
    null_mut()
}

/// JAX reads where the first call points to; by the header a caller may also come again with memory
/// of its own.
unsafe extern "C" fn collect_data(
    args: *mut sys::PLUGIN_Profiler_CollectData_Args,
) -> *mut sys::PLUGIN_Profiler_Error {
    // SAFETY: the caller has room for an answer.
    let Some(args) = (unsafe { args.as_mut() }) else {
        return null_mut();
    };
    let (given, profiler) = (args.buffer, args.profiler);
    args.buffer_size_in_bytes = 0;
    // SAFETY: the caller names a profiler of ours.
    unsafe {
        with(profiler, |profiler| {
            let state = lock(&profiler.0);
            let ours = state.seen.as_ptr().cast_mut();
            args.buffer_size_in_bytes = state.seen.len();
            if given.is_null() {
                args.buffer = ours;
            } else if given != ours {
                // SAFETY: by the header, memory of at least the size that it was told before.
                std::ptr::copy_nonoverlapping(ours, given, state.seen.len());
            }
        });
    }
    null_mut()
}
