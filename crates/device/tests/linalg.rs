//! Linear algebra on the real device: the plugin takes our handlers, they compute, and nothing that
//! a program says of its arrays brings them down.

mod common;

use common::*;
use salus_device::{Device, Error, PjrtDevice, ReadForm, Source, linalg_targets};
use salus_formats::options;

/// A program whose only operation is this custom call, with its operands as parameters.
fn custom_call(target: &str, attributes: &str, operands: &[&str], results: &[&str]) -> String {
    let list = |items: &[String]| items.join(", ");
    let numbered = |n: usize, prefix: &str| -> Vec<String> {
        (0..n).map(|i| format!("{prefix}{i}")).collect()
    };
    let names = numbered(operands.len(), "%a");
    let typed = |item: (&String, &&str)| format!("{}: tensor<{}>", item.0, item.1);
    let parameters: Vec<String> = names.iter().zip(operands).map(typed).collect();
    let types = |types: &[&str]| -> Vec<String> {
        types.iter().map(|text| format!("tensor<{text}>")).collect()
    };
    let (operand_types, result_types) = (types(operands), types(results));
    let returned = match results.len() {
        1 => vec!["%r".to_owned()],
        n => numbered(n, "%r#"),
    };
    format!(
        "module @call {{ func.func public @main({}) -> ({}) {{
           %r{} = stablehlo.custom_call @{target}({})
             {{api_version = 4 : i32, backend_config = {{{attributes}}}}} : ({}) -> ({})
           return {} : {} }} }}",
        list(&parameters),
        list(&result_types),
        if results.len() == 1 {
            String::new()
        } else {
            format!(":{}", results.len())
        },
        list(&names),
        list(&operand_types),
        list(&result_types),
        list(&returned),
        list(&result_types),
    )
}

/// Runs such a program on ones; the bytes of its results.
fn run(device: &PjrtDevice, code: &str) -> Result<Vec<Vec<u8>>, Error> {
    let options = options::rebuild(&[], &[]).expect("no options are options");
    let source = Source {
        format: "mlir",
        code: code.as_bytes(),
        options: &options,
    };
    let compiled = device
        .compile(&source)
        .unwrap_or_else(|error| panic!("{error}\n{code}"));
    let program = device.load(&compiled).expect("it is loadable");
    let parameters = compiled.signature.parameters.iter();
    let arrays: Vec<_> = parameters
        .map(|shape| {
            let len = salus_device::host_bytes(shape).expect("a small array");
            let ones = match shape.element_type {
                F64 => 1.0_f64.to_le_bytes().repeat(len / 8),
                _ => 1.0_f32.to_le_bytes().repeat(len / 4),
            };
            upload(device, shape, &ones)
        })
        .collect();
    let arguments: Vec<_> = arrays.iter().collect();
    let (ended, has_ended) = done();
    // What the plugin runs inline fails at once.
    let outputs = device.launch(&program, 0, &arguments, &[], ended)?;
    wait(&has_ended)?;
    let bytes = |array| device.array_bytes(array) as usize;
    let read = |array| try_read(device, array, &ReadForm::Raw, bytes(array));
    outputs.iter().map(read).collect()
}

#[test]
fn the_plugin_takes_every_handler_and_each_refuses_what_it_does_not_take() {
    let device = Pjrt.open(1);
    assert_eq!(linalg_targets().count(), 62, "as many as JAX has");
    for target in linalg_targets() {
        let code = custom_call(target, "", &["f32"], &["f32"]);
        let refused = run(&device, &code).expect_err("no routine has one number and gives one");
        assert_eq!(refused.code, INVALID_ARGUMENT, "{refused}");
        assert!(refused.message.contains(target), "{refused}");
        assert!(
            refused.message.contains("1 operands and 1 results"),
            "{refused}"
        );
    }
}

/// `'L'` as JAX writes it.
const LOWER: &str = "uplo = 76 : ui8";

#[test]
fn matrices_are_factored_one_by_one() {
    let device = Pjrt.open(1);
    let code = custom_call(
        "lapack_dpotrf_ffi",
        LOWER,
        &["3x1x1xf64"],
        &["3x1x1xf64", "3xi32"],
    );
    let results = run(&device, &code).expect("ones are positive");
    assert_eq!(results, [1.0_f64.to_le_bytes().repeat(3), vec![0; 12]]);
    let code = custom_call(
        "lapack_spotrf_ffi",
        LOWER,
        &["2x2x2xf32"],
        &["2x2x2xf32", "2xi32"],
    );
    let results = run(&device, &code).expect("that a matrix has no factor is its info");
    assert_eq!(
        results[1],
        2_i32.to_le_bytes().repeat(2),
        "the second step fails"
    );
}

#[test]
fn results_that_are_not_computed_hold_nothing_of_what_was_there() {
    let device = Pjrt.open(1);
    let dirty = "module @dirty { func.func public @main(%a: tensor<64x64xf32>)
        -> (tensor<64x64xf32>, tensor<64x64xf32>) {
          %r = stablehlo.add %a, %a : tensor<64x64xf32>
          %s = stablehlo.add %r, %a : tensor<64x64xf32>
          return %r, %s : tensor<64x64xf32>, tensor<64x64xf32> } }";
    run(&device, dirty).expect("a sum");
    let matrix = "64x64xf32";
    let results = [matrix, "64xf32", matrix, matrix, "i32"];
    let code = custom_call("lapack_sgesdd_ffi", "mode = 78 : ui8", &[matrix], &results);
    let results = run(&device, &code).expect("singular values of ones");
    assert_eq!(results[2..4], [vec![0; 4 * 64 * 64], vec![0; 4 * 64 * 64]]);
}

/// Target, attributes, operands, results, expected.
type Claim = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

/// What a program claims, and a part of what it is told. What is too large is empty as well, and has
/// a result that is not: calls with nothing to do are not made.
const CLAIMS: &[Claim] = &[
    (
        "lapack_spotrf_ffi",
        LOWER,
        &["4x3xf32"],
        &["4x3xf32", "i32"],
        "4 by 3 and should be square",
    ),
    (
        "lapack_spotrf_ffi",
        LOWER,
        &["4xf32"],
        &["4xf32", "i32"],
        "operand 0 has shape [4] and should be a matrix",
    ),
    (
        "lapack_spotrf_ffi",
        LOWER,
        &["4x4xf32"],
        &["2x2xf32", "i32"],
        "result 0 has shape [2, 2] and should have [4, 4]",
    ),
    (
        "lapack_spotrf_ffi",
        LOWER,
        &["4x4xf32"],
        &["4x4xf32", "7xi32"],
        "result 1 has shape [7] and should have []",
    ),
    (
        "lapack_spotrf_ffi",
        LOWER,
        &["5x4x4xf32"],
        &["5x4x4xf32", "4xi32"],
        "result 1 has shape [4] and should have [5]",
    ),
    (
        "lapack_spotrf_ffi",
        LOWER,
        &["4x4xf64"],
        &["4x4xf64", "i32"],
        "operand 0 has elements of type 12 and should have 11",
    ),
    (
        "lapack_spotrf_ffi",
        LOWER,
        &["4x4xf32"],
        &["4x4xf32", "f32"],
        "result 1 has elements of type 11 and should have 4",
    ),
    (
        "lapack_spotrf_ffi",
        "",
        &["4x4xf32"],
        &["4x4xf32", "i32"],
        "lacks its attribute `uplo`",
    ),
    (
        "lapack_spotrf_ffi",
        "uplo = 77 : ui8",
        &["4x4xf32"],
        &["4x4xf32", "i32"],
        "attribute `uplo` is 77 and should be one of the letters LU",
    ),
    (
        "lapack_spotrf_ffi",
        "uplo = \"L\"",
        &["4x4xf32"],
        &["4x4xf32", "i32"],
        "`uplo`",
    ),
    (
        "lapack_spotrf_ffi",
        LOWER,
        &["0x4294967296x4294967296xf32"],
        &["0x4294967296x4294967296xf32", "i32"],
        "LAPACK's limit is 2147483647 rows or columns",
    ),
    (
        "lapack_cgesdd_ffi",
        "mode = 65 : ui8",
        &["0x50000x40000xcomplex<f32>"],
        &[
            "0x50000x40000xcomplex<f32>",
            "0x40000xf32",
            "0x50000x50000xcomplex<f32>",
            "0x40000x40000xcomplex<f32>",
            "i32",
        ],
        "too large for LAPACK",
    ),
    (
        "lapack_strsm_ffi",
        "side = 76 : ui8, uplo = 76 : ui8, trans_x = 78 : ui8, diag = 78 : ui8",
        &["3x3xf32", "4x3xf32"],
        &["4x3xf32"],
        "operand 0 has shape [3, 3] and should have [4, 4]",
    ),
    (
        "lapack_sorgqr_ffi",
        "",
        &["4x3xf32", "4xf32"],
        &["4x3xf32"],
        "4 reflections make no 4 by 3 matrix",
    ),
    (
        "lapack_sorgqr_ffi",
        "",
        &["3x4xf32", "2xf32"],
        &["3x4xf32"],
        "2 reflections make no 3 by 4 matrix",
    ),
    (
        "lapack_sormqr_ffi",
        "left = true, transpose = false",
        &["4x2xf32", "3xf32", "4x5xf32"],
        &["4x5xf32"],
        "3 reflections, but their matrix has 2 columns and Q has order 4",
    ),
    (
        "lapack_sgehrd_ffi",
        "low = 1 : i32, high = 5 : i32",
        &["4x4xf32"],
        &["4x4xf32", "3xf32", "i32"],
        "rows 1 to 5 are not within 1 to 4",
    ),
    (
        "lapack_sgees_ffi",
        "mode = 86 : ui8, sort = 83 : ui8",
        &["2x2xf32"],
        &["2x2xf32", "2x2xf32", "2xf32", "2xf32", "i32", "i32"],
        "attribute `sort` is 83",
    ),
    (
        "lapack_sgesdd_ffi",
        "mode = 79 : ui8",
        &["2x2xf32"],
        &["2x2xf32", "2xf32", "2x2xf32", "2x2xf32", "i32"],
        "attribute `mode` is 79",
    ),
    (
        "lapack_sgtsv_ffi",
        "",
        &["3xf32", "4xf32", "4xf32", "4x1xf32"],
        &["3xf32", "4xf32", "4xf32", "4x1xf32", "i32"],
        "operand 0 has shape [3] and should have [4]",
    ),
    (
        "tridiagonal_solve_perturbed_ffi",
        "",
        &["4xi32", "4xi32", "4xi32", "4x1xi32"],
        &["4x1xi32"],
        "operand 0 has elements of type 4",
    ),
    (
        "cpu_csr_sparse_dense_ffi",
        "",
        &["2xf32", "3xi32", "2xi32", "4xf64"],
        &["2xf32"],
        "operand 3 has elements of type 12 and should have 11",
    ),
    (
        "cpu_csr_sparse_dense_ffi",
        "",
        &["2xf32", "3xi32", "2xi32", "4x3xf32"],
        &["3x3xf32"],
        "result 0 has shape [3, 3] and should have [2, 3]",
    ),
    (
        "cpu_csr_sparse_dense_ffi",
        "",
        &["2xf32", "3xi32", "2xi32", "4xf32"],
        &["2xf32"],
        // The bits of ones, read as integers.
        "its index 0 is not below 3",
    ),
];

#[test]
fn what_a_program_claims_is_checked() {
    let device = Pjrt.open(1);
    for (target, attributes, operands, results, expected) in CLAIMS {
        let code = custom_call(target, attributes, operands, results);
        let refused = run(&device, &code).expect_err(expected);
        assert_eq!(refused.code, INVALID_ARGUMENT, "{refused}");
        assert!(refused.message.contains(target), "{refused}");
        assert!(refused.message.contains(expected), "{refused}");
    }
}
