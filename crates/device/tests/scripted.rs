//! What only the scripted device can promise: faults and time at a test's command.

mod common;

use std::sync::mpsc::channel;
use std::time::Duration;

use common::*;
use salus_device::{
    Clock, Device, Error, ReadForm, ScriptedConfig, ScriptedDevice, ScriptedProgram, Source,
};

use salus_wire::ErrorCode::{Internal as INTERNAL, ResourceExhausted as RESOURCE_EXHAUSTED};

fn open(capacity_bytes: u64, clock: Clock) -> ScriptedDevice {
    ScriptedDevice::open(&ScriptedConfig {
        lanes: 1,
        capacity_bytes,
        clock,
        on_host: true,
    })
}

fn load(device: &ScriptedDevice, script: &str) -> Result<ScriptedProgram, Error> {
    let source = Source {
        format: "script",
        code: script.as_bytes(),
        options: &[],
    };
    device.load(&device.compile(&source)?)
}

#[test]
fn launches_end_in_order_and_on_time() {
    let device = open(1 << 20, Clock::Manual);
    let program = load(&device, "name: a; outputs: f32[4]; ms: 10").expect("a script");
    let (ends, ended) = channel();
    let outputs: Vec<_> = (0..4)
        .map(|index| {
            let ends = ends.clone();
            let done = Box::new(move |_: Result<(), Error>| {
                // A test that has failed no longer listens.
                let _ = ends.send(index);
            });
            device
                .launch(&program, 0, &[], &[], done)
                .expect("it launches")
        })
        .collect();
    assert!(ended.try_recv().is_err(), "time stands still");
    device.advance(Duration::from_millis(25));
    assert_eq!((wait(&ended), wait(&ended)), (0, 1));
    assert!(ended.try_recv().is_err(), "the third ends after 30 ms");
    device.advance(Duration::from_millis(15));
    assert_eq!((wait(&ended), wait(&ended)), (2, 3));
    drop(outputs);
}

#[test]
fn faults_are_where_the_script_says() {
    let device = open(1 << 20, Clock::Real);
    let compile = load(&device, "name: a; fail: compile")
        .err()
        .expect("scripted");
    assert_eq!(compile.code, INVALID_ARGUMENT);
    let launch = load(&device, "name: a; fail: launch").expect("it compiles");
    let (never, is_called) = done();
    let refused = device
        .launch(&launch, 0, &[], &[], never)
        .err()
        .expect("scripted");
    assert_eq!(refused.code, INTERNAL);
    assert!(is_called.recv().is_err(), "a refused launch does not end");
}

#[test]
fn a_failed_run_poisons_what_comes_after_it() {
    let device = open(1 << 20, Clock::Real);
    let bad = "name: bad; params: f32[4]; outputs: f32[4] alias 0; fail: async";
    let bad = load(&device, bad).expect("it compiles");
    let good = load(&device, "name: good; params: f32[4]; outputs: f32[4]").expect("a script");
    let array = upload_f32(&device, &[4], |_| 1.0);
    let (poisoned, ended) = launch(&device, &bad, &[&array]);
    assert_eq!(wait(&ended).expect_err("scripted").code, INTERNAL);
    let (inherited, ended) = launch(&device, &good, &[&poisoned[0]]);
    assert_eq!(wait(&ended).expect_err("it inherits").code, INTERNAL);
    let read = try_read(&device, &inherited[0], &ReadForm::Raw, 16);
    assert_eq!(read.expect_err("it inherits").code, INTERNAL);
    let other = upload_f32(&device, &[4], |_| 1.0);
    let (outputs, ended) = launch(&device, &good, &[&other]);
    assert_eq!(wait(&ended), Ok(()), "others are well");
    drop(outputs);
}

#[test]
fn memory_is_finite_and_comes_back() {
    let device = open(100, Clock::Manual);
    let first = upload_f32(&device, &[16], |_| 0.0);
    assert_eq!(device.used_bytes(), 64);
    let (memory, _) = host(&[0; 64], true);
    let full = device
        .upload(memory, &shape(F32, &[16]), FIRST)
        .err()
        .expect("128 are not in 100");
    assert_eq!(full.code, RESOURCE_EXHAUSTED);
    let program = "name: a; params: f32[16]; outputs: f32[16] alias 0; ms: 5; scratch: 30";
    let program = load(&device, program).expect("a script");
    let (outputs, ended) = launch(&device, &program, &[&first]);
    assert_eq!(
        device.used_bytes(),
        94,
        "the output is in place, the scratch is not"
    );
    device.advance(Duration::from_millis(5));
    assert_eq!(wait(&ended), Ok(()));
    drop(first);
    assert_eq!(device.used_bytes(), 64);
    let greedy = "name: b; params: f32[16]; outputs: f32[16]";
    let greedy = load(&device, greedy).expect("a script");
    let (never, _) = done();
    let full = device.launch(&greedy, 0, &[&outputs[0]], &[], never).err();
    assert_eq!(
        full.expect("no room for the output").code,
        RESOURCE_EXHAUSTED
    );
    drop(outputs);
    assert_eq!(device.used_bytes(), 0);
}

#[test]
fn dropping_a_donated_array_early_waits_for_the_run() {
    let device = open(1 << 20, Clock::Manual);
    let program = "name: a; params: f32[4]; outputs: f32[4] alias 0; ms: 5";
    let program = load(&device, program).expect("a script");
    let array = upload_f32(&device, &[4], |_| 1.0);
    let (outputs, ended) = launch(&device, &program, &[&array]);
    let (sender, dropped) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            drop(array);
            // A test that has failed no longer listens.
            let _ = sender.send(());
        });
        assert!(dropped.try_recv().is_err(), "the run goes on");
        device.advance(Duration::from_millis(5));
        wait(&dropped);
    });
    assert_eq!(wait(&ended), Ok(()));
    drop(outputs);
}

#[test]
fn an_array_is_not_donated_and_used_in_one_launch() {
    let device = open(1 << 20, Clock::Real);
    let program = "name: a; params: f32[4], f32[4]; outputs: f32[4] alias 0";
    let program = load(&device, program).expect("a script");
    let array = upload_f32(&device, &[4], |_| 1.0);
    let (never, _) = done();
    let refused = device
        .launch(&program, 0, &[&array, &array], &[], never)
        .err();
    assert_eq!(refused.expect("it is used twice").code, INVALID_ARGUMENT);
    let (ended, has_ended) = done();
    let kept = device.launch(&program, 0, &[&array, &array], &[0], ended);
    assert_eq!(wait(&has_ended), Ok(()));
    drop(kept);
}
