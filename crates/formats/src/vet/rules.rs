//! The operations that must not run, each with the reason and what to do instead.

use std::collections::HashMap;

use salus_wire::{ElementType, Error, ErrorCode};

use super::instruction::{Array, Instruction};

/// A rule that an instruction breaks: PJRT's code, what is wrong, what to do about it.
pub(super) type Broken = (ErrorCode, String, &'static str);

/// By an instruction's number, what it returns.
pub(super) type Returned<'a> = HashMap<u32, &'a [Array]>;

/// Checks one instruction of the program. `returned` is of all instructions of its computation.
pub(super) fn check(
    program: &str,
    instruction: &Instruction,
    returned: &Returned<'_>,
) -> Result<(), Error> {
    let broken = dynamic_size(instruction)
        .or_else(|| feed(instruction))
        .or_else(|| absent_replica(instruction))
        .or_else(|| packed_elements(instruction))
        .or_else(|| top_k(instruction, returned))
        .or_else(|| collective(instruction, returned));
    match broken {
        Some(broken) => Err(refusal(program, instruction, broken)),
        None => Ok(()),
    }
}

/// What a job is told whose program breaks a rule.
pub(super) fn refusal(
    program: &str,
    instruction: &Instruction,
    (code, what, hint): Broken,
) -> Error {
    let name = &instruction.name;
    let place = match instruction.source.as_str() {
        "" => format!("`{name}`"),
        source => format!("`{name}` ({source})"),
    };
    let message =
        format!("the program `{program}` is refused, because its operation {place} {what}");
    Error::new(code, message).hint(hint)
}

fn dynamic_size(instruction: &Instruction) -> Option<Broken> {
    instruction.has_dynamic_size.then(|| {
        (
            ErrorCode::Unimplemented,
            "has an array whose size is known only when it runs: what lies beyond that size would \
             be memory that other jobs have used"
                .into(),
            "give it a fixed size, such as `size=` of `jnp.nonzero` and `jnp.unique`, and mask the \
             rest",
        )
    })
}

fn feed(instruction: &Instruction) -> Option<Broken> {
    let opcode = &instruction.opcode;
    matches!(opcode.as_str(), "infeed" | "outfeed").then(|| {
        (
            ErrorCode::Unimplemented,
            format!("is an {opcode}, and nothing is at the other end of it: it would wait forever"),
            "hand data over as arguments and results, or with `jax.experimental.io_callback`",
        )
    })
}

const ONE_DEVICE: &str = "make the mesh of one device: `jax.devices()` has as many as there are";

fn absent_replica(instruction: &Instruction) -> Option<Broken> {
    let opcode = &instruction.opcode;
    let absent = instruction.replicas.iter().find(|replica| **replica != 0)?;
    let what = format!(
        "({opcode}) names replica {absent}, and a program of Salus runs on one device, which is \
         replica 0"
    );
    Some((ErrorCode::InvalidArgument, what, ONE_DEVICE))
}

/// Types of one bit, which XLA has and PJRT does not (`S1`, `U1`).
const ONE_BIT: [u64; 2] = [30, 31];

/// The vendor runs sorts and collectives by libraries that take every element for a byte at least.
fn packed_elements(instruction: &Instruction) -> Option<Broken> {
    let opcode = &instruction.opcode;
    let is_packed = |array: &Array| {
        let number = array.element_type;
        ONE_BIT.contains(&number)
            || ElementType::from_xla(number).is_some_and(ElementType::is_sub_byte)
    };
    let takes_bytes = opcode == "sort" || is_collective(instruction);
    (takes_bytes && instruction.arrays.iter().any(is_packed)).then(|| {
        (
            ErrorCode::Unimplemented,
            format!(
                "({opcode}) is of elements that share a byte, and the vendor's {opcode} takes them \
                 for a byte each: it would write behind its array"
            ),
            "convert them to `int8` before, and back afterwards",
        )
    })
}

/// The one custom call that the CPU plugin answers by itself. Its code trusts the shapes of the
/// results: one of other rows, or of more columns than the operand has, is written beyond its end,
/// or left as it was found.
const TOP_K: &str = "TopK";

fn top_k(instruction: &Instruction, returned: &Returned<'_>) -> Option<Broken> {
    let calls = instruction.opcode == "custom-call" && instruction.target == TOP_K;
    (calls && !is_sound_top_k(instruction, returned)).then(|| {
        (
            ErrorCode::InvalidArgument,
            "is a TopK whose results do not fit its operand: it would read and write beyond them"
                .into(),
            "`jax.lax.top_k(operand, k)` has results that fit, for a `k` up to the operand's last \
             dimension",
        )
    })
}

/// Whether it is given just one array and returns what a `TopK` writes: values of that type and
/// 32-bit numbers, as many rows, and no more columns than there are.
fn is_sound_top_k(instruction: &Instruction, returned: &Returned<'_>) -> bool {
    let mut given = given(instruction, returned);
    let (Some(operand), None) = (given.next(), given.next()) else {
        return false;
    };
    let [values, places] = instruction.arrays.as_slice() else {
        return false;
    };
    let (Some((columns, rows)), Some((k, kept))) =
        (operand.dims.split_last(), values.dims.split_last())
    else {
        return false;
    };
    let places_type = ElementType::from_xla(places.element_type).map(|element| element.pjrt);
    values.element_type == operand.element_type
        && places_type == Some(salus_wire::element::S32)
        && values.dims == places.dims
        && rows == kept
        && k <= columns
}

fn collective(instruction: &Instruction, returned: &Returned<'_>) -> Option<Broken> {
    let opcode = &instruction.opcode;
    (is_collective(instruction) && !returns_its_operands(instruction, returned)).then(|| {
        (
            ErrorCode::InvalidArgument,
            format!(
                "({opcode}) returns arrays of other sizes than it is given, and there is one \
                 replica: the rest would be memory that other jobs have used"
            ),
            ONE_DEVICE,
        )
    })
}

/// Whether replicas exchange data with it.
fn is_collective(instruction: &Instruction) -> bool {
    let opcode = instruction.opcode.as_str();
    matches!(
        opcode.strip_suffix("-start").unwrap_or(opcode),
        "all-gather"
            | "all-reduce"
            | "all-to-all"
            | "collective-broadcast"
            | "collective-permute"
            | "ragged-all-to-all"
            | "reduce-scatter"
    )
}

/// Whether it returns just what it is given, as a collective of one replica does.
fn returns_its_operands(instruction: &Instruction, returned: &Returned<'_>) -> bool {
    let mut arrays = instruction.arrays.iter();
    match instruction.opcode.ends_with("-start") {
        // It returns its operands with its results, and numbers of the vendor's.
        true => arrays.all(|one| {
            one.dims.is_empty() || given(instruction, returned).any(|given| given == one)
        }),
        false => arrays.eq(given(instruction, returned)),
    }
}

/// The arrays of its operands, in their order. Not collected: operands that name one tuple again
/// and again have many times more arrays than the module has bytes.
fn given<'a>(
    instruction: &'a Instruction,
    returned: &'a Returned<'_>,
) -> impl Iterator<Item = &'a Array> {
    let operands = instruction.operands.iter();
    operands.flat_map(|id| returned.get(id).copied().unwrap_or_default())
}
