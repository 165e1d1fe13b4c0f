//! Compile options that nobody should get: paths to write to, other devices, other backends' flags.
//!
//! Whatever becomes of the program, no file may appear: each round names a directory of ours as the
//! place for dumps, in every way that XLA has.

use std::time::Duration;

use fastrand::Rng;

use crate::Problem;
use crate::canary::Canary;
use crate::programs::change_bytes;
use crate::proto;
use crate::service::{Service, files_in};
use crate::session::Session;
use crate::tally::Tally;

/// What JAX 0.10.2 sends.
const JAX: &[u8] = include_bytes!("../corpus/jax_0.10.2_options.bin");
const COMPILE_TIME: Duration = Duration::from_secs(60);

pub(crate) fn attack(service: &Service, seed: u64, count: u64) -> Result<Tally, Problem> {
    let mut tally = Tally::new("options");
    tally.note("before", service.footprint()?);
    let bait = tempfile::Builder::new().prefix("salus-bait-").tempdir()?;
    let bait_path = bait.path().to_string_lossy().into_owned();
    let mut canary = Canary::new(service)?;
    let mut session = Session::open(service.socket(), "options")?;
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
                session = Session::open(service.socket(), "options")?;
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
    tally.note("after", service.footprint()?);
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
                let mut debug = Vec::new();
                for _ in 0..random.u32(1..4) {
                    match random.bool() {
                        true => {
                            let field = TEXTS[random.usize(..TEXTS.len())];
                            proto::bytes(field, bait.as_bytes(), &mut debug);
                        }
                        false => proto::number(
                            random.u32(1..420),
                            random.u64(..) >> random.u32(..64),
                            &mut debug,
                        ),
                    }
                }
                let mut build = Vec::new();
                proto::bytes(3, &debug, &mut build);
                proto::bytes(3, &build, &mut out);
            }
            // env_option_overrides: name -> OptionOverrideProto
            2 => {
                let mut value = Vec::new();
                match random.bool() {
                    true => proto::bytes(1, bait.as_bytes(), &mut value),
                    false => proto::number(random.u32(1..5), random.u64(..4), &mut value),
                }
                let mut entry = Vec::new();
                proto::bytes(1, NAMES[random.usize(..NAMES.len())].as_bytes(), &mut entry);
                proto::bytes(2, &value, &mut entry);
                proto::bytes(random.u32(7..10), &entry, &mut out);
            }
            // Numbers of the build: devices, replicas, partitions, flags.
            3 => {
                let mut build = Vec::new();
                proto::number(
                    random.u32(1..30),
                    random.u64(..) >> random.u32(..64),
                    &mut build,
                );
                proto::bytes(3, &build, &mut out);
            }
            _ => proto::number(random.u32(1..12), random.u64(..), &mut out),
        }
    }
    if random.u32(..3) == 0 {
        for _ in 0..random.u32(1..4) {
            change_bytes(random, &mut out);
        }
    }
    out
}
