//! The CPU plugin underneath: found, opened once, called.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use salus_pjrt::Library;
use salus_pjrt::sys::*;

use crate::c_api::error::Error;

/// Calls a slot of the CPU plugin and returns its arguments:
/// `call!(PJRT_Event_Await(PJRT_Event_Await_Args { event }))?`.
///
/// It expands to an unsafe call: whatever the fields point to must be what the header asks for.
macro_rules! call {
    ($slot:ident($args:ident { $($field:ident $(: $value:expr)?),* $(,)? })) => {{
        let mut args = $crate::c_api::inner::Padded::<salus_pjrt::sys::$args>::new();
        $($crate::c_api::inner::call!(@set args $field $($value)?);)*
        $crate::c_api::inner::taken(stringify!($slot), $crate::c_api::inner::api().$slot, &mut args)
    }};
    (@set $args:ident $field:ident) => { $args.args.$field = $field };
    (@set $args:ident $field:ident $value:expr) => { $args.args.$field = $value };
}
pub(crate) use call;

/// Arguments with zeros behind them.
#[repr(C)]
pub(crate) struct Padded<T> {
    pub(crate) args: T,
    zeros: [u64; 32],
}

impl<T: CStruct> Padded<T> {
    pub(crate) fn new() -> Padded<T> {
        // SAFETY: zero bytes are a valid `T`, as `CStruct` demands.
        let mut padded: Padded<T> = unsafe { std::mem::zeroed() };
        // SAFETY: argument structs start with their size.
        unsafe { (&raw mut padded.args).cast::<usize>().write(T::END) };
        padded
    }
}

type Function<T> = unsafe extern "C" fn(*mut T) -> *mut PJRT_Error;

/// # Safety
/// `args` is as the header asks for this function.
pub(crate) unsafe fn taken<T: CStruct>(
    name: &str,
    function: Option<Function<T>>,
    args: &mut Padded<T>,
) -> Result<T, Error> {
    let function =
        function.ok_or_else(|| Error::unimplemented(format!("the CPU plugin has no {name}")))?;
    // SAFETY: the caller's promise.
    let error = unsafe { function((&raw mut *args).cast()) };
    if error.is_null() {
        return Ok(args.args);
    }
    // SAFETY: the CPU plugin gave the error to us.
    Err(unsafe { take(error) })
}

/// # Safety
/// The error is the CPU plugin's, and the caller's.
pub(crate) unsafe fn take(error: *mut PJRT_Error) -> Error {
    let mut code = Padded::<PJRT_Error_GetCode_Args>::new();
    code.args.error = error;
    let mut message = Padded::<PJRT_Error_Message_Args>::new();
    message.args.error = error;
    let mut destroy = Padded::<PJRT_Error_Destroy_Args>::new();
    destroy.args.error = error;
    // SAFETY: a live error until it is destroyed; every table has these three.
    unsafe {
        if let Some(get_code) = api().PJRT_Error_GetCode {
            get_code(&raw mut code.args);
        }
        if let Some(get_message) = api().PJRT_Error_Message {
            get_message(&raw mut message.args);
        }
        let text = bytes(message.args.message.cast(), message.args.message_size);
        let text = String::from_utf8_lossy(text).into_owned();
        if let Some(destroy_error) = api().PJRT_Error_Destroy {
            destroy_error(&raw mut destroy.args);
        }
        Error::new(code.args.code, text)
    }
}

/// # Safety
/// `len` elements at `start` are readable for `'a`, or `start` is null.
pub(crate) unsafe fn bytes<'a, T>(start: *const T, len: usize) -> &'a [T] {
    if start.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, len) }
}

struct Table(&'static PJRT_Api);

// SAFETY: read-only after `GetPjrtApi`.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static TABLE: OnceLock<Result<Table, String>> = OnceLock::new();

/// Opens the CPU plugin, once in a process. To be called before [`api`].
pub(crate) fn open(plugin: Option<&Path>) -> Result<&'static PJRT_Api, String> {
    let table = TABLE.get_or_init(|| {
        let path = match plugin {
            Some(path) => path.to_owned(),
            None => find()?,
        };
        let library = Library::open(&path, "the CPU plugin").map_err(|error| error.message)?;
        let symbol = library
            .symbol(c"GetPjrtApi")
            .ok_or_else(|| format!("{} exports no GetPjrtApi", path.display()))?;
        // SAFETY: a function of this name has this type in every PJRT plugin, and takes nothing.
        let table = unsafe {
            let get: unsafe extern "C" fn() -> *mut PJRT_Api = std::mem::transmute(symbol.as_ptr());
            get().as_ref()
        };
        match table {
            Some(table) if table.struct_size >= PJRT_Api::END => Ok(Table(table)),
            _ => Err(format!("{} is older than PJRT API 0.81", path.display())),
        }
    });
    match table {
        Ok(table) => Ok(table.0),
        Err(why) => Err(why.clone()),
    }
}

/// The CPU plugin's table.
pub(crate) fn api() -> &'static PJRT_Api {
    match TABLE.get() {
        Some(Ok(table)) => table.0,
        _ => panic!("a slot was called although the CPU plugin is not open"),
    }
}

/// The CPU plugin in the directories that the environment names, or in the `.venv` of a checkout.
fn find() -> Result<PathBuf, String> {
    const PLACE: &str = "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so";
    let mut directories = Vec::new();
    for variable in [salus_wire::env::SITE_PACKAGES, "SALUS_TEST_SITE_PACKAGES"] {
        let named = std::env::var_os(variable).unwrap_or_default();
        directories.extend(std::env::split_paths(&named));
    }
    let executable = std::env::current_exe().unwrap_or_default();
    for parent in executable.ancestors().skip(1) {
        let pythons = std::fs::read_dir(parent.join(".venv/lib"));
        let pythons = pythons.into_iter().flatten().flatten();
        directories.extend(pythons.map(|python| python.path().join("site-packages")));
    }
    let mut places = directories.iter().map(|directory| directory.join(PLACE));
    places.find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "the stand-in needs the CPU plugin: give SALUS_STANDIN=plugin=PATH or \
             SALUS_SITE_PACKAGES (looked in {directories:?})"
        )
    })
}
