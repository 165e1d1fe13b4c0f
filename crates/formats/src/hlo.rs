//! The boundary of an optimized HLO module: parameters, results, aliases.
//!
//! Reads `HloModuleProto` at the level of bytes. Field numbers are XLA's (`xla/service/hlo.proto`,
//! `xla/xla_data.proto`); fields that do not matter here are skipped, whatever they are.
//!
//! Promise: what [`boundary`] returns agrees with itself: element types are known, and aliases join
//! outputs and parameters that are there.
//! Not here: whether the vendor's own answers agree with it (`device`).

use salus_wire::{Error, Shape};

use crate::callback::TARGETS;
use crate::element::from_xla;
use crate::layout;
use crate::proto::{Malformed, fields, push_ints};
use crate::refusal::{internal, unimplemented};

/// The boundary of a module.
#[derive(Debug, Default, PartialEq)]
pub struct Module {
    pub name: String,
    pub parameters: Vec<Placed>,
    /// A tuple's elements, or the one array.
    pub results: Vec<Placed>,
    pub aliases: Vec<Alias>,
    /// Whether a custom call in it is answered by the job.
    pub calls_back: bool,
}

/// An array's shape and the memory space that its layout names.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    pub shape: Shape,
    pub memory_space: u64,
}

/// `output` takes over the memory of `parameter` if that is donated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    pub output: u32,
    pub parameter: u32,
}

/// XLA's number for host memory (`Layout::kHostMemorySpace`).
pub const HOST_MEMORY_SPACE: u64 = 5;

/// Reads the boundary of an optimized program, in a format of [`module_bytes`].
pub fn boundary(format: &str, code: &[u8]) -> Result<Module, Error> {
    let read = module(module_bytes(format, code)?).map_err(|Malformed| unreadable(format, code))?;
    let (parameters, outputs) = (read.parameters.len(), read.results.len());
    let is_beyond = |a: &&Alias| a.parameter as usize >= parameters || a.output as usize >= outputs;
    match read.aliases.iter().find(is_beyond) {
        None => Ok(read),
        Some(alias) => Err(internal(format!(
            "{alias:?} is beyond {parameters} parameters and {outputs} outputs"
        ))),
    }
}

/// The `HloModuleProto` in an optimized program: `hlo` is one, and `hlo_with_config` has one as its
/// first field.
pub fn module_bytes<'a>(format: &str, code: &'a [u8]) -> Result<&'a [u8], Error> {
    match format {
        "hlo" => Ok(code),
        "hlo_with_config" => {
            let module = fields(code).find_map(|field| match field {
                Ok((1, module)) => Some(module.bytes()),
                Ok(_) => None,
                Err(Malformed) => Some(Err(Malformed)),
            });
            let module = module.unwrap_or(Err(Malformed));
            module.map_err(|Malformed| unreadable(format, code))
        }
        other => Err(unimplemented(format!(
            "the vendor's plugin shows optimized programs as `{other}`, which Salus does not \
                 read (`hlo_with_config` and `hlo` it does)"
        ))),
    }
}

fn unreadable(format: &str, code: &[u8]) -> Error {
    let bytes = code.len();
    internal(format!(
        "the optimized program ({bytes} bytes of `{format}`) has a boundary that Salus cannot read"
    ))
}

fn module(message: &[u8]) -> Result<Module, Malformed> {
    let mut module = Module::default();
    for field in fields(message) {
        match field? {
            (1, name) => module.name = String::from_utf8_lossy(name.bytes()?).into_owned(),
            (3, computation) => module.calls_back |= calls_back(computation.bytes()?)?,
            (4, program) => (module.parameters, module.results) = program_shape(program.bytes()?)?,
            (8, aliases) => module.aliases = alias_entries(aliases.bytes()?)?,
            _ => {}
        }
    }
    Ok(module)
}

/// Whether an `HloComputationProto` has a custom call that the job answers.
fn calls_back(message: &[u8]) -> Result<bool, Malformed> {
    for field in fields(message) {
        let (2, instruction) = field? else { continue };
        for field in fields(instruction.bytes()?) {
            if let (28, target) = field?
                && TARGETS
                    .iter()
                    .any(|(name, _)| target.bytes() == Ok(name.as_bytes()))
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Parameters and results of a `ProgramShapeProto`.
fn program_shape(message: &[u8]) -> Result<(Vec<Placed>, Vec<Placed>), Malformed> {
    let (mut parameters, mut results) = (Vec::new(), Vec::new());
    for field in fields(message) {
        match field? {
            (1, parameter) => match shape(parameter.bytes()?)? {
                Parsed::Array(array) => parameters.push(array),
                // No framework passes tuples as arguments, and no array could be passed for one.
                Parsed::Tuple(_) => return Err(Malformed),
            },
            (2, result) => match shape(result.bytes()?)? {
                Parsed::Array(array) => results = vec![array],
                Parsed::Tuple(elements) => results = elements,
            },
            _ => {}
        }
    }
    Ok((parameters, results))
}

/// An array's shape, or those of a tuple's elements.
enum Parsed {
    Array(Placed),
    Tuple(Vec<Placed>),
}

/// XLA's `PrimitiveType` of a tuple.
pub(crate) const TUPLE: u64 = 13;

/// Reads a `ShapeProto`. Tuples in tuples are malformed: PJRT has no arrays for them.
fn shape(message: &[u8]) -> Result<Parsed, Malformed> {
    let mut primitive_type = 0;
    let mut dims = Vec::new();
    let mut elements = Vec::new();
    let mut order = None;
    let mut memory_space = 0;
    for field in fields(message) {
        match field? {
            (2, number) => primitive_type = number.varint()?,
            (3, sizes) => push_ints(sizes, &mut dims)?,
            (4, element) => elements.push(element.bytes()?),
            (5, inner) => (order, memory_space) = layout_order(inner.bytes()?)?,
            _ => {}
        }
    }
    if primitive_type == TUPLE {
        let array = |element: &&[u8]| match shape(element)? {
            Parsed::Array(array) => Ok(array),
            Parsed::Tuple(_) => Err(Malformed),
        };
        return elements
            .iter()
            .map(array)
            .collect::<Result<_, _>>()
            .map(Parsed::Tuple);
    }
    let order: Option<Vec<i64>> = order.filter(|order: &Vec<i64>| order.len() == dims.len());
    Ok(Parsed::Array(Placed {
        shape: Shape {
            element_type: from_xla(primitive_type).ok_or(Malformed)?,
            dims,
            minor_to_major: order.filter(|order| !layout::is_default(order)),
        },
        memory_space,
    }))
}

/// Minor-to-major order and memory space of a `LayoutProto`.
fn layout_order(message: &[u8]) -> Result<(Option<Vec<i64>>, u64), Malformed> {
    let mut order = Vec::new();
    let mut memory_space = 0;
    for field in fields(message) {
        match field? {
            (1, dims) => push_ints(dims, &mut order)?,
            (8, space) => memory_space = space.varint()?,
            _ => {}
        }
    }
    Ok((Some(order), memory_space))
}

/// The entries of an `HloInputOutputAliasProto` whose ends are whole arrays.
fn alias_entries(message: &[u8]) -> Result<Vec<Alias>, Malformed> {
    let mut aliases = Vec::new();
    for field in fields(message) {
        let (1, entry) = field? else { continue };
        let (mut output, mut parameter, mut inside) = (Vec::new(), 0, Vec::new());
        for field in fields(entry.bytes()?) {
            match field? {
                (1, index) => push_ints(index, &mut output)?,
                (2, number) => parameter = number.varint()?,
                (3, index) => push_ints(index, &mut inside)?,
                _ => {}
            }
        }
        // No index is the whole result, which then is one array.
        let output = match output[..] {
            [] => 0,
            [index] => u32::try_from(index).map_err(|_| Malformed)?,
            _ => return Err(Malformed),
        };
        if !inside.is_empty() {
            return Err(Malformed);
        }
        aliases.push(Alias {
            output,
            parameter: u32::try_from(parameter).map_err(|_| Malformed)?,
        });
    }
    Ok(aliases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Wire, Writer};

    fn array(primitive_type: u64, dims: &[i64], order: &[i64], space: u64) -> Vec<u8> {
        let mut layout = Writer::default();
        layout.ints(1, order);
        layout.field(8, Wire::Varint(space));
        let mut shape = Writer::default();
        shape.field(2, Wire::Varint(primitive_type));
        shape.ints(3, dims);
        shape.field(5, Wire::Bytes(&layout.finish()));
        shape.finish()
    }

    fn sample() -> Vec<u8> {
        let mut tuple = Writer::default();
        tuple.field(2, Wire::Varint(TUPLE));
        tuple.field(4, Wire::Bytes(&array(11, &[2, 3], &[0, 1], 0)));
        tuple.field(4, Wire::Bytes(&array(16, &[], &[], HOST_MEMORY_SPACE)));
        let mut program = Writer::default();
        program.field(1, Wire::Bytes(&array(11, &[2, 3], &[1, 0], 0)));
        program.field(2, Wire::Bytes(&tuple.finish()));
        let mut entry = Writer::default();
        entry.ints(1, &[1]);
        entry.field(2, Wire::Varint(0));
        entry.field(4, Wire::Varint(1));
        let mut aliases = Writer::default();
        aliases.field(1, Wire::Bytes(&entry.finish()));
        let mut module = Writer::default();
        module.field(1, Wire::Bytes(b"jit_f"));
        for target in ["topk", "xla_ffi_python_cpu_callback"] {
            let mut instruction = Writer::default();
            instruction.field(28, Wire::Bytes(target.as_bytes()));
            let mut computation = Writer::default();
            computation.field(2, Wire::Bytes(&instruction.finish()));
            module.field(3, Wire::Bytes(&computation.finish()));
        }
        module.field(4, Wire::Bytes(&program.finish()));
        module.field(8, Wire::Bytes(&aliases.finish()));
        let mut with_config = Writer::default();
        with_config.field(1, Wire::Bytes(&module.finish()));
        with_config.finish()
    }

    #[test]
    fn a_boundary_is_read() {
        let module = boundary("hlo_with_config", &sample()).expect("well formed");
        assert_eq!(module.name, "jit_f");
        assert_eq!(module.parameters[0].shape.minor_to_major, None);
        assert_eq!(module.results[0].shape.minor_to_major, Some(vec![0, 1]));
        assert_eq!(module.results[1].shape.element_type, 13);
        assert_eq!(module.results[1].memory_space, HOST_MEMORY_SPACE);
        let (output, parameter) = (1, 0);
        assert_eq!(module.aliases, [Alias { output, parameter }]);
        assert!(module.calls_back);
    }

    #[test]
    fn truncations_and_flipped_bytes_never_panic() {
        let sample = sample();
        for len in 0..sample.len() {
            // Some truncations are messages, too; none is a crash.
            let _ = boundary("hlo_with_config", &sample[..len]);
            let _ = boundary("hlo", &sample[len..]);
            for flip in 0..=255 {
                let mut bytes = sample.clone();
                bytes[len] ^= flip;
                let _ = boundary("hlo_with_config", &bytes);
            }
        }
    }

    #[test]
    fn an_alias_beyond_the_boundary_is_refused() {
        let aliased = |output, parameter| {
            let mut entry = Writer::default();
            entry.ints(1, &[output]);
            entry.field(2, Wire::Varint(parameter));
            let mut aliases = Writer::default();
            aliases.field(1, Wire::Bytes(&entry.finish()));
            let mut module = Writer::default();
            let sample = sample();
            let inner = module_bytes("hlo_with_config", &sample).expect("a module");
            for field in fields(inner) {
                let (number, value) = field.expect("well formed");
                module.field(number, value);
            }
            module.field(8, Wire::Bytes(&aliases.finish()));
            boundary("hlo", &module.finish())
        };
        assert!(aliased(1, 0).is_ok());
        assert!(aliased(2, 0).is_err() && aliased(1, 1).is_err());
    }

    #[test]
    fn other_formats_are_refused_by_name() {
        let refused = boundary("hlo_text", &sample()).expect_err("not read");
        assert!(refused.message.contains("`hlo_text`"), "{refused}");
    }
}
