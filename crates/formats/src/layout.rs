//! Orders of dimensions, minor to major.

use salus_wire::Shape;

/// Whether the order is the default: the last dimension is the fastest.
pub fn is_default(minor_to_major: &[i64]) -> bool {
    minor_to_major
        .iter()
        .rev()
        .enumerate()
        .all(|(index, &dim)| index as i64 == dim)
}

/// The default order of `rank` dimensions.
pub fn default(rank: usize) -> Vec<i64> {
    (0..rank as i64).rev().collect()
}

/// The order of an array.
pub fn of(shape: &Shape) -> Vec<i64> {
    match &shape.minor_to_major {
        Some(order) => order.clone(),
        None => default(shape.dims.len()),
    }
}

/// An order as the Layouts extension writes it.
pub fn text(shape: &Shape) -> String {
    let order: Vec<String> = of(shape).iter().map(i64::to_string).collect();
    format!("{{{}}}", order.join(","))
}
