//! Launches: in order, counted, out of memory, broken.

use std::sync::atomic::Ordering;

use salus_pjrt::sys::{PJRT_Error_Code_INTERNAL, PJRT_Error_Code_RESOURCE_EXHAUSTED};
use salus_standin::state::{in_place, on_device};

use crate::common::*;

const MIB: usize = 1 << 20;

#[test]
fn out_of_memory_is_told_by_the_event_and_poisons_the_results() {
    let state = StateFile::new("poisoned");
    let client = client(&state, "memory=40MiB,autotune=0");
    // 30 MiB: two of 12 fit, three do not.
    let numbers = vec![1.0; 3 * MIB];
    let program = compile(&client, &double("double", 3 * MIB, false));
    let array = upload(&client, &numbers);
    let (first, ended) = launch(&client, &program, &[&array]).expect("it is enqueued");
    assert_eq!(ended.wait(), Ok(()));
    let (second, ended) = launch(&client, &program, &[&array]).expect("it is enqueued as well");
    let refused = ended.wait().expect_err("there are 30 MiB");
    assert_eq!(refused.code, PJRT_Error_Code_RESOURCE_EXHAUSTED);
    assert!(
        refused
            .message
            .contains("Out of memory while trying to allocate 12582912 bytes")
    );
    assert_eq!(read(&second), Err(refused), "its result is poisoned");
    assert_eq!(
        state
            .open()
            .device(0, on_device::OUT_OF_MEMORY)
            .load(Ordering::Relaxed),
        1
    );
    drop((first, second));
    let (again, ended) = launch(&client, &program, &[&array]).expect("enqueued");
    assert_eq!(ended.wait(), Ok(()));
    assert_eq!(read(&again).map(|numbers| numbers[0]), Ok(2.0));
}

/// A launch that takes one array in place and makes another that does not fit.
fn grows(client: &salus_pjrt::Client) -> salus_pjrt::LoadedExecutable {
    let code = "module @grows { func.func public @main(
          %a: tensor<4xf32> {tf.aliasing_output = 0 : i32})
        -> (tensor<4xf32>, tensor<4194304xf32>) {
          %r = stablehlo.add %a, %a : tensor<4xf32>
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %sum = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0]
            : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
          %b = stablehlo.broadcast_in_dim %sum, dims = [] : (tensor<f32>) -> tensor<4194304xf32>
          return %r, %b : tensor<4xf32>, tensor<4194304xf32> } }";
    compile(client, code)
}

#[test]
fn what_is_donated_to_a_launch_out_of_memory_is_gone_unless_the_call_tells() {
    for told_by in ["event", "call"] {
        let state = StateFile::new(&format!("oom-{told_by}"));
        let client = client(&state, &format!("memory=16MiB,autotune=0,oom={told_by}"));
        let program = grows(&client);
        let array = upload(&client, &[1.0; 4]);
        let launch = salus_pjrt::Launch {
            device: &device(&client),
            arguments: &[&array],
            num_outputs: 2,
            keep: &[],
            launch_id: 1,
            context: None,
        };
        // SAFETY: it has two results, and takes four numbers.
        let launched = unsafe { program.execute(&launch) };
        let (refused, in_event) = match launched {
            Ok((_, ended)) => (ended.wait().expect_err("16 MiB in 12"), true),
            Err(refused) => (refused, false),
        };
        assert_eq!(refused.code, PJRT_Error_Code_RESOURCE_EXHAUSTED);
        assert_eq!(in_event, told_by == "event");
        assert_eq!(array.is_deleted(), Ok(in_event), "{told_by}");
    }
}

#[test]
fn an_illegal_address_breaks_the_client_for_good() {
    let state = StateFile::new("sticky");
    let broken = client(&state, "");
    let good = compile(&broken, &double("double", 4, false));
    let bad = compile(&broken, &double("jit_illegal_address", 4, false));
    let array = upload(&broken, &[1.0; 4]);
    let (output, ended) = launch(&broken, &bad, &[&array]).expect("it is enqueued");
    let error = ended.wait().expect_err("it touches what it must not");
    assert_eq!(error.code, PJRT_Error_Code_INTERNAL);
    assert!(
        error.message.contains("CUDA_ERROR_ILLEGAL_ADDRESS"),
        "{error:?}"
    );
    assert!(read(&output).is_err());
    let (_, ended) = launch(&broken, &good, &[&array]).expect("launches are enqueued");
    assert_eq!(ended.wait(), Err(error.clone()));
    assert_eq!(
        read(&array),
        Err(error.clone()),
        "what was fine before cannot be read"
    );
    assert_eq!(
        upload_to(&default_memory(&broken), &broken, &[1.0; 4]).err(),
        Some(error)
    );
    assert_eq!(
        state
            .open()
            .device(0, on_device::STICKY)
            .load(Ordering::Relaxed),
        1
    );
    // Another client is another context.
    let other = client(&state, "");
    let array = upload(&other, &[1.0; 4]);
    assert_eq!(read(&array), Ok(vec![1.0; 4]));
}

#[test]
fn other_ways_to_break_and_none() {
    let state = StateFile::new("sticky-at");
    let second = client(&state, "sticky_at=2");
    let program = compile(&second, &double("double", 4, false));
    let array = upload(&second, &[1.0; 4]);
    let outcomes: Vec<bool> = (0..3)
        .map(|_| {
            launch(&second, &program, &[&array])
                .expect("enqueued")
                .1
                .wait()
                .is_ok()
        })
        .collect();
    assert_eq!(outcomes, [true, false, false]);
    let never = client(&state, "sticky=0");
    let program = compile(&never, &double("illegal_address", 4, false));
    let array = upload(&never, &[1.0; 4]);
    let (output, _) = launch(&never, &program, &[&array]).expect("enqueued");
    assert_eq!(read(&output), Ok(vec![2.0; 4]));
}

#[test]
fn launch_calls_at_once_are_counted_and_hold_their_scratch() {
    let state = StateFile::new("calls");
    let client = client(&state, "enqueue_us=200000");
    let program = compile(&client, &double("double", 4, false));
    let array = upload(&client, &[1.0; 4]);
    let counts = state.open();
    let most = || {
        counts
            .device(0, on_device::CALLS_MOST)
            .load(Ordering::Relaxed)
    };
    launch(&client, &program, &[&array])
        .expect("enqueued")
        .1
        .wait()
        .expect("it runs");
    assert_eq!(most(), 1);
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                barrier.wait();
                drop(launch(&client, &program, &[&array]));
            });
        }
    });
    assert_eq!(most(), 2);
    assert_eq!(counts.sum(0, in_place::CALLS), 0, "none is left");
    assert_eq!(
        counts
            .device(0, on_device::LAUNCHES)
            .load(Ordering::Relaxed),
        3
    );
}

#[test]
fn a_stream_runs_one_after_another_and_the_call_waits_when_it_is_full() {
    let state = StateFile::new("stream");
    let gate = &GATES[0];
    let client = client(&state, "in_flight=2");
    let held = gate.program(&client);
    let quick = compile(&client, &double("double", 4, false));
    let array = upload(&client, &[1.0; 4]);
    let (_, first) = launch(&client, &held, &[&array]).expect("enqueued");
    let (_, second) = launch(&client, &quick, &[&array]).expect("enqueued");
    let (sent, arrives) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let third = launch(&client, &quick, &[&array]).expect("enqueued");
            sent.send(third).expect("the test listens");
        });
        assert!(
            !second.is_ready().expect("an event"),
            "the first has not ended"
        );
        assert!(arrives.try_recv().is_err(), "two are in flight");
        gate.open();
        let third = arrives.recv_timeout(DEADLINE).expect("there is room now");
        assert_eq!(third.1.wait(), Ok(()));
        assert!(first.is_ready().expect("an event") && second.is_ready().expect("an event"));
    });
}

#[test]
fn without_a_stream_they_overtake() {
    let state = StateFile::new("no-stream");
    let gate = &GATES[1];
    let client = client(&state, "stream=0,upload_waits=0");
    let held = gate.program(&client);
    let quick = compile(&client, &double("double", 4, false));
    let array = upload(&client, &[1.0; 4]);
    let (_, first) = launch(&client, &held, &[&array]).expect("enqueued");
    let (_, second) = launch(&client, &quick, &[&array]).expect("enqueued");
    let (said, hears) = std::sync::mpsc::channel();
    second.on_ready(move |outcome| said.send(outcome).expect("the test listens"));
    assert_eq!(hears.recv_timeout(DEADLINE), Ok(Ok(())));
    assert!(!first.is_ready().expect("an event"));
    gate.open();
    assert_eq!(first.wait(), Ok(()));
}
