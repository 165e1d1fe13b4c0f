//! Programs that call functions of this process, played: Python and JAX above, the service below. The
//! functions are Rust's instead of Python's.

use std::ffi::{c_char, c_void};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

use super::*;
use crate::next;
use salus_channel::{Inbox, Segment, send_all};
use salus_pjrt::sys::*;
use salus_wire::{
    ArrayId, CallbackArray, CallbackCall, CallbackChannel, CallbackMemory, CallbackReturn,
    Completed, Error, FromCallbacks, OperationId, Signature, ToCallbacks,
};

// ---------------------------------------------------------------- Python's part

/// As `python/salus/jax_plugin.py` declares it.
#[repr(C)]
pub struct Request {
    callable: *mut c_void,
    pub layout: u64,
    num_operands: usize,
    operands: *const Array,
    num_results: usize,
    results: *const Array,
    pub buffers: bool,
}

#[repr(C)]
pub struct Array {
    pub element_type: u32,
    pub rank: u32,
    pub dims: *const i64,
    pub data: *mut u8,
    pub bytes: usize,
}

pub type Runner = unsafe extern "C-unwind" fn(channel: *mut c_void);

unsafe extern "C" {
    pub fn salus_set_callback_runner(runner: Option<Runner>);
    fn salus_next_callback(
        channel: *mut c_void,
        failed: *const c_char,
        failed_size: usize,
    ) -> *const Request;
}

/// What a function sees.
pub struct Call<'a> {
    pub layout: u64,
    pub buffers: bool,
    pub operands: &'a [Array],
    pub results: &'a [Array],
}

impl Call<'_> {
    pub fn operand(&self, index: usize) -> Vec<f32> {
        let array = &self.operands[index];
        // SAFETY: the library has these bytes there during the call.
        floats(unsafe { std::slice::from_raw_parts(array.data, array.bytes) })
    }

    pub fn put(&self, index: usize, numbers: &[f32]) {
        let (array, bytes) = (&self.results[index], bytes(numbers));
        assert_eq!(array.bytes, bytes.len());
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), array.data, bytes.len()) };
    }
}

/// A callable. It lives as long as the process: its thread may return after its launch has
/// ended.
pub type Body = dyn Fn(&Call<'_>) -> Result<(), String> + Send + Sync;

pub struct Function(Box<Body>);

impl Function {
    pub fn new(
        body: impl Fn(&Call<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> &'static Self {
        Box::leak(Box::new(Self(Box::new(body))))
    }

    /// Doubles its operand.
    pub fn doubles() -> &'static Self {
        Self::new(|call| {
            let doubled: Vec<f32> = call.operand(0).iter().map(|x| 2.0 * x).collect();
            call.put(0, &doubled);
            Ok(())
        })
    }
}

unsafe extern "C-unwind" fn run(channel: *mut c_void) {
    let mut failed = None::<String>;
    loop {
        let (text, size) = match &failed {
            Some(text) => (text.as_ptr().cast(), text.len()),
            None => (std::ptr::null(), 0),
        };
        // SAFETY: the library's channel, and a text that lives.
        let Some(request) = (unsafe { salus_next_callback(channel, text, size).as_ref() }) else {
            return;
        };
        let list = |arrays: *const Array, count| match count {
            0 => &[],
            // SAFETY: as many as it says.
            count => unsafe { std::slice::from_raw_parts(arrays, count) },
        };
        let call = Call {
            layout: request.layout,
            buffers: request.buffers,
            operands: list(request.operands, request.num_operands),
            results: list(request.results, request.num_results),
        };
        // SAFETY: one of this file's functions, which live as long as the process.
        let function = unsafe { &*request.callable.cast::<Function>() };
        failed = (function.0)(&call).err();
    }
}

/// One for the process: who needs none has it for itself.
pub static RUNNER: RwLock<()> = RwLock::new(());

pub fn with_runner() -> RwLockReadGuard<'static, ()> {
    let guard = RUNNER.read().expect("no panic");
    // SAFETY: it lives as long as the process.
    unsafe { salus_set_callback_runner(Some(run)) };
    guard
}

// ---------------------------------------------------------------- JAX's part

/// JAX's number for its list of callables.
pub const HOST_CALLBACKS: i64 = 7_357_244_197_867_843_242;

#[repr(C)]
pub struct HostCallbacks {
    callbacks: *const *mut c_void,
    count: u32,
}

pub fn ffi() -> &'static PJRT_FFI_Extension {
    let mut next = api().extension_start;
    loop {
        // SAFETY: a chain of statics.
        let base = unsafe { next.as_ref() }.expect("the extension is there");
        if base.r#type == PJRT_Extension_Type_FFI {
            // SAFETY: its type says so.
            return unsafe { &*next.cast() };
        }
        next = base.next;
    }
}

/// What a launch carries: functions, under a number for their type.
pub struct Context(pub *mut PJRT_ExecuteContext);

impl Context {
    pub fn new(functions: &[&Function], type_id: i64) -> Self {
        let mut create = args::<PJRT_ExecuteContext_Create_Args>();
        call(api().PJRT_ExecuteContext_Create, &mut create).expect("made");
        let callables = functions.iter().map(|f| std::ptr::from_ref(*f));
        let callables: Vec<*mut c_void> = callables.map(|f| f.cast_mut().cast()).collect();
        let mut list = HostCallbacks {
            callbacks: callables.as_ptr(),
            count: callables.len() as u32,
        };
        let mut add = args::<PJRT_FFI_UserData_Add_Args>();
        add.context = create.context;
        add.user_data = PJRT_FFI_UserData {
            type_id,
            data: (&raw mut list).cast(),
        };
        call(ffi().user_data_add, &mut add).expect("kept");
        Self(create.context)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let mut destroy = args::<PJRT_ExecuteContext_Destroy_Args>();
        destroy.context = self.0;
        call(api().PJRT_ExecuteContext_Destroy, &mut destroy).expect("never fails");
    }
}

pub fn calling(parameters: usize, outputs: usize, donated: u32) -> Signature {
    Signature {
        calls_back: true,
        ..signature(parameters, outputs, donated)
    }
}

/// A launch that waits in a thread of its own.
pub struct Waiting(JoinHandle<Result<Vec<usize>, Failure>>);

impl Waiting {
    pub fn launch(
        program: *mut PJRT_LoadedExecutable,
        arguments: &[*mut PJRT_Buffer],
        outputs: usize,
        context: &Context,
    ) -> Self {
        let (program, context) = (program as usize, context.0 as usize);
        let arguments: Vec<usize> = arguments.iter().map(|a| *a as usize).collect();
        Self(std::thread::spawn(move || {
            let arguments: Vec<_> = arguments.iter().map(|a| *a as *mut PJRT_Buffer).collect();
            let mut options = args::<PJRT_ExecuteOptions>();
            options.context = context as *mut PJRT_ExecuteContext;
            let program = program as *mut PJRT_LoadedExecutable;
            let launched = launch_with(program, &arguments, outputs, &mut options)?;
            assert!(is_ready(launched.event), "it has ended");
            destroy_event(launched.event);
            Ok(launched.outputs.into_iter().map(|o| o as usize).collect())
        }))
    }

    pub fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    pub fn end(self) -> Result<Vec<*mut PJRT_Buffer>, Failure> {
        let outcome = self.0.join().expect("no panic");
        outcome.map(|outputs| outputs.into_iter().map(|o| o as *mut PJRT_Buffer).collect())
    }
}

// ---------------------------------------------------------------- the service's part

/// The service's side of a channel.
pub struct Channel {
    pub socket: UnixStream,
    inbox: Inbox,
    pub memory: Segment,
}

impl Channel {
    pub fn open(service: &Service) -> Self {
        let (socket, theirs) = UnixStream::pair().expect("sockets");
        socket.set_read_timeout(Some(DEADLINE)).expect("settable");
        service.send_with(CallbackChannel { channel: 0 }, Some(theirs.into()));
        let memory = Segment::create(1 << 16, false).expect("memory");
        Self {
            socket,
            inbox: Inbox::default(),
            memory,
        }
    }

    pub fn send(&self, message: impl Into<ToCallbacks>) {
        send_all(&self.socket, &message.into(), None).expect("the job reads");
    }

    pub fn send_memory(&self) {
        let descriptor = self.memory.as_fd().try_clone_to_owned();
        let message = ToCallbacks::from(CallbackMemory { bytes: 1 << 16 });
        let sent = send_all(
            &self.socket,
            &message,
            Some(descriptor.expect("a descriptor")),
        );
        sent.expect("the job reads");
    }

    /// A function of four numbers to four.
    pub fn call(&self, operation: OperationId, callback: u64, numbers: &[f32]) {
        assert!(self.memory.copy_in(0, &bytes(numbers)));
        self.send(CallbackCall {
            operation,
            callback,
            buffers: false,
            operands: vec![vector(0)],
            results: vec![vector(64)],
        });
    }

    /// What the function returned.
    pub fn answer(&mut self) -> Option<Result<Vec<f32>, Error>> {
        loop {
            let taken = self.inbox.take::<FromCallbacks>().expect("well-formed");
            if let Some(received) = taken {
                let FromCallbacks::CallbackReturn(CallbackReturn { error }) = received.message;
                let results = self.memory.copy_out(64, 16).expect("inside");
                return Some(error.map_or(Ok(floats(&results)), Err));
            }
            let read = self.inbox.fill(&self.socket, true);
            if read.expect("an answer in time") == 0 {
                return None;
            }
        }
    }

    pub fn answered(&mut self) -> Result<Vec<f32>, Error> {
        self.answer().expect("the job has the channel")
    }
}

/// Four numbers in the channel's memory.
pub fn vector(offset: u64) -> CallbackArray {
    CallbackArray {
        shape: shape(&[4]),
        offset,
        bytes: 16,
    }
}

pub fn ended(service: &Service, operation: OperationId, error: Option<Error>) {
    let failed = error.map(|error| (operation, error));
    service.send(Completed {
        done: failed.is_none().then_some(operation).into_iter().collect(),
        failed: failed.into_iter().collect(),
    });
}

/// A launch that has begun to wait: its number, and the id of its first output.
pub fn begun(service: &mut Service) -> (OperationId, ArrayId) {
    let launched = next!(service, Launch);
    assert_eq!(next!(service, Await).operation, launched.operation);
    (launched.operation, launched.first_output)
}

/// A function that reports when it is called, and waits until it is let go.
pub fn held() -> (&'static Function, Receiver<()>, std::sync::mpsc::Sender<()>) {
    let (entered, calls) = channel();
    let (go, gone) = channel();
    let gone = Mutex::new(gone);
    let function = Function::new(move |call| {
        entered.send(()).expect("the test listens");
        let gone = gone.lock().expect("no panic");
        gone.recv_timeout(DEADLINE).expect("let go");
        call.put(0, &[1.0; 4]);
        Ok(())
    });
    (function, calls, go)
}
