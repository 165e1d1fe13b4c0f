//! What a device promises, run on the real one (the CPU plugin), on the scripted one and on the stand-in
//! for CUDA, whose memory is not the host's.

mod common;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use common::*;
use salus_device::{Device, Placement, ReadForm, Shape, Source};
use salus_formats::options;

macro_rules! on {
    ($($module:ident, $subject:ident: $tests:tt)*) => {
        $(on! { @one $module $subject $tests })*
    };
    (@one $module:ident $subject:ident { $($test:ident,)* }) => {
        mod $module {
            $(#[test] fn $test() { super::$test(&super::$subject); })*
        }
    };
}

macro_rules! on_all {
    ($($test:ident,)*) => {
        on! {
            scripted, Scripted: { $($test,)* }
            pjrt, Pjrt: { $($test,)* }
            standin, Standin: { $($test,)* }
        }
    };
}

macro_rules! on_host {
    ($($test:ident,)*) => {
        on! {
            scripted_on_host, Scripted: { $($test,)* }
            pjrt_on_host, Pjrt: { $($test,)* }
        }
    };
}

on_all! {
    arrays_come_back_as_they_went,
    other_memory_is_released_when_it_was_copied,
    wrong_lengths_are_refused,
    layouts_are_kept,
    signatures_are_complete,
    a_malformed_program_does_not_compile,
    equal_arguments_give_equal_outputs,
    kept_arrays_are_not_donated,
    donated_arrays_cannot_be_used_again,
    outputs_are_arguments_at_once,
    every_launch_ends_once,
    a_wrong_number_of_arguments_is_refused,
    ready_arrays_say_so_at_once,
    copies_in_other_memories_are_equal,
    programs_are_loaded_elsewhere_with_equal_bits,
    threads_may_launch_together,
    arrays_outlive_programs_and_devices,
    tokens_are_arguments_and_results_and_hold_nothing,
}

// Where the device's memory is the host's, and where it has more than one lane.
on_host! {
    aligned_memory_is_wrapped_until_the_array_is_gone,
    donated_arrays_are_overwritten_in_place,
    lanes_have_their_own_arrays,
}

on! {
    off_host, Standin: {
        memory_is_released_before_the_array_is_gone,
    }
}

fn arrays_come_back_as_they_went<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let cases: &[(Shape, Vec<u8>)] = &[
        (
            shape(F32, &[2, 3]),
            floats(&[2, 3], |index| index as f32 - 1.5),
        ),
        (shape(F32, &[]), floats(&[], |_| f32::NAN)),
        (
            shape(F64, &[2]),
            [1.0f64, -0.0]
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect(),
        ),
        (shape(BF16, &[3]), vec![0x80, 0x3f, 0x00, 0xc0, 0xff, 0x7f]),
        (shape(PRED, &[4]), vec![1, 0, 0, 1]),
        // Four bits each, but a byte each in host memory, of which the upper half means nothing.
        (shape(S4, &[5]), vec![0, 1, 7, 8, 15]),
        (shape(S32, &[0]), vec![]),
        (shape(F32, &[3, 0, 2]), vec![]),
        (
            shape(F32, &[512, 1024]),
            floats(&[512, 1024], |index| index as f32),
        ),
    ];
    for (shape, bytes) in cases {
        for aligned in [true, false] {
            let (memory, _) = host(bytes, aligned);
            let array = device.upload(memory, shape, FIRST).expect("there is room");
            assert_eq!(
                &read(&device, &array, shape),
                bytes,
                "{shape:?} aligned: {aligned}"
            );
            let raw = device.array_bytes(&array) as usize;
            let raw = try_read(&device, &array, &ReadForm::Raw, raw).expect("it is there");
            if shape.element_type != S4 {
                assert_eq!(&raw, bytes, "{shape:?} raw");
            }
        }
    }
}

fn aligned_memory_is_wrapped_until_the_array_is_gone<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let dims = [256];
    let (memory, gone) = host(&floats(&dims, |index| index as f32), true);
    let array = device
        .upload(memory, &shape(F32, &dims), FIRST)
        .expect("there is room");
    assert!(gone.try_recv().is_err(), "the array uses the memory");
    drop(array);
    wait(&gone);
}

/// Which is at once where the device's memory is the host's.
fn other_memory_is_released_when_it_was_copied<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let bytes = floats(&[4, 4], |index| index as f32);
    let (unaligned, gone) = host(&bytes, false);
    let array = device
        .upload(unaligned, &shape(F32, &[4, 4]), FIRST)
        .expect("there is room");
    released(&device, &gone);
    let transposed = Shape {
        minor_to_major: Some(vec![0, 1]),
        ..shape(F32, &[4, 4])
    };
    let (aligned, gone) = host(&bytes, true);
    let other = device
        .upload(aligned, &transposed, FIRST)
        .expect("there is room");
    released(&device, &gone);
    assert_eq!(read(&device, &array, &shape(F32, &[4, 4])), bytes);
    assert_eq!(read(&device, &other, &transposed), bytes);
}

fn released<D: Device>(device: &D, gone: &Receiver<()>) {
    match device.description().on_host {
        true => assert!(gone.try_recv().is_ok(), "it was copied"),
        false => wait(gone),
    }
}

fn memory_is_released_before_the_array_is_gone<S: Subject>(subject: &S) {
    let device = subject.open(1);
    assert!(!device.description().on_host);
    let bytes = floats(&[256], |index| index as f32);
    let (memory, gone) = host(&bytes, true);
    let array = device
        .upload(memory, &shape(F32, &[256]), FIRST)
        .expect("there is room");
    wait(&gone);
    assert_eq!(read(&device, &array, &shape(F32, &[256])), bytes);
    assert_eq!(device.host_address(&array), None);
}

fn wrong_lengths_are_refused<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let (memory, gone) = host(&[0; 12], true);
    let refused = device
        .upload(memory, &shape(F32, &[4]), FIRST)
        .err()
        .expect("12 are not 16");
    assert_eq!(refused.code, INVALID_ARGUMENT);
    assert!(
        refused.message.contains("12") && refused.message.contains("16"),
        "{refused}"
    );
    wait(&gone);
    let (memory, _) = host(&[0; 8], true);
    let huge = shape(F32, &[i64::MAX, i64::MAX]);
    assert!(
        device.upload(memory, &huge, FIRST).is_err(),
        "the product does not wrap"
    );
    let array = upload_f32(&device, &[4], |_| 0.0);
    let form = ReadForm::Host {
        minor_to_major: vec![0],
    };
    let short = try_read(&device, &array, &form, 12).expect_err("12 are not 16");
    assert_eq!(short.code, INVALID_ARGUMENT);
}

fn layouts_are_kept<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let rows = floats(&[2, 3], |index| index as f32);
    let columns: Vec<u8> = [0.0f32, 3.0, 1.0, 4.0, 2.0, 5.0]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let column_major = Shape {
        minor_to_major: Some(vec![0, 1]),
        ..shape(F32, &[2, 3])
    };
    let array = upload(&device, &column_major, &rows);
    let as_form = |form: &ReadForm| try_read(&device, &array, form, 24).expect("it is there");
    let host = |minor_to_major: &[i64]| ReadForm::Host {
        minor_to_major: minor_to_major.to_vec(),
    };
    assert_eq!(as_form(&ReadForm::Raw), columns);
    assert_eq!(as_form(&host(&[1, 0])), rows);
    assert_eq!(as_form(&host(&[0, 1])), columns);
    let plain = upload(&device, &shape(F32, &[2, 3]), &rows);
    let read = try_read(&device, &plain, &host(&[0, 1]), 24).expect("it is there");
    assert_eq!(read, columns);
    let copy = device
        .copy_to_memory(&array, Placement { lane: 0, memory: 1 })
        .expect("there is room");
    let read = try_read(&device, &copy, &host(&[1, 0]), 24).expect("it is there");
    assert_eq!(read, rows);
}

fn signatures_are_complete<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let step = subject.compile(&device, Sample::Step).signature;
    assert!(step.name.contains("step"), "{}", step.name);
    assert!(step.fingerprint.is_some());
    assert_eq!(step.parameters, [shape(F32, &[1024])]);
    assert_eq!(step.outputs.len(), 1);
    assert_eq!(step.outputs[0].shape, shape(F32, &[1024]));
    assert_eq!(step.outputs[0].aliases, Some(0));
    assert_eq!(step.outputs[0].layout_text, "{0}");
    assert_eq!(step.outputs[0].memory, device.description().default_memory);
    assert_eq!(step.donated, [0]);
    let memory = step.memory.expect("both devices know");
    assert_eq!((memory.argument_bytes, memory.alias_bytes), (4096, 4096));
    let product = subject.compile(&device, Sample::Product).signature;
    assert_eq!(product.parameters.len(), 2);
    assert_eq!(product.outputs[0].layout_text, "{1,0}");
    assert_eq!(product.outputs[0].aliases, None);
    assert_eq!(product.donated, [0u32; 0]);
}

fn a_malformed_program_does_not_compile<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let options = options::rebuild(&[], &[]).expect("no options are options");
    let source = Source {
        format: subject.format(),
        code: subject.malformed().as_bytes(),
        options: &options,
    };
    let refused = device.compile(&source).expect_err("it is malformed");
    assert!(!refused.message.is_empty());
}

fn equal_arguments_give_equal_outputs<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let program = subject.program(&device, Sample::Increment);
    let run = |start: f32| {
        let array = upload_f32(&device, &[4, 4], |index| start + index as f32);
        let (outputs, ended) = launch(&device, &program, &[&array]);
        assert_eq!(wait(&ended), Ok(()));
        assert_eq!(device.array_bytes(&outputs[0]), 64);
        read(&device, &outputs[0], &shape(F32, &[4, 4]))
    };
    assert_eq!(run(1.0), run(1.0));
    assert_ne!(run(1.0), run(2.0));
}

fn donated_arrays_are_overwritten_in_place<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let program = subject.program(&device, Sample::Step);
    let (memory, gone) = host(&floats(&[1024], |index| index as f32), true);
    let array = device
        .upload(memory, &shape(F32, &[1024]), FIRST)
        .expect("there is room");
    let (mut outputs, ended) = launch(&device, &program, &[&array]);
    assert_eq!(wait(&ended), Ok(()));
    drop(array);
    assert!(
        gone.try_recv().is_err(),
        "the output lives in the same memory"
    );
    let output = outputs.pop().expect("one output");
    read(&device, &output, &shape(F32, &[1024]));
    drop(output);
    wait(&gone);
}

fn kept_arrays_are_not_donated<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let program = subject.program(&device, Sample::Step);
    let bytes = floats(&[1024], |index| index as f32);
    let array = upload(&device, &shape(F32, &[1024]), &bytes);
    let (ended, has_ended) = done();
    let outputs = device
        .launch(&program, 0, &[&array], &[0], ended)
        .expect("it launches");
    assert_eq!(wait(&has_ended), Ok(()));
    assert_eq!(read(&device, &array, &shape(F32, &[1024])), bytes);
    let kept = read(&device, &outputs[0], &shape(F32, &[1024]));
    let (outputs, _) = launch(&device, &program, &[&array]);
    assert_eq!(read(&device, &outputs[0], &shape(F32, &[1024])), kept);
}

fn donated_arrays_cannot_be_used_again<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let program = subject.program(&device, Sample::Step);
    let array = upload_f32(&device, &[1024], |index| index as f32);
    let (_outputs, ended) = launch(&device, &program, &[&array]);
    wait(&ended).expect("the first launch is well");
    let (never, is_called) = done();
    let refused = device.launch(&program, 0, &[&array], &[], never).err();
    assert_eq!(refused.expect("it was donated").code, INVALID_ARGUMENT);
    assert!(is_called.recv().is_err(), "a refused launch does not end");
}

fn outputs_are_arguments_at_once<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let program = subject.program(&device, Sample::Product);
    let scaled = |factor: f32| move |index: usize| factor * (index % 7) as f32;
    let left = upload_f32(&device, &[128, 128], scaled(1e-3));
    let chain = |wait_each: bool| {
        let mut array = upload_f32(&device, &[128, 128], scaled(1e-2));
        for _ in 0..20 {
            let (mut outputs, ended) = launch(&device, &program, &[&left, &array]);
            if wait_each {
                wait(&ended).expect("it runs");
            }
            // The argument is dropped while the launch that uses it may be running.
            array = outputs.pop().expect("one output");
        }
        read(&device, &array, &shape(F32, &[128, 128]))
    };
    assert_eq!(chain(false), chain(true));
}

/// Order shows in the outputs, not in when `done` is called: see `PjrtDevice`.
fn every_launch_ends_once<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let program = subject.program(&device, Sample::Product);
    let array = upload_f32(&device, &[128, 128], |index| index as f32);
    let (ends, ended) = channel();
    let mut outputs = Vec::new();
    for index in 0..40 {
        let ends = ends.clone();
        let done = Box::new(move |result: Result<(), _>| {
            // A test that has failed no longer listens.
            let _ = ends.send((index, result.is_ok()));
        });
        outputs.push(device.launch(&program, 0, &[&array, &array], &[], done));
    }
    drop(ends);
    let mut seen: Vec<(i32, bool)> = (0..40).map(|_| wait(&ended)).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq((0..40).map(|index| (index, true))));
    assert!(ended.recv().is_err(), "nothing ends twice");
    assert!(outputs.iter().all(Result::is_ok));
}

fn a_wrong_number_of_arguments_is_refused<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let program = subject.program(&device, Sample::Product);
    let array = upload_f32(&device, &[128, 128], |_| 1.0);
    for arguments in [&[&array][..], &[&array, &array, &array]] {
        let (never, is_called) = done();
        let refused = device.launch(&program, 0, arguments, &[], never).err();
        assert_eq!(refused.expect("it takes two").code, INVALID_ARGUMENT);
        assert!(is_called.recv().is_err(), "a refused launch does not end");
    }
    let (never, _) = done();
    let refused = device
        .launch(&program, 7, &[&array, &array], &[], never)
        .err();
    assert_eq!(refused.expect("there is one lane").code, INVALID_ARGUMENT);
}

fn ready_arrays_say_so_at_once<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let array = upload_f32(&device, &[4, 4], |_| 1.0);
    if !device.description().on_host {
        let (ready, is_ready) = done();
        device.on_ready(&array, ready);
        assert_eq!(wait(&is_ready), Ok(()));
    }
    let (ready, is_ready) = done();
    device.on_ready(&array, ready);
    assert_eq!(is_ready.try_recv(), Ok(Ok(())));
}

fn copies_in_other_memories_are_equal<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let bytes = floats(&[4, 4], |index| index as f32);
    let array = upload(&device, &shape(F32, &[4, 4]), &bytes);
    let memories = device.description().memories.len() as u32;
    assert!(memories >= 2, "both devices have host memory");
    for memory in 0..memories {
        let copy = device
            .copy_to_memory(&array, Placement { lane: 0, memory })
            .expect("there is room");
        assert_eq!(read(&device, &copy, &shape(F32, &[4, 4])), bytes);
        let (direct, _) = host(&bytes, true);
        let direct = device
            .upload(direct, &shape(F32, &[4, 4]), Placement { lane: 0, memory })
            .expect("room");
        assert_eq!(read(&device, &direct, &shape(F32, &[4, 4])), bytes);
    }
    for (lane, memory) in [(0, memories), (1, 0)] {
        let nowhere = Placement { lane, memory };
        assert!(
            device.copy_to_memory(&array, nowhere).is_err(),
            "{nowhere:?}"
        );
    }
}

fn lanes_have_their_own_arrays<S: Subject>(subject: &S) {
    let device = subject.open(2);
    assert_eq!(device.description().lanes, 2);
    let program = subject.program(&device, Sample::Increment);
    let array = upload_f32(&device, &[4, 4], |index| index as f32);
    let (first, _) = launch(&device, &program, &[&array]);
    let (never, _) = done();
    let refused = device.launch(&program, 1, &[&array], &[], never).err();
    assert_eq!(refused.expect("it is in lane 0").code, INVALID_ARGUMENT);
    // One loaded program serves all lanes; only the arrays move.
    let elsewhere = Placement { lane: 1, memory: 0 };
    let moved = device
        .copy_to_memory(&array, elsewhere)
        .expect("there is room");
    let (ended, has_ended) = done();
    let second = device
        .launch(&program, 1, &[&moved], &[], ended)
        .expect("it launches");
    assert_eq!(wait(&has_ended), Ok(()));
    let of = |outputs: &[_]| read(&device, &outputs[0], &shape(F32, &[4, 4]));
    assert_eq!(of(&first), of(&second));
}

fn programs_are_loaded_elsewhere_with_equal_bits<S: Subject>(subject: &S) {
    let compiler = subject.open(1);
    let compiled = subject.compile(&compiler, Sample::Product);
    let run = |device: &S::Device| {
        let program = device.load(&compiled).expect("it is loadable");
        let array = upload_f32(device, &[128, 128], |index| (index as f32).sin());
        let (outputs, _) = launch(device, &program, &[&array, &array]);
        read(device, &outputs[0], &shape(F32, &[128, 128]))
    };
    let here = run(&compiler);
    drop(compiler.load(&compiled));
    assert_eq!(run(&subject.open(1)), here);
}

fn threads_may_launch_together<S: Subject>(subject: &S) {
    let device = subject.open(1);
    let program = subject.program(&device, Sample::Step);
    let start = |index: usize| index as f32;
    let array = upload_f32(&device, &[1024], start);
    let (outputs, _) = launch(&device, &program, &[&array]);
    let expected = read(&device, &outputs[0], &shape(F32, &[1024]));
    let run = || {
        for _ in 0..25 {
            let array = upload_f32(&device, &[1024], start);
            let (outputs, ended) = launch(&device, &program, &[&array]);
            assert_eq!(read(&device, &outputs[0], &shape(F32, &[1024])), expected);
            assert_eq!(wait(&ended), Ok(()));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(run);
        }
    });
}

fn arrays_outlive_programs_and_devices<S: Subject>(subject: &S) {
    let device = Arc::new(subject.open(1));
    let program = subject.program(&device, Sample::Product);
    let array = upload_f32(&*device, &[128, 128], |_| 1.0);
    let (outputs, ended) = launch(&*device, &program, &[&array, &array]);
    drop(program);
    drop(device);
    assert_eq!(wait(&ended), Ok(()));
    drop(outputs);
    drop(array);
}

/// JAX begins with an array of no booleans, and what a program gives it passes on.
fn tokens_are_arguments_and_results_and_hold_nothing<S: Subject>(subject: &S) {
    let device = subject.open(2);
    let compiled = subject.compile(&device, Sample::Ordered);
    assert_eq!(compiled.signature.parameters[0], shape(TOKEN, &[]));
    assert_eq!(compiled.signature.outputs[0].shape, shape(TOKEN, &[]));
    let program = device.load(&compiled).expect("it is loadable");
    let first = upload(&device, &shape(PRED, &[0]), &[]);
    let numbers = upload_f32(&device, &[4], |index| index as f32);
    let (mut outputs, ended) = launch(&device, &program, &[&first, &numbers]);
    assert_eq!(wait(&ended), Ok(()));
    let (again, ended) = launch(&device, &program, &[&outputs[0], &outputs[1]]);
    assert_eq!(wait(&ended), Ok(()));
    let token = &again[0];
    assert_eq!(device.array_bytes(token), 0);
    let host = ReadForm::Host {
        minor_to_major: Vec::new(),
    };
    for form in [ReadForm::Raw, host] {
        let nothing = try_read(&device, token, &form, 0);
        assert_eq!(nothing, Ok(Vec::new()), "{form:?}");
    }
    // The CPU plugin itself would abort the process at a copy.
    let lane = device.description().lanes - 1;
    let elsewhere = Placement { lane, memory: 0 };
    let moved = [
        device.copy_to_memory(token, elsewhere),
        device.copy_to_memory(&again[1], elsewhere),
    ];
    let moved = moved.map(|array| array.expect("a copy"));
    let (done, ended) = done();
    outputs = device
        .launch(&program, lane, &[&moved[0], &moved[1]], &[], done)
        .expect("it launches in the other lane");
    assert_eq!(wait(&ended), Ok(()));
    assert_eq!(device.array_bytes(&outputs[0]), 0);
    // Nobody but a program makes one.
    let (memory, _) = common::host(&[], true);
    let refused = device.upload(memory, &shape(TOKEN, &[]), FIRST);
    assert_eq!(
        refused.err().map(|error| error.code),
        Some(INVALID_ARGUMENT)
    );
}
