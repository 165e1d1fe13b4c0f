//! Refuses programs that would harm other jobs, judged by their optimized form.
//!
//! XLA compiles programs whose code reads or writes memory that is not theirs, or that never ends: a
//! sort whose comparator contradicts itself walks off its array; arrays of a size known at run time
//! show what was in their memory before; a collective names replicas that are not there, or returns
//! more than its one replica gave; a custom call's results are smaller than what is written there;
//! an infeed waits forever. All jobs share the process that would run them. So the compiler's
//! process walks the optimized module, which is what runs, and refuses such a program with the
//! reason (`rules`); unstable sorts are made stable instead, which is safe with any comparator.
//!
//! Promise: judged by what the module contains, whatever the program's source or format was.
//! Cost: linear in the module's bytes.
//! Not here: programs that never end, and faults of the vendor's code generator.

mod instruction;
mod kernels;
mod rules;

use salus_wire::Error;

use crate::hlo::module_bytes;
use crate::proto::{Malformed, Wire, Writer, fields};
use crate::refusal::internal;
use instruction::{IS_STABLE, Instruction, text_of};
use rules::Returned;

pub use kernels::refuse_raw_kernels;

/// What is to be done with a program.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It can be run as it is.
    Run,
    /// It sorts without promising to keep the order of equals: [`with_stable_sorts`] can be run.
    SortsUnstably,
}

/// Judges an optimized program, in a format of [`module_bytes`].
pub fn judge(format: &str, code: &[u8]) -> Result<Verdict, Error> {
    let mut verdict = Verdict::Run;
    each_computation(module_bytes(format, code)?, |name, computation| {
        let instructions = instructions(computation).map_err(unreadable)?;
        let returned: Returned<'_> = instructions
            .iter()
            .map(|one| (one.id, &*one.arrays))
            .collect();
        for instruction in &instructions {
            rules::check(name, instruction, &returned)?;
            if instruction.sorts_unstably() {
                verdict = Verdict::SortsUnstably;
            }
        }
        Ok(())
    })?;
    Ok(verdict)
}

fn unreadable(Malformed: Malformed) -> Error {
    internal("Salus cannot read the optimized program")
}

/// Looks at each computation of an `HloModuleProto`, with the module's name.
fn each_computation(
    module: &[u8],
    mut look: impl FnMut(&str, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut name = String::new();
    for field in fields(module) {
        match field.map_err(unreadable)? {
            (1, text) => name = text_of(text).map_err(unreadable)?,
            (3, computation) => look(&name, computation.bytes().map_err(unreadable)?)?,
            _ => {}
        }
    }
    Ok(())
}

fn instructions(computation: &[u8]) -> Result<Vec<Instruction>, Malformed> {
    let mut read = Vec::new();
    for field in fields(computation) {
        if let (2, instruction) = field? {
            read.push(Instruction::read(instruction.bytes()?)?);
        }
    }
    Ok(read)
}

/// The same module with all sorts stable, as an `HloModuleProto`, which is what plugins compile.
pub fn with_stable_sorts(format: &str, code: &[u8]) -> Result<Vec<u8>, Error> {
    let module = module_bytes(format, code)?;
    let stable = unscheduled(module).and_then(|module| {
        rewrite(&module, 3, |computation| {
            rewrite(computation, 2, stable_instruction)
        })
    });
    stable.map_err(|Malformed| internal("Salus cannot read the sorts of the optimized program"))
}

/// The schedule of an `HloModuleProto`.
const SCHEDULE: u32 = 7;

/// The module without the order in which its operations run. The compiler makes another one, and it
/// aborts when it removes an operation, such as the copy of a parameter that is returned as it is, of
/// a module that still has one.
fn unscheduled(module: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut written = Writer::default();
    for field in fields(module) {
        let (number, value) = field?;
        if number != SCHEDULE {
            written.field(number, value);
        }
    }
    Ok(written.finish())
}

fn stable_instruction(instruction: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut copy = instruction.to_vec();
    if Instruction::read(instruction)?.sorts_unstably() {
        let mut stable = Writer::default();
        stable.field(IS_STABLE, Wire::Varint(1));
        // If a field occurs twice, the last one counts.
        copy.extend(stable.finish());
    }
    Ok(copy)
}

/// The message with each value of one of its fields replaced.
fn rewrite(
    message: &[u8],
    number: u32,
    replace: impl Fn(&[u8]) -> Result<Vec<u8>, Malformed>,
) -> Result<Vec<u8>, Malformed> {
    let mut written = Writer::default();
    for field in fields(message) {
        match field? {
            (found, value) if found == number => {
                written.field(number, Wire::Bytes(&replace(value.bytes()?)?));
            }
            (other, value) => written.field(other, value),
        }
    }
    Ok(written.finish())
}
