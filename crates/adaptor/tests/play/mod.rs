//! Both sides of the adaptor, played by a test: the C caller above, the service below.
//!
//! The service runs in the test's own thread where calls do not wait for it: a test makes a call,
//! takes the frame that it caused and answers or not. Every read has a deadline, so a missing frame
//! is a failure and not a hang.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod callback;

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use salus_channel::{Inbox, Segment, blob, send_all};
use salus_pjrt::sys::*;
use salus_wire::{
    ArrayId, Description, FromService, Memory, Output, ProgramId, Region, SegmentId, Shape,
    Signature, ToService, Value, Welcome, Wire,
};

pub const DEADLINE: Duration = Duration::from_secs(20);
pub const F32: u32 = PJRT_Buffer_Type_F32;

/// A code and a text, as a C caller reads them.
pub type Failure = (u32, String);

pub fn api() -> &'static PJRT_Api {
    // SAFETY: the table is a static.
    unsafe { &*pjrt_salus::GetPjrtApi() }
}

/// A zeroed argument struct of the header's size.
pub fn args<T: CStruct>() -> T {
    // SAFETY: zeros are a valid value of every `CStruct`.
    let mut args: T = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: every struct starts with its size.
    unsafe { (&raw mut args).cast::<usize>().write(T::END) };
    args
}

pub type Slot<T> = Option<unsafe extern "C" fn(*mut T) -> *mut PJRT_Error>;

pub fn call<T>(slot: Slot<T>, args: *mut T) -> Result<(), Failure> {
    let function = slot.expect("every slot is filled");
    // SAFETY: the tests fill the structs as the header says, or test that we cope.
    take_error(unsafe { function(args) })
}

/// Reads an error and destroys it.
pub fn take_error(error: *mut PJRT_Error) -> Result<(), Failure> {
    if error.is_null() {
        return Ok(());
    }
    let mut code = args::<PJRT_Error_GetCode_Args>();
    code.error = error;
    call(api().PJRT_Error_GetCode, &mut code).expect("an error has a code");
    let mut message = args::<PJRT_Error_Message_Args>();
    message.error = error;
    let mut destroy = args::<PJRT_Error_Destroy_Args>();
    destroy.error = error;
    // SAFETY: a live error, destroyed once.
    let text = unsafe {
        api().PJRT_Error_Message.expect("filled")(&mut message);
        let text = text(message.message, message.message_size);
        api().PJRT_Error_Destroy.expect("filled")(&mut destroy);
        text
    };
    Err((code.code, text))
}

/// # Safety
/// `start` has `size` bytes.
pub unsafe fn text(start: *const c_char, size: usize) -> String {
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), size) };
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A socket path of its own for every test.
pub fn fresh_path() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("salus-a-{}-{number}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

pub fn create(path: &str) -> Result<*mut PJRT_Client, Failure> {
    create_among(path, 1)
}

/// A client in one of `processes`, as JAX says it.
pub fn create_among(path: &str, processes: i64) -> Result<*mut PJRT_Client, Failure> {
    let (name, value) = ("socket", path);
    let mut nodes = args::<PJRT_NamedValue>();
    nodes.name = c"num_nodes".as_ptr();
    nodes.name_size = 9;
    nodes.r#type = PJRT_NamedValue_kInt64;
    nodes.value.int64_value = processes;
    nodes.value_size = 1;
    let mut socket = args::<PJRT_NamedValue>();
    socket.name = name.as_ptr().cast();
    socket.name_size = name.len();
    socket.r#type = PJRT_NamedValue_kString;
    socket.value.string_value = value.as_ptr().cast();
    socket.value_size = value.len();
    let options = [nodes, socket];
    let mut create = args::<PJRT_Client_Create_Args>();
    create.create_options = options.as_ptr();
    create.num_options = options.len();
    // JAX leaves these uninitialised: a call would crash.
    create.kv_get_user_arg = 0x6 as *mut c_void;
    call(api().PJRT_Client_Create, &mut create).map(|()| create.client)
}

pub fn description(on_host: bool) -> Description {
    let memory = |id: i32, kind: &str| Memory {
        id,
        kind: kind.into(),
        kind_id: id,
        debug_string: format!("debug {kind}"),
        display_string: kind.into(),
    };
    Description {
        platform_name: "cpu".into(),
        platform_version: "1.0".into(),
        kind: "scripted".into(),
        debug_string: String::new(),
        display_string: String::new(),
        local_hardware_id: 7,
        plugin_attributes: vec![("xla_version".into(), Value::Int(2))],
        device_attributes: vec![
            ("speed".into(), Value::Float(2.5)),
            ("cores".into(), Value::Int(6)),
        ],
        memories: vec![memory(3, "device"), memory(4, "pinned_host")],
        default_memory: 0,
        lanes: 1,
        capacity_bytes: 1 << 30,
        on_host,
        plugin_path: String::new(),
        api_version: (0, 81),
        serialized_topology: Some(b"topology".to_vec()),
        topology_attributes: vec![("target_config".into(), Value::Text("sm 9.0".into()))],
    }
}

/// The service's side of one session.
pub struct Service {
    pub socket: UnixStream,
    inbox: Inbox,
    segments: Vec<(SegmentId, Segment)>,
}

/// One frame of the job, with its descriptor.
pub struct Frame {
    pub message: ToService,
    pub descriptor: Option<OwnedFd>,
}

impl Service {
    /// Accepts the next job and reads its `Hello`.
    pub fn accept(listener: &UnixListener) -> Self {
        let (socket, _) = listener.accept().expect("a job connects");
        socket
            .set_read_timeout(Some(DEADLINE))
            .expect("a deadline is set");
        let mut service = Self {
            socket,
            inbox: Inbox::default(),
            segments: Vec::new(),
        };
        let hello = service.next();
        assert!(matches!(hello.message, ToService::Hello(_)));
        service
    }

    /// Accepts the next job and opens a session with `window` places for it.
    pub fn welcome(listener: &UnixListener, window: u32, on_host: bool) -> Self {
        let service = Self::accept(listener);
        service.send(Welcome {
            protocol: salus_wire::version::MAX,
            session: 1,
            version: "9.9".into(),
            description: description(on_host),
            window,
        });
        service
    }

    /// A client and its service, in a session with `window` places.
    pub fn open(window: u32, on_host: bool) -> (*mut PJRT_Client, Self) {
        let path = fresh_path();
        let listener = UnixListener::bind(&path).expect("a socket is made");
        let accepting = std::thread::spawn(move || Self::welcome(&listener, window, on_host));
        let client = create(path.to_str().expect("UTF-8")).expect("a session opens");
        let service = accepting.join().expect("the service accepts");
        let _ = std::fs::remove_file(path);
        (client, service)
    }

    pub fn send(&self, message: impl Into<FromService>) {
        self.send_with(message, None);
    }

    pub fn send_with(&self, message: impl Into<FromService>, descriptor: Option<OwnedFd>) {
        send_all(&self.socket, &message.into(), descriptor).expect("the job reads");
    }

    /// The next frame, whatever it is, but segments, which are mapped.
    pub fn next(&mut self) -> Frame {
        loop {
            let received = self.inbox.take::<ToService>().expect("a frame");
            let Some(received) = received else {
                let read = self.inbox.fill(self.socket.as_fd(), true);
                assert_ne!(
                    read.expect("a frame before the deadline"),
                    0,
                    "the job hung up"
                );
                continue;
            };
            match received.message {
                ToService::Segment(segment) => {
                    let descriptor = received.descriptor.expect("a segment's descriptor");
                    let mapped = Segment::open(descriptor, segment.bytes).expect("a good segment");
                    self.segments.push((segment.id, mapped));
                }
                message => {
                    return Frame {
                        message,
                        descriptor: received.descriptor,
                    };
                }
            }
        }
    }

    pub fn num_segments(&self) -> usize {
        self.segments.len()
    }

    fn segment(&self, id: SegmentId) -> &Segment {
        let found = self.segments.iter().find(|(known, _)| *known == id);
        &found.expect("a segment is announced before it is used").1
    }

    pub fn read(&self, region: &Region) -> Vec<u8> {
        let segment = self.segment(region.segment);
        segment
            .copy_out(region.offset, region.length)
            .expect("a region is inside its segment")
    }

    pub fn write(&self, region: &Region, data: &[u8]) {
        assert_eq!(region.length, data.len() as u64, "the target's length");
        assert!(self.segment(region.segment).copy_in(region.offset, data));
    }

    /// Whether the job has hung up, after any frames it sent before.
    pub fn sees_the_end(&mut self) -> bool {
        loop {
            while self.inbox.take::<ToService>().expect("a frame").is_some() {}
            match self.inbox.fill(self.socket.as_fd(), true) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
}

/// The next frame, which must be of this kind.
#[macro_export]
macro_rules! next {
    ($service:expr, $kind:ident) => {
        match $service.next().message {
            salus_wire::ToService::$kind(body) => body,
            other => panic!("expected {}, found {other:?}", stringify!($kind)),
        }
    };
}

pub fn shape(dims: &[i64]) -> Shape {
    Shape {
        element_type: F32,
        dims: dims.to_vec(),
        minor_to_major: None,
    }
}

/// A program of `parameters` vectors of four to `outputs` of them, the first `donated` donated.
pub fn signature(parameters: usize, outputs: usize, donated: u32) -> Signature {
    Signature {
        name: "scripted_program".into(),
        fingerprint: Some(b"print".to_vec()),
        parameters: vec![shape(&[4]); parameters],
        outputs: (0..outputs)
            .map(|_| Output {
                shape: shape(&[4]),
                layout_text: "{0}".into(),
                memory: 0,
                aliases: None,
            })
            .collect(),
        donated: (0..donated).collect(),
        ..Signature::default()
    }
}

/// Has a program compiled that the service knows by the returned id.
pub fn compiled(
    client: *mut PJRT_Client,
    service: &mut Service,
    signature: &Signature,
) -> (*mut PJRT_LoadedExecutable, ProgramId) {
    let client = client as usize;
    let calling = std::thread::spawn(move || {
        compile(client as *mut PJRT_Client, b"module").map(|e| e as usize)
    });
    let request = next!(service, Compile);
    assert_eq!(service.read(&request.code), b"module");
    let mut bytes = Vec::new();
    signature.put(&mut bytes);
    service.send_with(
        salus_wire::Compiled {
            program: request.program,
            bytes: bytes.len() as u64,
        },
        Some(blob(&bytes).expect("a memfd")),
    );
    let executable = calling.join().expect("no panic").expect("it compiles");
    (executable as *mut PJRT_LoadedExecutable, request.program)
}

pub fn compile(
    client: *mut PJRT_Client,
    code: &[u8],
) -> Result<*mut PJRT_LoadedExecutable, Failure> {
    let mut program = args::<PJRT_Program>();
    program.code = code.as_ptr().cast_mut().cast();
    program.code_size = code.len();
    program.format = c"mlir".as_ptr();
    program.format_size = 4;
    let mut compile = args::<PJRT_Client_Compile_Args>();
    compile.client = client;
    compile.program = &raw const program;
    compile.compile_options = c"options".as_ptr();
    compile.compile_options_size = 7;
    call(api().PJRT_Client_Compile, &mut compile).map(|()| compile.executable)
}

/// Uploads floats; returns the buffer.
pub fn put(client: *mut PJRT_Client, data: &[f32]) -> Result<*mut PJRT_Buffer, Failure> {
    put_strided(client, data.as_ptr(), &[data.len() as i64], &[])
}

pub fn put_strided(
    client: *mut PJRT_Client,
    data: *const f32,
    dims: &[i64],
    strides: &[i64],
) -> Result<*mut PJRT_Buffer, Failure> {
    let mut put = args::<PJRT_Client_BufferFromHostBuffer_Args>();
    put.client = client;
    put.data = data.cast();
    put.r#type = F32;
    put.dims = dims.as_ptr();
    put.num_dims = dims.len();
    put.byte_strides = if strides.is_empty() {
        null()
    } else {
        strides.as_ptr()
    };
    put.num_byte_strides = strides.len();
    call(api().PJRT_Client_BufferFromHostBuffer, &mut put)?;
    assert!(is_ready(put.done_with_host_buffer));
    destroy_event(put.done_with_host_buffer);
    Ok(put.buffer)
}

/// Four floats on the device, and the id that the service knows them by.
pub fn array(client: *mut PJRT_Client, service: &mut Service) -> (*mut PJRT_Buffer, ArrayId) {
    let buffer = put(client, &[1.0, 2.0, 3.0, 4.0]).expect("an upload");
    (buffer, next!(service, Upload).array)
}

pub struct Launched {
    pub outputs: Vec<*mut PJRT_Buffer>,
    pub event: *mut PJRT_Event,
}

pub fn launch(
    executable: *mut PJRT_LoadedExecutable,
    arguments: &[*mut PJRT_Buffer],
    outputs: usize,
    keep: &[i64],
) -> Result<Launched, Failure> {
    let mut options = args::<PJRT_ExecuteOptions>();
    options.non_donatable_input_indices = keep.as_ptr();
    options.num_non_donatable_input_indices = keep.len();
    launch_with(executable, arguments, outputs, &mut options)
}

pub fn launch_with(
    executable: *mut PJRT_LoadedExecutable,
    arguments: &[*mut PJRT_Buffer],
    outputs: usize,
    options: *mut PJRT_ExecuteOptions,
) -> Result<Launched, Failure> {
    let mut output_list = vec![null_mut(); outputs];
    let (inputs, results) = (arguments.as_ptr(), output_list.as_mut_ptr());
    let mut event = null_mut();
    let mut execute = args::<PJRT_LoadedExecutable_Execute_Args>();
    execute.executable = executable;
    execute.options = options;
    execute.argument_lists = &raw const inputs;
    execute.num_devices = 1;
    execute.num_args = arguments.len();
    execute.output_lists = &raw const results;
    execute.device_complete_events = &raw mut event;
    call(api().PJRT_LoadedExecutable_Execute, &mut execute)?;
    Ok(Launched {
        outputs: output_list,
        event,
    })
}

pub fn ready_event(buffer: *mut PJRT_Buffer) -> *mut PJRT_Event {
    let mut ready = args::<PJRT_Buffer_ReadyEvent_Args>();
    ready.buffer = buffer;
    call(api().PJRT_Buffer_ReadyEvent, &mut ready).expect("never fails");
    ready.event
}

pub fn is_ready(event: *mut PJRT_Event) -> bool {
    let mut ready = args::<PJRT_Event_IsReady_Args>();
    ready.event = event;
    call(api().PJRT_Event_IsReady, &mut ready).expect("an event is ready or not");
    ready.is_ready
}

/// Waits for an event and destroys it.
pub fn await_event(event: *mut PJRT_Event) -> Result<(), Failure> {
    let mut wait = args::<PJRT_Event_Await_Args>();
    wait.event = event;
    let outcome = call(api().PJRT_Event_Await, &mut wait);
    destroy_event(event);
    outcome
}

pub fn destroy_event(event: *mut PJRT_Event) {
    let mut destroy = args::<PJRT_Event_Destroy_Args>();
    destroy.event = event;
    call(api().PJRT_Event_Destroy, &mut destroy).expect("never fails");
}

pub fn destroy(buffer: *mut PJRT_Buffer) {
    let mut destroy = args::<PJRT_Buffer_Destroy_Args>();
    destroy.buffer = buffer;
    call(api().PJRT_Buffer_Destroy, &mut destroy).expect("never fails");
}

pub fn destroy_executable(executable: *mut PJRT_LoadedExecutable) {
    let mut destroy = args::<PJRT_LoadedExecutable_Destroy_Args>();
    destroy.executable = executable;
    call(api().PJRT_LoadedExecutable_Destroy, &mut destroy).expect("never fails");
}

pub fn destroy_client(client: *mut PJRT_Client) {
    let mut destroy = args::<PJRT_Client_Destroy_Args>();
    destroy.client = client;
    call(api().PJRT_Client_Destroy, &mut destroy).expect("never fails");
}

pub fn is_deleted(buffer: *mut PJRT_Buffer) -> bool {
    let mut deleted = args::<PJRT_Buffer_IsDeleted_Args>();
    deleted.buffer = buffer;
    call(api().PJRT_Buffer_IsDeleted, &mut deleted).expect("never fails");
    deleted.is_deleted
}

/// Starts a read into `to`; returns its event.
pub fn read_into(buffer: *mut PJRT_Buffer, to: &mut [f32]) -> Result<*mut PJRT_Event, Failure> {
    let mut read = args::<PJRT_Buffer_ToHostBuffer_Args>();
    read.src = buffer;
    read.dst = to.as_mut_ptr().cast();
    read.dst_size = size_of_val(to);
    call(api().PJRT_Buffer_ToHostBuffer, &mut read).map(|()| read.event)
}

pub fn floats(bytes: &[u8]) -> Vec<f32> {
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

pub fn bytes(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|f| f.to_le_bytes()).collect()
}
