//! Calls of functions of this process while a program runs: what they see, what they answer, and what
//! runs beside them.
#![expect(unsafe_code, reason = "plays the C caller, and Python")]

mod play;

use salus_channel::Segment;
use std::sync::Mutex;

use play::callback::*;
use play::*;
use salus_pjrt::sys::*;
use salus_wire::{CallbackArray, CallbackCall, CallbackMemory, OperationId, limits};

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
    assert_eq!(raised.code.number(), PJRT_Error_Code_INTERNAL);
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
    assert_eq!(waiting.end(), Err((raised.code.number(), raised.message)));
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
    // Its memory was not sent yet.
    channel.call(operation, 0, &[0.0; 4]);
    let refused = channel.answered().expect_err("there is no memory");
    assert!(refused.message.contains("outside its memory"), "{refused}");
    channel.send_memory();
    for (of, callback) in [
        (operation, 1),
        (operation, u64::MAX),
        (OperationId(operation.0 + 1), 0),
    ] {
        channel.call(of, callback, &[0.0; 4]);
        let refused = channel.answered().expect_err("nobody gave it");
        assert_eq!(refused.code.number(), PJRT_Error_Code_INVALID_ARGUMENT);
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
    assert_eq!(refused.code.number(), PJRT_Error_Code_UNIMPLEMENTED);
    assert!(
        refused.message.contains("`salus` is not loaded"),
        "{refused}"
    );
    ended(&service, operation, Some(refused));
    waiting.end().expect_err("it failed");
    destroy_client(client);
    drop(alone);
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
    let nested = next!(service, Launch);
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
