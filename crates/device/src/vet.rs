//! What a program may do to the process that runs it, judged before anybody loads it.
//!
//! The vendor compiles programs that it cannot run safely: a size that is known only at run time
//! shows whatever lay in memory before, an unstable sort whose comparator is no order writes beyond
//! its array, and so does any sort or collective of elements that share a byte; a collective returns
//! more than its one replica gave; a custom call's results are smaller than what is written there; an
//! infeed waits for ever. All jobs share the process that would run them. So the compiler's process
//! walks the optimized module, which is what runs, and refuses such a program with the reason; unstable
//! sorts are made stable instead, which is safe whatever their comparator says.
//!
//! Promise: judged by what the module contains, whatever the program's source or format was.
//! Not here: programs that never end, and faults of the vendor's code generator.

use std::collections::HashMap;

use crate::Error;
use crate::failure::{INTERNAL, INVALID_ARGUMENT, UNIMPLEMENTED, error};
use crate::proto::{Malformed, Wire, Writer, fields, push_ints};

/// What is to be done with a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It can be run as it is.
    Run,
    /// It sorts without promising to keep the order of equals: [`with_stable_sorts`] can be run.
    SortsUnstably,
}

/// Judges an optimized program: an `HloModuleProto`, or one `with_config`.
pub(crate) fn judge(format: &str, code: &[u8]) -> Result<Verdict, Error> {
    let module = match format {
        "hlo_with_config" => inner_module(code),
        _ => Ok(code),
    };
    let unreadable = |Malformed| error(INTERNAL, "Salus cannot read the optimized program");
    let module = module.map_err(unreadable)?;
    let mut name = String::new();
    let mut verdict = Verdict::Run;
    for field in fields(module) {
        match field.map_err(unreadable)? {
            (1, text) => name = text_of(text).map_err(unreadable)?,
            (3, computation) => {
                let computation = computation.bytes().map_err(unreadable)?;
                let instructions = instructions(computation).map_err(unreadable)?;
                let arrays: HashMap<u32, &[Array]> = instructions
                    .iter()
                    .map(|one| (one.id, &*one.arrays))
                    .collect();
                for instruction in &instructions {
                    instruction.check(&name, &arrays)?;
                    if instruction.sorts_unstably() {
                        verdict = Verdict::SortsUnstably;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(verdict)
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
pub(crate) fn with_stable_sorts(format: &str, code: &[u8]) -> Result<Vec<u8>, Malformed> {
    match format {
        "hlo_with_config" => stable_module(inner_module(code)?),
        _ => stable_module(code),
    }
}

fn stable_module(module: &[u8]) -> Result<Vec<u8>, Malformed> {
    rewrite(&unscheduled(module)?, 3, |computation| {
        rewrite(computation, 2, stable_instruction)
    })
}

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
        // Of a field that comes twice, the last counts.
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

const IS_STABLE: u32 = 60;
/// Of an `HloModuleProto`.
const SCHEDULE: u32 = 7;

/// What matters of an `HloInstructionProto`.
#[derive(Debug, Default)]
struct Instruction {
    name: String,
    opcode: String,
    /// Where the user's program has it, as JAX says.
    source: String,
    /// What it calls, if it is a custom call.
    target: String,
    has_dynamic_size: bool,
    is_stable: bool,
    /// Replicas that it names.
    replicas: Vec<i64>,
    /// Its number within its computation, and those of its operands.
    id: u32,
    operands: Vec<u32>,
    /// What it returns: one array, or those of a tuple in their order.
    arrays: Vec<Array>,
}

/// An array's type and size as XLA says them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Array {
    element_type: u64,
    dims: Vec<i64>,
}

/// S4, U4, S2, U2, S1, U1 and F4E2M1FN: several lie in a byte.
const SMALLER_THAN_A_BYTE: &[u64] = &[21, 22, 26, 27, 30, 31, 32];

/// XLA's number of 32-bit integers.
const S32: u64 = 4;

/// The one custom call that the CPU plugin answers by itself. Its code believes what the results'
/// shapes say: a result of other rows, or of more columns than the operand has, is written beyond its
/// end, or left as it was found.
const TOP_K: &str = "TopK";

impl Instruction {
    fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut read = Self::default();
        for field in fields(message) {
            match field? {
                (1, name) => read.name = text_of(name)?,
                (2, opcode) => read.opcode = text_of(opcode)?,
                (3, shape) => {
                    read.has_dynamic_size = is_dynamic(shape.bytes()?, SHAPE_DEPTH)?;
                    push_arrays(shape.bytes()?, SHAPE_DEPTH, &mut read.arrays)?;
                }
                (7, metadata) => read.source = source_of(metadata.bytes()?)?,
                (28, target) => read.target = text_of(target)?,
                // Newer versions have the computation's number in the upper half.
                (35, id) => read.id = id.varint()? as u32,
                (36, operands) => {
                    let mut ids = Vec::new();
                    push_ints(operands, &mut ids)?;
                    read.operands.extend(ids.into_iter().map(|id| id as u32));
                }
                // Replica groups, pairs of source and target, and lists of groups.
                (49 | 52, group) => push_members(group.bytes()?, &mut read.replicas)?,
                (87, list) => {
                    for field in fields(list.bytes()?) {
                        if let (1, group) = field? {
                            push_members(group.bytes()?, &mut read.replicas)?;
                        }
                    }
                }
                (IS_STABLE, stable) => read.is_stable = stable.varint()? != 0,
                _ => {}
            }
        }
        Ok(read)
    }

    fn sorts_unstably(&self) -> bool {
        self.opcode == "sort" && !self.is_stable
    }

    /// Whether replicas exchange data with it.
    fn is_collective(&self) -> bool {
        let opcode = self.opcode.strip_suffix("-start").unwrap_or(&self.opcode);
        matches!(
            opcode,
            "all-gather"
                | "all-reduce"
                | "all-to-all"
                | "collective-broadcast"
                | "collective-permute"
                | "ragged-all-to-all"
                | "reduce-scatter"
        )
    }

    /// Whether the vendor runs it by a library that knows nothing of elements that share a byte.
    fn takes_a_byte_each(&self) -> bool {
        self.is_collective() || self.opcode == "sort"
    }

    /// Whether it is given just this one array and returns what a `TopK` writes: values of its type and
    /// 32-bit numbers, as many rows, and no more columns than there are.
    fn is_top_k_of(&self, given: &[&Array]) -> bool {
        let ([operand], [values, places]) = (given, self.arrays.as_slice()) else {
            return false;
        };
        let (Some((columns, rows)), Some((k, kept))) =
            (operand.dims.split_last(), values.dims.split_last())
        else {
            return false;
        };
        values.element_type == operand.element_type
            && places.element_type == S32
            && values.dims == places.dims
            && rows == kept
            && k <= columns
    }

    /// Whether a collective returns just what it is given, as one replica's does.
    fn returns(&self, given: &[&Array]) -> bool {
        match self.opcode.ends_with("-start") {
            // It returns its operands with its results, and numbers of the vendor's.
            true => (self.arrays.iter()).all(|one| one.dims.is_empty() || given.contains(&one)),
            false => self.arrays.iter().eq(given.iter().copied()),
        }
    }

    /// `arrays` are those of all instructions of the computation.
    fn check(&self, program: &str, arrays: &HashMap<u32, &[Array]>) -> Result<(), Error> {
        let Self { name, opcode, .. } = self;
        let operands = self.operands.iter();
        let given: Vec<&Array> = operands
            .flat_map(|id| arrays.get(id).copied().unwrap_or_default())
            .collect();
        let refuse = |code, what: String, hint: &str| {
            let place = match self.source.as_str() {
                "" => format!("`{name}`"),
                source => format!("`{name}` ({source})"),
            };
            Err(error(
                code,
                format!(
                    "the program `{program}` is refused, because its operation {place} {what}\n\n\
                     hint: {hint}"
                ),
            ))
        };
        if self.has_dynamic_size {
            return refuse(
                UNIMPLEMENTED,
                "has an array whose size is known only when it runs: what lies beyond that size \
                 would be memory that other jobs have used"
                    .into(),
                "give it a fixed size, such as `size=` of `jnp.nonzero` and `jnp.unique`, and mask \
                 the rest",
            );
        }
        if matches!(opcode.as_str(), "infeed" | "outfeed") {
            return refuse(
                UNIMPLEMENTED,
                format!(
                    "is an {opcode}, and nothing is at the other end of it: it would wait for ever"
                ),
                "hand data over as arguments and results, or with `jax.experimental.io_callback`",
            );
        }
        if let Some(absent) = self.replicas.iter().find(|replica| **replica != 0) {
            return refuse(
                INVALID_ARGUMENT,
                format!(
                    "({opcode}) names replica {absent}, and a program of Salus runs on one device, \
                     which is replica 0"
                ),
                "make the mesh of one device: `jax.devices()` has as many as there are",
            );
        }
        let is_small = |one: &Array| SMALLER_THAN_A_BYTE.contains(&one.element_type);
        if self.takes_a_byte_each() && self.arrays.iter().any(is_small) {
            return refuse(
                UNIMPLEMENTED,
                format!(
                    "({opcode}) is of elements that share a byte, and the vendor's {opcode} takes them \
                     for a byte each: it would write behind its array"
                ),
                "convert them to `int8` before, and back afterwards",
            );
        }
        if opcode == "custom-call" && self.target == TOP_K && !self.is_top_k_of(&given) {
            return refuse(
                INVALID_ARGUMENT,
                "is a TopK whose results do not fit its operand: it would read and write beyond them"
                    .into(),
                "`jax.lax.top_k(operand, k)` has results that fit, for a `k` up to the operand's last \
                 dimension",
            );
        }
        if self.is_collective() && !self.returns(&given) {
            return refuse(
                INVALID_ARGUMENT,
                format!(
                    "({opcode}) returns arrays of other sizes than it is given, and there is one \
                     replica: the rest would be memory that other jobs have used"
                ),
                "make the mesh of one device: `jax.devices()` has as many as there are",
            );
        }
        Ok(())
    }
}

/// A `ShapeProto`'s tuples in tuples are read to here; XLA makes none that are deeper.
const SHAPE_DEPTH: u32 = 64;

/// Whether a dimension of a `ShapeProto`, or of an element of its tuple, is known at run time only.
fn is_dynamic(shape: &[u8], depth: u32) -> Result<bool, Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed)?;
    for field in fields(shape) {
        match field? {
            (4, element) if is_dynamic(element.bytes()?, depth)? => return Ok(true),
            (6, dynamic) => {
                let mut flags = Vec::new();
                push_ints(dynamic, &mut flags)?;
                if flags.iter().any(|flag| *flag != 0) {
                    return Ok(true);
                }
            }
            _ => {}
        }
    }
    Ok(false)
}

/// The arrays of a `ShapeProto`, those of its tuples included.
fn push_arrays(shape: &[u8], depth: u32, to: &mut Vec<Array>) -> Result<(), Malformed> {
    const TUPLE: u64 = 13;
    let depth = depth.checked_sub(1).ok_or(Malformed)?;
    let mut array = Array::default();
    for field in fields(shape) {
        match field? {
            (2, element_type) => array.element_type = element_type.varint()?,
            (3, dims) => push_ints(dims, &mut array.dims)?,
            (4, element) => push_arrays(element.bytes()?, depth, to)?,
            _ => {}
        }
    }
    if array.element_type != TUPLE {
        to.push(array);
    }
    Ok(())
}

/// The members of a `ReplicaGroup`, or both ends of a `SourceTarget`.
fn push_members(group: &[u8], to: &mut Vec<i64>) -> Result<(), Malformed> {
    for field in fields(group) {
        if let (1 | 2, members) = field? {
            push_ints(members, to)?;
        }
    }
    Ok(())
}

/// `jit(f)/sort, at train.py:12` of an `OpMetadata`, as far as it says.
fn source_of(metadata: &[u8]) -> Result<String, Malformed> {
    let (mut operation, mut file, mut line) = (String::new(), String::new(), 0);
    for field in fields(metadata) {
        match field? {
            (2, text) => operation = text_of(text)?,
            (3, text) => file = text_of(text)?,
            (4, number) => line = number.varint()?,
            _ => {}
        }
    }
    if !file.is_empty() {
        operation += &format!(", at {file}:{line}");
    }
    Ok(operation)
}

fn inner_module(message: &[u8]) -> Result<&[u8], Malformed> {
    for field in fields(message) {
        if let (1, module) = field? {
            return module.bytes();
        }
    }
    Err(Malformed)
}

fn text_of(value: Wire<'_>) -> Result<String, Malformed> {
    Ok(String::from_utf8_lossy(value.bytes()?).into_owned())
}
