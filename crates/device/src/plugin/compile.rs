//! Compiles with the vendor's compiler, with or without a client of it, and vets what it made.

use salus_formats::vet::{self, Verdict};
use salus_pjrt::{Client, Executable, Program, Topology};

use super::signature;
use crate::failure::{UNIMPLEMENTED, error, optional, vendor};
use crate::{Compiled, Description, Error, Signature, Source};

/// Who compiles: a client that has the device, or a description of such a device.
pub(super) enum With<'a> {
    Client(&'a Client),
    Topology(&'a Topology),
}

/// Compiles for the device that is described.
pub(super) struct Compilation<'a> {
    pub(super) with: With<'a>,
    pub(super) description: &'a Description,
}

impl Compilation<'_> {
    pub(super) fn run(&self, source: &Source<'_>) -> Result<Compiled, Error> {
        let (executable, program) = self.compile_unjudged(source)?;
        let (executable, program) = match vet::judge(&program.format, &program.code)? {
            Verdict::Run => (executable, program),
            // What makes it dangerous is how a CPU sorts: others compare in a fixed order.
            Verdict::SortsUnstably if !self.description.on_host => (executable, program),
            Verdict::SortsUnstably => self.compile_stable(source, &executable, program)?,
        };
        let serialized = optional(executable.serialize())?.ok_or_else(|| {
            error(
                UNIMPLEMENTED,
                format!(
                    "the plugin {} cannot serialize programs, and Salus compiles in another \
                     process than it runs in",
                    self.description.plugin_path
                ),
            )
        })?;
        Ok(Compiled {
            executable: serialized,
            signature: signature::of(&executable, program, self.description)?,
        })
    }

    fn compile_unjudged(&self, source: &Source<'_>) -> Result<(Executable, Program), Error> {
        let Source {
            format,
            code,
            options,
        } = *source;
        let executable = match self.with {
            With::Client(client) => client
                .compile(format, code, options)
                .and_then(|loaded| loaded.executable()),
            With::Topology(topology) => topology.compile(format, code, options),
        };
        let executable = executable.map_err(vendor)?;
        let program = signature::optimized_program(&executable)?;
        Ok((executable, program))
    }

    /// Compiles a program again whose sorts must be stable, from what the vendor has made of it.
    fn compile_stable(
        &self,
        source: &Source<'_>,
        unstable: &Executable,
        program: Program,
    ) -> Result<(Executable, Program), Error> {
        let refused = |why: &str| {
            error(
                UNIMPLEMENTED,
                format!("the program sorts unstably, which Salus could not make stable: {why}"),
            )
            .hint("ask for a stable sort, such as `jnp.sort(x, stable=True)`")
        };
        let code = vet::with_stable_sorts(&program.format, &program.code);
        let code = code.map_err(|_| refused("its optimized form cannot be read"))?;
        let again = self.compile_unjudged(&Source {
            format: "hlo",
            code: &code,
            options: source.options,
        });
        let (stable, optimized) = again.map_err(|e| refused(&e.message))?;
        if vet::judge(&optimized.format, &optimized.code)? != Verdict::Run {
            return Err(refused("the vendor has made it unstable again"));
        }
        // The job knows the program by what it was before.
        let before = signature::of(unstable, program, self.description)?;
        let after = signature::of(&stable, optimized.clone(), self.description)?;
        let boundary = |one: &Signature| {
            let outputs: Vec<_> = one
                .outputs
                .iter()
                .map(|o| (o.shape.clone(), o.aliases))
                .collect();
            (one.parameters.clone(), outputs, one.donated.clone())
        };
        if boundary(&before) != boundary(&after) {
            return Err(refused("its parameters or results have other layouts then"));
        }
        Ok((stable, optimized))
    }
}
