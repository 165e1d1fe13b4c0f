//! Launches of programs that call back: what JAX gives with them, and the wait for their end.
#![expect(unsafe_code, reason = "plays the C caller, and Python")]

mod play;

use std::ptr::null_mut;

use play::callback::*;
use play::*;
use salus_pjrt::sys::*;
use salus_wire::{Error, ErrorCode};

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
    let launched = next!(service, Launch);
    assert_eq!(launched.arguments, [argument_id]);
    assert_eq!(next!(service, Await).operation, launched.operation);
    assert!(!waiting.is_over(), "nobody said that it has ended");
    ended(&service, launched.operation, None);
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
    let error = Error::new(ErrorCode::DeadlineExceeded, "a callback did not return");
    ended(&service, operation, Some(error.clone()));
    let failed = waiting.end().expect_err("it failed");
    assert_eq!(failed, (error.code.number(), error.message));
    // They ride with the next frame.
    put(client, &[1.0]).expect("an upload");
    let dropped = next!(service, DropArrays).arrays;
    assert_eq!(dropped, [first_output, first_output.plus(1)]);
    next!(service, Upload);
    destroy_client(client);
}
