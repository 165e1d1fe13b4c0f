//! Functions of the job that its programs call while they run (`jax.pure_callback`, `debug.print`).
//!
//! JAX gives them with each launch, as user data of the FFI extension: a list of Python callables. The
//! service opens a channel for each call that is under way; a thread here reads the call, has Python
//! run the function ([`set_runner`]) on arrays in the channel's shared memory, and
//! answers. A launch that may call back is waited for, as in JAX's own CPU backend: a function may use
//! JAX itself, and what it waits for must not stand behind what waits for it.
//!
//! Promise: a function runs only while its launch is under way; nothing of Python is touched in
//! processes that never call back; no signal of the process is handled on these threads.
//! Not here: what the functions do, numpy (`python/salus/jax_plugin.py`).
#![expect(
    unsafe_code,
    reason = "C entry points, lists of the caller's, and a call into Python"
)]
#![allow(non_snake_case, reason = "the header's names")]

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use salus_channel::{Inbox, Segment, send_all};
use salus_wire::{CallbackArray, CallbackCall, CallbackReturn, FromCallbacks, ToCallbacks, limits};

use crate::dispatch;
use crate::error::{Error, Result, internal, invalid, unimplemented};
use crate::execute::ExecuteContext;
use crate::fence::entry;
use crate::fork;
use crate::lock;
use crate::program::Program;

/// What JAX calls the type of its user data (`xla::FfiLoadedHostCallbacks`), in versions in which the
/// number is part of the ABI.
const HOST_CALLBACKS: i64 = 7_357_244_197_867_843_242;

/// What that user data is.
#[repr(C)]
struct HostCallbacks {
    callbacks: *const *mut c_void,
    count: u32,
}

/// Callables of one launch, which JAX keeps alive until it has ended.
pub(crate) struct Callables(Vec<*mut c_void>);

// SAFETY: pointers that are only handed to Python, which takes its own lock.
unsafe impl Send for Callables {}
// SAFETY: as above.
unsafe impl Sync for Callables {}

/// The functions that launches under way may call.
#[derive(Default)]
pub(crate) struct Given(Mutex<HashMap<u64, Arc<Callables>>>);

impl Given {
    pub(crate) fn insert(&self, operation: u64, callables: Arc<Callables>) {
        lock(&self.0).insert(operation, callables);
    }

    pub(crate) fn remove(&self, operation: u64) {
        lock(&self.0).remove(&operation);
    }

    fn get(&self, operation: u64) -> Option<Arc<Callables>> {
        lock(&self.0).get(&operation).cloned()
    }
}

// ---------------------------------------------------------------- the FFI extension

entry! {
    fn PJRT_FFI_Type_Register(args: PJRT_FFI_Type_Register_Args) {
        // Types are told apart by the numbers that their owners chose.
        let number = args.read(|a| &a.type_id)?;
        args.put(|a| &a.type_id, number.max(1))
    }

    fn PJRT_FFI_UserData_Add(args: PJRT_FFI_UserData_Add_Args) {
        let context = args.handle::<ExecuteContext>(|a| &a.context)?;
        let data = args.read(|a| &a.user_data)?;
        if data.type_id == HOST_CALLBACKS && !data.data.is_null() {
            // SAFETY: data of this type is a list of callables, readable during the call.
            let list = unsafe { data.data.cast::<HostCallbacks>().read() };
            let callables = match list.count {
                0 => &[],
                // SAFETY: as above.
                count => unsafe { std::slice::from_raw_parts(list.callbacks, count as usize) },
            };
            *lock(&context.callables) = Some(Arc::new(Callables(callables.to_vec())));
        }
        Ok(())
    }

    fn PJRT_FFI_Register_Handler(args: PJRT_FFI_Register_Handler_Args) {
        let target = args.bytes(|a| &a.target_name, |a| &a.target_name_size)?;
        Err(unimplemented(format!(
            "the handler of the custom call `{}` cannot be registered: it is code of this process, \
             and programs run in the Salus service; call it from `jax.pure_callback` instead",
            String::from_utf8_lossy(target)
        )))
    }
}

/// The functions that came with a launch of a program that calls back.
pub(crate) fn given(context: Option<&ExecuteContext>, program: &Program) -> Result<Arc<Callables>> {
    let given = context.and_then(|context| lock(&context.callables).clone());
    given.ok_or_else(|| {
        invalid(format!(
            "the program `{}` calls functions of this process, and its launch came without any: \
             this version of JAX gives them in a way that Salus does not know",
            program.name()
        ))
    })
}

// ---------------------------------------------------------------- Python

/// One call as the runner sees it.
#[repr(C)]
pub(crate) struct Request {
    callable: *mut c_void,
    /// The function fills the results itself instead of returning them.
    buffers: bool,
    num_operands: usize,
    operands: *const Array,
    num_results: usize,
    results: *const Array,
    /// Takes a text in UTF-8 that says why there are no results.
    fail: unsafe extern "C" fn(context: *mut c_void, text: *const c_char, size: usize),
    context: *mut c_void,
}

/// An operand or a result, in shared memory: dense, row-major, less than a byte packed.
#[repr(C)]
struct Array {
    element_type: u32,
    rank: u32,
    dims: *const i64,
    data: *mut u8,
    bytes: usize,
}

pub(crate) type Runner = unsafe extern "C-unwind" fn(request: *const Request);

static RUNNER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Who runs callables: callable from any thread, for the life of the process.
pub(crate) fn set_runner(runner: Option<Runner>) {
    let runner = runner.map_or(std::ptr::null_mut(), |runner| runner as *mut c_void);
    RUNNER.store(runner, Ordering::Release);
}

unsafe extern "C" fn fail(context: *mut c_void, text: *const c_char, size: usize) {
    // SAFETY: `context` is the place that `run` keeps for it; the text is readable during the call.
    let (place, text) = unsafe {
        let text = std::slice::from_raw_parts(text.cast::<u8>(), size);
        (&*context.cast::<Mutex<Option<String>>>(), text)
    };
    *lock(place) = Some(String::from_utf8_lossy(text).into_owned());
}

/// Has Python run a callable.
fn run(callable: *mut c_void, buffers: bool, operands: &[Array], results: &[Array]) -> Result<()> {
    let runner = RUNNER.load(Ordering::Acquire);
    if runner.is_null() {
        return Err(unimplemented(
            "a program calls a Python function, and nobody in this process can run it: the Python \
             package `salus` is not loaded",
        ));
    }
    // SAFETY: only `set_runner` stores here, and only runners.
    let runner: Runner = unsafe { std::mem::transmute(runner) };
    let failed = Mutex::new(None::<String>);
    let request = Request {
        callable,
        buffers,
        num_operands: operands.len(),
        operands: operands.as_ptr(),
        num_results: results.len(),
        results: results.as_ptr(),
        fail,
        context: (&raw const failed).cast_mut().cast(),
    };
    // SAFETY: everything lives during the call.
    unsafe { runner(&raw const request) };
    match lock(&failed).take() {
        None => Ok(()),
        // In the words of JAX's own CPU backend, which people and tests look for.
        Some(text) => {
            let what = match buffers {
                true => "Error when calling buffer callback",
                false => "CpuCallback error calling callback",
            };
            Err(internal(format!("{what}: {}", shortened(text))))
        }
    }
}

/// What an error may carry; of a long traceback the end tells most.
fn shortened(text: String) -> String {
    const MAX: usize = limits::ERROR_BYTES - 256;
    if text.len() <= MAX {
        return text;
    }
    let mut from = text.len() - MAX;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    format!("…{}", &text[from..])
}

// ---------------------------------------------------------------- channels

/// Starts the thread of a channel; it ends with the channel.
pub(crate) fn start(given: Arc<Given>, socket: OwnedFd) -> std::result::Result<(), String> {
    let socket = UnixStream::from(socket);
    fork::close_in_children(socket.as_fd());
    let channel = Box::new(Channel {
        given,
        socket,
        inbox: Inbox::default(),
        memory: None,
    });
    dispatch::spawn_for_python(serve, Box::into_raw(channel).cast())
        .map_err(|e| format!("no thread could be started for a callback: {e}"))
}

/// A channel's thread. Python ends it in the middle of a function if the process ends meanwhile, by
/// unwinding: so nothing here catches, and whatever owns something gives it back when it is dropped.
unsafe extern "C-unwind" fn serve(channel: *mut c_void) -> *mut c_void {
    // SAFETY: the box that `start` made, handed over once.
    let mut channel = unsafe { Box::from_raw(channel.cast::<Channel>()) };
    // Its end says all: the service has ended the launch that called.
    let _ = channel.serve();
    std::ptr::null_mut()
}

impl Drop for Channel {
    fn drop(&mut self) {
        fork::forget(self.socket.as_raw_fd());
    }
}

struct Channel {
    given: Arc<Given>,
    socket: UnixStream,
    inbox: Inbox,
    memory: Option<Segment>,
}

impl Channel {
    fn serve(&mut self) -> std::io::Result<()> {
        loop {
            let taken = self.inbox.take::<ToCallbacks>();
            let Some(received) = taken.map_err(std::io::Error::other)? else {
                if self.inbox.fill(&self.socket, true)? == 0 {
                    return Ok(());
                }
                continue;
            };
            match received.message {
                ToCallbacks::CallbackMemory(memory) => {
                    let descriptor = received.descriptor;
                    let descriptor =
                        descriptor.ok_or_else(|| std::io::Error::other("memory without memfd"))?;
                    self.memory = Some(Segment::open(descriptor, memory.bytes)?);
                }
                ToCallbacks::CallbackCall(call) => {
                    let error = self.call(&call).err();
                    let answer = FromCallbacks::from(CallbackReturn { error });
                    send_all(&self.socket, &answer, None)?;
                }
            }
        }
    }

    fn call(&self, call: &CallbackCall) -> Result<()> {
        let callables = self.given.get(call.operation);
        let callables = callables.ok_or_else(|| stranger(call))?;
        let index = usize::try_from(call.callback).ok();
        let callable = index.and_then(|index| callables.0.get(index));
        let callable = *callable.ok_or_else(|| stranger(call))?;
        let operands = self.arrays(&call.operands)?;
        let results = self.arrays(&call.results)?;
        run(callable, call.buffers, &operands, &results)
    }

    fn arrays(&self, told: &[CallbackArray]) -> Result<Vec<Array>> {
        let array = |array: &CallbackArray| {
            let memory = self.memory.as_ref();
            let data = memory.and_then(|memory| memory.range(array.offset, array.bytes));
            Ok(Array {
                element_type: array.shape.element_type,
                rank: array.shape.dims.len() as u32,
                dims: array.shape.dims.as_ptr(),
                data: data.ok_or_else(|| internal("a callback's array is outside its memory"))?,
                bytes: array.bytes as usize,
            })
        };
        told.iter().map(array).collect()
    }
}

fn stranger(call: &CallbackCall) -> Error {
    invalid(format!(
        "callback {} of launch {} is none that this process gave",
        call.callback, call.operation
    ))
}
