//! Compile options that nobody should get: paths to write to, other devices, other backends' flags.
//!
//! Whatever becomes of the program, no file may appear: each round names a directory of ours as the
//! place for dumps, in every way that XLA has.

use std::time::Duration;

use fastrand::Rng;
use salus_formats::proto::{Wire, Writer};
use salus_harness::{Client, Service};

use crate::Problem;
use crate::canary::Canary;
use crate::programs::change_bytes;
use crate::setup::files_in;
use crate::setup::footprint;
use crate::tally::Tally;

/// What JAX 0.10.2 sends.
const JAX: &[u8] = include_bytes!("../../formats/corpus/options/jax_0.10.2.bin");
const COMPILE_TIME: Duration = Duration::from_secs(60);

pub(crate) fn attack(service: &Service, seed: u64, count: u64) -> Result<Tally, Problem> {
    let mut tally = Tally::new("options");
    tally.note("before", footprint(service)?);
    let bait = tempfile::Builder::new().prefix("salus-bait-").tempdir()?;
    let bait_path = bait.path().to_string_lossy().into_owned();
    let mut canary = Canary::new(service)?;
    let mut session = Client::open(service.socket(), "options")?;
    for seed in seed..seed.saturating_add(count) {
        let mut random = Rng::with_seed(seed);
        let claim = mutated(&mut random, &bait_path);
        let code = format!(
            "module @o {{ func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
               %c = stablehlo.constant dense<{}.0> : tensor<8xf32>
               %r = stablehlo.multiply %a, %c : tensor<8xf32> return %r : tensor<8xf32> }} }}",
            random.u32(..1000)
        );
        match session.compile("mlir", code.as_bytes(), &claim, COMPILE_TIME) {
            Ok(Ok((program, _))) => {
                tally.count("compiled");
                session.drop_program(program);
            }
            Ok(Err(error)) => {
                tally.count("refused");
                tally.reason(&error.message);
            }
            Err(loss) => {
                tally.count("session lost");
                tally.finding(format!("options --seed {seed} --count 1: {loss}"));
                service.wait_until_up()?;
                session = Client::open(service.socket(), "options")?;
            }
        }
        let files = files_in(bait.path());
        if files > 0 {
            tally.finding(format!(
                "options --seed {seed} --count 1: {files} files were written"
            ));
            std::fs::remove_dir_all(bait.path())?;
            std::fs::create_dir(bait.path())?;
        }
    }
    if let Some(directory) = service.directory() {
        let left = files_in(&directory.join("tmp"));
        if left > 0 {
            tally.finding(format!(
                "{left} files in the service's directory for temporary ones"
            ));
        }
    }
    if !matches!(canary.sings(), Ok(true)) {
        tally.finding("the canary no longer sings".into());
    }
    drop((canary, session));
    service.wait_until_idle()?;
    tally.note("after", footprint(service)?);
    Ok(tally)
}

/// Fields of `DebugOptions` that take a text: `xla_dump_to`, patterns, names of passes and files.
const TEXTS: &[u32] = &[
    30, 109, 111, 112, 113, 116, 124, 141, 142, 150, 161, 179, 182, 210, 253, 300,
];

/// Names for `env_option_overrides`.
const NAMES: &[&str] = &[
    "xla_dump_to",
    "xla_dump_hlo_as_text",
    "xla_dump_hlo_pass_re",
    "xla_gpu_cuda_data_dir",
    "xla_cpu_use_xnnpack",
    "xla_backend_extra_options",
    "xla_gpu_per_fusion_autotune_cache_dir",
    "xla_gpu_dump_autotune_results_to",
    "xla_cpu_enable_fast_math",
    "xla_backend_optimization_level",
    "xla_enable_dumping",
    "xla_dump_to\0",
    "",
    "xla_gpu_kernel_cache_file",
    "xla_hlo_profile",
    "xla_force_host_platform_device_count",
];

/// `CompileOptionsProto` with something in it that it should not have. `bait` is where files are
/// asked for.
pub(crate) fn mutated(random: &mut Rng, bait: &str) -> Vec<u8> {
    let mut out = match random.u32(..4) {
        0 => Vec::new(),
        _ => JAX.to_vec(),
    };
    for _ in 0..random.u32(..4) {
        match random.u32(..5) {
            // executable_build_options { debug_options { … } }
            0 | 1 => {
                let mut debug = Writer::default();
                for _ in 0..random.u32(1..4) {
                    match random.bool() {
                        true => {
                            let field = TEXTS[random.usize(..TEXTS.len())];
                            debug.field(field, Wire::Bytes(bait.as_bytes()));
                        }
                        false => debug.field(random.u32(1..420), number(random)),
                    }
                }
                let build = message(3, Wire::Bytes(&debug.finish()));
                out.extend(message(3, Wire::Bytes(&build)));
            }
            // env_option_overrides: name -> OptionOverrideProto
            2 => {
                let value = match random.bool() {
                    true => message(1, Wire::Bytes(bait.as_bytes())),
                    false => message(random.u32(1..5), Wire::Varint(random.u64(..4))),
                };
                let mut entry = Writer::default();
                let name = NAMES[random.usize(..NAMES.len())];
                entry.field(1, Wire::Bytes(name.as_bytes()));
                entry.field(2, Wire::Bytes(&value));
                out.extend(message(random.u32(7..10), Wire::Bytes(&entry.finish())));
            }
            // Numbers of the build: devices, replicas, partitions, flags.
            3 => {
                let build = message(random.u32(1..30), number(random));
                out.extend(message(3, Wire::Bytes(&build)));
            }
            _ => out.extend(message(random.u32(1..12), Wire::Varint(random.u64(..)))),
        }
    }
    if random.u32(..3) == 0 {
        for _ in 0..random.u32(1..4) {
            change_bytes(random, &mut out);
        }
    }
    out
}

/// A message of one field.
fn message(field: u32, value: Wire<'_>) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.field(field, value);
    writer.finish()
}

/// A number of any length.
fn number(random: &mut Rng) -> Wire<'static> {
    Wire::Varint(random.u64(..) >> random.u32(..64))
}
