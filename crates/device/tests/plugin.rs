//! What only the real device can get wrong: signatures, layouts and options of real programs.

mod common;

use common::*;
use salus_device::{Compiled, Device, HeapMemory, PjrtConfig, PjrtDevice, ReadForm, Shape, Source};
use salus_formats::options;

/// See `src/options/tests.rs`.
const JAX: &[u8] = include_bytes!("../../formats/corpus/options/jax_0.10.2.bin");

fn compile(device: &PjrtDevice, code: &str, options: &[u8]) -> Compiled {
    let source = Source {
        format: "mlir",
        code: code.as_bytes(),
        options,
    };
    device
        .compile(&source)
        .unwrap_or_else(|error| panic!("{error}\n{code}"))
}

fn rebuilt(claim: &[u8]) -> Vec<u8> {
    options::rebuild(claim, &[]).expect("harmless options")
}

#[test]
fn the_device_is_described() {
    let device = Pjrt.open(1);
    let description = device.description();
    assert_eq!(description.platform_name, "cpu");
    assert_eq!(description.lanes, 1);
    assert!(description.on_host);
    assert!(
        description.capacity_bytes > 1 << 30,
        "{}",
        description.capacity_bytes
    );
    assert_eq!(description.api_version.0, 0);
    assert!(description.serialized_topology.is_some());
    let kinds: Vec<&str> = description
        .memories
        .iter()
        .map(|memory| &*memory.kind)
        .collect();
    assert!(
        kinds.contains(&"device") && kinds.contains(&"pinned_host"),
        "{kinds:?}"
    );
    let default = &description.memories[description.default_memory as usize];
    assert_eq!(default.kind, "device");
    let attributes = &description.plugin_attributes;
    assert!(
        attributes
            .iter()
            .any(|(name, _)| name == "stablehlo_current_version")
    );
}

#[test]
fn a_missing_or_foreign_plugin_is_an_error_that_names_it() {
    let open = |plugin: std::path::PathBuf| {
        let config = PjrtConfig {
            plugin,
            options: Vec::new(),
            capacity_bytes: None,
            lanes: 1,
            lapack: None,
            ..PjrtConfig::default()
        };
        PjrtDevice::open(&config)
            .err()
            .expect("it is no plugin")
            .message
    };
    assert!(open("/nowhere/x.so".into()).contains("/nowhere/x.so"));
    let text = std::env::temp_dir().join(format!("salus-no-plugin-{}.so", std::process::id()));
    std::fs::write(&text, "no library").expect("the temporary directory is writable");
    let message = open(text.clone());
    std::fs::remove_file(&text).expect("it is ours");
    assert!(message.contains("cannot open the plugin"), "{message}");
}

#[test]
fn signatures_tell_donation_output_by_output() {
    let device = Pjrt.open(1);
    let code = "module @many { func.func public @main(
          %a: tensor<8xf32> {tf.aliasing_output = 1 : i32},
          %b: tensor<8xi32>,
          %c: tensor<3xf32> {jax.buffer_donor = true})
        -> (tensor<8xi32>, tensor<8xf32>, tensor<f32>, tensor<2x8xbf16>) {
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %x = stablehlo.add %a, %a : tensor<8xf32>
          %y = stablehlo.add %b, %b : tensor<8xi32>
          %s = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [0]
            : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
          %h = stablehlo.convert %a : (tensor<8xf32>) -> tensor<8xbf16>
          %w = stablehlo.broadcast_in_dim %h, dims = [1] : (tensor<8xbf16>) -> tensor<2x8xbf16>
          return %y, %x, %s, %w
            : tensor<8xi32>, tensor<8xf32>, tensor<f32>, tensor<2x8xbf16> } }";
    let signature = compile(&device, code, &rebuilt(&[])).signature;
    assert_eq!(
        signature.parameters,
        [shape(F32, &[8]), shape(S32, &[8]), shape(F32, &[3])]
    );
    let outputs: Vec<&Shape> = signature
        .outputs
        .iter()
        .map(|output| &output.shape)
        .collect();
    let expected = [
        shape(S32, &[8]),
        shape(F32, &[8]),
        shape(F32, &[]),
        shape(BF16, &[2, 8]),
    ];
    assert_eq!(outputs, expected.iter().collect::<Vec<_>>());
    let aliases: Vec<_> = signature
        .outputs
        .iter()
        .map(|output| output.aliases)
        .collect();
    assert_eq!(aliases, [None, Some(0), None, None]);
    // Parameter 2 was offered, but no output fits: it is not donated.
    assert_eq!(signature.donated, [0]);
    assert!(!signature.optimized_program.is_empty());
    assert!(signature.cost.iter().any(|(name, _)| name == "flops"));
}

#[test]
fn programs_with_their_own_layouts_run_right() {
    let device = Pjrt.open(1);
    let code = r#"module @turned { func.func public @main(
          %a: tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"})
        -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}) {
          %r = stablehlo.add %a, %a : tensor<2x3xf32>
          return %r : tensor<2x3xf32> } }"#;
    let compiled = compile(&device, code, &rebuilt(JAX));
    let turned = Shape {
        minor_to_major: Some(vec![0, 1]),
        ..shape(F32, &[2, 3])
    };
    assert_eq!(compiled.signature.parameters, std::slice::from_ref(&turned));
    assert_eq!(compiled.signature.outputs[0].shape, turned);
    assert_eq!(compiled.signature.outputs[0].layout_text, "{0,1}");
    let program = device.load(&compiled).expect("it is loadable");
    let array = upload(&device, &turned, &floats(&[2, 3], |index| index as f32));
    let (outputs, _) = launch(&device, &program, &[&array]);
    let doubled = floats(&[2, 3], |index| 2.0 * index as f32);
    assert_eq!(read(&device, &outputs[0], &turned), doubled);
    let raw = try_read(&device, &outputs[0], &ReadForm::Raw, 24).expect("it is there");
    assert_ne!(raw, doubled, "on the device the columns are dense");
}

/// A convolution: what XLA makes of it depends on many options.
const CONVOLUTION: &str = "module @convolution { func.func public @main(
      %image: tensor<8x28x28x16xf32>, %kernel: tensor<3x3x16x32xf32>)
    -> (tensor<8x28x28x32xf32>, tensor<f32>) {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %c = stablehlo.convolution(%image, %kernel)
          dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
          window = {stride = [1, 1], pad = [[1, 1], [1, 1]]}
          {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<8x28x28x16xf32>, tensor<3x3x16x32xf32>) -> tensor<8x28x28x32xf32>
      %t = stablehlo.tanh %c : tensor<8x28x28x32xf32>
      %e = stablehlo.exponential %t : tensor<8x28x28x32xf32>
      %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0, 1, 2, 3]
        : (tensor<8x28x28x32xf32>, tensor<f32>) -> tensor<f32>
      return %e, %s : tensor<8x28x28x32xf32>, tensor<f32> } }";

#[test]
fn rebuilt_options_give_the_bits_of_jax_own() {
    let device = Pjrt.open(1);
    let run = |options: &[u8]| {
        let compiled = compile(&device, CONVOLUTION, options);
        let program = device.load(&compiled).expect("it is loadable");
        let parameters = &compiled.signature.parameters;
        let arrays: Vec<_> = parameters
            .iter()
            .map(|shape| upload_f32(&device, &shape.dims, |index| (index as f32).sin()))
            .collect();
        let (outputs, _) = launch(&device, &program, &arrays.iter().collect::<Vec<_>>());
        let shapes = compiled
            .signature
            .outputs
            .iter()
            .map(|output| &output.shape);
        let bits: Vec<Vec<u8>> = outputs
            .iter()
            .zip(shapes)
            .map(|(output, shape)| read(&device, output, shape))
            .collect();
        (bits, compiled.signature.memory)
    };
    assert_eq!(run(&rebuilt(JAX)), run(JAX));
}

#[test]
fn what_does_not_fit_is_an_error_at_the_launch() {
    let device = Pjrt.open(1);
    let code =
        "module @huge { func.func public @main(%a: tensor<f32>) -> tensor<8796093022208xf32> {
          %r = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<8796093022208xf32>
          return %r : tensor<8796093022208xf32> } }";
    let compiled = compile(&device, code, &rebuilt(&[]));
    let program = device.load(&compiled).expect("it is loadable");
    let array = upload_f32(&device, &[], |_| 1.0);
    let (ended, has_ended) = done();
    let failure = match device.launch(&program, 0, &[&array], &[], ended) {
        Err(refused) => refused,
        Ok(outputs) => {
            let failure = wait(&has_ended).expect_err("32 TiB do not fit");
            let poisoned = try_read(&device, &outputs[0], &ReadForm::Raw, 0);
            assert!(poisoned.is_err());
            failure
        }
    };
    assert!(
        failure.message.to_lowercase().contains("memory"),
        "{failure}"
    );
    let small = Pjrt.program(&device, Sample::Increment);
    let array = upload_f32(&device, &[4, 4], |_| 1.0);
    let (outputs, ended) = launch(&device, &small, &[&array]);
    assert_eq!(wait(&ended), Ok(()), "others are well");
    drop(outputs);
}

#[test]
fn arrays_without_elements_need_no_address() {
    let device = Pjrt.open(1);
    let nowhere = Box::new(HeapMemory::zeroed(0));
    let empty = shape(F32, &[0, 4]);
    let array = device
        .upload(nowhere, &empty, FIRST)
        .expect("nothing has room");
    assert_eq!(device.array_bytes(&array), 0);
    assert_eq!(read(&device, &array, &empty), [0u8; 0]);
}

// ---------------------------------------------------------------- programs that must not run

fn refused(code: &str) -> salus_device::Error {
    let device = Pjrt.open(1);
    let source = Source {
        format: "mlir",
        code: code.as_bytes(),
        options: &rebuilt(JAX),
    };
    match device.compile(&source) {
        Ok(_) => panic!("it was compiled:\n{code}"),
        Err(error) => error,
    }
}

#[test]
fn sizes_known_at_run_time_are_refused() {
    let code = "module { func.func @main(%a: tensor<1024xi32>, %n: tensor<i32>)
        -> tensor<?xi32, #stablehlo.bounds<1024>> {
        %0 = stablehlo.set_dimension_size %a, %n, dim = 0
          : (tensor<1024xi32>, tensor<i32>) -> tensor<?xi32, #stablehlo.bounds<1024>>
        return %0 : tensor<?xi32, #stablehlo.bounds<1024>> } }";
    let error = refused(code);
    assert!(error.message.contains("known only when it runs"), "{error}");
    assert!(error.hint.is_some(), "{error}");
}

#[test]
fn infeeds_and_outfeeds_are_refused() {
    let infeed = "module { func.func @main() -> tensor<4xf32> {
        %t = stablehlo.create_token : !stablehlo.token
        %0:2 = \"stablehlo.infeed\"(%t) {infeed_config = \"\", layout = [[0]]}
          : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
        return %0#0 : tensor<4xf32> } }";
    let outfeed = "module { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
        %t = stablehlo.create_token : !stablehlo.token
        %0 = \"stablehlo.outfeed\"(%a, %t) {outfeed_config = \"\"}
          : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
        return %a : tensor<4xf32> } }";
    for (code, what) in [(infeed, "is an infeed"), (outfeed, "is an outfeed")] {
        let error = refused(code);
        assert!(error.message.contains(what), "{error}");
        assert!(error.message.contains("would wait forever"), "{error}");
    }
}

#[test]
fn absent_replicas_are_refused() {
    let permute = "module { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
        %0 = \"stablehlo.collective_permute\"(%a) {
          source_target_pairs = dense<[[1, 0]]> : tensor<1x2xi64>}
          : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32> } }";
    let error = refused(permute);
    assert!(error.message.contains("names replica 1"), "{error}");
}

fn top_k(rows: u32, columns: u32, kept: u32, k: u32, places: &str) -> String {
    format!(
        "module {{ func.func @main(%a: tensor<{rows}x{columns}xf32>)
            -> (tensor<{kept}x{k}xf32>, tensor<{kept}x{k}x{places}>) {{
            %0:2 = stablehlo.custom_call @TopK(%a) {{called_computations = [@greater]}}
              : (tensor<{rows}x{columns}xf32>) -> (tensor<{kept}x{k}xf32>, tensor<{kept}x{k}x{places}>)
            return %0#0, %0#1 : tensor<{kept}x{k}xf32>, tensor<{kept}x{k}x{places}> }}
          func.func private @greater(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>)
            -> tensor<i1> {{
            %r = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
            return %r : tensor<i1> }} }}"
    )
}

#[test]
fn a_custom_call_whose_results_do_not_fit_is_refused() {
    // More columns than there are, rows that nobody writes, too few rows, and numbers too small.
    for (rows, columns, kept, k, places) in [
        (1, 16, 1, 4096, "i32"),
        (4, 16, 4000, 4, "i32"),
        (4000, 16, 4, 4, "i32"),
        (4, 16, 4, 4, "i8"),
    ] {
        let error = refused(&top_k(rows, columns, kept, k, places));
        assert!(error.message.contains("do not fit its operand"), "{error}");
    }
}

#[test]
fn a_custom_call_whose_results_fit_is_answered_by_the_plugin() {
    let device = Pjrt.open(1);
    let compiled = compile(&device, &top_k(2, 16, 2, 3, "i32"), &rebuilt(JAX));
    let program = device.load(&compiled).expect("it can be loaded");
    let array = upload_f32(&device, &[2, 16], |index| index as f32);
    let (outputs, _) = launch(&device, &program, &[&array]);
    let values = read(&device, &outputs[0], &shape(F32, &[2, 3]));
    let expected: Vec<u8> = [15.0f32, 14.0, 13.0, 31.0, 30.0, 29.0]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    assert_eq!(values, expected);
}

#[test]
fn collectives_return_what_they_are_given() {
    let collective = |operation: &str, from: &str, to: &str| {
        format!(
            "module {{ func.func @main(%a: tensor<{from}>) -> tensor<{to}> {{
            %0 = \"stablehlo.{operation}, replica_groups = dense<[[0]]> : tensor<1x1xi64>}}
              : (tensor<{from}>) -> tensor<{to}>
            return %0 : tensor<{to}> }} }}"
        )
    };
    let gather = "all_gather\"(%a) {all_gather_dim = 0 : i64";
    let exchange = "all_to_all\"(%a) {split_dimension = 0 : i64, concat_dimension = 0 : i64, \
                    split_count = 1 : i64";
    // Half of it was what lay in memory before.
    let error = refused(&collective(gather, "8xf32", "16xf32"));
    assert!(
        error.message.contains("other sizes than it is given"),
        "{error}"
    );
    let device = Pjrt.open(1);
    for operation in [gather, exchange] {
        let code = collective(operation, "8xf32", "8xf32");
        let compiled = compile(&device, &code, &rebuilt(JAX));
        let program = device.load(&compiled).expect("it can be loaded");
        let array = upload_f32(&device, &[8], |index| index as f32);
        let (outputs, _) = launch(&device, &program, &[&array]);
        let same = floats(&[8], |index| index as f32);
        assert_eq!(read(&device, &outputs[0], &shape(F32, &[8])), same);
    }
}

/// Both wrote behind their arrays, which the heap noticed later.
#[test]
fn elements_that_share_a_byte_are_not_sorted_and_not_exchanged() {
    let exchange = "module { func.func @main(%a: tensor<16x129xi2>) -> tensor<16x129xi2> {
        %0 = \"stablehlo.all_to_all\"(%a) {split_dimension = 0 : i64, concat_dimension = 0 : i64,
          split_count = 1 : i64, replica_groups = dense<[[0]]> : tensor<1x1xi64>}
          : (tensor<16x129xi2>) -> tensor<16x129xi2>
        return %0 : tensor<16x129xi2> } }";
    let sort = "module { func.func @main(%a: tensor<100xi2>) -> tensor<100xi2> {
        %0 = \"stablehlo.sort\"(%a) ({
          ^bb0(%x: tensor<i2>, %y: tensor<i2>):
            %r = stablehlo.compare LT, %x, %y : (tensor<i2>, tensor<i2>) -> tensor<i1>
            stablehlo.return %r : tensor<i1>
        }) {dimension = 0 : i64, is_stable = true} : (tensor<100xi2>) -> tensor<100xi2>
        return %0 : tensor<100xi2> } }";
    for code in [exchange, sort] {
        let error = refused(code);
        assert!(error.message.contains("share a byte"), "{error}");
    }
}

/// Sorts keys with a comparator that is no order, beside numbers that are moved with them.
fn sort(compare: &str) -> String {
    format!(
        "module {{ func.func @main(%k: tensor<4096xi32>, %v: tensor<4096xi32>)
            -> (tensor<4096xi32>, tensor<4096xi32>) {{
            %0:2 = \"stablehlo.sort\"(%k, %v) ({{
              ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>, %d: tensor<i32>):
                {compare}
                stablehlo.return %r : tensor<i1>
            }}) {{dimension = 0 : i64, is_stable = false}}
              : (tensor<4096xi32>, tensor<4096xi32>) -> (tensor<4096xi32>, tensor<4096xi32>)
            return %0#0, %0#1 : tensor<4096xi32>, tensor<4096xi32> }} }}"
    )
}

#[test]
fn a_sort_stays_in_its_array_whatever_its_comparator_says() {
    let device = Pjrt.open(1);
    let less = "%r = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>";
    let not_greater = less.replace("LT", "LE");
    let always = "%r = stablehlo.constant dense<true> : tensor<i1>";
    let keys: Vec<i32> = (0..4096).map(|n| n * 7919 % 16).collect();
    let values: Vec<i32> = (0..4096).collect();
    for compare in [less, &not_greater, always] {
        let compiled = compile(&device, &sort(compare), &rebuilt(JAX));
        let program = device.load(&compiled).expect("it can be loaded");
        let list = shape(S32, &[4096]);
        let arrays = [&keys, &values].map(|ints| {
            let bytes: Vec<u8> = ints.iter().flat_map(|n| n.to_le_bytes()).collect();
            upload(&device, &list, &bytes)
        });
        let (outputs, _) = launch(&device, &program, &arrays.iter().collect::<Vec<_>>());
        let outputs: Vec<Vec<i32>> = outputs
            .iter()
            .map(|output| {
                let bytes = read(&device, output, &list);
                let ints = bytes.chunks_exact(4);
                ints.map(|four| i32::from_le_bytes(four.try_into().expect("four")))
                    .collect()
            })
            .collect();
        // Each key is still with its number, and nothing came in from outside.
        let mut pairs: Vec<(i32, i32)> =
            outputs[1].iter().copied().zip(outputs[0].clone()).collect();
        pairs.sort_unstable();
        let expected: Vec<(i32, i32)> = values.iter().copied().zip(keys.clone()).collect();
        assert_eq!(pairs, expected, "{compare}");
        if compare == less {
            assert!(outputs[0].is_sorted(), "{:?}", outputs[0]);
        }
    }
}

/// The copies that XLA makes for results like these once ended the compiler.
#[test]
fn a_program_that_sorts_may_return_what_it_was_given() {
    let device = Pjrt.open(1);
    let code = "module { func.func @main(%a: tensor<64xi32> {tf.aliasing_output = 1 : i32}, %b: tensor<64xi32>)
        -> (tensor<64xi32>, tensor<64xi32>, tensor<64xi32>) {
        %0 = \"stablehlo.sort\"(%a) ({
          ^bb0(%x: tensor<i32>, %y: tensor<i32>):
            %r = stablehlo.compare LT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %r : tensor<i1>
        }) {dimension = 0 : i64, is_stable = false} : (tensor<64xi32>) -> tensor<64xi32>
        return %b, %0, %b : tensor<64xi32>, tensor<64xi32>, tensor<64xi32> } }";
    let compiled = compile(&device, code, &rebuilt(JAX));
    assert_eq!(compiled.signature.outputs[1].aliases, Some(0));
    let program = device.load(&compiled).expect("it can be loaded");
    let list = shape(S32, &[64]);
    let ints =
        |numbers: Vec<i32>| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let falling = ints((0..64).rev().collect());
    let squares = ints((0..64).map(|n| n * n).collect());
    let arrays = [&falling, &squares].map(|bytes| upload(&device, &list, bytes));
    let (outputs, _) = launch(&device, &program, &arrays.iter().collect::<Vec<_>>());
    let outputs: Vec<Vec<u8>> = outputs
        .iter()
        .map(|output| read(&device, output, &list))
        .collect();
    assert_eq!(outputs, [squares.clone(), ints((0..64).collect()), squares]);
}
