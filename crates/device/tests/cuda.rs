//! The real CUDA compiler on a machine without a driver: `make test-cuda`.
//!
//! `tests/cuda/lower.py` has JAX lower programs for CUDA; here they are compiled as the service's
//! compilers do, for three GPUs that are not there, and as JAX itself would have them compiled.
//! Computations must be equal, and everything must be read that a session is told of a program.

mod common;
#[path = "../../../tests/cuda/gpu.rs"]
mod gpu;

use gpu::{description, lowered, plugin};
use salus_device::{Compiled, Description, PjrtConfig, PjrtDevice, Source, TargetCompiler};
use salus_formats::proto::{Wire, fields};
use salus_formats::requirements::required_options;
use salus_formats::{hlo, options};
use salus_pjrt::{Plugin, Topology};

const TARGETS: &[(&str, &str)] = &[
    (
        "A100",
        include_str!("../../../tests/cuda/targets/a100.txtpb"),
    ),
    (
        "H100",
        include_str!("../../../tests/cuda/targets/h100.txtpb"),
    ),
    (
        "B200",
        include_str!("../../../tests/cuda/targets/b200.txtpb"),
    ),
];

fn compile(compiler: &TargetCompiler, description: &Description, name: &str) -> Compiled {
    let (code, options) = lowered(name);
    let options = options::rebuild(&options, &required_options(description));
    let source = Source {
        format: "mlir",
        code: &code,
        options: &options.expect("JAX is well behaved"),
    };
    let compiled = compiler.compile(&source);
    compiled.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The computations of an optimized module (`HloModuleProtoWithConfig.hlo_module.computations`): what
/// runs. The rest names devices, and a schedule in no fixed order.
fn computations(optimized: &[u8]) -> Vec<Vec<u8>> {
    let message = |within: &[u8], number: u32| -> Vec<Vec<u8>> {
        let all = fields(within).map(|field| field.expect("well formed"));
        all.filter_map(|field| match field {
            (found, Wire::Bytes(bytes)) if found == number => Some(bytes.to_vec()),
            _ => None,
        })
        .collect()
    };
    let module = message(optimized, 1).pop().expect("there is a module");
    let computations = message(&module, 3);
    assert!(!computations.is_empty());
    computations
}

fn topology(target: &str) -> Topology {
    let text = |text: &str| salus_pjrt::Value::Text(text.into());
    let options = [
        ("target_config".to_owned(), text(target)),
        ("topology".to_owned(), text("1x1x1")),
    ];
    let plugin = Plugin::open(&plugin()).expect("the wheel's plugin opens");
    plugin.create_topology("", &options).expect("a GPU")
}

#[test]
#[ignore = "needs the CUDA wheel: make test-cuda"]
fn programs_are_those_of_jax_for_every_gpu() {
    for (gpu, target) in TARGETS {
        let description = description(target);
        let compiler = TargetCompiler::open(&plugin(), &description).expect("no device is needed");
        let topology = topology(target);
        for name in ["mlp", "convolution", "attention", "random", "fft", "pallas"] {
            let ours = compile(&compiler, &description, name);
            assert!(!ours.executable.is_empty());
            let (code, options) = lowered(name);
            let theirs = topology.compile("mlir", &code, &options);
            let theirs = theirs.unwrap_or_else(|e| panic!("{gpu} {name}: {}", e.message));
            let theirs = theirs.optimized_program().expect("it is shown");
            assert!(
                computations(&ours.signature.optimized_program) == computations(&theirs.code),
                "{gpu}: {name} is another program with the service's options"
            );
        }
    }
}

#[test]
#[ignore = "needs the CUDA wheel: make test-cuda"]
fn what_a_session_is_told_is_read() {
    let (_, target) = TARGETS[1];
    let description = description(target);
    let compiler = TargetCompiler::open(&plugin(), &description).expect("no device is needed");

    let mlp = compile(&compiler, &description, "mlp").signature;
    assert_eq!(mlp.parameters.len(), 5);
    assert_eq!(mlp.parameters[0].dims, [128, 256]);
    assert_eq!(mlp.donated, [0, 1, 2], "the weights");
    let aliases: Vec<_> = mlp.outputs.iter().map(|output| output.aliases).collect();
    assert_eq!(aliases, [Some(0), Some(1), Some(2), None]);
    let memory = mlp.memory.expect("it is known");
    let weights = 4 * (128 * 256 + 256 * 256 + 256 * 8);
    let data = 4 * (64 * 128 + 64 * 8);
    assert_eq!(memory.argument_bytes, weights + data);
    assert!(memory.alias_bytes >= weights, "{memory:?}");
    assert!(memory.temp_bytes > 0, "{memory:?}");
    assert!(mlp.fingerprint.is_some());
    assert!(!mlp.calls_back);
    assert_eq!(
        mlp.output_memory_kinds.as_deref().map(|kinds| kinds.len()),
        Some(4)
    );

    let offload = compile(&compiler, &description, "offload").signature;
    assert_eq!(offload.outputs[0].memory, 1, "pinned_host");
    let module = hlo::boundary("hlo_with_config", &offload.optimized_program).expect("read");
    assert_eq!(module.results.len(), 1);
}

#[test]
#[ignore = "needs the CUDA wheel: make test-cuda"]
fn what_wants_a_device_or_handlers_compiles_without() {
    let (_, target) = TARGETS[1];
    let description = description(target);
    let compiler = TargetCompiler::open(&plugin(), &description).expect("no device is needed");
    for name in ["sort", "cholesky", "solve", "qr", "eigh", "svd"] {
        let compiled = compile(&compiler, &description, name);
        assert!(!compiled.executable.is_empty(), "{name}");
    }
    // The reason why the service switches CUB off for sorts.
    let (code, options) = lowered("sort");
    let refused = topology(target).compile("mlir", &code, &options).err();
    refused.expect("CUB asks a device: when it no longer does, the option can go");
}

#[test]
#[ignore = "needs the CUDA wheel: make test-cuda"]
fn the_plugin_is_known_without_a_client() {
    let plugin = Plugin::open(&plugin()).expect("the wheel's plugin opens");
    assert!(plugin.is_of_a_gpu());
    let version = plugin.api_version();
    assert_eq!(version.0, 0);
    assert!(version.1 >= 112, "{version:?}");
    let attributes = plugin.attributes().expect("it has some");
    assert!(attributes.iter().any(|(name, _)| name == "cuda_version"));
    let (_, target) = TARGETS[2];
    let topology = topology(target);
    assert_eq!(topology.platform_name().expect("it has one"), "cuda");
    let attributes = topology.attributes().expect("it has some");
    assert!(attributes.iter().any(|(name, _)| name == "target_config"));
    let cpu = Plugin::open(&common::cpu_plugin()).expect("the CPU plugin opens");
    assert!(!cpu.is_of_a_gpu());
}

#[test]
#[ignore = "needs the CUDA wheel: make test-cuda"]
fn without_a_gpu_the_device_is_refused_in_the_plugins_words() {
    let config = PjrtConfig {
        plugin: plugin(),
        ..PjrtConfig::default()
    };
    let refused = PjrtDevice::open(&config).err().expect("there is no GPU");
    assert!(refused.message.contains("GPU"), "{refused}");
}
