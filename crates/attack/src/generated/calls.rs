//! Operations with somebody at the other end: collectives, custom calls, LAPACK, callbacks, tokens.

use super::builder::*;

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
