//! Callers that are careless within what C allows: odd sizes of structs, NULL where a handle is expected,
//! random numbers, calls in any order, arrays and programs that were deleted. Nothing may panic or
//! abort, and every answer is a call's own error or success.
//!
//! Not tried: handles that were destroyed or never made, and lengths without memory behind them, which
//! no library can tell. The driver of `crates/fuzz` changes bytes, and what matters here is the order of
//! calls, so this draws its own. `SALUS_FUZZ_COUNT` and `SALUS_SEED` make it longer and different.
#![expect(unsafe_code, reason = "plays the C caller")]

mod play;

use std::ffi::c_void;
use std::os::unix::net::UnixStream;

use fastrand::Rng;
use play::*;
use salus_channel::{Inbox, send_all};
use salus_fuzz::from_environment;
use salus_pjrt::sys::*;
use salus_wire::{
    CompileFailed, Completed, Error, ErrorCode, FromService, ReadDone, ToService, Token, Usage,
};

/// Mostly small, and the edges.
fn number(random: &mut Rng) -> u64 {
    match random.u32(..6) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => random.u64(..),
        _ => random.u64(..40),
    }
}

/// What a caller holds.
struct Handles {
    client: *mut c_void,
    loaded: *mut c_void,
    executable: *mut c_void,
    buffer: *mut c_void,
    event: *mut c_void,
    device: *mut c_void,
    memory: *mut c_void,
    description: *mut c_void,
    topology: *mut c_void,
}

impl Handles {
    /// The handle that a field of this struct is for.
    fn of(&self, layout: &str, field: &str) -> Option<*mut c_void> {
        Some(match field {
            "client" => self.client,
            "loaded_executable" => self.loaded,
            "executable" if layout.starts_with("PJRT_LoadedExecutable_") => self.loaded,
            "executable" => self.executable,
            "buffer" | "src" | "dst_buffer" => self.buffer,
            "event" => self.event,
            "device" | "dst_device" => self.device,
            "memory" | "dst_memory" => self.memory,
            "device_description" => self.description,
            "topology" => self.topology,
            _ => return None,
        })
    }
}

/// Calls that end a handle that the others still need, or that answer to nobody.
const LEFT_OUT: &[&str] = &[
    "PJRT_Error_Destroy",
    "PJRT_Error_Message",
    "PJRT_Client_Create",
    "PJRT_Client_Destroy",
    "PJRT_Executable_Destroy",
    "PJRT_LoadedExecutable_Destroy",
    "PJRT_Buffer_Destroy",
    "PJRT_Event_Destroy",
    "PJRT_TopologyDescription_Destroy",
];

/// The largest struct, and room behind it.
type Room = [u64; 128];

/// Any of the table's functions, with a struct that is partly what it should be.
fn any_call(random: &mut Rng, handles: &Handles) {
    let slots = PJRT_Api::END / 8 - 5;
    let index = random.u64(..slots as u64) as usize;
    let name = PJRT_Api::FIELDS[3 + index].name;
    if LEFT_OUT.contains(&name) {
        return;
    }
    // SAFETY: the table is static, and all slots have been seen to be filled (`table.rs`).
    let function = unsafe { *pjrt_salus::GetPjrtApi().cast::<usize>().add(5 + index) };
    // SAFETY: a filled slot; all that are not left out take one pointer and return an error.
    let function: unsafe extern "C" fn(*mut c_void) -> *mut PJRT_Error =
        unsafe { std::mem::transmute(function) };
    let wanted = format!("{name}_Args");
    let layout = ALL.iter().find(|layout| layout.name == wanted);
    let mut room: Room = [0; 128];
    let end = layout.map_or(64, |layout| layout.end);
    room[0] = match random.u64(..8) {
        0 => 0,
        1 => 16,
        2 => end.saturating_sub(8) as u64,
        3 => end as u64 + 8,
        4 => 1 << 40,
        _ => end as u64,
    };
    for field in layout.map_or(&[][..], |layout| layout.fields) {
        let handle = handles.of(&wanted, field.name);
        if let (Some(handle), true) = (handle, random.u64(..8) > 0) {
            room[field.offset / 8] = handle as u64;
        } else if field.size < 8 {
            let number = number(random).to_le_bytes();
            // SAFETY: a field of the struct, all of which are within the room.
            unsafe {
                let to = room.as_mut_ptr().cast::<u8>().add(field.offset);
                std::ptr::copy_nonoverlapping(number.as_ptr(), to, field.size);
            }
        }
    }
    let pointer = match random.u64(..40) {
        0 => std::ptr::null_mut(),
        _ => room.as_mut_ptr().cast(),
    };
    // SAFETY: as large as the struct and larger; its pointers are handles or NULL.
    let answer = take_error(unsafe { function(pointer) });
    if let Err((code, text)) = answer {
        assert!(
            code > 0 && code <= 16 && !text.is_empty(),
            "{name}: {code} {text}"
        );
        assert!(!text.contains("panicked"), "{name}: {text}");
    }
}

/// A serialized executable that was changed.
fn any_token(random: &mut Rng, handles: &Handles) {
    let token = Token {
        format: "mlir".into(),
        code: (0..random.u64(..64)).map(|_| random.u8(..)).collect(),
        options: vec![7; random.u64(..9) as usize],
    };
    let mut bytes = token.encode();
    for _ in 0..random.u64(..3) {
        let at = random.u64(..bytes.len() as u64) as usize;
        match random.u64(..3) {
            0 => bytes[at] ^= 1 << random.u64(..8),
            1 => bytes.truncate(at.max(1)),
            _ => bytes.insert(at, random.u8(..)),
        }
    }
    let mut load = args::<PJRT_Executable_DeserializeAndLoad_Args>();
    load.client = handles.client.cast();
    load.serialized_executable = bytes.as_ptr().cast();
    load.serialized_executable_size = bytes.len();
    let answer = call(api().PJRT_Executable_DeserializeAndLoad, &mut load);
    let (_, text) = answer.expect_err("the service compiles nothing");
    assert!(!text.contains("panicked"), "{text}");
}

/// An array from host memory with any type, dimensions and strides; the memory is there.
fn any_upload(random: &mut Rng, handles: &Handles) {
    let data = [0u8; 4096];
    let rank = random.u64(..4) as usize;
    let dims: Vec<i64> = (0..rank).map(|_| random.u64(..4) as i64).collect();
    let strides: Vec<i64> = (0..rank).map(|_| 16 * random.u64(..3) as i64).collect();
    let mut put = args::<PJRT_Client_BufferFromHostBuffer_Args>();
    put.client = handles.client.cast();
    put.data = data.as_ptr().cast();
    put.r#type = number(random) as u32;
    put.dims = dims.as_ptr();
    put.num_dims = dims.len();
    if random.u64(..2) == 0 {
        put.byte_strides = strides.as_ptr();
        put.num_byte_strides = random.u64(..rank as u64 + 1) as usize;
    }
    put.host_buffer_semantics = random.u64(..6) as u32;
    put.device = handles.device.cast();
    if let Ok(()) = call(api().PJRT_Client_BufferFromHostBuffer, &mut put) {
        destroy_event(put.done_with_host_buffer);
        destroy(put.buffer);
    }
}

/// A service that refuses programs, and says that all else is done.
fn serve(socket: UnixStream) {
    let mut inbox = Inbox::default();
    socket.set_read_timeout(None).expect("set");
    let no = || Error::new(ErrorCode::InvalidArgument, "no");
    loop {
        while let Some(received) = inbox.take::<ToService>().expect("a frame") {
            let answer: FromService = match received.message {
                ToService::Compile(compile) => CompileFailed {
                    program: compile.program,
                    error: no(),
                }
                .into(),
                ToService::ReadArray(read) => ReadDone {
                    request: read.request,
                    error: None,
                }
                .into(),
                ToService::AskUsage(ask) => Usage {
                    request: ask.request,
                    bytes: 1,
                    peak_bytes: 2,
                    limit_bytes: 3,
                }
                .into(),
                ToService::Launch(launch) => Completed {
                    done: vec![launch.operation],
                    failed: vec![],
                }
                .into(),
                ToService::CopyArray(copy) => Completed {
                    done: vec![],
                    failed: vec![(copy.operation, no())],
                }
                .into(),
                _ => continue,
            };
            if send_all(&socket, &answer, None).is_err() {
                return;
            }
        }
        if !matches!(inbox.fill(&socket, true), Ok(1..)) {
            return;
        }
    }
}

#[test]
fn careless_callers_get_errors() {
    let (client, mut service) = Service::open(64, true);
    let (program, _) = compiled(client, &mut service, &signature(1, 1, 0));
    let (buffer, _) = array(client, &mut service);
    let socket = service.socket.try_clone().expect("a descriptor");
    let serving = std::thread::spawn(move || serve(socket));
    let event = ready_event(buffer);

    let mut executable = args::<PJRT_LoadedExecutable_GetExecutable_Args>();
    executable.loaded_executable = program;
    call(api().PJRT_LoadedExecutable_GetExecutable, &mut executable).expect("a handle");
    let mut device = args::<PJRT_Buffer_Device_Args>();
    device.buffer = buffer;
    call(api().PJRT_Buffer_Device, &mut device).expect("a device");
    let mut memory = args::<PJRT_Buffer_Memory_Args>();
    memory.buffer = buffer;
    call(api().PJRT_Buffer_Memory, &mut memory).expect("a memory");
    let mut description = args::<PJRT_Device_GetDescription_Args>();
    description.device = device.device;
    call(api().PJRT_Device_GetDescription, &mut description).expect("a description");
    let mut topology = args::<PJRT_Client_TopologyDescription_Args>();
    topology.client = client;
    call(api().PJRT_Client_TopologyDescription, &mut topology).expect("a topology");
    let handles = Handles {
        client: client.cast(),
        loaded: program.cast(),
        executable: executable.executable.cast(),
        buffer: buffer.cast(),
        event: event.cast(),
        device: device.device.cast(),
        memory: memory.memory.cast(),
        description: description.device_description.cast(),
        topology: topology.topology.cast(),
    };

    let seed = from_environment("SALUS_SEED").unwrap_or(1);
    eprintln!("SALUS_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    for _ in 0..from_environment("SALUS_FUZZ_COUNT").unwrap_or(20_000) {
        match random.u64(..8) {
            0 => any_token(&mut random, &handles),
            1 => any_upload(&mut random, &handles),
            _ => any_call(&mut random, &handles),
        }
    }

    // The session has lived through all of it.
    let (code, text) = compile(client, b"module").expect_err("the service compiles nothing");
    assert_eq!((code, text.as_str()), (3, "no"));
    destroy_event(event);
    destroy(buffer);
    destroy_executable(program);
    destroy_client(client);
    drop(service);
    serving.join().expect("the service was spoken to in frames");
}
