//! Changes that keep an input's outer form, so that what is inside gets read.

use fastrand::Rng;
use salus_formats::proto::{Wire, Writer, fields};
use salus_fuzz::mutate_bytes;

/// Numbers at which a field's meaning changes: flags, sizes, types, depths, indices.
const EDGES: [u64; 12] = [
    0,
    1,
    2,
    13,
    30,
    64,
    65,
    128,
    i32::MAX as u64,
    u32::MAX as u64,
    i64::MAX as u64,
    u64::MAX,
];

/// Changes one field of a message, or of a message within it, and writes all lengths anew.
pub(super) fn message(random: &mut Rng, input: &mut Vec<u8>) {
    let Ok(list) = fields(input).collect::<Result<Vec<_>, _>>() else {
        return mutate_bytes(random, input);
    };
    let mut out = Writer::default();
    let at = random.usize(..=list.len());
    for (index, &(number, value)) in list.iter().enumerate() {
        match index == at {
            true => change(random, &list, (number, value), &mut out),
            false => out.field(number, value),
        }
    }
    if at == list.len() {
        out.field(random.u32(1..64), number(random));
    }
    *input = out.finish();
}

fn number(random: &mut Rng) -> Wire<'static> {
    match random.u32(..6) {
        0 => Wire::Fixed32(random.u32(..)),
        1 => Wire::Fixed64(random.u64(..)),
        2 => Wire::Varint(random.u64(..) >> random.u32(..64)),
        _ => Wire::Varint(EDGES[random.usize(..EDGES.len())]),
    }
}

fn change(random: &mut Rng, list: &[(u32, Wire<'_>)], field: (u32, Wire<'_>), out: &mut Writer) {
    let (id, value) = field;
    if let Wire::Bytes(inner) = value
        && random.u32(..4) > 0
    {
        let mut inner = inner.to_vec();
        message(random, &mut inner);
        return out.field(id, Wire::Bytes(&inner));
    }
    let other = list[random.usize(..list.len())];
    match random.u32(..8) {
        0 => {}
        1 => {
            out.field(id, value);
            out.field(id, value);
        }
        2 => out.field(random.u32(1..600), value),
        3 => out.field((id + 1).min(600), value),
        4 => out.field(id, other.1),
        5 => {
            out.field(other.0, other.1);
            out.field(id, value);
        }
        _ => out.field(id, number(random)),
    }
}

/// Names that overrides have in practice, and ones that they should not have.
const NAMES: [&str; 8] = [
    "xla_cpu_use_xnnpack",
    "xla_cpu_enable_fast_math",
    "xla_backend_optimization_level",
    "xla_dump_to",
    "xla_dump_hlo_as_text",
    "xla_gpu_cuda_data_dir",
    "xla_cpu_prefer_vector_width",
    "",
];
const VALUES: [&[u8]; 6] = [b"true", b"1,2,3", b"/etc/passwd", b"..", b"-0.5", b"\0"];

/// Adds an entry of `env_option_overrides`.
pub(super) fn with_override(random: &mut Rng, input: &mut Vec<u8>) {
    let mut value = Writer::default();
    match random.bool() {
        true => value.field(1, Wire::Bytes(VALUES[random.usize(..VALUES.len())])),
        false => value.field(random.u32(1..6), number(random)),
    }
    let mut entry = Writer::default();
    entry.field(
        1,
        Wire::Bytes(NAMES[random.usize(..NAMES.len())].as_bytes()),
    );
    entry.field(2, Wire::Bytes(&value.finish()));
    let mut options = Writer::default();
    options.field(7, Wire::Bytes(&entry.finish()));
    input.extend(options.finish());
}

/// Changes the content of one section of MLIR bytecode and writes its length anew.
pub(super) fn section(random: &mut Rng, input: &mut Vec<u8>) {
    let Some((header, mut sections)) = sections(input) else {
        return mutate_bytes(random, input);
    };
    let mut out = header.to_vec();
    if !sections.is_empty() {
        let at = random.usize(..sections.len());
        mutate_bytes(random, &mut sections[at].1);
    }
    for (id, content) in sections {
        out.push(id);
        // A length in the longest way that the format has.
        out.push(0);
        out.extend((content.len() as u64).to_le_bytes());
        out.extend(content);
    }
    *input = out;
}

type Sections = Vec<(u8, Vec<u8>)>;

/// The header (magic, version, producer) and the sections after it.
fn sections(input: &[u8]) -> Option<(&[u8], Sections)> {
    let end = 6 + input.get(5..)?.iter().position(|&byte| byte == 0)?;
    let (header, mut rest) = input.split_at_checked(end)?;
    let mut sections = Vec::new();
    while let Some((&id, after)) = rest.split_first() {
        let (length, after) = varint(after)?;
        let (content, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
        sections.push((id, content.to_vec()));
        rest = after;
    }
    Some((header, sections))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let more = bytes.first()?.trailing_zeros() as usize;
    let (number, rest) = bytes.split_at_checked(more + 1)?;
    let mut padded = [0; 9];
    padded[..number.len()].copy_from_slice(number);
    let number = u128::from_le_bytes(std::array::from_fn(|at| {
        padded.get(at).copied().unwrap_or(0)
    }));
    Some(((number >> (more + 1)) as u64, rest))
}
