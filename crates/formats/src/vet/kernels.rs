//! Operations that reach memory of other jobs by design: kernels that a job brings along, and arrays
//! that are never filled.
//!
//! A kernel of Pallas, Triton or Mosaic is machine code with addresses of the device's memory, which
//! all jobs share; no check of its program can tell where it reads and writes. Among jobs of one user
//! that is nobody's loss. `jax.lax.empty` returns what was in its memory before.

use salus_wire::{Error, ErrorCode};

use super::instruction::Instruction;
use super::rules::{Broken, refusal};
use super::{each_computation, instructions, unreadable};
use crate::hlo::module_bytes;

/// Targets of custom calls that run a kernel of the job's: by what they begin with, because versions
/// append to them (`triton_kernel_call_ffi`, `mosaic_gpu_v2`). The first is what XLA's own compiler
/// takes in: Triton's language and PTX.
const KERNELS: [&str; 3] = ["__gpu$xla.gpu.", "triton_kernel_call", "mosaic_gpu"];

/// Targets that return memory as they find it.
const UNFILLED: [&str; 2] = ["AllocateBuffer", "CreateBuffer"];

/// Refuses a program, in a format of [`module_bytes`], with a kernel of the job's or an array that
/// is not filled: for services whose jobs are strangers to each other.
pub fn refuse_raw_kernels(format: &str, code: &[u8]) -> Result<(), Error> {
    each_computation(module_bytes(format, code)?, |name, computation| {
        for instruction in instructions(computation).map_err(unreadable)? {
            if let Some(broken) = raw(&instruction) {
                return Err(refusal(name, &instruction, broken));
            }
        }
        Ok(())
    })
}

fn raw(instruction: &Instruction) -> Option<Broken> {
    let target = instruction.target.as_str();
    if !instruction.opcode.starts_with("custom-call") {
        return None;
    }
    if KERNELS.iter().any(|kernel| target.starts_with(kernel)) {
        return Some((
            ErrorCode::PermissionDenied,
            format!(
                "is a kernel of the job's own (`{target}`), which can address all of the device's \
                 memory, and this service admits several users"
            ),
            "use operations of JAX instead of a kernel, or a service for yourself alone (`salus run` \
             starts one); its operator can allow kernels with `allow_raw_kernels = true` in section \
             [service]",
        ));
    }
    UNFILLED.contains(&target).then(|| {
        (
            ErrorCode::PermissionDenied,
            format!(
                "returns memory as it is found (`{target}`), and this service admits several users, \
                 whose arrays may have been there"
            ),
            "fill it: `jnp.zeros` instead of `jax.lax.empty`; the service's operator can allow it with \
             `allow_raw_kernels = true` in section [service]",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Wire, Writer};

    /// A module with one custom call, as an `HloModuleProto`.
    fn module(opcode: &str, target: &str) -> Vec<u8> {
        let message = |parts: &[(u32, &[u8])]| {
            let mut writer = Writer::default();
            for (number, bytes) in parts {
                writer.field(*number, Wire::Bytes(bytes));
            }
            writer.finish()
        };
        let metadata = message(&[(2, b"jit(f)/pallas_call")]);
        let instruction = message(&[
            (1, b"call.3"),
            (2, opcode.as_bytes()),
            (7, &metadata),
            (28, target.as_bytes()),
        ]);
        let computation = message(&[(1, b"main"), (2, &instruction)]);
        message(&[(1, b"jit_f"), (3, &computation)])
    }

    #[test]
    fn kernels_of_a_job_are_refused_by_the_name_of_what_they_call() {
        for target in [
            "__gpu$xla.gpu.triton",
            "__gpu$xla.gpu.ptx",
            "triton_kernel_call",
            "triton_kernel_call_ffi",
            "mosaic_gpu",
            "mosaic_gpu_v2",
        ] {
            let refused = refuse_raw_kernels("hlo", &module("custom-call", target));
            let refused = refused.expect_err(target);
            assert_eq!(refused.code, ErrorCode::PermissionDenied);
            let text = refused.to_string();
            for part in [
                "`jit_f`",
                "`call.3` (jit(f)/pallas_call)",
                target,
                "several users",
                "allow_raw_kernels",
            ] {
                assert!(text.contains(part), "`{part}` is missing: {text}");
            }
        }
    }

    #[test]
    fn arrays_that_are_not_filled_are_refused() {
        let refused = refuse_raw_kernels("hlo", &module("custom-call", "AllocateBuffer"));
        let text = refused.expect_err("it shows what was there").to_string();
        assert!(text.contains("jnp.zeros"), "{text}");
        // Wrapped for the device to run it beside others.
        let started = module("custom-call-start", "AllocateBuffer");
        assert!(refuse_raw_kernels("hlo", &started).is_err());
    }

    #[test]
    fn the_vendors_own_libraries_are_not() {
        for target in [
            "__cublas$lt$matmul",
            "__cudnn$convForward",
            "cusolver_potrf_ffi",
            "__cub$DeviceRadixSort",
            "TopK",
            "",
        ] {
            assert_eq!(
                refuse_raw_kernels("hlo", &module("custom-call", target)),
                Ok(())
            );
        }
        assert_eq!(
            refuse_raw_kernels("hlo", &module("add", "mosaic_gpu")),
            Ok(())
        );
        assert!(
            refuse_raw_kernels("hlo_with_config", b"").is_err(),
            "unread"
        );
    }
}
