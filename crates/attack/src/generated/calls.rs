//! Operations with somebody at the other end: collectives, custom calls, LAPACK, callbacks, tokens.

use super::*;

fn groups(b: &mut Builder) -> String {
    b.pick(&[
        "dense<[[0]]> : tensor<1x1xi64>",
        "dense<[[0]]> : tensor<1x1xi64>",
        "dense<[[0, 1]]> : tensor<1x2xi64>",
        "dense<[[0], [1]]> : tensor<2x1xi64>",
        "dense<[[1]]> : tensor<1x1xi64>",
        "dense<[[0, -1]]> : tensor<1x2xi64>",
        "dense<> : tensor<0x0xi64>",
        "dense<[[0, 0]]> : tensor<1x2xi64>",
        "dense<[[2147483647]]> : tensor<1x1xi64>",
    ])
    .to_owned()
}

pub(super) fn collective(b: &mut Builder) {
    let value = b.value(|value| value.rank() > 0, "f32", &[8]);
    let (name, ty) = (value.name.clone(), value.ty());
    let groups = groups(b);
    let channel = match b.random.u32(..4) {
        0 => ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>",
        1 => {
            ", channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>, use_global_device_ids"
        }
        _ => "",
    };
    let scalar = tensor(&value.element, &[]);
    let sum = format!(
        "({{\n    ^bb0(%x: {scalar}, %y: {scalar}):\n    %r = stablehlo.add %x, %y : {scalar}\n    \
         stablehlo.return %r : {scalar}\n  }})"
    );
    let mut dims = value.dims.clone();
    let line = match b.random.u32(..8) {
        0 => format!(
            "\"stablehlo.all_reduce\"({name}) {sum} {{replica_groups = {groups}{channel}}} : ({ty}) -> {ty}"
        ),
        1 => {
            dims[0] *= b.pick(&[1, 1, 2]);
            let to = tensor(&value.element, &dims);
            format!(
                "\"stablehlo.all_gather\"({name}) {{all_gather_dim = 0 : i64, replica_groups = {groups}{channel}}} : ({ty}) -> {to}"
            )
        }
        2 => format!(
            "\"stablehlo.all_to_all\"({name}) {{split_dimension = 0 : i64, concat_dimension = 0 : i64, \
             split_count = {} : i64, replica_groups = {groups}}} : ({ty}) -> {ty}",
            b.pick(&[1, 1, 2])
        ),
        3 => format!(
            "\"stablehlo.reduce_scatter\"({name}) {sum} {{scatter_dimension = 0 : i64, replica_groups = {groups}{channel}}} : ({ty}) -> {ty}"
        ),
        4 => format!(
            "\"stablehlo.collective_permute\"({name}) {{source_target_pairs = {}}} : ({ty}) -> {ty}",
            b.pick(&[
                "dense<[[0, 0]]> : tensor<1x2xi64>",
                "dense<[[1, 0]]> : tensor<1x2xi64>",
                "dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>",
                "dense<> : tensor<0x2xi64>",
                "dense<[[-1, 0]]> : tensor<1x2xi64>",
            ])
        ),
        5 => format!(
            "\"stablehlo.collective_broadcast\"({name}) {{replica_groups = {groups}}} : ({ty}) -> {ty}"
        ),
        6 => {
            b.result("stablehlo.replica_id : tensor<ui32>", "ui32", &[]);
            return;
        }
        _ => {
            b.result("stablehlo.partition_id : tensor<ui32>", "ui32", &[]);
            return;
        }
    };
    b.result(&line, &value.element, &dims);
}

const NAMES: &[&str] = &[
    "AllocateBuffer",
    "MoveToHost",
    "MoveToDevice",
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "SetBound",
    "SliceToDynamic",
    "PadToStatic",
    "memcpy",
    "system",
    "free",
    "malloc",
    "__onednn$matmul",
    "__onednn$layernorm",
    "__onednn$softmax",
    "TopK",
    "X64Combine",
    "X64SplitLow",
    "ConvertToDynamic",
    "Eigh",
    "QrDecomposition",
    "ProductOfElementaryHouseholderReflectors",
    "LuDecomposition",
    "xla_python_cpu_callback",
    "annotate_device_placement",
    "LayoutConstraint",
    "Pin",
    "Unpin",
    "CreateBuffer",
    "cu_threefry2x32",
    "blas_strsm",
    "lapack_sgetrf",
    "__xla_cpu_runtime_AllReduce",
    "inspect_sharding",
    "mhlo.erf",
    "tensor.copy",
    "NopReturnToken",
    "HostExecute",
    "__builtin$TopK",
    "Tan",
    "AllocateHostBuffer",
    "annotate_bias",
    "__topk",
    "shape_assertion",
];

pub(super) fn custom_call(b: &mut Builder) {
    let value = b.any();
    let target = b.pick(NAMES);
    let version = b.pick(&[1, 2, 3, 4]);
    let config = match version {
        4 => "backend_config = {k = 3 : i64, n = \"x\"}, ".to_owned(),
        _ => format!(
            "backend_config = \"{}\", ",
            b.pick(&["", "3", "{replicated}", "\\00\\ff"])
        ),
    };
    let extra = b.pick(&[
        "",
        "has_side_effect = true, ",
        "mhlo.sharding = \"{replicated}\", ",
    ]);
    let aliases = b.pick(&[
        "",
        ", output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]",
    ]);
    let (element, dims) = match b.chance(3) {
        true => (b.element(), b.dims()),
        false => (value.element.clone(), value.dims.clone()),
    };
    let line = format!(
        "\"stablehlo.custom_call\"({}) {{call_target_name = \"{target}\", {extra}{config}api_version = {version} : i32{aliases}}} : ({}) -> {}",
        value.name,
        value.ty(),
        tensor(&element, &dims)
    );
    b.result(&line, &element, &dims);
}

/// LAPACK as JAX calls it, nearly: attributes, shapes and counts are right or wrong by chance.
pub(super) fn lapack(b: &mut Builder) {
    let letter = b.pick(&["s", "d", "c", "z"]);
    let element = match letter {
        "s" => "f32",
        "d" => "f64",
        "c" => "complex<f32>",
        _ => "complex<f64>",
    };
    let real = if matches!(letter, "s" | "c") {
        "f32"
    } else {
        "f64"
    };
    let (m, n) = (b.pick(&[0, 1, 2, 3, 8, 20]), b.pick(&[0, 1, 3, 8, 20]));
    let batch: Vec<i64> = if b.chance(3) {
        vec![b.pick(&[0, 1, 3])]
    } else {
        vec![]
    };
    let small = m.min(n);
    let of = |dims: &[i64]| [batch.clone(), dims.to_vec()].concat();
    let flag = |b: &mut Builder| {
        format!(
            "{} : ui8",
            b.pick(&[76, 85, 78, 84, 67, 82, 65, 83, 86, 0, 255])
        )
    };
    // Its operands, its results, its attributes.
    type Kinds<'a> = Vec<(&'a str, Vec<i64>)>;
    let (routine, operands, results, attributes): (&str, Kinds<'_>, Kinds<'_>, &[&str]) =
        match b.random.u32(..11) {
            0 => (
                "getrf",
                vec![(element, of(&[m, n]))],
                vec![
                    (element, of(&[m, n])),
                    ("i32", of(&[small])),
                    ("i32", of(&[])),
                ],
                &[],
            ),
            1 => (
                "potrf",
                vec![(element, of(&[n, n]))],
                vec![(element, of(&[n, n])), ("i32", of(&[]))],
                &["uplo"],
            ),
            2 => (
                "geqrf",
                vec![(element, of(&[m, n]))],
                vec![(element, of(&[m, n])), (element, of(&[small]))],
                &[],
            ),
            3 => (
                "trsm",
                vec![(element, of(&[m, m])), (element, of(&[m, n]))],
                vec![(element, of(&[m, n]))],
                &["side", "uplo", "trans_x", "diag"],
            ),
            4 => (
                if matches!(letter, "s" | "d") {
                    "orgqr"
                } else {
                    "ungqr"
                },
                vec![(element, of(&[m, n])), (element, of(&[small]))],
                vec![(element, of(&[m, n]))],
                &[],
            ),
            5 => (
                "gesdd",
                vec![(element, of(&[m, n]))],
                vec![
                    (element, of(&[m, n])),
                    (real, of(&[small])),
                    (element, of(&[m, m])),
                    (element, of(&[n, n])),
                    ("i32", of(&[])),
                ],
                &["mode"],
            ),
            6 => (
                if matches!(letter, "s" | "d") {
                    "syevd"
                } else {
                    "heevd"
                },
                vec![(element, of(&[n, n]))],
                vec![(element, of(&[n, n])), (real, of(&[n])), ("i32", of(&[]))],
                &["mode", "uplo"],
            ),
            7 => (
                "geev",
                vec![(element, of(&[n, n]))],
                match letter {
                    "s" => vec![
                        ("f32", of(&[n])),
                        ("f32", of(&[n])),
                        ("complex<f32>", of(&[n, n])),
                        ("complex<f32>", of(&[n, n])),
                        ("i32", of(&[])),
                    ],
                    "d" => vec![
                        ("f64", of(&[n])),
                        ("f64", of(&[n])),
                        ("complex<f64>", of(&[n, n])),
                        ("complex<f64>", of(&[n, n])),
                        ("i32", of(&[])),
                    ],
                    _ => vec![
                        (element, of(&[n])),
                        (element, of(&[n, n])),
                        (element, of(&[n, n])),
                        ("i32", of(&[])),
                    ],
                },
                &["compute_left", "compute_right"],
            ),
            8 => (
                "gtsv",
                vec![
                    (element, of(&[n])),
                    (element, of(&[n])),
                    (element, of(&[n])),
                    (element, of(&[n, m])),
                ],
                vec![
                    (element, of(&[n])),
                    (element, of(&[n])),
                    (element, of(&[n])),
                    (element, of(&[n, m])),
                    ("i32", of(&[])),
                ],
                &[],
            ),
            9 => (
                "geqp3",
                vec![(element, of(&[m, n])), ("i32", of(&[n]))],
                vec![
                    (element, of(&[m, n])),
                    ("i32", of(&[n])),
                    (element, of(&[small])),
                ],
                &[],
            ),
            _ => (
                "gehrd",
                vec![(element, of(&[n, n]))],
                vec![
                    (element, of(&[n, n])),
                    (element, of(&[(n - 1).max(0)])),
                    ("i32", of(&[])),
                ],
                &["low", "high"],
            ),
        };
    let mut written: Vec<String> = Vec::new();
    for name in attributes {
        let value = match *name {
            "low" | "high" => format!("{} : i32", b.pick(&[1, 0, -1, 3, 8, 1 << 30])),
            _ => flag(b),
        };
        written.push(format!("{name} = {value}"));
    }
    // Some of it is wrong.
    let spoil = b.random.u32(..8);
    let mut results = results;
    match spoil {
        0 => drop(written.pop()),
        1 => {
            if let Some((_, dims)) = results.last_mut() {
                dims.push(2);
            }
        }
        2 => {
            if let Some((_, dims)) = results.first_mut()
                && let Some(dim) = dims.last_mut()
            {
                *dim = (*dim - 1).max(0);
            }
        }
        3 => results[0].0 = "i32",
        _ => {}
    }
    let operands: Vec<Value> = operands
        .into_iter()
        .map(|(element, dims)| {
            b.value(
                |value| value.element == element && value.dims == dims,
                element,
                &dims,
            )
        })
        .collect();
    let layouts = |kinds: &[Vec<i64>]| {
        let texts: Vec<String> = kinds
            .iter()
            .map(|dims| {
                let mut order: Vec<i64> = (0..dims.len() as i64).rev().collect();
                if order.len() > batch.len() + 1 {
                    order.swap(0, 1);
                }
                match order.is_empty() {
                    true => "dense<> : tensor<0xindex>".to_owned(),
                    false => format!("dense<{}> : tensor<{}xindex>", list(&order), order.len()),
                }
            })
            .collect();
        texts.join(", ")
    };
    let into: Vec<Vec<i64>> = operands.iter().map(|value| value.dims.clone()).collect();
    let out: Vec<Vec<i64>> = results.iter().map(|(_, dims)| dims.clone()).collect();
    let layouts = format!(
        ", operand_layouts = [{}], result_layouts = [{}]",
        layouts(&into),
        layouts(&out)
    );
    let layouts = if b.chance(5) { String::new() } else { layouts };
    let names: Vec<&str> = operands.iter().map(|value| value.name.as_str()).collect();
    let given: Vec<String> = operands.iter().map(Value::ty).collect();
    let types: Vec<String> = results
        .iter()
        .map(|(element, dims)| tensor(element, dims))
        .collect();
    let line = format!(
        "\"stablehlo.custom_call\"({}) {{call_target_name = \"lapack_{letter}{routine}_ffi\", \
         backend_config = {{{}}}, api_version = 4 : i32{layouts}}} : ({}) -> ({})",
        names.join(", "),
        written.join(", "),
        given.join(", "),
        types.join(", ")
    );
    let kinds: Vec<(String, Vec<i64>)> = results
        .into_iter()
        .map(|(element, dims)| (element.to_owned(), dims))
        .collect();
    match kinds.len() {
        1 => drop(b.result(&line, &kinds[0].0, &kinds[0].1)),
        _ => b.results(&line, &kinds),
    }
}

pub(super) fn top_k(b: &mut Builder) {
    let value = b.value(
        |value| value.rank() > 0 && (value.is_float() || value.is_int()),
        "f32",
        &[100],
    );
    let k = b.pick(&[0, 1, 3, 100, 1000, -1]);
    let mut dims = value.dims.clone();
    if let Some(last) = dims.last_mut() {
        *last = k.max(0).min(*last);
    }
    let outputs = format!(
        "({}, {})",
        tensor(&value.element, &dims),
        tensor("i32", &dims)
    );
    let line = match b.chance(2) {
        true => format!(
            "chlo.top_k({}, k = {}) : {} -> {outputs}",
            value.name,
            k.max(0),
            value.ty()
        ),
        false => format!(
            "\"stablehlo.custom_call\"({}) {{call_target_name = \"{}\", backend_config = \"\", api_version = {} : i32, \
             mhlo.attributes = {{k = {k} : i64, largest = true}}}} : ({}) -> {outputs}",
            value.name,
            b.pick(&["TopK", "mhlo.topk", "__topk"]),
            b.pick(&[1, 2]),
            value.ty()
        ),
    };
    let element = value.element.clone();
    b.results(&line, &[(element, dims.clone()), ("i32".into(), dims)]);
}

/// A call of a function that the job does not have.
pub(super) fn callback(b: &mut Builder) {
    let value = b.any();
    let target = b.pick(&[
        "xla_ffi_python_cpu_callback",
        "xla_ffi_partitioned_python_cpu_callback",
        "xla_buffer_python_cpu_callback",
    ]);
    let index = b.pick(&[
        "0 : ui64",
        "7 : ui64",
        "18446744073709551615 : ui64",
        "-1 : i64",
        "0 : i32",
    ]);
    let line = format!(
        "\"stablehlo.custom_call\"({}) {{call_target_name = \"{target}\", has_side_effect = true, \
         backend_config = {{index = {index}}}, api_version = 4 : i32}} : ({}) -> {}",
        value.name,
        value.ty(),
        value.ty()
    );
    b.result(&line, &value.element, &value.dims);
}

/// Tokens and what is ordered by them.
pub(super) fn token(b: &mut Builder) {
    let value = b.any();
    let ty = value.ty();
    let token = b.name();
    b.line(&format!(
        "{token} = stablehlo.create_token : !stablehlo.token"
    ));
    let got = b.name();
    match b.random.u32(..5) {
        0 => b.line(&format!(
            "{got} = \"stablehlo.send\"({}, {token}) {{channel_handle = #stablehlo.channel_handle<handle = 3, type = 2>, is_host_transfer = true}} : ({ty}, !stablehlo.token) -> !stablehlo.token",
            value.name
        )),
        1 => {
            b.line(&format!(
                "{got}:2 = \"stablehlo.recv\"({token}) {{channel_handle = #stablehlo.channel_handle<handle = 3, type = 3>, is_host_transfer = true}} : (!stablehlo.token) -> ({ty}, !stablehlo.token)"
            ));
            b.values.push(Value { name: format!("{got}#0"), ..value });
        }
        2 => b.line(&format!(
            "{got} = \"stablehlo.outfeed\"({}, {token}) {{outfeed_config = \"\"}} : ({ty}, !stablehlo.token) -> !stablehlo.token",
            value.name
        )),
        _ => b.line(&format!("{got} = stablehlo.after_all {token}, {token} : !stablehlo.token")),
    }
}
