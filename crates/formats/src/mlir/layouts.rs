//! How the dialects write their attributes and types: for each encoding, the fields it consists of.
//!
//! Both VHLO and MLIR's own dialect only ever add encodings and never change one, so that old
//! artifacts stay readable. The numbers are those in the sources of StableHLO 1.20 and of LLVM in 2026.
//!
//! Promise: an encoding that is not listed is not understood, and neither is one whose fields do
//! not end where its entry ends.
//! Not here: resources, distinct attributes, sparse and string tensors, memory references, vectors:
//! no program for a PJRT device has them.

use super::tables::Dialect;

/// One part of an entry. What is a number to one encoding is a reference to another, and
/// references must be followed: their numbering depends on the locations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// A number, signed or not, an enumerator or a double's bits: a varint in any case.
    Int,
    Byte,
    Blob,
    String,
    Attribute,
    /// An attribute, or nothing: a flag in the index' lowest bit.
    Optional,
    /// An attribute, or nothing: a number before it.
    Preceded,
    Type,
    /// A type, and a number of that type's width.
    Number,
    /// Lists: how many, and then each.
    Ints,
    Attributes,
    Types,
    /// A list of names and attributes.
    Named,
    /// Parts of locations, for which the kind of attribute is checked.
    Name,
    Location,
    Locations,
}

use Field::*;

/// Encodings of builtin attributes that are locations, and those that are strings.
pub(super) const UNKNOWN_LOCATION: u64 = 15;
pub(super) const STRING_ATTRIBUTE: u64 = 2;
pub(super) fn is_location(code: u64) -> bool {
    matches!(code, 10..=UNKNOWN_LOCATION | 22)
}

pub(super) fn attribute(dialect: Dialect, code: u64) -> Option<&'static [Field]> {
    match dialect {
        Dialect::Builtin => builtin_attribute(code),
        Dialect::Vhlo => vhlo_attribute(code),
        Dialect::Sdy => sdy_attribute(code),
        Dialect::Other => None,
    }
}

pub(super) fn kind(dialect: Dialect, code: u64) -> Option<&'static [Field]> {
    match dialect {
        Dialect::Builtin => builtin_type(code),
        Dialect::Vhlo => vhlo_type(code),
        Dialect::Sdy | Dialect::Other => None,
    }
}

fn builtin_attribute(code: u64) -> Option<&'static [Field]> {
    Some(match code {
        0 => &[Attributes],            // array
        1 => &[Named],                 // dictionary
        STRING_ATTRIBUTE => &[String], // string
        3 => &[String, Type],          // string with a type
        4 => &[Attribute],             // symbol
        5 => &[Attribute, Attributes], // nested symbol
        6 => &[Type],                  // type
        7 => &[],                      // unit
        8 | 9 => &[Number],            // integer, float
        10 => &[Location, Location],   // location: call site
        11 => &[Name, Int, Int],       // location: file, line, column
        12 => &[Locations],            // location: fused
        13 => &[Locations, Attribute], // location: fused, with metadata
        14 => &[Name, Location],       // location: name
        UNKNOWN_LOCATION => &[],       // location: unknown
        17 => &[Type, Int, Blob],      // dense array
        18 => &[Type, Blob],           // dense elements
        22 => &[Name, Ints],           // location: range in a file
        _ => return None,
    })
}

fn builtin_type(code: u64) -> Option<&'static [Field]> {
    Some(match code {
        0 => &[Int],                    // integer: width and signedness
        1 => &[],                       // index
        2 => &[Types, Types],           // function
        3..=8 => &[],                   // bf16, f16, f32, f64, f80, f128
        9 => &[Type],                   // complex
        12 => &[],                      // none
        13 => &[Ints, Type],            // ranked tensor
        14 => &[Attribute, Ints, Type], // ranked tensor with an encoding
        15 => &[Types],                 // tuple
        18 => &[Type],                  // unranked tensor
        _ => return None,
    })
}

fn vhlo_attribute(code: u64) -> Option<&'static [Field]> {
    Some(match code {
        1 => &[Attributes],                // array
        2 => &[Int],                       // boolean
        3 | 4 => &[Int],                   // comparison direction, comparison type
        5 => &[Int],                       // custom call API version
        6 => &[Named],                     // dictionary
        7 => &[Int],                       // FFT type
        8 | 9 => &[Number],                // float, integer
        10 => &[Ints, Int, Ints],          // output operand alias
        11 => &[Int],                      // precision
        12 | 13 => &[Int],                 // random algorithm, random distribution
        14 => &[String],                   // string
        15 => &[Type, Blob],               // tensor
        16 => &[Int],                      // transpose
        17 => &[Type],                     // type
        18 => &[Ints],                     // type extensions
        19 => &[Int],                      // result accuracy mode
        20 => &[Int, Int, Int, Attribute], // result accuracy
        21 => &[Int, Int],                 // sub-axis
        22 => &[Attribute, Preceded],      // axis
        23 => &[Attribute, Attribute],     // replica groups from mesh axes
        24 => &[Attribute, Int],           // mesh axis
        25 => &[Attribute, Optional],      // mesh
        _ => return None,
    })
}

fn vhlo_type(code: u64) -> Option<&'static [Field]> {
    Some(match code {
        1 => &[Type],                                        // complex
        8 => &[Types, Types],                                // function
        0 | 2..=7 | 9..=19 => &[],                           // boolean, floats, index, integers
        20 => &[Ints, Type],                                 // ranked tensor
        21 => &[Attribute, Ints, Type],                      // ranked tensor with an encoding
        22 => &[],                                           // token
        23 => &[Types],                                      // tuple
        24 => &[Int, Type, Type, Int, Int, Int, Int],        // quantized
        25 => &[Type],                                       // unranked tensor
        26..=29 => &[],                                      // witness, floats of 8 bits
        30 => &[Int, Type, Type, Int, Int, Int, Ints, Ints], // quantized per axis
        31..=40 => &[],      // integers of 2 bits, none, small floats
        41 => &[Ints, Type], // buffer
        42 => &[Types],      // future
        _ => return None,
    })
}

fn sdy_attribute(code: u64) -> Option<&'static [Field]> {
    Some(match code {
        0 => &[Attributes],                        // manual axes
        1 => &[String, Int],                       // mesh axis
        2 => &[Attributes, Ints],                  // mesh
        3 => &[Int, Int],                          // sub-axis
        4 => &[String, Optional],                  // axis
        5 => &[Attributes, Byte, Int],             // sharding of a dimension
        6 => &[Attribute, Attributes, Attributes], // sharding of a tensor
        7 => &[Attributes],                        // sharding of values
        8 => &[Ints],                              // mapping of a dimension
        9 => &[Attributes],                        // mapping of a tensor
        10 => &[Ints, Attributes, Attributes, Ints, Ints, Ints, Ints, Byte], // sharding rule
        11 | 12 => &[Attributes],                  // axes, lists of axes
        13 => &[Attributes, Int, Int],             // all-to-all
        14 => &[Attributes],                       // list of all-to-all
        15 => &[Attribute, Attributes, Attributes, Attributes], // sharding, partly unreduced
        16 => &[Attributes],                       // such shardings of values
        17 => &[Attribute, Attributes, Attributes, Attributes, Int], // the same with its operation
        _ => return None,
    })
}

/// Whether the type is an integer whose width is encoded with it, in the bits above the lowest two.
pub(super) fn is_integer(dialect: Dialect, code: u64) -> bool {
    dialect == Dialect::Builtin && code == 0
}

/// How many bits a [`Field::Number`] of this type has, as far as it has 64 or fewer.
pub(super) fn bits(dialect: Dialect, code: u64) -> Option<u32> {
    Some(match (dialect, code) {
        (Dialect::Builtin, 1 | 6) => 64,
        (Dialect::Builtin, 3 | 4) => 16,
        (Dialect::Builtin, 5) => 32,
        (Dialect::Vhlo, 2 | 3 | 12 | 17) => 16,
        (Dialect::Vhlo, 4 | 13 | 18) => 32,
        (Dialect::Vhlo, 5 | 9 | 14 | 19) => 64,
        (Dialect::Vhlo, 6 | 7 | 11 | 16 | 27..=29 | 35 | 36 | 40) => 8,
        (Dialect::Vhlo, 10 | 15 | 37) => 4,
        (Dialect::Vhlo, 38 | 39) => 6,
        (Dialect::Vhlo, 34) => 19,
        _ => return None,
    })
}
