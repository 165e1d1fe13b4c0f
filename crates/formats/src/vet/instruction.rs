//! What matters of an instruction (`HloInstructionProto`), read without trust.

use crate::hlo::TUPLE;
use crate::proto::{Malformed, Wire, fields, push_ints};

/// `is_stable` of an `HloInstructionProto`.
pub(super) const IS_STABLE: u32 = 60;

/// Tuples in tuples are read down to here; XLA makes none that are deeper.
const SHAPE_DEPTH_MAX: u32 = 64;

/// One operation of a computation.
#[derive(Debug, Default)]
pub(super) struct Instruction {
    pub(super) name: String,
    pub(super) opcode: String,
    /// Where it is in the user's program, if JAX recorded that.
    pub(super) source: String,
    /// What it calls, if it is a custom call.
    pub(super) target: String,
    pub(super) has_dynamic_size: bool,
    pub(super) is_stable: bool,
    /// Replicas that it names.
    pub(super) replicas: Vec<i64>,
    /// Its number within its computation, and those of its operands.
    pub(super) id: u32,
    pub(super) operands: Vec<u32>,
    /// What it returns: one array, or those of a tuple in their order.
    pub(super) arrays: Vec<Array>,
}

/// An array's type and size in XLA's terms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) element_type: u64,
    pub(super) dims: Vec<i64>,
}

impl Instruction {
    pub(super) fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut read = Self::default();
        for field in fields(message) {
            match field? {
                (1, name) => read.name = text_of(name)?,
                (2, opcode) => read.opcode = text_of(opcode)?,
                (3, shape) => {
                    read.has_dynamic_size |= is_dynamic(shape.bytes()?, SHAPE_DEPTH_MAX)?;
                    push_arrays(shape.bytes()?, SHAPE_DEPTH_MAX, &mut read.arrays)?;
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

    pub(super) fn sorts_unstably(&self) -> bool {
        self.opcode == "sort" && !self.is_stable
    }
}

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

/// `jit(f)/sort, at train.py:12` from an `OpMetadata`, or as much of it as is there.
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

/// A text for messages; what is not UTF-8 in it is replaced.
pub(super) fn text_of(value: Wire<'_>) -> Result<String, Malformed> {
    Ok(String::from_utf8_lossy(value.bytes()?).into_owned())
}
