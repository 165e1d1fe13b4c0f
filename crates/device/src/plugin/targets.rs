//! Custom calls without a handler: the vendor's error in words that help.
//!
//! A program may call functions by name that are not part of it (custom calls). The plugin looks them
//! up among its own handlers and those that Salus has registered, and where there is none its error has
//! only the name. The name shows what it is for, and so what to do.

use crate::Error;
use crate::failure::error;

/// Names that begin like this, what they are for, and what to do where there is no handler.
struct Family {
    prefixes: &'static [&'static str],
    what: &'static str,
    hint: &'static str,
}

const OF_GPUS: &[&str] = &[
    "cu_",
    "cublas",
    "cuda_",
    "cudnn",
    "cufft",
    "cuhybrid",
    "cusolver",
    "cusparse",
    "hip",
    "rocblas",
    "rocsolver",
    "__cublas",
    "__cudnn",
    "__cusolver",
];

const FAMILIES: &[Family] = &[
    Family {
        prefixes: &[
            "xla_ffi_python_",
            "xla_ffi_partitioned_python_",
            "xla_python_",
        ],
        what: "a Python callback (jax.pure_callback, jax.io_callback, jax.debug.print), which this \
               device's plugin has no way for",
        hint: "call it outside of the jitted function, or run that part on the job's own CPU: `with \
               jax.default_device(jax.devices(\"cpu\")[0])`",
    },
    Family {
        prefixes: &["lapack_", "blas_"],
        what: "linear algebra (jnp.linalg, jax.scipy.linalg), for which the service has found no \
               LAPACK, or none with this routine",
        hint: "`salus doctor` shows where it looked; `pip install scipy` in the environment that the \
               device's plugin is in, then start the service again",
    },
    Family {
        prefixes: OF_GPUS,
        what: "a routine of a GPU's libraries, and the device is none: the program was lowered for \
               another platform",
        hint: "lower it for this one: `jax.export.export(f, platforms=[…])` and `jax.jit(f).trace(…)\
               .lower(lowering_platforms=…)` say for which",
    },
    Family {
        prefixes: &[
            "tpu_custom_call",
            "mosaic",
            "triton",
            "__gpu$xla.gpu.triton",
        ],
        what: "a Pallas or Triton kernel, which is compiled for TPUs and GPUs alone",
        hint: "`pallas_call(…, interpret=True)` runs a kernel as ordinary operations on any device",
    },
    Family {
        prefixes: &[
            "CustomSPMDPartitioning",
            "SPMDFullToShardShape",
            "SPMDShardToFullShape",
        ],
        what: "a program that is split over several devices, and a job has one here",
        hint: "leave out custom_partitioning and shard_map where there is one device",
    },
];

/// Of a GPU's libraries, on a GPU.
const WITHOUT_PACKAGE: Family = Family {
    prefixes: &[],
    what: "a routine of the vendor's libraries, and the service has no handlers of the vendor's package for \
           JAX, or none with this routine",
    hint: "`salus doctor` shows what is missing; `pip install jax-cuda12-plugin` (or that of the installed \
           version) beside the device's plugin, then start the service again",
};

/// How plugins of GPUs name their platform where they look for a handler.
const GPUS: [&str; 2] = ["CUDA", "ROCM"];

/// Of the job's own making, or a library's.
const FOREIGN: Family = Family {
    prefixes: &[],
    what: "a function that the job or a library of it has registered in its own process (jax.ffi), and \
           no code of a job runs in the service",
    hint: "run that part on the job's own CPU, where its handlers are: `with jax.default_device(\
           jax.devices(\"cpu\")[0])`; or call it through jax.pure_callback",
};

/// Texts around the target's name, as plugins write them.
const SAID: &[(&str, &str)] = &[
    ("No FFI handler registered for ", " on a platform "),
    (
        "No registered implementation for untyped custom call to ",
        " for ",
    ),
    ("No registered implementation for custom call to ", " for "),
];

/// What is shown of a target's name: a job may have made it up.
const NAME_CHARS: usize = 128;

/// The error in our words, if it is about a custom call without a handler.
pub(crate) fn explained(given: Error) -> Error {
    let Some((target, platform)) = missing(&given.message) else {
        return given;
    };
    let begins = |family: &&Family| family.prefixes.iter().any(|p| target.starts_with(p));
    let on_gpu = GPUS.iter().any(|gpu| platform.contains(gpu));
    let family = match FAMILIES.iter().find(begins) {
        Some(family) if on_gpu && family.prefixes == OF_GPUS => &WITHOUT_PACKAGE,
        Some(family) => family,
        None => &FOREIGN,
    };
    let shown: String = target.escape_debug().take(NAME_CHARS).collect();
    let message = format!(
        "the program calls `{shown}`, and the device has no handler of that name. It is {}",
        family.what
    );
    error(given.code, message).hint(family.hint)
}

/// The name of the target that has no handler, and what follows it: the platform.
fn missing(message: &str) -> Option<(&str, &str)> {
    SAID.iter().find_map(|(before, after)| {
        let (_, rest) = message.split_once(before)?;
        // The name itself may have spaces in it; what follows it has none of these words twice.
        let (target, platform) = rest.rsplit_once(after)?;
        Some((target.trim_matches('"'), platform))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::NOT_FOUND;

    fn shown(message: &str) -> Error {
        let given = error(NOT_FOUND, message);
        let explained = explained(given);
        assert_eq!(explained.code, NOT_FOUND);
        explained
    }

    #[test]
    fn each_family_has_its_reason_and_its_way_out() {
        for (target, what, hint) in [
            (
                "xla_ffi_python_cpu_callback",
                "a Python callback",
                "default_device",
            ),
            ("lapack_spotrf_ffi", "linear algebra", "pip install scipy"),
            ("blas_strsm", "linear algebra", "salus doctor"),
            ("cusolver_getrf_ffi", "a GPU's libraries", "jax.export"),
            ("hipsolver_syevd", "a GPU's libraries", "jax.export"),
            ("tpu_custom_call", "Pallas", "interpret=True"),
            ("mosaic_gpu_v2", "Pallas", "interpret=True"),
            (
                "CustomSPMDPartitioning",
                "several devices",
                "custom_partitioning",
            ),
            ("my_target", "jax.ffi", "default_device"),
        ] {
            for said in [
                format!(
                    "No FFI handler registered for {target} on a platform Host (canonical host)"
                ),
                format!(
                    "No registered implementation for untyped custom call to {target} for Host"
                ),
                format!(
                    "NOT_FOUND: No registered implementation for custom call to \"{target}\" for platform \"Host\""
                ),
            ] {
                let Error {
                    message,
                    hint: way_out,
                    ..
                } = shown(&said);
                let begin = format!("the program calls `{target}`, and the device has no handler");
                assert!(message.starts_with(&begin), "{message}");
                let way_out = way_out.expect("a hint");
                assert!(
                    message.contains(what) && way_out.contains(hint),
                    "{message}"
                );
            }
        }
    }

    #[test]
    fn a_gpu_without_the_vendors_package_is_told_so() {
        for said in [
            "No FFI handler registered for cusolver_potrf_ffi on a platform CUDA (canonical cuda)",
            "No registered implementation for custom call to \"hipsolver_syevd\" for platform \"ROCM\"",
        ] {
            let text = shown(said).to_string();
            assert!(
                text.contains("no handlers of the vendor's package"),
                "{text}"
            );
            assert!(text.contains("salus doctor"), "{text}");
        }
        let of_the_job = shown("No FFI handler registered for mine on a platform CUDA");
        assert!(of_the_job.message.contains("jax.ffi"), "{of_the_job}");
    }

    #[test]
    fn other_errors_stay_as_they_are_and_odd_names_are_escaped() {
        for other in [
            "",
            "No FFI handler registered for x",
            "Out of memory for x on a platform y",
        ] {
            assert_eq!(shown(other).to_string(), other);
        }
        let odd = shown("No FFI handler registered for my \u{1b}[2J for x on a platform Host");
        assert!(
            odd.message
                .starts_with("the program calls `my \\u{1b}[2J for x`, "),
            "{odd}"
        );
        let long = "x".repeat(100_000);
        let message = shown(&format!(
            "No FFI handler registered for {long} on a platform Host"
        ));
        assert!(message.to_string().len() < 1000);
    }
}
