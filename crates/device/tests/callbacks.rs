//! Programs that call back, on the real device: what reaches the job's functions, where they run, and
//! whose memory it is.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex};

use common::*;
use salus_device::{
    CallArray, Callbacks, Device, Error, HeapMemory, Lent, PjrtArray, PjrtDevice, PjrtProgram,
    Shape, Source, Style,
};
use salus_formats::options;

/// See `src/options/tests.rs`.
const JAX: &[u8] = include_bytes!("../../formats/corpus/options/jax_0.10.2.bin");
use salus_wire::ErrorCode::{Internal as INTERNAL, ResourceExhausted as RESOURCE_EXHAUSTED};

/// `f32[4] -> f32[4]`: twice what the callback returns.
const TWICE: &str = "module @twice { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %b = stablehlo.custom_call @xla_ffi_python_cpu_callback(%a)
        {api_version = 4 : i32, backend_config = {index = 0 : ui64}}
        : (tensor<4xf32>) -> tensor<4xf32>
      %r = stablehlo.add %b, %b : tensor<4xf32>
      return %r : tensor<4xf32> } }";

/// `f32[1024] -> f32[1024]`, in place: what the callback returns is added.
const UPDATE: &str = "module @update { func.func public @main(
      %a: tensor<1024xf32> {tf.aliasing_output = 0 : i32}) -> tensor<1024xf32> {
      %b = stablehlo.custom_call @xla_ffi_python_cpu_callback(%a)
        {api_version = 4 : i32, backend_config = {index = 0 : ui64}}
        : (tensor<1024xf32>) -> tensor<1024xf32>
      %r = stablehlo.add %a, %b : tensor<1024xf32>
      return %r : tensor<1024xf32> } }";

/// A job's functions: one for all.
struct Function<F>(F);

impl<F> Callbacks for Function<F>
where
    F: Fn(u64, &[CallArray<'_>], &[CallArray<'_>]) -> Result<(), Error> + Send + Sync,
{
    fn call(
        &self,
        callback: u64,
        style: Style,
        operands: &[CallArray<'_>],
        results: &[CallArray<'_>],
    ) -> Result<(), Error> {
        assert_eq!(style, Style::Values);
        (self.0)(callback, operands, results)
    }
}

fn function<F>(call: F) -> Arc<dyn Callbacks>
where
    F: Fn(u64, &[CallArray<'_>], &[CallArray<'_>]) -> Result<(), Error> + Send + Sync + 'static,
{
    Arc::new(Function(call))
}

/// Returns its operand, each number increased by one.
fn increment() -> Arc<dyn Callbacks> {
    function(|_, operands, results| {
        let numbers = numbers(&operands[0]).into_iter();
        put(&results[0], &numbers.map(|x| x + 1.0).collect::<Vec<_>>());
        Ok(())
    })
}

fn bytes(array: &CallArray<'_>) -> Vec<u8> {
    array.bytes.to_vec()
}

fn numbers(array: &CallArray<'_>) -> Vec<f32> {
    assert_eq!(array.element_type, F32);
    let bytes = bytes(array);
    let numbers = bytes.chunks_exact(4);
    let numbers = numbers.map(|b| f32::from_le_bytes(b.try_into().expect("four")));
    numbers.collect()
}

fn put_bytes(array: &CallArray<'_>, bytes: &[u8]) {
    array.bytes.write(bytes);
}

fn put(array: &CallArray<'_>, numbers: &[f32]) {
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    put_bytes(array, &bytes);
}

fn program(device: &PjrtDevice, code: &str) -> PjrtProgram {
    let options = options::rebuild(JAX, &[]).expect("harmless options");
    let source = Source {
        format: "mlir",
        code: code.as_bytes(),
        options: &options,
    };
    let compiled = device.compile(&source);
    let compiled = compiled.unwrap_or_else(|error| panic!("{error}\n{code}"));
    assert!(compiled.signature.calls_back);
    device.load(&compiled).expect("it is loadable")
}

/// Runs a program whose arguments are given up by nobody.
fn run(
    device: &PjrtDevice,
    program: &PjrtProgram,
    arguments: &[&Arc<PjrtArray>],
    callbacks: Arc<dyn Callbacks>,
) -> Result<Vec<PjrtArray>, Error> {
    let lent = arguments.iter().map(|array| Lent {
        array: &***array,
        keep: Box::new(Arc::clone(array)),
    });
    device.run_calling_back(program, 0, lent.collect(), &[], callbacks)
}

fn upload_numbers(
    device: &PjrtDevice,
    dims: &[i64],
    value: impl Fn(usize) -> f32,
) -> Arc<PjrtArray> {
    Arc::new(upload_f32(device, dims, value))
}

fn read_numbers(device: &PjrtDevice, array: &PjrtArray, dims: &[i64]) -> Vec<f32> {
    let bytes = read(device, array, &shape(F32, dims));
    let numbers = bytes.chunks_exact(4);
    let numbers = numbers.map(|b| f32::from_le_bytes(b.try_into().expect("four")));
    numbers.collect()
}

// What the function sees, and what it returns.

#[test]
fn a_function_gets_its_operands_and_its_results_are_used() {
    let device = Pjrt.open(1);
    let twice = program(&device, TWICE);
    let array = upload_numbers(&device, &[4], |index| index as f32);
    for _ in 0..3 {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = Arc::clone(&seen);
        let callbacks = function(move |index, operands, results| {
            let dims = operands[0].dims.to_vec();
            let call = (index, dims, numbers(&operands[0]));
            sees.lock().expect("no panic").push(call);
            put(&results[0], &[10.0, 20.0, 30.0, 40.0]);
            Ok(())
        });
        let outputs = run(&device, &twice, &[&array], callbacks).expect("it runs");
        let result = read_numbers(&device, &outputs[0], &[4]);
        assert_eq!(result, [20.0, 40.0, 60.0, 80.0]);
        let seen = seen.lock().expect("no panic");
        assert_eq!(*seen, [(0, vec![4], vec![0.0, 1.0, 2.0, 3.0])]);
    }
    assert_eq!(read_numbers(&device, &array, &[4]), [0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn functions_of_one_program_are_told_apart() {
    let device = Pjrt.open(1);
    let call = |index: u64, from: &str| {
        format!(
            "stablehlo.custom_call @xla_ffi_partitioned_python_cpu_callback({from})
               {{api_version = 4 : i32, backend_config = {{index = {index} : ui64}}}}
               : (tensor<4xf32>) -> tensor<4xf32>"
        )
    };
    let code = format!(
        "module @many {{ func.func public @main(%a: tensor<4xf32>)
         -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {{
           %x = {}
           %y = {}
           %z = {}
           return %x, %y, %z : tensor<4xf32>, tensor<4xf32>, tensor<4xf32> }} }}",
        call(0, "%a"),
        call(7, "%a"),
        call(2, "%x")
    );
    let many = program(&device, &code);
    let array = upload_numbers(&device, &[4], |_| 1.0);
    let callbacks = function(|index, operands, results| {
        let numbers = numbers(&operands[0]).into_iter();
        let numbers: Vec<f32> = numbers.map(|x| 10.0 * x + index as f32).collect();
        put(&results[0], &numbers);
        Ok(())
    });
    let outputs = run(&device, &many, &[&array], callbacks).expect("it runs");
    let firsts = outputs.iter().map(|o| read_numbers(&device, o, &[4])[0]);
    assert_eq!(firsts.collect::<Vec<_>>(), [10.0, 17.0, 102.0]);
}

#[test]
fn an_error_passes_word_for_word() {
    let device = Pjrt.open(1);
    let twice = program(&device, TWICE);
    let array = upload_numbers(&device, &[4], |_| 1.0);
    let raised = Error::new(
        INTERNAL,
        "Traceback:\n  File \"t.py\", line 3\nValueError: é {} %s",
    );
    let raises = raised.clone();
    let fails = function(move |_, _, _| Err(raises.clone()));
    let failed = run(&device, &twice, &[&array], fails).err();
    assert_eq!(failed, Some(raised));
    let outputs = run(&device, &twice, &[&array], increment()).expect("the next is well");
    assert_eq!(read_numbers(&device, &outputs[0], &[4]), [4.0; 4]);
}

#[test]
fn a_function_that_panics_is_an_error() {
    let device = Pjrt.open(1);
    let twice = program(&device, TWICE);
    let array = upload_numbers(&device, &[4], |_| 1.0);
    let panics = function(|_, _, _| panic!("as planned"));
    let failed = run(&device, &twice, &[&array], panics).err();
    let failed = failed.expect("it failed");
    assert!(failed.message.contains("as planned"), "{failed}");
    run(&device, &twice, &[&array], increment()).expect("the next is well");
}

#[test]
fn each_kind_of_program_has_its_own_way_to_run() {
    let device = Pjrt.open(1);
    let twice = program(&device, TWICE);
    let array = upload_numbers(&device, &[4], |_| 1.0);
    let (ended, _) = done();
    let refused = device.launch(&twice, 0, &[&*array], &[], ended).err();
    assert_eq!(refused.map(|error| error.code), Some(INVALID_ARGUMENT));
    let plain = Pjrt.program(&device, Sample::Increment);
    let refused = run(&device, &plain, &[&array], increment()).err();
    assert_eq!(refused.map(|error| error.code), Some(INVALID_ARGUMENT));
    let refused = run(&device, &twice, &[&array, &array], increment()).err();
    let refused = refused.expect("there is one parameter");
    assert_eq!(refused.code, INVALID_ARGUMENT, "{refused}");
}

// Kinds of arrays.

#[test]
fn elements_of_less_than_a_byte_are_packed() {
    let device = Pjrt.open(1);
    let code = "module @nibbles { func.func public @main(%a: tensor<5xi4>) -> tensor<5xi4> {
          %b = stablehlo.custom_call @xla_ffi_python_cpu_callback(%a)
            {api_version = 4 : i32, backend_config = {index = 0 : ui64}}
            : (tensor<5xi4>) -> tensor<5xi4>
          %r = stablehlo.add %b, %a : tensor<5xi4>
          return %r : tensor<5xi4> } }";
    let nibbles = program(&device, code);
    let five = shape(S4, &[5]);
    let array = Arc::new(upload(&device, &five, &[1, 2, 0xfd, 4, 0xff]));
    let callbacks = function(|_, operands, results| {
        assert_eq!((operands[0].element_type, operands[0].dims), (S4, &[5][..]));
        assert_eq!(bytes(&operands[0])[..2], [0x21, 0x4d]);
        assert_eq!(bytes(&operands[0])[2] & 0x0f, 0x0f);
        // 1, 1, 1, 2, 2
        put_bytes(&results[0], &[0x11, 0x21, 0x02]);
        Ok(())
    });
    let outputs = run(&device, &nibbles, &[&array], callbacks).expect("it runs");
    let sum = read(&device, &outputs[0], &five);
    let low: Vec<u8> = sum.iter().map(|byte| byte & 0x0f).collect();
    assert_eq!(low, [2, 3, 0x0e, 6, 1]);
}

/// As JAX asks for it at each call.
#[test]
fn functions_see_rows_whatever_the_layout_of_the_arrays() {
    let device = Pjrt.open(1);
    let code = r#"module @turned { func.func public @main(
          %a: tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"})
        -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}) {
          %b = stablehlo.custom_call @xla_ffi_python_cpu_callback(%a)
            {api_version = 4 : i32, backend_config = {index = 0 : ui64},
             operand_layouts = [dense<[1, 0]> : tensor<2xindex>],
             result_layouts = [dense<[1, 0]> : tensor<2xindex>]}
            : (tensor<2x3xf32>) -> tensor<2x3xf32>
          return %b : tensor<2x3xf32> } }"#;
    let turns = program(&device, code);
    let turned = Shape {
        minor_to_major: Some(vec![0, 1]),
        ..shape(F32, &[2, 3])
    };
    let rows = floats(&[2, 3], |index| index as f32);
    let array = Arc::new(upload(&device, &turned, &rows));
    let callbacks = function(|_, operands, results| {
        assert_eq!(numbers(&operands[0]), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        put(&results[0], &[10.0, 11.0, 12.0, 13.0, 14.0, 15.0]);
        Ok(())
    });
    let outputs = run(&device, &turns, &[&array], callbacks).expect("it runs");
    let expected = floats(&[2, 3], |index| 10.0 + index as f32);
    assert_eq!(read(&device, &outputs[0], &turned), expected);
}

#[test]
fn arrays_without_elements_and_calls_without_arrays() {
    let device = Pjrt.open(1);
    let code = "module @none { func.func public @main(%a: tensor<0x4xf32>) -> tensor<0x4xf32> {
          stablehlo.custom_call @xla_ffi_python_cpu_callback()
            {api_version = 4 : i32, backend_config = {index = 1 : ui64}, has_side_effect = true}
            : () -> ()
          %b = stablehlo.custom_call @xla_ffi_python_cpu_callback(%a)
            {api_version = 4 : i32, backend_config = {index = 0 : ui64}, has_side_effect = true}
            : (tensor<0x4xf32>) -> tensor<0x4xf32>
          return %b : tensor<0x4xf32> } }";
    let none = program(&device, code);
    let empty = shape(F32, &[0, 4]);
    let nowhere = Box::new(HeapMemory::zeroed(0));
    let array = Arc::new(
        device
            .upload(nowhere, &empty, FIRST)
            .expect("nothing has room"),
    );
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let callbacks = function(move |index, operands, results| {
        let call = (index, operands.len(), results.len());
        assert!(operands.iter().all(|array| array.bytes.is_empty()));
        sees.lock().expect("no panic").push(call);
        Ok(())
    });
    let outputs = run(&device, &none, &[&array], callbacks).expect("it runs");
    assert_eq!(read(&device, &outputs[0], &empty), [0u8; 0]);
    let mut seen = seen.lock().expect("no panic").clone();
    seen.sort_unstable();
    assert_eq!(seen, [(0, 1, 1), (1, 0, 0)]);
}

#[test]
fn tokens_order_calls_and_are_arguments_and_results() {
    let device = Pjrt.open(1);
    let code = "module @ordered { func.func public @main(
          %t: !stablehlo.token, %a: tensor<4xf32>) -> (!stablehlo.token, tensor<4xf32>) {
          %u, %b = stablehlo.custom_call @xla_ffi_python_cpu_callback(%t, %a)
            {api_version = 4 : i32, backend_config = {index = 0 : ui64}, has_side_effect = true}
            : (!stablehlo.token, tensor<4xf32>) -> (!stablehlo.token, tensor<4xf32>)
          return %u, %b : !stablehlo.token, tensor<4xf32> } }";
    let ordered = program(&device, code);
    let nothing = Box::new(HeapMemory::zeroed(0));
    let token = device.upload(nothing, &shape(PRED, &[0]), FIRST);
    let mut token = Arc::new(token.expect("nothing has room"));
    let mut array = upload_numbers(&device, &[4], |_| 0.0);
    for step in 1..=3 {
        let callbacks = function(|_, operands, results| {
            assert_eq!((operands.len(), results.len()), (2, 2));
            assert_eq!(
                (operands[0].element_type, operands[0].bytes.len()),
                (TOKEN, 0)
            );
            let numbers = numbers(&operands[1]).into_iter();
            put(&results[1], &numbers.map(|x| x + 1.0).collect::<Vec<_>>());
            Ok(())
        });
        let outputs = run(&device, &ordered, &[&token, &array], callbacks).expect("it runs");
        let mut outputs = outputs.into_iter().map(Arc::new);
        token = outputs.next().expect("a token");
        array = outputs.next().expect("an array");
        assert_eq!(read_numbers(&device, &array, &[4]), [step as f32; 4]);
    }
}

// Whose memory it is.

#[test]
fn what_is_donated_is_updated_in_place() {
    let device = Pjrt.open(2);
    let update = program(&device, UPDATE);
    let mut array = upload_numbers(&device, &[1024], |_| 1.0);
    let address = device.host_address(&array);
    assert!(address.is_some());
    for step in 1..=5 {
        let lent = Lent {
            array: &*array,
            keep: Box::new(Arc::clone(&array)),
        };
        let outputs = device.run_calling_back(&update, 1, vec![lent], &[], increment());
        let output = outputs.expect("it runs").pop().expect("one output");
        assert_eq!(device.host_address(&output), address, "in step {step}");
        array = Arc::new(output);
    }
    // x -> 2x + 1
    let result = read_numbers(&device, &array, &[1024]);
    assert!(result.iter().all(|x| *x == 63.0), "{result:?}");
}

#[test]
fn what_is_kept_is_not_overwritten() {
    let device = Pjrt.open(1);
    let update = program(&device, UPDATE);
    let array = upload_numbers(&device, &[1024], |_| 1.0);
    let lent = Lent {
        array: &*array,
        keep: Box::new(Arc::clone(&array)),
    };
    let outputs = device.run_calling_back(&update, 0, vec![lent], &[0], increment());
    let outputs = outputs.expect("it runs");
    assert_ne!(
        device.host_address(&outputs[0]),
        device.host_address(&array)
    );
    assert_eq!(read_numbers(&device, &outputs[0], &[1024])[1023], 3.0);
    assert_eq!(read_numbers(&device, &array, &[1024])[1023], 1.0);
}

/// Counts those that live.
struct Counted {
    _array: Arc<PjrtArray>,
    alive: Arc<AtomicUsize>,
}

impl Counted {
    fn new(array: &Arc<PjrtArray>, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self {
            _array: Arc::clone(array),
            alive: Arc::clone(alive),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A training loop that prints: what earlier steps were given is not kept by the array that goes
/// through all of them.
#[test]
fn an_array_that_is_donated_again_and_again_keeps_nothing_of_the_past() {
    let device = Pjrt.open(1);
    let update = program(&device, UPDATE);
    let zero = function(|_, _, results| {
        put(&results[0], &[0.0; 1024]);
        Ok(())
    });
    let alive = Arc::new(AtomicUsize::new(0));
    let mut array = upload_numbers(&device, &[1024], |_| 1.0);
    let mut most = 0;
    for _ in 0..1_000 {
        let lent = Lent {
            array: &*array,
            keep: Box::new(Counted::new(&array, &alive)),
        };
        let outputs = device.run_calling_back(&update, 0, vec![lent], &[], Arc::clone(&zero));
        array = Arc::new(outputs.expect("it runs").pop().expect("one output"));
        most = most.max(alive.load(Ordering::SeqCst));
    }
    assert!(most <= 4, "{most} of the steps' arguments were kept");
    assert_eq!(read_numbers(&device, &array, &[1024]), [1.0; 1024]);
}

#[test]
fn arguments_and_outputs_are_let_go() {
    let device = Pjrt.open(1);
    let twice = program(&device, TWICE);
    let (memory, gone) = host(&floats(&[4], |_| 1.0), true);
    let array = device.upload(memory, &shape(F32, &[4]), FIRST);
    let array = Arc::new(array.expect("there is room"));
    let alive = Arc::new(AtomicUsize::new(0));
    let lent = Lent {
        array: &*array,
        keep: Box::new(Counted::new(&array, &alive)),
    };
    let outputs = device.run_calling_back(&twice, 0, vec![lent], &[], increment());
    let outputs = outputs.expect("it runs");
    drop(array);
    wait(&gone);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert_eq!(read_numbers(&device, &outputs[0], &[4]), [4.0; 4]);
}

// At the same time.

#[test]
fn two_of_one_lane_run_side_by_side() {
    let device = &Pjrt.open(1);
    let twice = &program(device, TWICE);
    // Each call waits for the other's.
    let (one, other) = (sync_channel(1), sync_channel(1));
    let ends = [(one.0, other.1), (other.0, one.1)];
    std::thread::scope(|scope| {
        for (tells, hears) in ends {
            scope.spawn(move || {
                let hears = Mutex::new(hears);
                let callbacks = function(move |_, operands, results| {
                    tells.send(()).expect("the other listens");
                    wait(&hears.lock().expect("no panic"));
                    put(&results[0], &numbers(&operands[0]));
                    Ok(())
                });
                let array = upload_numbers(device, &[4], |_| 1.0);
                let outputs = run(device, twice, &[&array], callbacks).expect("it runs");
                assert_eq!(read_numbers(device, &outputs[0], &[4]), [2.0; 4]);
            });
        }
    });
}

#[test]
fn a_function_may_run_programs_itself() {
    let device = Arc::new(Pjrt.open(1));
    let twice = Arc::new(program(&device, TWICE));
    let plain = Arc::new(Pjrt.program(&device, Sample::Increment));
    let inner = {
        let (device, twice) = (Arc::clone(&device), Arc::clone(&twice));
        function(move |_, operands, results| {
            let first = numbers(&operands[0])[0];
            // On the lane of the launch that waits.
            let array = upload_f32(&*device, &[4, 4], |_| first);
            let (outputs, _) = launch(&*device, &plain, &[&array]);
            let more = read_numbers(&device, &outputs[0], &[4, 4])[0];
            // And one that calls back itself.
            let array = upload_numbers(&device, &[4], |_| more);
            let outputs = run(&device, &twice, &[&array], increment())?;
            put(&results[0], &read_numbers(&device, &outputs[0], &[4]));
            Ok(())
        })
    };
    let array = upload_numbers(&device, &[4], |_| 1.0);
    let outputs = run(&device, &twice, &[&array], inner).expect("it runs");
    // ((1 + 1) + 1) * 2 * 2
    assert_eq!(read_numbers(&device, &outputs[0], &[4]), [12.0; 4]);
}

#[test]
fn more_than_may_wait_at_the_same_time_are_refused() {
    const MOST: usize = 32;
    let device = &Pjrt.open(2);
    let twice = &program(device, TWICE);
    let (told, outcomes) = channel();
    let (entered, calls) = channel();
    let gate = &Arc::new(Mutex::new(()));
    let closed = gate.lock().expect("no panic");
    std::thread::scope(|scope| {
        for _ in 0..MOST + 4 {
            let (told, entered, gate) = (told.clone(), entered.clone(), Arc::clone(gate));
            scope.spawn(move || {
                let callbacks = function(move |_, operands, results| {
                    entered.send(()).expect("somebody counts");
                    drop(gate.lock().expect("no panic"));
                    put(&results[0], &numbers(&operands[0]));
                    Ok(())
                });
                let array = upload_numbers(device, &[4], |_| 1.0);
                let outcome = run(device, twice, &[&array], callbacks);
                let outcome = outcome.map(|outputs| read_numbers(device, &outputs[0], &[4]));
                told.send(outcome).expect("somebody counts");
            });
        }
        // While as many as may wait do so, others are told so.
        for _ in 0..MOST {
            wait(&calls);
        }
        for _ in 0..4 {
            let refused = wait(&outcomes).expect_err("too many");
            assert_eq!(refused.code, RESOURCE_EXHAUSTED);
            assert!(refused.message.starts_with("32 launches"), "{refused}");
        }
        drop(closed);
        for _ in 0..MOST {
            assert_eq!(wait(&outcomes), Ok(vec![2.0; 4]));
        }
    });
    let array = upload_numbers(device, &[4], |_| 1.0);
    run(device, twice, &[&array], increment()).expect("there is room again");
}
