//! Programs and launches: order on the wire, donation, the window, how completions are reported.
#![expect(unsafe_code, reason = "plays the C caller")]

mod play;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::mpsc::{Receiver, Sender, channel};

use play::*;
use salus_pjrt::sys::*;
use salus_wire::{CompileFailed, Completed, Error, ErrorCode, OperationId};

fn done(service: &Service, operations: &[OperationId]) {
    service.send(Completed {
        done: operations.to_vec(),
        failed: Vec::new(),
    });
}

#[test]
fn a_launch_is_one_frame_and_its_outputs_are_known_at_once() {
    let (client, mut service) = Service::open(4, true);
    let (program, id) = compiled(client, &mut service, &signature(2, 3, 0));
    let (a, a_id) = array(client, &mut service);
    let (b, b_id) = array(client, &mut service);
    let launched = launch(program, &[a, b], 3, &[]).expect("launched");
    let frame = next!(service, Launch);
    assert_eq!(frame.program, id);
    assert_eq!(frame.arguments, [a_id, b_id]);
    assert!(frame.keep.is_empty());
    let mut dims = args::<PJRT_Buffer_Dimensions_Args>();
    dims.buffer = launched.outputs[2];
    call(api().PJRT_Buffer_Dimensions, &mut dims).expect("known");
    // SAFETY: the buffer has one dimension.
    assert_eq!((dims.num_dims, unsafe { *dims.dims }), (1, 4));
    // Outputs are arguments before they exist.
    let second = launch(program, &[launched.outputs[0], b], 3, &[]).expect("launched");
    let next = next!(service, Launch);
    assert_eq!(next.arguments, [frame.first_output, b_id]);
    assert!(next.first_output >= frame.first_output.plus(3));
    assert!(next.operation > frame.operation);
    assert!(!is_ready(launched.event));
    done(&service, &[frame.operation, next.operation]);
    await_event(launched.event).expect("it ended well");
    await_event(second.event).expect("it ended well");
    destroy_client(client);
    // Everything may outlive the client.
    for buffer in launched
        .outputs
        .into_iter()
        .chain(second.outputs)
        .chain([a, b])
    {
        destroy(buffer);
    }
    destroy_executable(program);
    assert!(service.sees_the_end());
}

#[test]
fn a_deferred_error_reaches_every_output_and_each_gets_its_own() {
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &signature(0, 2, 0));
    let launched = launch(program, &[], 2, &[]).expect("launched");
    let operation = next!(service, Launch).operation;
    let error = Error::new(ErrorCode::ResourceExhausted, "no memory");
    service.send(Completed {
        done: Vec::new(),
        failed: vec![(operation, error)],
    });
    let expected = Err((PJRT_Error_Code_RESOURCE_EXHAUSTED, "no memory".to_owned()));
    assert_eq!(await_event(ready_event(launched.outputs[0])), expected);
    assert_eq!(await_event(ready_event(launched.outputs[1])), expected);
    assert_eq!(await_event(launched.event), expected);
    launched.outputs.into_iter().for_each(destroy);
    destroy_executable(program);
    destroy_client(client);
}

/// What a callback is given: where to report, and an event to destroy in the callback.
struct Report {
    to: Sender<Result<(), Failure>>,
    destroys: usize,
}

unsafe extern "C-unwind" fn report(error: *mut PJRT_Error, argument: *mut c_void) {
    // SAFETY: `on_ready` made it, for one callback.
    let report = unsafe { Box::from_raw(argument.cast::<Report>()) };
    if report.destroys != 0 {
        destroy_event(report.destroys as *mut PJRT_Event);
    }
    let _ = report.to.send(take_error(error));
}

/// Registers a callback that reports to the returned channel.
fn on_ready(event: *mut PJRT_Event, destroys: bool) -> Receiver<Result<(), Failure>> {
    let (to, reports) = channel();
    let report_to = Report {
        to,
        destroys: if destroys { event as usize } else { 0 },
    };
    let mut register = args::<PJRT_Event_OnReady_Args>();
    register.event = event;
    register.callback = Some(report);
    register.user_arg = Box::into_raw(Box::new(report_to)).cast();
    call(api().PJRT_Event_OnReady, &mut register).expect("registered");
    reports
}

#[test]
fn callbacks_outlive_their_event_and_may_destroy_it() {
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &signature(0, 1, 0));
    let launched = launch(program, &[], 1, &[]).expect("launched");
    let operation = next!(service, Launch).operation;
    // Destroyed right after the registration.
    let early = ready_event(launched.outputs[0]);
    let first = on_ready(early, false);
    destroy_event(early);
    // The end of an output that is waited for is reported at once ...
    assert_eq!(next!(service, Await).operation, operation);
    // ... the end of a launch that is only noted, with the next batch.
    let second = on_ready(launched.event, true);
    done(&service, &[operation]);
    assert_eq!(first.recv_timeout(DEADLINE), Ok(Ok(())));
    assert_eq!(second.recv_timeout(DEADLINE), Ok(Ok(())));
    // Registered too late to wait: it runs in the call, and destroys its event there.
    let late = on_ready(ready_event(launched.outputs[0]), true);
    assert_eq!(late.try_recv(), Ok(Ok(())));
    destroy(launched.outputs[0]);
    destroy_executable(program);
    destroy_client(client);
}

unsafe extern "C-unwind" fn await_again(error: *mut PJRT_Error, argument: *mut c_void) {
    // SAFETY: the test made it, for one callback.
    let (event, to) = *unsafe { Box::from_raw(argument.cast::<(usize, Sender<_>)>()) };
    let awaited = await_event(event as *mut PJRT_Event);
    let _ = to.send(take_error(error).and(awaited));
}

#[test]
fn a_callback_may_await_what_has_ended() {
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &signature(0, 1, 0));
    let launched = launch(program, &[], 1, &[]).expect("launched");
    let operation = next!(service, Launch).operation;
    let (to, awaited) = channel::<Result<(), Failure>>();
    let event = ready_event(launched.outputs[0]);
    let mut register = args::<PJRT_Event_OnReady_Args>();
    register.event = launched.event;
    register.callback = Some(await_again);
    register.user_arg = Box::into_raw(Box::new((event as usize, to))).cast();
    call(api().PJRT_Event_OnReady, &mut register).expect("registered");
    done(&service, &[operation]);
    assert_eq!(awaited.recv_timeout(DEADLINE), Ok(Ok(())));
    destroy_event(launched.event);
    destroy(launched.outputs[0]);
    destroy_executable(program);
    destroy_client(client);
}

#[test]
fn a_full_window_blocks_until_a_place_is_given_back() {
    let (client, mut service) = Service::open(2, true);
    let (program, _) = compiled(client, &mut service, &signature(0, 1, 0));
    let program_address = program as usize;
    let (to, launches) = channel();
    let launching = std::thread::spawn(move || {
        for _ in 0..3 {
            let program = program_address as *mut PJRT_LoadedExecutable;
            let launched = launch(program, &[], 1, &[]).expect("launched");
            to.send(launched.outputs[0] as usize)
                .expect("the test listens");
            destroy_event(launched.event);
        }
    });
    let first = next!(service, Launch).operation;
    let second = next!(service, Launch).operation;
    // The third one waits, and has the oldest reported at once.
    assert_eq!(next!(service, Await).operation, first);
    assert_eq!(launches.iter().take(2).count(), 2);
    assert!(launches.try_recv().is_err());
    done(&service, &[first]);
    let third = next!(service, Launch).operation;
    assert!(third > second);
    launches.recv_timeout(DEADLINE).expect("it goes on");
    launching.join().expect("no panic");
    drop(service);
    destroy_executable(program);
    destroy_client(client);
}

#[test]
fn a_lost_service_ends_a_wait_for_a_place() {
    let (client, mut service) = Service::open(1, true);
    let (program, _) = compiled(client, &mut service, &signature(0, 1, 0));
    let launched = launch(program, &[], 1, &[]).expect("launched");
    let program_address = program as usize;
    let blocked = std::thread::spawn(move || {
        launch(program_address as *mut PJRT_LoadedExecutable, &[], 1, &[]).err()
    });
    next!(service, Launch);
    next!(service, Await);
    drop(service);
    let (code, _) = blocked.join().expect("no panic").expect("an error");
    assert_eq!(code, PJRT_Error_Code_UNAVAILABLE);
    assert!(await_event(launched.event).is_err());
    destroy(launched.outputs[0]);
    destroy_executable(program);
    destroy_client(client);
}

#[test]
fn donated_arguments_are_gone_when_the_launch_is_sent() {
    let (client, mut service) = Service::open(8, true);
    let (program, _) = compiled(client, &mut service, &signature(2, 1, 1));
    let (a, _) = array(client, &mut service);
    let (b, _) = array(client, &mut service);

    let (code, text) = launch(program, &[a, a], 1, &[]).err().expect("used twice");
    assert_eq!(code, PJRT_Error_Code_INVALID_ARGUMENT);
    assert!(
        text.contains("argument 1") && text.contains("donated"),
        "{text}"
    );
    assert!(!is_deleted(a));

    let kept = launch(program, &[a, a], 1, &[0]).expect("not to be donated");
    assert_eq!(next!(service, Launch).keep, [0]);
    assert!(!is_deleted(a));

    let taken = launch(program, &[a, b], 1, &[]).expect("launched");
    assert!(next!(service, Launch).keep.is_empty());
    assert!(is_deleted(a) && !is_deleted(b));

    let (code, text) = launch(program, &[b, a], 1, &[]).err().expect("a is gone");
    assert_eq!(code, PJRT_Error_Code_INVALID_ARGUMENT);
    assert!(
        text.contains("argument 1") && text.contains("deleted or donated"),
        "{text}"
    );
    // And b, which that launch would have taken, is still there.
    assert!(!is_deleted(b));
    let (code, _) = await_event(ready_event(a)).expect_err("a is gone");
    assert_eq!(code, PJRT_Error_Code_INVALID_ARGUMENT);
    let gone = read_into(a, &mut [0.0; 4]).expect("an event");
    assert!(is_ready(gone));
    assert!(await_event(gone).is_err());

    for buffer in [a, b, kept.outputs[0], taken.outputs[0]] {
        destroy(buffer);
    }
    destroy_event(kept.event);
    destroy_event(taken.event);
    destroy_executable(program);
    destroy_client(client);
}

#[test]
fn bad_launches_are_refused_at_once() {
    let (client, mut service) = Service::open(8, true);
    let (other_client, mut other_service) = Service::open(8, true);
    let (program, _) = compiled(client, &mut service, &signature(1, 1, 0));
    let (ours, _) = array(client, &mut service);
    let (theirs, _) = array(other_client, &mut other_service);
    let refused = |arguments: &[*mut PJRT_Buffer], words: &str| {
        let (code, text) = launch(program, arguments, 1, &[]).err().expect(words);
        assert_eq!(code, PJRT_Error_Code_INVALID_ARGUMENT);
        assert!(text.contains(words), "{text}");
    };
    refused(&[], "has 1 parameters and was given 0");
    refused(&[null_mut()], "argument 0 is NULL");
    refused(&[theirs], "another client");

    let mut options = args::<PJRT_ExecuteOptions>();
    options.num_send_ops = 1;
    let (code, _) = launch_with(program, &[ours], 1, &mut options)
        .err()
        .expect("callbacks");
    assert_eq!(code, PJRT_Error_Code_UNIMPLEMENTED);

    let mut delete = args::<PJRT_LoadedExecutable_Delete_Args>();
    delete.executable = program;
    call(api().PJRT_LoadedExecutable_Delete, &mut delete).expect("deleted");
    refused(&[ours], "has been deleted");
    for buffer in [ours, theirs] {
        destroy(buffer);
    }
    destroy_executable(program);
    destroy_client(client);
    destroy_client(other_client);
}

#[test]
fn callers_of_other_versions_have_other_options() {
    let (client, mut service) = Service::open(8, true);
    let (program, _) = compiled(client, &mut service, &signature(1, 1, 1));
    let (a, _) = array(client, &mut service);
    let keep = [0i64];
    let mut outputs = Vec::new();
    // torch_xla's options end after `context`, JAX's are longer than ours: what is beyond is not
    // read, which garbage there would show.
    for size in [80, 112, 144] {
        let mut memory = [u64::MAX; 32];
        memory[..10].copy_from_slice(&[size, 0, 0, 0, 0, 0, 0, keep.as_ptr() as u64, 1, 0]);
        let options = memory.as_mut_ptr().cast();
        let launched = launch_with(program, &[a], 1, options).expect("launched");
        assert_eq!(next!(service, Launch).keep, [0]);
        assert!(!is_deleted(a));
        destroy_event(launched.event);
        outputs.extend(launched.outputs);
    }
    outputs.into_iter().chain([a]).for_each(destroy);
    destroy_executable(program);
    destroy_client(client);
}

#[test]
fn a_program_is_dropped_with_its_last_handle() {
    let (client, mut service) = Service::open(8, true);
    let (program, id) = compiled(client, &mut service, &signature(0, 1, 0));
    let mut handle = args::<PJRT_LoadedExecutable_GetExecutable_Args>();
    handle.loaded_executable = program;
    call(api().PJRT_LoadedExecutable_GetExecutable, &mut handle).expect("a handle");
    destroy_executable(program);
    let mut outputs = args::<PJRT_Executable_NumOutputs_Args>();
    outputs.executable = handle.executable;
    call(api().PJRT_Executable_NumOutputs, &mut outputs).expect("known");
    assert_eq!(outputs.num_outputs, 1);
    let mut destroy = args::<PJRT_Executable_Destroy_Args>();
    destroy.executable = handle.executable;
    call(api().PJRT_Executable_Destroy, &mut destroy).expect("never fails");
    assert_eq!(next!(service, DropProgram).program, id);
    destroy_client(client);
}

#[test]
fn a_failed_compilation_is_the_services_own_error() {
    let (client, mut service) = Service::open(8, true);
    let address = client as usize;
    let compiling =
        std::thread::spawn(move || compile(address as *mut PJRT_Client, b"nonsense").err());
    let request = next!(service, Compile);
    assert_eq!(request.format, "mlir");
    assert_eq!(request.options, b"options");
    service.send(CompileFailed {
        program: request.program,
        error: Error::new(ErrorCode::InvalidArgument, "line 1: nonsense"),
    });
    let failure = compiling.join().expect("no panic");
    let expected = (
        PJRT_Error_Code_INVALID_ARGUMENT,
        "line 1: nonsense".to_owned(),
    );
    assert_eq!(failure, Some(expected));
    destroy_client(client);
}

#[test]
fn a_serialized_program_is_its_source_and_others_are_refused() {
    let (client, mut service) = Service::open(8, true);
    let (program, _) = compiled(client, &mut service, &signature(0, 1, 0));
    let mut handle = args::<PJRT_LoadedExecutable_GetExecutable_Args>();
    handle.loaded_executable = program;
    call(api().PJRT_LoadedExecutable_GetExecutable, &mut handle).expect("a handle");
    let mut serialized = args::<PJRT_Executable_Serialize_Args>();
    serialized.executable = handle.executable;
    call(api().PJRT_Executable_Serialize, &mut serialized).expect("a token");

    let (start, size) = (
        serialized.serialized_bytes as usize,
        serialized.serialized_bytes_size,
    );
    let client_address = client as usize;
    let loading = std::thread::spawn(move || {
        let mut load = args::<PJRT_Executable_DeserializeAndLoad_Args>();
        // As torch_xla has it: without the last two fields.
        load.struct_size = 48;
        load.client = client_address as *mut PJRT_Client;
        load.serialized_executable = start as *const _;
        load.serialized_executable_size = size;
        load.overridden_serialized_compile_options = std::ptr::dangling();
        load.overridden_serialized_compile_options_size = 1;
        call(api().PJRT_Executable_DeserializeAndLoad, &mut load).err()
    });
    let request = next!(service, Compile);
    assert_eq!(service.read(&request.code), b"module");
    assert_eq!(request.options, b"options");
    service.send(CompileFailed {
        program: request.program,
        error: Error::new(ErrorCode::Internal, "far enough"),
    });
    assert_eq!(
        loading.join().expect("no panic").map(|e| e.1),
        Some("far enough".into())
    );

    let mut foreign = args::<PJRT_Executable_DeserializeAndLoad_Args>();
    foreign.client = client;
    foreign.serialized_executable = c"\x7fELF and so on".as_ptr();
    foreign.serialized_executable_size = 14;
    let (code, text) = call(api().PJRT_Executable_DeserializeAndLoad, &mut foreign)
        .expect_err("machine code of a job");
    assert_eq!(code, PJRT_Error_Code_INVALID_ARGUMENT);
    assert!(text.contains("was not made by Salus"), "{text}");

    // SAFETY: the deleter runs once.
    unsafe {
        serialized.serialized_executable_deleter.expect("a deleter")(
            serialized.serialized_executable,
        );
    }
    let mut destroy = args::<PJRT_Executable_Destroy_Args>();
    destroy.executable = handle.executable;
    call(api().PJRT_Executable_Destroy, &mut destroy).expect("never fails");
    destroy_executable(program);
    destroy_client(client);
}

#[test]
fn old_callers_have_shorter_memory_stats() {
    let (client, mut service) = Service::open(8, true);
    let mut with_stats = signature(0, 1, 0);
    with_stats.memory = Some(salus_wire::MemoryStats {
        argument_bytes: 10,
        output_bytes: 20,
        temp_bytes: 5,
        host_temp_bytes: 9,
        ..Default::default()
    });
    let (program, _) = compiled(client, &mut service, &with_stats);
    let mut handle = args::<PJRT_LoadedExecutable_GetExecutable_Args>();
    handle.loaded_executable = program;
    call(api().PJRT_LoadedExecutable_GetExecutable, &mut handle).expect("a handle");
    let mut stats = args::<PJRT_Executable_GetCompiledMemoryStats_Args>();
    stats.executable = handle.executable;
    call(api().PJRT_Executable_GetCompiledMemoryStats, &mut stats).expect("known");
    assert_eq!(
        (stats.temp_size_in_bytes, stats.host_temp_size_in_bytes),
        (5, 9)
    );
    assert_eq!(stats.peak_memory_in_bytes, 35);
    let mut old = args::<PJRT_Executable_GetCompiledMemoryStats_Args>();
    old.struct_size -= 8;
    old.executable = handle.executable;
    old.peak_memory_in_bytes = -1;
    call(api().PJRT_Executable_GetCompiledMemoryStats, &mut old).expect("known");
    assert_eq!(
        (old.output_size_in_bytes, old.peak_memory_in_bytes),
        (20, -1)
    );
    let mut destroy = args::<PJRT_Executable_Destroy_Args>();
    destroy.executable = handle.executable;
    call(api().PJRT_Executable_Destroy, &mut destroy).expect("never fails");
    destroy_executable(program);
    destroy_client(client);
}
