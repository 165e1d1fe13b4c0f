//! Fills a [`Signature`] from what a vendor's executable answers.

use std::collections::BTreeSet;

use salus_formats::hlo::{self, HOST_MEMORY_SPACE, Module};
use salus_pjrt::{Executable, Program};

use crate::failure::{INTERNAL, UNIMPLEMENTED, error, optional, values, vendor};
use crate::layout;
use crate::{Description, Error, MemoryStats, Output, Signature};

/// The program as the vendor runs it.
pub(crate) fn optimized_program(executable: &Executable) -> Result<Program, Error> {
    optional(executable.optimized_program())?.ok_or_else(|| {
        error(
            UNIMPLEMENTED,
            "the vendor's plugin does not show optimized programs, so Salus cannot know a \
             program's parameters; use a plugin that implements PJRT_Executable_OptimizedProgram",
        )
    })
}

/// All that a job may ask of `executable`, whose optimized program is `program`.
///
/// Shapes and aliases come from the optimized program; where PJRT answers by itself as well, both
/// must agree, because launches are checked against this and nothing else.
pub(crate) fn of(
    executable: &Executable,
    program: Program,
    device: &Description,
) -> Result<Signature, Error> {
    let module = hlo::boundary(&program.format, &program.code)?;
    check_outputs(executable, &module)?;
    let memory = optional(executable.memory_stats())?.map(|stats| MemoryStats {
        generated_code_bytes: stats.generated_code_bytes,
        argument_bytes: stats.argument_bytes,
        output_bytes: stats.output_bytes,
        alias_bytes: stats.alias_bytes,
        temp_bytes: stats.temp_bytes,
        host_generated_code_bytes: stats.host_generated_code_bytes,
        host_argument_bytes: stats.host_argument_bytes,
        host_output_bytes: stats.host_output_bytes,
        host_alias_bytes: stats.host_alias_bytes,
        host_temp_bytes: stats.host_temp_bytes,
    });
    let donated: BTreeSet<u32> = module.aliases.iter().map(|alias| alias.parameter).collect();
    Ok(Signature {
        name: executable.name().map_err(vendor)?,
        fingerprint: optional(executable.fingerprint())?,
        outputs: outputs(executable, &module, device)?,
        donated: donated.into_iter().collect(),
        code_bytes: optional(executable.code_bytes())?.unwrap_or(0),
        memory,
        cost: values(optional(executable.cost_analysis())?.unwrap_or_default()),
        optimized_program: program.code,
        output_memory_kinds: optional(executable.output_memory_kinds())?,
        calls_back: module.calls_back,
        parameters: module
            .parameters
            .into_iter()
            .map(|placed| placed.shape)
            .collect(),
    })
}

/// The module's results against PJRT's own lists: a wrong count would make a launch write past
/// the end of its outputs.
fn check_outputs(executable: &Executable, module: &Module) -> Result<(), Error> {
    let disagree = |what: &str, theirs: String, ours: String| {
        error(
            INTERNAL,
            format!("the vendor's plugin says {what} {theirs}, its optimized program {ours}"),
        )
    };
    let count = executable.num_outputs().map_err(vendor)?;
    if count != module.results.len() {
        let ours = module.results.len();
        return Err(disagree("outputs:", count.to_string(), ours.to_string()));
    }
    if let Some(types) = optional(executable.output_types())? {
        let ours: Vec<u32> = module
            .results
            .iter()
            .map(|r| r.shape.element_type)
            .collect();
        if types != ours {
            return Err(disagree("types", format!("{types:?}"), format!("{ours:?}")));
        }
    }
    if let Some(dims) = optional(executable.output_dimensions())? {
        let ours: Vec<&[i64]> = module.results.iter().map(|r| &r.shape.dims[..]).collect();
        if dims != ours {
            return Err(disagree(
                "dimensions",
                format!("{dims:?}"),
                format!("{ours:?}"),
            ));
        }
    }
    Ok(())
}

fn outputs(
    executable: &Executable,
    module: &Module,
    device: &Description,
) -> Result<Vec<Output>, Error> {
    let texts = optional(executable.output_layout_texts())?.unwrap_or_default();
    let host_memory = device
        .memories
        .iter()
        .position(|memory| memory.kind == "pinned_host");
    let output = |(index, result): (usize, &hlo::Placed)| {
        let alias = module
            .aliases
            .iter()
            .find(|alias| alias.output as usize == index);
        let memory = match host_memory {
            Some(host) if result.memory_space == HOST_MEMORY_SPACE => host as u32,
            _ => device.default_memory,
        };
        Output {
            shape: result.shape.clone(),
            layout_text: texts
                .get(index)
                .cloned()
                .unwrap_or_else(|| layout::text(&result.shape)),
            memory,
            aliases: alias.map(|alias| alias.parameter),
        }
    };
    Ok(module.results.iter().enumerate().map(output).collect())
}
