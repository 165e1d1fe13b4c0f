//! Programs as JAX wrote them, damaged in every way, and small modules made by hand.
//!
//! `corpus/README.md` says how the artifacts were made. Their flips that leave the digest as it
//! was have each been given to MLIR, which read the same module but for its locations.

use std::collections::BTreeSet;
use std::ops::Range;

use super::digest;
use super::tables::{Dialect, Module};

const SCALE: &[u8] = include_bytes!("../../corpus/mlir/scale.mlirbc");
const SCALE_MOVED: &[u8] = include_bytes!("../../corpus/mlir/scale_moved.mlirbc");
const LOOP: &[u8] = include_bytes!("../../corpus/mlir/loop.mlirbc");
const LOOP_MOVED: &[u8] = include_bytes!("../../corpus/mlir/loop_moved.mlirbc");
const SHARD: &[u8] = include_bytes!("../../corpus/mlir/shard.mlirbc");
const SHARD_MOVED: &[u8] = include_bytes!("../../corpus/mlir/shard_moved.mlirbc");

/// The artifact with one text, of which it has one, in the place of another.
#[track_caller]
fn with(artifact: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len(), "the length stands elsewhere");
    let mut places = (0..artifact.len()).filter(|&at| artifact[at..].starts_with(from));
    let at = places.next().expect("the text is there");
    assert_eq!(places.next(), None, "the text is there once");
    [&artifact[..at], to, &artifact[at + to.len()..]].concat()
}

/// Each function lowered at two places, by each of the versions that were tried.
const PAIRS: [(&[u8], &[u8]); 9] = [
    (SCALE, SCALE_MOVED),
    (LOOP, LOOP_MOVED),
    (SHARD, SHARD_MOVED),
    (
        include_bytes!("../../corpus/mlir/v1.13.0/scale.mlirbc"),
        include_bytes!("../../corpus/mlir/v1.13.0/scale_moved.mlirbc"),
    ),
    (
        include_bytes!("../../corpus/mlir/v1.13.0/loop.mlirbc"),
        include_bytes!("../../corpus/mlir/v1.13.0/loop_moved.mlirbc"),
    ),
    (
        include_bytes!("../../corpus/mlir/v1.13.0/shard.mlirbc"),
        include_bytes!("../../corpus/mlir/v1.13.0/shard_moved.mlirbc"),
    ),
    (
        include_bytes!("../../corpus/mlir/v1.17.0/scale.mlirbc"),
        include_bytes!("../../corpus/mlir/v1.17.0/scale_moved.mlirbc"),
    ),
    (
        include_bytes!("../../corpus/mlir/v1.17.0/loop.mlirbc"),
        include_bytes!("../../corpus/mlir/v1.17.0/loop_moved.mlirbc"),
    ),
    (
        include_bytes!("../../corpus/mlir/v1.17.0/shard.mlirbc"),
        include_bytes!("../../corpus/mlir/v1.17.0/shard_moved.mlirbc"),
    ),
];

#[test]
fn a_program_is_the_same_wherever_it_was_written() {
    for (here, there) in PAIRS {
        assert_ne!(here, there);
        assert!(digest(here).is_some());
        assert_eq!(digest(here), digest(there));
    }
    let different: BTreeSet<_> = PAIRS.iter().map(|(here, _)| digest(here)).collect();
    assert_eq!(different.len(), PAIRS.len(), "no two programs are the same");
}

/// Where lines and columns of a file stand in an artifact.
fn lines_and_columns(code: &[u8]) -> Vec<Range<usize>> {
    const POINT_IN_FILE: u64 = 11;
    const RANGE_IN_FILE: u64 = 22;
    let module = Module::read(code).expect("understood");
    let mut places = Vec::new();
    for entry in &module.attributes {
        let Some((kind @ (POINT_IN_FILE | RANGE_IN_FILE), mut cursor)) = entry.open() else {
            continue;
        };
        if entry.dialect != Dialect::Builtin || !entry.custom {
            continue;
        }
        cursor.varint().expect("the file's name");
        if kind == RANGE_IN_FILE {
            cursor.varint().expect("how many numbers follow");
        }
        let end = entry.data.as_ptr_range().end.addr() - code.as_ptr().addr();
        while !cursor.is_empty() {
            let from = end - cursor.remaining();
            cursor.varint().expect("a line or a column");
            places.push(from..end - cursor.remaining());
        }
    }
    places
}

#[test]
fn lines_and_columns_do_not_count() {
    let mut random = fastrand::Rng::with_seed(1);
    for (code, _) in PAIRS {
        let places = lines_and_columns(code);
        assert!(!places.is_empty());
        for _ in 0..500 {
            let mut moved = code.to_vec();
            for place in &places {
                // Another number of as many bytes: they are counted in the lowest bits.
                let more = place.len() as u32 - 1;
                let number = (random.u64(..) << 1 | 1) << more;
                moved[place.clone()].copy_from_slice(&number.to_le_bytes()[..place.len()]);
            }
            assert_ne!(moved, code);
            assert_eq!(digest(&moved), digest(code));
        }
    }
}

#[test]
fn a_digest_stays_what_it_was() {
    // Programs on disk are found by it.
    let digest = digest(SCALE).expect("understood");
    let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        text,
        "e89aabceee1005374bc3dcddf9a88cd173e61f8639037616fe8dbb3cee5a38d4"
    );
}

#[test]
fn files_and_scopes_do_not_count() {
    let scale = SCALE;
    for (from, to) in [
        ("/home/ann/model.py", "/home/bob/train.py"),
        ("jit(scale)/layer/sin", "jit(scale)/stage/sin"),
        ("\0scale\0", "\0steps\0"),
        ("\0step\0", "\0main\0"),
    ] {
        let edited = with(scale, from.as_bytes(), to.as_bytes());
        assert_eq!(digest(&edited), digest(scale), "{from} is only a location");
    }
}

#[test]
fn everything_else_counts() {
    let (scale, many, shard) = (SCALE, LOOP, SHARD);
    let two = 2.0_f32.to_le_bytes();
    let three = 3.0_f32.to_le_bytes();
    for (program, from, to) in [
        (scale, two.as_slice(), three.as_slice()),
        (scale, b"jit_scale", b"jit_scald"),
        (scale, b"\0main\0", b"\0mair\0"),
        (scale, b"\0public\0", b"\0publix\0"),
        (scale, b"sine_v2", b"tanh_v2"),
        (scale, b"sine_v2", b"tank_v2"),
        (scale, b"multiply_v1", b"subtract_v1"),
        (scale, b"StableHLO_v1.13.3", b"StableHLO_v1.13.2"),
        (scale, b"mhlo.num_replicas", b"mhlo.num_replicaz"),
        (many, b"\0add_v1\0", b"\0and_v1\0"),
        (many, b"tf.aliasing_output", b"tf.aliasing_outpux"),
        (shard, b"sdy.sharding", b"sdy.shardinx"),
        (
            shard,
            b"sharding_constraint\0func",
            b"sharding_constrainx\0func",
        ),
        (shard, b"\0axes\0", b"\0axis\0"),
    ] {
        let edited = with(program, from, to);
        assert_ne!(
            digest(&edited),
            digest(program),
            "{}",
            String::from_utf8_lossy(from)
        );
    }
}

#[test]
fn every_bit_counts_but_those_of_locations() {
    for (program, expected) in [
        (SCALE, (3049, 1160, 823)),
        (LOOP, (5415, 2136, 3137)),
        (SHARD, (3943, 1871, 962)),
    ] {
        let mut program = program.to_vec();
        let original = digest(&program);
        let (mut refused, mut different, mut same) = (0, 0, 0);
        for bit in 0..program.len() * 8 {
            program[bit / 8] ^= 1 << (bit % 8);
            match digest(&program) {
                None => refused += 1,
                digest if digest == original => same += 1,
                Some(_) => different += 1,
            }
            program[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!((refused, different, same), expected);
    }
}

#[test]
fn a_part_of_a_program_is_not_understood() {
    for program in [SCALE, LOOP, SHARD] {
        for length in 0..program.len() {
            assert_eq!(digest(&program[..length]), None, "{length} bytes");
        }
        assert_eq!(digest(&[program, &[0]].concat()), None);
    }
}

#[test]
fn other_formats_are_not_understood() {
    let scale = SCALE;
    assert_eq!(digest(b""), None);
    assert_eq!(digest(b"module @jit_f {}"), None);
    assert_eq!(digest(&with(scale, b"ML\xefR", b"ML\xefS")), None);
    assert_eq!(
        digest(&with(scale, b"\x0dStable", b"\x0bStable")),
        None,
        "version 5"
    );
    assert_eq!(digest(&with(scale, b"StableHLO_v", b"MLIR22.0git")), None);
}

/// A module made by hand: operations are `builtin.module`, attributes are builtin.
struct Made {
    strings: Vec<&'static str>,
    attributes: Vec<Vec<u8>>,
    ir: Vec<u8>,
}

impl Made {
    /// One operation with a location, and with attributes if there are some.
    fn of(attributes: Vec<Vec<u8>>, location: u64, named: Option<u64>) -> Self {
        let strings = vec!["builtin", "module", "a", "b", "c"];
        Self {
            strings,
            attributes,
            ir: [ints(&[2]), operation(location, named, &[])].concat(),
        }
    }

    fn digest(&self) -> Option<[u8; 32]> {
        let lengths: Vec<_> = self
            .strings
            .iter()
            .rev()
            .map(|s| s.len() as u64 + 1)
            .collect();
        let texts: String = self
            .strings
            .iter()
            .flat_map(|string| [string, "\0"])
            .collect();
        let strings = [ints(&[lengths.len() as u64]), ints(&lengths), texts.into()].concat();
        let count = self.attributes.len() as u64;
        let sizes: Vec<_> = self
            .attributes
            .iter()
            .map(|a| (a.len() as u64) << 1 | 1)
            .collect();
        let offsets = [ints(&[count, 0, 0, count]), ints(&sizes)].concat();
        let dialects = ints(&[1, 0, 1, 0, 1, 1 << 1 | 1]);
        let mut code = b"ML\xefR\x0dStableHLO_v1.13.3\0".to_vec();
        for (id, section) in [
            (0, strings),
            (1, dialects),
            (2, self.attributes.concat()),
            (3, offsets),
            (4, self.ir.clone()),
        ] {
            code.push(id);
            code.extend(ints(&[section.len() as u64]));
            code.extend(section);
        }
        digest(&code)
    }
}

/// Numbers in the longest way that the format has.
fn ints(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| [&[0], value.to_le_bytes().as_slice()].concat())
        .collect()
}

fn operation(location: u64, named: Option<u64>, regions: &[u8]) -> Vec<u8> {
    let mask = u8::from(named.is_some()) | u8::from(!regions.is_empty()) << 4;
    let named = named.map_or(Vec::new(), |index| ints(&[index]));
    [
        ints(&[0]),
        vec![mask],
        ints(&[location]),
        named,
        regions.to_vec(),
    ]
    .concat()
}

fn unknown() -> Vec<u8> {
    ints(&[15])
}

fn string(index: u64) -> Vec<u8> {
    ints(&[2, index])
}

fn call_site(callee: u64, caller: u64) -> Vec<u8> {
    ints(&[10, callee, caller])
}

fn file(name: u64, line: u64) -> Vec<u8> {
    ints(&[11, name, line, 1])
}

fn dictionary(name: u64, value: u64) -> Vec<u8> {
    ints(&[1, 1, name, value])
}

#[test]
fn a_location_must_be_one() {
    let sound = Made::of(vec![unknown()], 0, None).digest();
    assert!(sound.is_some());
    let cases: [(&str, Vec<Vec<u8>>, bool); 9] = [
        ("a line of a file", vec![file(1, 7), string(2)], true),
        (
            "a call",
            vec![call_site(1, 2), unknown(), file(3, 1), string(4)],
            true,
        ),
        ("the same twice", vec![call_site(1, 1), unknown()], true),
        ("a string", vec![string(2)], false),
        ("a file without a name", vec![file(1, 7), unknown()], false),
        (
            "a name without a string",
            vec![file(1, 7), string(5)],
            false,
        ),
        (
            "a call from nowhere",
            vec![call_site(1, 2), unknown()],
            false,
        ),
        (
            "inside itself",
            vec![call_site(1, 2), unknown(), call_site(1, 0)],
            false,
        ),
        ("an unknown kind", vec![ints(&[99])], false),
    ];
    for (case, attributes, good) in cases {
        let digest = Made::of(attributes, 0, None).digest();
        assert_eq!(digest, if good { sound } else { None }, "{case}");
    }
}

#[test]
fn a_long_chain_of_calls_needs_no_stack() {
    let mut chain: Vec<_> = (1..200_000).map(|next| call_site(next, 200_000)).collect();
    chain.extend([unknown(), unknown()]);
    assert!(Made::of(chain, 0, None).digest().is_some());
}

#[test]
fn a_location_that_is_an_attributes_value_counts() {
    let held = |line| {
        let attributes = vec![
            unknown(),
            string(2),
            string(3),
            file(2, line),
            dictionary(1, 3),
        ];
        Made::of(attributes, 0, Some(4)).digest()
    };
    assert!(held(1).is_some());
    assert_ne!(held(1), held(2));
}

#[test]
fn the_order_of_the_tables_does_not_count() {
    let one = Made::of(
        vec![unknown(), dictionary(2, 3), string(2), string(3)],
        0,
        Some(1),
    );
    let mut other = Made::of(
        vec![string(1), string(2), unknown(), dictionary(1, 0)],
        2,
        Some(3),
    );
    other.strings = vec!["builtin", "module", "a", "b"];
    assert!(one.digest().is_some());
    assert_ne!(one.digest(), other.digest(), "`module` is not `b`");
    other.attributes[0] = string(3);
    assert_eq!(one.digest(), other.digest());
}

#[test]
fn a_count_that_lies_is_refused_at_once() {
    for lie in [1 << 20, 1 << 32, u64::MAX] {
        let mut made = Made::of(vec![unknown(), ints(&[0, lie])], 0, Some(1));
        assert_eq!(made.digest(), None, "an array");
        made.ir = ints(&[lie << 1]);
        assert_eq!(made.digest(), None, "operations");
        made.ir = [ints(&[2]), operation(0, None, &ints(&[lie << 1]))].concat();
        assert_eq!(made.digest(), None, "regions");
    }
}

#[test]
fn nesting_ends_somewhere() {
    let nested = |depth| {
        let mut made = Made::of(vec![unknown()], 0, None);
        // One region that is not isolated, one block, no values, one operation.
        let level = operation(0, None, &ints(&[2, 1, 0, 2]));
        made.ir = [ints(&[2]), level.repeat(depth), operation(0, None, &[])].concat();
        made.digest()
    };
    assert!(nested(1).is_some());
    assert_ne!(nested(1), nested(2));
    assert!(nested(1000).is_some());
    assert_eq!(nested(100_000), None);
}
