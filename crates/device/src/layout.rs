//! Orders of dimensions, and copying elements from one to another.

use crate::element::host_element_bytes;
use crate::failure::{INVALID_ARGUMENT, error};
use crate::{Error, Shape};

pub(crate) use salus_formats::layout::{default, is_default, of, text};

/// Copies `len` bytes of an array's elements, as they are in host memory, from one order to another:
/// calls `copy(from, to, bytes)` with offsets, once if both orders are the same.
pub(crate) fn permute(
    len: usize,
    shape: &Shape,
    from_order: &[i64],
    to_order: &[i64],
    mut copy: impl FnMut(usize, usize, usize),
) -> Result<(), Error> {
    let size = host_element_bytes(shape.element_type).map_or(1, |size| size.max(1));
    let (from_strides, to_strides) = strides(shape, from_order, size)
        .zip(strides(shape, to_order, size))
        .ok_or_else(|| {
            error(
                INVALID_ARGUMENT,
                format!("the orders {from_order:?} and {to_order:?} for {shape:?}"),
            )
        })?;
    if from_order == to_order {
        copy(0, 0, len);
        return Ok(());
    }
    let mut index = vec![0usize; shape.dims.len()];
    let (mut source, mut target) = (0, 0);
    for _ in 0..len / size {
        copy(source, target, size);
        // Counts up like an odometer, and moves both offsets along.
        for dim in (0..index.len()).rev() {
            index[dim] += 1;
            source += from_strides[dim];
            target += to_strides[dim];
            let len = shape.dims[dim] as usize;
            if index[dim] < len {
                break;
            }
            index[dim] = 0;
            source -= len * from_strides[dim];
            target -= len * to_strides[dim];
        }
    }
    Ok(())
}

/// Bytes between neighbours in each dimension; `None` if the order is no permutation.
fn strides(shape: &Shape, order: &[i64], element: usize) -> Option<Vec<usize>> {
    let mut strides = vec![None; shape.dims.len()];
    let mut stride = element;
    for &dim in order {
        let dim = usize::try_from(dim).ok()?;
        let place = strides.get_mut(dim)?;
        if place.replace(stride).is_some() {
            return None;
        }
        stride *= shape.dims[dim] as usize;
    }
    strides.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_keep_their_index() {
        let shape = Shape {
            element_type: 3, // two bytes each
            dims: vec![2, 3],
            minor_to_major: None,
        };
        let copy = |from: &[u8], to: &mut [u8], from_order: &[i64], to_order: &[i64]| {
            permute(12, &shape, from_order, to_order, |source, target, len| {
                to[target..target + len].copy_from_slice(&from[source..source + len]);
            })
        };
        let rows: Vec<u8> = (0..12).collect();
        let mut columns = vec![0; 12];
        copy(&rows, &mut columns, &[1, 0], &[0, 1]).expect("permutations");
        assert_eq!(columns, [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        let mut back = vec![0; 12];
        copy(&columns, &mut back, &[0, 1], &[1, 0]).expect("permutations");
        assert_eq!(back, rows);
        for order in [&[0][..], &[0, 0], &[0, 2], &[0, -1], &[0, 1, 2]] {
            copy(&rows, &mut back, &[1, 0], order).expect_err("no permutation");
        }
    }
}
