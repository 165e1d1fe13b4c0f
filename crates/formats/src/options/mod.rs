//! Rebuilds the compile options that a job sent, from an allowlist.
//!
//! A `CompileOptionsProto` is untrusted: it can name files that XLA would read or write, devices of
//! other jobs, and partitions that Salus does not have. It is not edited. A new message is written
//! that contains what is known to be harmless (`allowed`) and what Salus itself decides. It is
//! compiled as a portable executable without a device assignment, which runs on any lane.
//!
//! Promise: no text of the job's choosing passes, except values of numeric options in
//! `env_option_overrides`, which have no character that a path needs. Equal meanings give equal
//! bytes: fields are sorted, and maps as well. What passes is what decides the generated code, so
//! a program computes the same bits as without Salus.
//! Not here: the program itself; the vendor's defaults for options that are not set.

mod allowed;
mod shape;

use std::collections::BTreeMap;

use salus_wire::Error;

use crate::proto::{Malformed, Wire, Writer, fields, push_ints};
use crate::refusal::{invalid, unimplemented};
use allowed::{ALLOWED, FIXED, Kind};

/// JAX sends 1 kB; layouts and sharding flags grow with the number of arguments. The wire's own limit is
/// lower, so this one holds wherever options come from.
const OPTIONS_BYTES_MAX: usize = 4 << 20;
/// Longer texts are no numbers.
const OVERRIDE_VALUE_BYTES_MAX: usize = 128;
/// Enum values in a list field.
const LIST_LEN_MAX: usize = 64;
/// The largest of them. XLA's enums are small; and no printable character is as small as this.
const LIST_VALUE_MAX: i64 = 31;

/// The canonical bytes of what a job may ask of a compiler. The flags that the plugin requires
/// ([`crate::requirements`]) replace the job's.
pub fn rebuild(untrusted: &[u8], required: &[(&str, bool)]) -> Result<Vec<u8>, Error> {
    if untrusted.len() > OPTIONS_BYTES_MAX {
        let bytes = untrusted.len();
        return Err(invalid(format!(
            "compile options of {bytes} bytes; the limit is {OPTIONS_BYTES_MAX}"
        )));
    }
    let mut options = CompileOptions::default();
    options.read(untrusted)?;
    for &(name, value) in required {
        options.overrides.insert(name.to_owned(), flag(value));
    }
    Ok(options.write())
}

/// The value of an option that the service sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Override<'a> {
    Flag(bool),
    Text(&'a str),
}

/// Rebuilt options with more of the service's own, which replace what is there.
pub fn with_overrides(rebuilt: &[u8], overrides: &[(&str, Override<'_>)]) -> Vec<u8> {
    let mut more = Writer::default();
    for (name, value) in overrides {
        let value = match value {
            Override::Flag(value) => flag(*value),
            Override::Text(text) => {
                let mut message = Writer::default();
                message.field(1, Wire::Bytes(text.as_bytes()));
                message.finish()
            }
        };
        more.field(7, Wire::Bytes(&entry(name, &value)));
    }
    // Of two entries of a map with the same key, the later counts.
    [rebuilt, &more.finish()].concat()
}

impl From<Malformed> for Error {
    fn from(_: Malformed) -> Error {
        invalid("the compile options are no CompileOptionsProto")
    }
}

/// What passes of a `CompileOptionsProto`.
#[derive(Debug, Default)]
struct CompileOptions {
    argument_layouts: Vec<Vec<u8>>,
    build: BuildOptions,
    /// Values are canonical `OptionOverrideProto`s.
    overrides: BTreeMap<String, Vec<u8>>,
    matrix_unit_precision: u64,
}

/// What passes of an `ExecutableBuildOptionsProto`.
#[derive(Debug, Default)]
struct BuildOptions {
    result_layout: Option<Vec<u8>>,
    /// Absent means the vendor's defaults, empty means zeros.
    debug: Option<BTreeMap<u32, Scalar>>,
    /// Flags and enums by field number.
    numbers: BTreeMap<u32, u64>,
    /// Efforts by field number.
    floats: BTreeMap<u32, u32>,
    propagate_to_outputs: Vec<i64>,
    propagate_to_parameters: Vec<i64>,
}

#[derive(Debug)]
enum Scalar {
    Number(u64),
    Float(u32),
    List(Vec<i64>),
}

impl CompileOptions {
    fn read(&mut self, untrusted: &[u8]) -> Result<(), Error> {
        for field in fields(untrusted) {
            match field? {
                (1, layout) => self.argument_layouts.push(shape::rebuild(layout.bytes()?)?),
                (2, tupled) if tupled.varint()? != 0 => {
                    return Err(unimplemented(
                        "the program takes its arguments as one tuple \
                         (parameter_is_tupled_arguments), which Salus does not support",
                    ));
                }
                (3, build) => self.build.read(build.bytes()?)?,
                (7, entry) => {
                    self.overrides.extend(read_override(entry.bytes()?)?);
                }
                (10, precision) => self.matrix_unit_precision = precision.varint()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&self) -> Vec<u8> {
        let mut options = Writer::default();
        for layout in &self.argument_layouts {
            options.field(1, Wire::Bytes(layout));
        }
        options.field(3, Wire::Bytes(&self.build.write()));
        // compile_portable_executable: which lane runs it is decided at each launch.
        options.field(4, Wire::Varint(1));
        for (name, value) in &self.overrides {
            options.field(7, Wire::Bytes(&entry(name, value)));
        }
        if self.matrix_unit_precision != 0 {
            options.field(10, Wire::Varint(self.matrix_unit_precision));
        }
        options.finish()
    }
}

/// Fields of `ExecutableBuildOptionsProto` that are flags or enums and pass as they are.
const BUILD_NUMBERS: &[u32] = &[
    6,  // use_spmd_partitioning
    8,  // deduplicate_hlo
    10, // alias_passthrough_params
    19, // use_shardy_partitioner
    24, // optimization_level
    25, // memory_fitting_level
];

/// Fields of `ExecutableBuildOptionsProto` that are efforts, from -1 to 1.
const BUILD_FLOATS: &[u32] = &[
    20, // exec_time_optimization_effort
    21, // memory_fitting_effort
];

impl BuildOptions {
    fn read(&mut self, untrusted: &[u8]) -> Result<(), Error> {
        for field in fields(untrusted) {
            match field? {
                (2, layout) => self.result_layout = Some(shape::rebuild(layout.bytes()?)?),
                (3, debug) => {
                    let options = self.debug.get_or_insert_default();
                    read_debug_options(debug.bytes()?, options)?;
                }
                (4, replicas) => one("replicas", replicas.varint()?)?,
                (5, partitions) => one("partitions", partitions.varint()?)?,
                (12, flags) => push_ints(flags, &mut self.propagate_to_outputs)?,
                (18, flags) => push_ints(flags, &mut self.propagate_to_parameters)?,
                (number, value) if BUILD_NUMBERS.contains(&number) => {
                    self.numbers.insert(number, value.varint()?);
                }
                (number, Wire::Fixed32(bits)) if BUILD_FLOATS.contains(&number) => {
                    if !(-1.0..=1.0).contains(&f32::from_bits(bits)) {
                        return Err(Malformed.into());
                    }
                    self.floats.insert(number, bits);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&self) -> Vec<u8> {
        // By number, so that the message does not depend on the order of this function.
        let mut build: BTreeMap<u32, Wire<'_>> = BTreeMap::new();
        // No device in particular, one of each, one process: decided by Salus, not by the job.
        build.insert(1, Wire::Varint(-1i64 as u64));
        build.insert(4, Wire::Varint(1));
        build.insert(5, Wire::Varint(1));
        build.insert(23, Wire::Varint(1));
        if let Some(layout) = &self.result_layout {
            build.insert(2, Wire::Bytes(layout));
        }
        let debug = self.debug.as_ref().map(write_debug_options);
        if let Some(debug) = &debug {
            build.insert(3, Wire::Bytes(debug));
        }
        for (&number, &value) in self.numbers.iter().filter(|&(_, &value)| value != 0) {
            build.insert(number, Wire::Varint(value));
        }
        for (&number, &bits) in self.floats.iter().filter(|&(_, &bits)| bits != 0) {
            build.insert(number, Wire::Fixed32(bits));
        }
        let outputs = flags(&self.propagate_to_outputs);
        let parameters = flags(&self.propagate_to_parameters);
        for (number, flags) in [(12, &outputs), (18, &parameters)] {
            if !flags.is_empty() {
                build.insert(number, Wire::Bytes(flags));
            }
        }
        let mut message = Writer::default();
        for (number, value) in build {
            message.field(number, value);
        }
        message.finish()
    }
}

/// Packed `bool`s.
fn flags(untrusted: &[i64]) -> Vec<u8> {
    untrusted.iter().map(|&flag| u8::from(flag != 0)).collect()
}

fn one(what: &str, count: u64) -> Result<(), Error> {
    // Zero is a field that was left out.
    if count <= 1 {
        return Ok(());
    }
    Err(unimplemented(format!(
        "the program is for {count} {what}, and Salus gives each session one device"
    )))
}

fn read_debug_options(untrusted: &[u8], to: &mut BTreeMap<u32, Scalar>) -> Result<(), Malformed> {
    for field in fields(untrusted) {
        let (number, value) = field?;
        let Ok(index) = ALLOWED.binary_search_by_key(&number, |allowed| allowed.0) else {
            continue;
        };
        let scalar = match (ALLOWED[index].2, value) {
            (Kind::Bool, Wire::Varint(int)) => Scalar::Number(u64::from(int != 0)),
            (Kind::Int, Wire::Varint(int)) => Scalar::Number(int),
            (Kind::Float, Wire::Fixed32(bits)) if f32::from_bits(bits).is_finite() => {
                Scalar::Float(bits)
            }
            (Kind::List, value) => {
                let mut list = match to.remove(&number) {
                    Some(Scalar::List(list)) => list,
                    _ => Vec::new(),
                };
                push_ints(value, &mut list)?;
                let small = |&value: &i64| (0..=LIST_VALUE_MAX).contains(&value);
                if list.len() > LIST_LEN_MAX || !list.iter().all(small) {
                    return Err(Malformed);
                }
                Scalar::List(list)
            }
            _ => return Err(Malformed),
        };
        to.insert(number, scalar);
    }
    Ok(())
}

fn write_debug_options(options: &BTreeMap<u32, Scalar>) -> Vec<u8> {
    let fixed = FIXED
        .iter()
        .map(|&(number, value)| (number, Scalar::Number(value as u64)));
    let fixed: BTreeMap<u32, Scalar> = fixed.collect();
    let mut sorted: Vec<(&u32, &Scalar)> = options.iter().chain(&fixed).collect();
    sorted.sort_by_key(|&(number, _)| *number);
    let mut message = Writer::default();
    for (&number, scalar) in sorted {
        match scalar {
            Scalar::Number(int) => message.field(number, Wire::Varint(*int)),
            Scalar::Float(bits) => message.field(number, Wire::Fixed32(*bits)),
            Scalar::List(list) => message.ints(number, list),
        }
    }
    message.finish()
}

/// An entry of `env_option_overrides`: a name and an `OptionOverrideProto`. `None` if it only
/// configures dumps: no place to dump to ever passes, so it has no effect.
fn read_override(entry: &[u8]) -> Result<Option<(String, Vec<u8>)>, Error> {
    let (mut name, mut value) = ("", &[][..]);
    for field in fields(entry) {
        match field? {
            (1, text) => name = std::str::from_utf8(text.bytes()?).map_err(|_| Malformed)?,
            (2, bytes) => value = bytes.bytes()?,
            _ => {}
        }
    }
    let number_or_flag = |field: &_| matches!(field, Ok((2..=4, _)));
    if name.starts_with("xla_dump_") && fields(value).all(|field| number_or_flag(&field)) {
        return Ok(None);
    }
    if !ALLOWED.iter().any(|allowed| allowed.1 == name) {
        // The name is untrusted, too: what is printed is short and has no control characters.
        let shown: String = name.escape_default().take(80).collect();
        return Err(invalid(format!(
            "No such compile option: '{shown}'. It is unknown, or it reaches files or the \
                 compiler itself and is not available through Salus; leave it out"
        )));
    }
    let mut canonical = Writer::default();
    let mut chosen = None;
    for field in fields(value) {
        match field? {
            field @ (1, Wire::Bytes(text)) if is_plain(text) => chosen = Some(field),
            field @ (2 | 3, Wire::Varint(_)) => chosen = Some(field),
            field @ (4, Wire::Fixed64(bits)) if f64::from_bits(bits).is_finite() => {
                chosen = Some(field);
            }
            _ => {
                return Err(invalid(format!(
                    "the compiler option `{name}` takes a number, a flag or a plain word"
                )));
            }
        }
    }
    if let Some((number, value)) = chosen {
        canonical.field(number, value);
    }
    Ok(Some((name.to_owned(), canonical.finish())))
}

/// An entry of `env_option_overrides`.
fn entry(name: &str, value: &[u8]) -> Vec<u8> {
    let mut entry = Writer::default();
    entry.field(1, Wire::Bytes(name.as_bytes()));
    entry.field(2, Wire::Bytes(value));
    entry.finish()
}

/// A canonical `OptionOverrideProto` of a flag.
fn flag(value: bool) -> Vec<u8> {
    let mut message = Writer::default();
    message.field(2, Wire::Varint(u64::from(value)));
    message.finish()
}

/// Whether a text can be a number, a flag or a list of enum names, and no path.
fn is_plain(text: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_+-.,".contains(byte);
    text.len() <= OVERRIDE_VALUE_BYTES_MAX
        && text.iter().all(plain)
        && !text.windows(2).any(|pair| pair == b"..")
}

#[cfg(test)]
mod tests;
