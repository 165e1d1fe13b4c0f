//! Rebuilds a `ShapeProto` that a job sent: arrays and tuples of arrays, with plain layouts.

use crate::element::from_xla;
use crate::proto::{Malformed, Wire, Writer, fields, push_ints};

/// XLA's `PrimitiveType` of a tuple.
const TUPLE: u64 = 13;

/// XLA allows more; no framework sends it.
const RANK_MAX: usize = 64;

/// The canonical bytes of a shape. A tuple's elements may be arrays only.
pub(super) fn rebuild(untrusted: &[u8]) -> Result<Vec<u8>, Malformed> {
    rebuild_within(untrusted, true)
}

fn rebuild_within(untrusted: &[u8], tuple_allowed: bool) -> Result<Vec<u8>, Malformed> {
    let (mut element_type, mut dims, mut dynamic) = (0, Vec::new(), Vec::new());
    let (mut elements, mut layout) = (Vec::new(), None);
    for field in fields(untrusted) {
        match field? {
            (2, number) => element_type = number.varint()?,
            (3, sizes) => push_ints(sizes, &mut dims)?,
            (4, element) if tuple_allowed => {
                elements.push(rebuild_within(element.bytes()?, false)?);
            }
            (4, _) => return Err(Malformed),
            (5, bytes) => layout = Some(bytes.bytes()?),
            (6, flags) => push_ints(flags, &mut dynamic)?,
            _ => {}
        }
    }
    let is_tuple = element_type == TUPLE;
    let known = is_tuple || from_xla(element_type).is_some();
    let well_formed = dims.len() <= RANK_MAX
        && dims.iter().all(|&dim| dim >= 0)
        && (dynamic.is_empty() || dynamic.len() == dims.len())
        && (is_tuple || elements.is_empty());
    if !known || !well_formed {
        return Err(Malformed);
    }
    let mut shape = Writer::default();
    shape.field(2, Wire::Varint(element_type));
    shape.ints(3, &dims);
    for element in &elements {
        shape.field(4, Wire::Bytes(element));
    }
    if let Some(layout) = layout {
        shape.field(5, Wire::Bytes(&rebuild_layout(layout, dims.len())?));
    }
    let dynamic: Vec<i64> = dynamic.iter().map(|&flag| i64::from(flag != 0)).collect();
    shape.ints(6, &dynamic);
    Ok(shape.finish())
}

/// Order, tiles, element size and memory space of a `LayoutProto`.
fn rebuild_layout(untrusted: &[u8], rank: usize) -> Result<Vec<u8>, Malformed> {
    let (mut order, mut tiles) = (Vec::new(), Vec::new());
    let (mut element_bits, mut memory_space) = (0, 0);
    for field in fields(untrusted) {
        match field? {
            (1, dims) => push_ints(dims, &mut order)?,
            (6, tile) => {
                let mut dims = Vec::new();
                for field in fields(tile.bytes()?) {
                    if let (1, sizes) = field? {
                        push_ints(sizes, &mut dims)?;
                    }
                }
                tiles.push(dims);
            }
            (7, bits) => element_bits = bits.varint()?,
            (8, space) => memory_space = space.varint()?,
            _ => {}
        }
    }
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..rank as i64) || tiles.len() > RANK_MAX {
        return Err(Malformed);
    }
    let mut layout = Writer::default();
    layout.ints(1, &order);
    for tile in &tiles {
        let mut dims = Writer::default();
        dims.ints(1, tile);
        layout.field(6, Wire::Bytes(&dims.finish()));
    }
    layout.field(7, Wire::Varint(element_bits));
    layout.field(8, Wire::Varint(memory_space));
    Ok(layout.finish())
}
