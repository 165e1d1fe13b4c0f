//! Programs that call functions of this process: what JAX gives with a launch, the service's calls,
//! and the wait for the end. The functions are Rust's instead of Python's.
#![expect(unsafe_code, reason = "plays the C caller, and Python")]

mod play;

use std::ffi::{c_char, c_void};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::ptr::null_mut;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

use play::*;
use salus_channel::{Inbox, Segment, send_all};
use salus_pjrt::sys::*;
use salus_wire::{
    CallbackArray, CallbackCall, CallbackChannel, CallbackMemory, CallbackReturn, Completed, Error,
    FromCallbacks, Signature, ToCallbacks, limits,
};

// ---------------------------------------------------------------- Python's part

/// As `python/salus/jax_plugin.py` declares it.
#[repr(C)]
struct Request {
    callable: *mut c_void,
    layout: u64,
    num_operands: usize,
    operands: *const Array,
    num_results: usize,
    results: *const Array,
    buffers: bool,
}

#[repr(C)]
struct Array {
    element_type: u32,
    rank: u32,
    dims: *const i64,
    data: *mut u8,
    bytes: usize,
}

type Runner = unsafe extern "C-unwind" fn(channel: *mut c_void);

unsafe extern "C" {
    fn salus_set_callback_runner(runner: Option<Runner>);
    fn salus_next_callback(
        channel: *mut c_void,
        failed: *const c_char,
        failed_size: usize,
    ) -> *const Request;
}

/// What a function sees.
struct Call<'a> {
    layout: u64,
    buffers: bool,
    operands: &'a [Array],
    results: &'a [Array],
}

impl Call<'_> {
    fn operand(&self, index: usize) -> Vec<f32> {
        let array = &self.operands[index];
        // SAFETY: the library has these bytes there during the call.
        floats(unsafe { std::slice::from_raw_parts(array.data, array.bytes) })
    }

    fn put(&self, index: usize, numbers: &[f32]) {
        let (array, bytes) = (&self.results[index], bytes(numbers));
        assert_eq!(array.bytes, bytes.len());
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), array.data, bytes.len()) };
    }
}

/// A callable. It lives as long as the process: whoever runs it may return after its launch has
/// ended.
type Body = dyn Fn(&Call<'_>) -> Result<(), String> + Send + Sync;

struct Function(Box<Body>);

impl Function {
    fn new(
        body: impl Fn(&Call<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> &'static Self {
        Box::leak(Box::new(Self(Box::new(body))))
    }

    /// Doubles its operand.
    fn doubles() -> &'static Self {
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
static RUNNER: RwLock<()> = RwLock::new(());

fn with_runner() -> RwLockReadGuard<'static, ()> {
    let guard = RUNNER.read().expect("no panic");
    // SAFETY: it lives as long as the process.
    unsafe { salus_set_callback_runner(Some(run)) };
    guard
}

// ---------------------------------------------------------------- JAX's part

/// JAX's number for its list of callables.
const HOST_CALLBACKS: i64 = 7_357_244_197_867_843_242;

#[repr(C)]
struct HostCallbacks {
    callbacks: *const *mut c_void,
    count: u32,
}

fn ffi() -> &'static PJRT_FFI_Extension {
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
struct Context(*mut PJRT_ExecuteContext);

impl Context {
    fn new(functions: &[&Function], type_id: i64) -> Self {
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

fn calling(parameters: usize, outputs: usize, donated: u32) -> Signature {
    Signature {
        calls_back: true,
        ..signature(parameters, outputs, donated)
    }
}

/// A launch that waits in a thread of its own.
struct Waiting(JoinHandle<Result<Vec<usize>, Failure>>);

impl Waiting {
    fn launch(
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

    fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    fn end(self) -> Result<Vec<*mut PJRT_Buffer>, Failure> {
        let outcome = self.0.join().expect("no panic");
        outcome.map(|outputs| outputs.into_iter().map(|o| o as *mut PJRT_Buffer).collect())
    }
}

// ---------------------------------------------------------------- the service's part

/// The service's side of a channel.
struct Channel {
    socket: UnixStream,
    inbox: Inbox,
    memory: Segment,
}

impl Channel {
    fn open(service: &Service) -> Self {
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

    fn send(&self, message: impl Into<ToCallbacks>) {
        send_all(&self.socket, &message.into(), None).expect("the job reads");
    }

    fn send_memory(&self) {
        let descriptor = self.memory.as_fd().try_clone_to_owned();
        let told = ToCallbacks::from(CallbackMemory { bytes: 1 << 16 });
        let sent = send_all(&self.socket, &told, Some(descriptor.expect("a descriptor")));
        sent.expect("the job reads");
    }

    /// A function of four numbers to four.
    fn call(&self, operation: u64, callback: u64, numbers: &[f32]) {
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
    fn answer(&mut self) -> Option<Result<Vec<f32>, Error>> {
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

    fn answered(&mut self) -> Result<Vec<f32>, Error> {
        self.answer().expect("the job has the channel")
    }
}

/// Four numbers in the channel's memory.
fn vector(offset: u64) -> CallbackArray {
    CallbackArray {
        shape: shape(&[4]),
        offset,
        bytes: 16,
    }
}

fn ended(service: &Service, operation: u64, error: Option<Error>) {
    let failed = error.map(|error| (operation, error));
    service.send(Completed {
        done: failed.is_none().then_some(operation).into_iter().collect(),
        failed: failed.into_iter().collect(),
    });
}

/// A launch that has begun to wait: its number, and the id of its first output.
fn begun(service: &mut Service) -> (u64, u64) {
    let execute = next!(service, Execute);
    assert_eq!(next!(service, Await).operation, execute.operation);
    (execute.operation, execute.first_output)
}

// ---------------------------------------------------------------- what is given with a launch

#[test]
fn types_keep_the_numbers_that_their_owners_chose() {
    let mut info = PJRT_FFI_Type_Info {
        deleter: None,
        serialize: None,
        deserialize: None,
    };
    for (chosen, expected) in [(0, 1), (42, 42), (HOST_CALLBACKS, HOST_CALLBACKS)] {
        let mut register = args::<PJRT_FFI_Type_Register_Args>();
        register.type_name = c"a".as_ptr();
        register.type_name_size = 1;
        register.type_id = chosen;
        register.type_info = &raw mut info;
        call(ffi().type_register, &mut register).expect("registered");
        assert_eq!(register.type_id, expected);
    }
}

#[test]
fn a_handler_of_this_process_is_refused_by_its_name() {
    // SAFETY: zeros are a value of it.
    let mut register: PJRT_FFI_Register_Handler_Args = unsafe { std::mem::zeroed() };
    register.struct_size = size_of::<PJRT_FFI_Register_Handler_Args>();
    register.target_name = c"my_kernel".as_ptr();
    register.target_name_size = 9;
    let refused = call(ffi().register_handler, &mut register);
    let (code, text) = refused.expect_err("programs run elsewhere");
    assert_eq!(code, PJRT_Error_Code_UNIMPLEMENTED);
    assert!(text.contains("`my_kernel`"), "{text}");
    assert!(text.contains("jax.pure_callback"), "{text}");
}

#[test]
fn a_launch_without_functions_is_refused_before_it_leaves() {
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &calling(0, 1, 0));
    let function = Function::doubles();
    // Some other user data; data that is none.
    let strange = Context::new(&[function], 42);
    let mut none = args::<PJRT_FFI_UserData_Add_Args>();
    none.context = strange.0;
    none.user_data = PJRT_FFI_UserData {
        type_id: HOST_CALLBACKS,
        data: null_mut(),
    };
    call(ffi().user_data_add, &mut none).expect("ignored");
    let mut with_strange = args::<PJRT_ExecuteOptions>();
    with_strange.context = strange.0;
    let mut without = args::<PJRT_ExecuteOptions>();
    for options in [null_mut(), &raw mut without, &raw mut with_strange] {
        let refused = launch_with(program, &[], 1, options).map(|_| ());
        let (code, text) = refused.expect_err("nothing could be called");
        assert_eq!(code, PJRT_Error_Code_INVALID_ARGUMENT);
        assert!(
            text.contains("`scripted_program` calls functions"),
            "{text}"
        );
        assert!(text.contains("came without any"), "{text}");
    }
    // The next frame is this.
    array(client, &mut service);
    destroy_client(client);
}

#[test]
fn a_launch_is_waited_for_and_its_outputs_are_there_then() {
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &calling(1, 2, 1));
    let (argument, argument_id) = array(client, &mut service);
    let function = Function::doubles();
    let context = Context::new(&[function], HOST_CALLBACKS);
    let waiting = Waiting::launch(program, &[argument], 2, &context);
    let execute = next!(service, Execute);
    assert_eq!(execute.arguments, [argument_id]);
    assert_eq!(next!(service, Await).operation, execute.operation);
    assert!(!waiting.is_over(), "nobody said that it has ended");
    ended(&service, execute.operation, None);
    let outputs = waiting.end().expect("it ran");
    assert!(is_deleted(argument), "it was donated");
    for output in outputs {
        await_event(ready_event(output)).expect("it is there");
        destroy(output);
    }
    destroy_client(client);
}

#[test]
fn the_launchs_error_is_that_of_the_call_and_its_outputs_are_nobodys() {
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &calling(0, 2, 0));
    let function = Function::doubles();
    let context = Context::new(&[function], HOST_CALLBACKS);
    let waiting = Waiting::launch(program, &[], 2, &context);
    let (operation, first_output) = begun(&mut service);
    let error = Error {
        code: PJRT_Error_Code_DEADLINE_EXCEEDED,
        message: "a callback did not return".into(),
    };
    ended(&service, operation, Some(error.clone()));
    let failed = waiting.end().expect_err("it failed");
    assert_eq!(failed, (error.code, error.message));
    // They ride with the next frame.
    put(client, &[1.0]).expect("an upload");
    let dropped = next!(service, DropArrays).arrays;
    assert_eq!(dropped, [first_output, first_output + 1]);
    next!(service, Upload);
    destroy_client(client);
}

// ---------------------------------------------------------------- calls

#[test]
fn a_call_runs_its_function_on_the_channels_memory() {
    let _runner = with_runner();
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &calling(0, 1, 0));
    let seen: &Mutex<Vec<u64>> = Box::leak(Box::default());
    let sums = Function::new(|call| {
        seen.lock().expect("no panic").push(call.layout);
        let array = &call.operands[0];
        assert_eq!((array.element_type, array.rank, array.bytes), (F32, 1, 16));
        // SAFETY: of this rank.
        assert_eq!(unsafe { *array.dims }, 4);
        assert!(!call.buffers);
        call.put(0, &[call.operand(0).iter().sum(); 4]);
        Ok(())
    });
    let doubles = Function::doubles();
    let context = Context::new(&[sums, doubles], HOST_CALLBACKS);
    let waiting = Waiting::launch(program, &[], 1, &context);
    let (operation, _) = begun(&mut service);
    let mut channel = Channel::open(&service);
    channel.send_memory();
    for _ in 0..3 {
        channel.call(operation, 0, &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(channel.answered(), Ok(vec![10.0; 4]));
        channel.call(operation, 1, &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(channel.answered(), Ok(vec![2.0, 4.0, 6.0, 8.0]));
    }
    // Arrays at the same places have the same number; others have another.
    let layouts = std::mem::take(&mut *seen.lock().expect("no panic"));
    assert_eq!(layouts.len(), 3);
    assert!(layouts.iter().all(|layout| *layout == layouts[0]));
    channel.send(CallbackCall {
        operation,
        callback: 0,
        buffers: false,
        operands: vec![vector(128)],
        results: vec![vector(64)],
    });
    channel.answered().expect("it ran");
    assert_ne!(seen.lock().expect("no panic")[..], layouts[..1]);
    // Another memory takes the place of the first.
    channel.memory = Segment::create(1 << 16, false).expect("memory");
    channel.send_memory();
    channel.call(operation, 1, &[5.0; 4]);
    assert_eq!(channel.answered(), Ok(vec![10.0; 4]));
    ended(&service, operation, None);
    waiting.end().expect("it ran");
    destroy_client(client);
}

#[test]
fn what_a_function_raises_is_the_answer() {
    let _runner = with_runner();
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &calling(0, 0, 0));
    let raises = Function::new(|call| match call.buffers {
        false => Err("ValueError: é\n\nAt:\n  t.py(3): f".into()),
        true => Err(format!("{}the end", "long ".repeat(limits::ERROR_BYTES))),
    });
    let context = Context::new(&[raises], HOST_CALLBACKS);
    let waiting = Waiting::launch(program, &[], 0, &context);
    let (operation, _) = begun(&mut service);
    let mut channel = Channel::open(&service);
    channel.send_memory();
    channel.call(operation, 0, &[0.0; 4]);
    let raised = channel.answered().expect_err("it raised");
    assert_eq!(raised.code, PJRT_Error_Code_INTERNAL);
    assert_eq!(
        raised.message,
        "CpuCallback error calling callback: ValueError: é\n\nAt:\n  t.py(3): f"
    );
    channel.send(CallbackCall {
        operation,
        callback: 0,
        buffers: true,
        operands: Vec::new(),
        results: Vec::new(),
    });
    let long = channel.answered().expect_err("it raised").message;
    assert!(long.starts_with("Error when calling buffer callback: …"));
    assert!(long.ends_with("long the end") && long.len() <= limits::ERROR_BYTES);
    ended(&service, operation, Some(raised.clone()));
    assert_eq!(waiting.end(), Err((raised.code, raised.message)));
    destroy_client(client);
}

#[test]
fn calls_that_are_nobodys_are_errors() {
    let _runner = with_runner();
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &calling(0, 0, 0));
    let doubles = Function::doubles();
    let context = Context::new(&[doubles], HOST_CALLBACKS);
    let waiting = Waiting::launch(program, &[], 0, &context);
    let (operation, _) = begun(&mut service);
    let mut channel = Channel::open(&service);
    // Its memory was not told yet.
    channel.call(operation, 0, &[0.0; 4]);
    let refused = channel.answered().expect_err("there is no memory");
    assert!(refused.message.contains("outside its memory"), "{refused}");
    channel.send_memory();
    for (of, callback) in [(operation, 1), (operation, u64::MAX), (operation + 1, 0)] {
        channel.call(of, callback, &[0.0; 4]);
        let refused = channel.answered().expect_err("nobody gave it");
        assert_eq!(refused.code, PJRT_Error_Code_INVALID_ARGUMENT);
        assert!(
            refused.message.contains("none that this process gave"),
            "{refused}"
        );
    }
    for (offset, bytes) in [
        (1 << 16, 1),
        (u64::MAX, 16),
        ((1 << 16) - 8, 16),
        (0, u64::MAX),
    ] {
        let operand = CallbackArray {
            offset,
            bytes,
            ..vector(0)
        };
        channel.send(CallbackCall {
            operation,
            callback: 0,
            buffers: false,
            operands: vec![operand],
            results: vec![vector(64)],
        });
        let refused = channel.answered().expect_err("it is outside");
        assert!(refused.message.contains("outside its memory"), "{refused}");
    }
    channel.call(operation, 0, &[1.0; 4]);
    assert_eq!(channel.answered(), Ok(vec![2.0; 4]));
    ended(&service, operation, None);
    waiting.end().expect("it ran");
    // JAX may have given the functions up by now.
    channel.call(operation, 0, &[1.0; 4]);
    let refused = channel.answered().expect_err("its launch is over");
    assert!(
        refused.message.contains("none that this process gave"),
        "{refused}"
    );
    destroy_client(client);
}

#[test]
fn without_python_a_call_is_an_error() {
    let alone = RUNNER.write().expect("no panic");
    // SAFETY: nobody runs anything.
    unsafe { salus_set_callback_runner(None) };
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &calling(0, 0, 0));
    let doubles = Function::doubles();
    let context = Context::new(&[doubles], HOST_CALLBACKS);
    let waiting = Waiting::launch(program, &[], 0, &context);
    let (operation, _) = begun(&mut service);
    let mut channel = Channel::open(&service);
    channel.send_memory();
    channel.call(operation, 0, &[0.0; 4]);
    let refused = channel.answered().expect_err("nobody can run it");
    assert_eq!(refused.code, PJRT_Error_Code_UNIMPLEMENTED);
    assert!(
        refused.message.contains("`salus` is not loaded"),
        "{refused}"
    );
    ended(&service, operation, Some(refused));
    waiting.end().expect_err("it failed");
    destroy_client(client);
    drop(alone);
}

// ---------------------------------------------------------------- at the same time

/// A function that tells when it is called, and waits until it is let go.
fn held() -> (&'static Function, Receiver<()>, std::sync::mpsc::Sender<()>) {
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

#[test]
fn a_function_may_launch_and_others_run_beside_it() {
    let _runner = with_runner();
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &calling(0, 0, 0));
    let (plain, plain_id) = compiled(client, &mut service, &signature(0, 1, 0));
    let (held, entered, go) = held();
    let plain = plain as usize;
    let nests = Function::new(move |call| {
        let launched = launch(plain as *mut PJRT_LoadedExecutable, &[], 1, &[]).expect("launched");
        await_event(launched.event).map_err(|(_, text)| text)?;
        destroy(launched.outputs[0]);
        call.put(0, &[2.0; 4]);
        Ok(())
    });
    let context = Context::new(&[held, nests], HOST_CALLBACKS);
    let outer = Waiting::launch(program, &[], 0, &context);
    let (operation, _) = begun(&mut service);
    let mut one = Channel::open(&service);
    one.send_memory();
    one.call(operation, 0, &[0.0; 4]);
    entered.recv_timeout(DEADLINE).expect("it is called");
    // Another call of the same launch, which launches something itself.
    let mut other = Channel::open(&service);
    other.send_memory();
    other.call(operation, 1, &[0.0; 4]);
    let nested = next!(service, Execute);
    assert_eq!(nested.program, plain_id);
    assert_eq!(next!(service, Await).operation, nested.operation);
    ended(&service, nested.operation, None);
    assert_eq!(other.answered(), Ok(vec![2.0; 4]));
    assert!(!outer.is_over());
    go.send(()).expect("it waits");
    assert_eq!(one.answered(), Ok(vec![1.0; 4]));
    ended(&service, operation, None);
    outer.end().expect("it ran");
    destroy_client(client);
}

#[test]
fn when_the_service_goes_a_launch_ends_at_once_whatever_its_function_does() {
    let _runner = with_runner();
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &calling(0, 1, 0));
    let (held, entered, go) = held();
    let context = Context::new(&[held], HOST_CALLBACKS);
    let waiting = Waiting::launch(program, &[], 1, &context);
    let (operation, _) = begun(&mut service);
    let channel = Channel::open(&service);
    channel.send_memory();
    channel.call(operation, 0, &[0.0; 4]);
    entered.recv_timeout(DEADLINE).expect("it is called");
    drop((service, channel));
    let (code, text) = waiting.end().expect_err("the service is gone");
    assert_eq!(code, PJRT_Error_Code_UNAVAILABLE);
    assert!(text.contains("has gone away"), "{text}");
    // The function returns to nobody.
    go.send(()).expect("it still waits");
    let (code, _) = launch(program, &[], 1, &[]).map(|_| ()).expect_err("gone");
    assert_eq!(code, PJRT_Error_Code_UNAVAILABLE);
    destroy_client(client);
}

#[test]
fn a_channel_ends_when_the_service_closes_it_or_sends_nonsense() {
    use std::io::Write;
    let (client, service) = Service::open(4, true);
    let mut closed = Channel::open(&service);
    let end = closed.socket.shutdown(std::net::Shutdown::Write);
    end.expect("it is open");
    assert_eq!(closed.answer(), None);
    let mut nonsense = Channel::open(&service);
    nonsense.socket.write_all(&[0xff; 64]).expect("written");
    assert_eq!(nonsense.answer(), None);
    // Memory that is not there.
    let mut without = Channel::open(&service);
    without.send(CallbackMemory { bytes: 1 << 16 });
    assert_eq!(without.answer(), None);
    // The session does not mind.
    let mut service = service;
    array(client, &mut service);
    destroy_client(client);
}
