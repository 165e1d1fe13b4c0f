//! Compiles with the vendor's compiler, and vets what it made.

use salus_formats::vet::{self, Verdict};

use super::{PjrtDevice, signature};
use crate::failure::{UNIMPLEMENTED, error, optional, vendor};
use crate::{Compiled, Error, Signature, Source};

impl PjrtDevice {
    pub(super) fn compile_vetted(&self, source: &Source<'_>) -> Result<Compiled, Error> {
        let (executable, program) = self.compile_unjudged(source)?;
        let (executable, program) = match vet::judge(&program.format, &program.code)? {
            Verdict::Run => (executable, program),
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
            signature: signature::of(&executable, program, &self.description)?,
        })
    }

    fn compile_unjudged(
        &self,
        source: &Source<'_>,
    ) -> Result<(salus_pjrt::Executable, salus_pjrt::Program), Error> {
        let loaded = self
            .client
            .compile(source.format, source.code, source.options)
            .map_err(vendor)?;
        let executable = loaded.executable().map_err(vendor)?;
        let program = signature::optimized_program(&executable)?;
        Ok((executable, program))
    }

    /// Compiles a program again whose sorts must be stable, from what the vendor has made of it.
    fn compile_stable(
        &self,
        source: &Source<'_>,
        unstable: &salus_pjrt::Executable,
        program: salus_pjrt::Program,
    ) -> Result<(salus_pjrt::Executable, salus_pjrt::Program), Error> {
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
        let before = signature::of(unstable, program, &self.description)?;
        let after = signature::of(&stable, optimized.clone(), &self.description)?;
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
