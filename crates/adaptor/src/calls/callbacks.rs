//! Functions of the job that its programs call while they run (`jax.pure_callback`, `debug.print`).
//!
//! JAX gives them with each launch, as user data of the FFI extension: a list of Python callables. The
//! service opens a channel for each call that is under way, and each channel has a thread here, which
//! belongs to Python ([`set_runner`]): it asks for the next call ([`next_call`]), runs the function on
//! arrays in the channel's shared memory, and asks again, which sends its results. It stays in Python in
//! between, because a thread that enters Python anew loses all that it had there, and JAX keeps much
//! of its state by thread. A launch that may call back is waited for, as in JAX's own CPU backend: a
//! function may use JAX itself, and what it waits for must not stand behind what waits for it.
//!
//! Promise: a function runs only while its launch is under way; nothing of Python is touched in
//! processes that never call back.
//! Not here: what the functions do, numpy (`python/salus/jax_plugin.py`).
#![expect(
    unsafe_code,
    reason = "C entry points, lists of the caller's, and a call into Python"
)]
#![allow(non_snake_case, reason = "the header's names")]

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags};
use salus_channel::{Inbox, Segment, lock, send_all};
use salus_wire::{
    CallbackArray, CallbackCall, CallbackReturn, FromCallbacks, OperationId, ToCallbacks, limits,
};

use crate::c_api::c_args::{entry, field};
use crate::c_api::error::{Error, Result, internal, invalid, unimplemented};
use crate::calls::launch::ExecuteContext;
use crate::connection::{fork, threads};
use crate::objects::program::Program;

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
pub(crate) struct Given(Mutex<HashMap<OperationId, Arc<Callables>>>);

impl Given {
    pub(crate) fn insert(&self, operation: OperationId, callables: Arc<Callables>) {
        lock(&self.0).insert(operation, callables);
    }

    pub(crate) fn remove(&self, operation: OperationId) {
        lock(&self.0).remove(&operation);
    }

    fn get(&self, operation: OperationId) -> Option<Arc<Callables>> {
        lock(&self.0).get(&operation).cloned()
    }
}

// ---------------------------------------------------------------- the FFI extension

entry! {
    fn PJRT_FFI_Type_Register(args: PJRT_FFI_Type_Register_Args) {
        // Types are distinguished by the numbers that their owners chose.
        let number = args.read(field!(Call.type_id))?;
        args.put(field!(Call.type_id), number.max(1))
    }

    fn PJRT_FFI_UserData_Add(args: PJRT_FFI_UserData_Add_Args) {
        let context = args.handle::<ExecuteContext>(field!(Call.context))?;
        let data = args.read(field!(Call.user_data))?;
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
        let target = args.bytes(field!(Call.target_name), field!(Call.target_name_size))?;
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

/// One call as Python sees it.
#[repr(C)]
pub(crate) struct Request {
    callable: *mut c_void,
    /// The same number, the same arrays at the same places.
    layout: u64,
    num_operands: usize,
    operands: *const Array,
    num_results: usize,
    results: *const Array,
    /// The function fills the results itself instead of returning them.
    buffers: bool,
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

/// Runs the calls of a channel until there are no more.
pub(crate) type Runner = unsafe extern "C-unwind" fn(channel: *mut Channel);

static RUNNER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Who runs callables: callable from any thread, for the life of the process.
pub(crate) fn set_runner(runner: Option<Runner>) {
    let runner = runner.map_or(std::ptr::null_mut(), |runner| runner as *mut c_void);
    RUNNER.store(runner, Ordering::Release);
}

/// Answers the call before, if there was one, and waits for the next. `failed` says in UTF-8 why there
/// are no results. Null when the channel has ended.
///
/// # Safety
/// The channel is the one that the runner was called with, and this its thread.
pub(crate) unsafe fn next_call(
    channel: *mut Channel,
    failed: *const c_char,
    failed_size: usize,
) -> *const Request {
    // SAFETY: the caller's promise.
    let channel = unsafe { &mut *channel };
    let failed = (!failed.is_null()).then(|| {
        // SAFETY: the caller's text, readable during the call.
        let text = unsafe { std::slice::from_raw_parts(failed.cast::<u8>(), failed_size) };
        // In the words of JAX's own CPU backend, which people and tests look for.
        let what = match channel.request.buffers {
            true => "Error when calling buffer callback",
            false => "CpuCallback error calling callback",
        };
        let text = shortened(String::from_utf8_lossy(text).into_owned());
        internal(format!("{what}: {text}"))
    });
    match channel.next(failed) {
        Ok(true) => &raw const channel.request,
        // Its end says all: the service has ended the launch that called.
        Ok(false) | Err(_) => std::ptr::null(),
    }
}

/// As much as an error may carry; of a long traceback the end is the most useful.
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
        called: None,
        layouts: Vec::new(),
        layouts_made: 0,
        request: Request {
            callable: std::ptr::null_mut(),
            layout: 0,
            num_operands: 0,
            operands: std::ptr::null(),
            num_results: 0,
            results: std::ptr::null(),
            buffers: false,
        },
    });
    threads::spawn_for_python(serve, Box::into_raw(channel).cast())
        .map_err(|e| format!("no thread could be started for a callback: {e}"))
}

/// A channel's thread. Python ends it in the middle of a function if the process ends meanwhile, by
/// unwinding: so nothing here catches, and whatever owns something gives it back when it is dropped.
unsafe extern "C-unwind" fn serve(channel: *mut c_void) -> *mut c_void {
    // SAFETY: the box that `start` made, handed over once.
    let mut channel = unsafe { Box::from_raw(channel.cast::<Channel>()) };
    let runner = RUNNER.load(Ordering::Acquire);
    if runner.is_null() {
        let _ = channel.refuse();
    } else {
        // SAFETY: only `set_runner` stores here, and only runners.
        let runner: Runner = unsafe { std::mem::transmute(runner) };
        // SAFETY: the channel lives during the call.
        unsafe { runner(&raw mut *channel) };
    }
    std::ptr::null_mut()
}

impl Drop for Channel {
    fn drop(&mut self) {
        fork::forget(self.socket.as_raw_fd());
    }
}

pub(crate) struct Channel {
    given: Arc<Given>,
    socket: UnixStream,
    inbox: Inbox,
    memory: Option<Segment>,
    /// The call that was not answered yet, and its functions.
    called: Option<Arc<Callables>>,
    /// Those seen, so that Python need not read the same ones again for each call.
    layouts: Vec<Layout>,
    layouts_made: u64,
    request: Request,
}

/// Operands and results of calls, and where they are.
struct Layout {
    number: u64,
    operand_arrays: Vec<CallbackArray>,
    result_arrays: Vec<CallbackArray>,
    operands: Vec<Array>,
    results: Vec<Array>,
}

/// Programs have a few callbacks each.
const LAYOUTS_MAX: usize = 32;

impl Channel {
    /// Answers the call before and waits for the next, which is `request` then; `false` at the end.
    fn next(&mut self, failed: Option<Error>) -> std::io::Result<bool> {
        if self.called.take().is_some() {
            self.answer(failed)?;
        }
        loop {
            let taken = self.inbox.take::<ToCallbacks>();
            let Some(received) = taken.map_err(std::io::Error::other)? else {
                // Not by reading: a thread that waits in a read of such a socket is also woken each time the
                // other side takes what it was sent, which costs more than all else here.
                let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
                match rustix::event::poll(&mut polled, None) {
                    Ok(_) => {}
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                }
                match self.inbox.fill(&self.socket, false) {
                    Ok(0) => return Ok(false),
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                    Ok(_) | Err(_) => continue,
                }
            };
            match received.message {
                ToCallbacks::CallbackMemory(memory) => {
                    let descriptor = received.descriptor;
                    let descriptor =
                        descriptor.ok_or_else(|| std::io::Error::other("memory without memfd"))?;
                    self.layouts.clear();
                    self.memory = Some(Segment::open(descriptor, memory.bytes)?);
                }
                ToCallbacks::CallbackCall(call) => match self.prepare(call) {
                    Ok(()) => return Ok(true),
                    Err(error) => self.answer(Some(error))?,
                },
            }
        }
    }

    /// Answers every call with an error: nobody in this process can run it.
    fn refuse(&mut self) -> std::io::Result<()> {
        let mut error = None;
        while self.next(error)? {
            error = Some(unimplemented(
                "a program calls a Python function, and nobody in this process can run it: the \
                 Python package `salus` is not loaded",
            ));
        }
        Ok(())
    }

    fn answer(&self, error: Option<Error>) -> std::io::Result<()> {
        let answer = FromCallbacks::from(CallbackReturn { error });
        send_all(&self.socket, &answer, None)
    }

    fn prepare(&mut self, call: CallbackCall) -> Result<()> {
        let callables = self.given.get(call.operation);
        let callables = callables.ok_or_else(|| stranger(&call))?;
        let index = usize::try_from(call.callback).ok();
        let callable = index.and_then(|index| callables.0.get(index));
        let callable = *callable.ok_or_else(|| stranger(&call))?;
        let buffers = call.buffers;
        let layout = self.layout(call)?;
        self.request = Request {
            callable,
            layout: layout.number,
            num_operands: layout.operands.len(),
            operands: layout.operands.as_ptr(),
            num_results: layout.results.len(),
            results: layout.results.as_ptr(),
            buffers,
        };
        self.called = Some(callables);
        Ok(())
    }

    fn layout(&mut self, call: CallbackCall) -> Result<&Layout> {
        let (operand_arrays, result_arrays) = (call.operands, call.results);
        let seen = self.layouts.iter().position(|layout| {
            layout.operand_arrays == operand_arrays && layout.result_arrays == result_arrays
        });
        let at = match seen {
            Some(at) => at,
            None => {
                let operands = self.arrays(&operand_arrays)?;
                let results = self.arrays(&result_arrays)?;
                if self.layouts.len() >= LAYOUTS_MAX {
                    self.layouts.clear();
                }
                self.layouts_made += 1;
                self.layouts.push(Layout {
                    number: self.layouts_made,
                    operand_arrays,
                    result_arrays,
                    operands,
                    results,
                });
                self.layouts.len() - 1
            }
        };
        Ok(&self.layouts[at])
    }

    /// They point into `described`, which lives as long as they do.
    fn arrays(&self, described: &[CallbackArray]) -> Result<Vec<Array>> {
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
        described.iter().map(array).collect()
    }
}

fn stranger(call: &CallbackCall) -> Error {
    invalid(format!(
        "callback {} of launch {} is none that this process gave",
        call.callback, call.operation
    ))
}
