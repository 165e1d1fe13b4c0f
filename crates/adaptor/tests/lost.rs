//! A service that goes away in mid-run: errors at once, and local answers forever.
#![expect(unsafe_code, reason = "plays the C caller")]

mod play;

use play::*;
use salus_pjrt::sys::*;

#[test]
fn everything_pending_ends_and_nothing_new_begins() {
    let (client, mut service) = Service::open(8, true);
    let (program, _) = compiled(client, &mut service, &signature(1, 1, 0));
    let (a, _) = array(client, &mut service);
    let launched = launch(program, &[a], 1, &[]).expect("launched");
    let read = read_into(launched.outputs[0], &mut [0.0; 4]).expect("a read");
    let address = client as usize;
    let compiling = std::thread::spawn(move || compile(address as *mut PJRT_Client, b"x").err());
    next!(service, Launch);
    next!(service, ReadArray);
    next!(service, Compile);
    drop(service);

    let gone = |outcome: Result<(), Failure>| {
        let (code, text) = outcome.expect_err("the service is gone");
        assert_eq!(code, PJRT_Error_Code_UNAVAILABLE);
        assert!(text.contains("has gone away"), "{text}");
        assert!(
            text.contains("start the job again once `salus ps` answers"),
            "{text}"
        );
    };
    gone(compiling.join().expect("no panic").map_or(Ok(()), Err));
    gone(await_event(ready_event(launched.outputs[0])));
    gone(await_event(launched.event));
    gone(await_event(read));
    gone(put(client, &[1.0]).map(|_| ()));
    gone(compile(client, b"y").map(|_| ()));
    gone(launch(program, &[a], 1, &[]).map(|_| ()));
    gone(read_into(a, &mut [0.0; 4]).map(|_| ()));

    // What JAX aborts on still answers.
    await_event(ready_event(a)).expect("an upload was ready");
    assert!(!is_deleted(a));
    let mut kind = args::<PJRT_Buffer_ElementType_Args>();
    kind.buffer = launched.outputs[0];
    call(api().PJRT_Buffer_ElementType, &mut kind).expect("never fails");
    assert_eq!(kind.r#type, F32);
    let mut memories = args::<PJRT_Client_AddressableMemories_Args>();
    memories.client = client;
    call(api().PJRT_Client_AddressableMemories, &mut memories).expect("never fails");
    assert_eq!(memories.num_addressable_memories, 2);
    destroy(a);
    destroy(launched.outputs[0]);
    destroy_executable(program);
    destroy_client(client);
}

#[test]
fn bytes_that_are_no_frame_end_the_session() {
    use std::io::Write;
    let (client, mut service) = Service::open(8, true);
    let (program, _) = compiled(client, &mut service, &signature(0, 1, 0));
    let launched = launch(program, &[], 1, &[]).expect("launched");
    service.socket.write_all(&[0xff; 64]).expect("written");
    let (code, text) = await_event(launched.event).expect_err("nonsense");
    assert_eq!(code, PJRT_Error_Code_UNAVAILABLE);
    assert!(text.contains("it sent what is not a frame"), "{text}");
    assert!(service.sees_the_end());
    destroy(launched.outputs[0]);
    destroy_executable(program);
    destroy_client(client);
}
