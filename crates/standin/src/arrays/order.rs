//! Elements in another order: CUDA's plugin permutes on the way to and from the device, the CPU plugin
//! takes the order's name and leaves the elements where they are.

/// Strides in bytes of a dense array whose dimensions are given from the fastest.
pub(crate) fn strides(dims: &[i64], order: &[i64], element: usize) -> Vec<i64> {
    let mut strides = vec![0; dims.len()];
    let mut next = element as i64;
    for &dim in order {
        strides[dim as usize] = next;
        next *= dims[dim as usize];
    }
    strides
}

/// Calls `copy` with the distances of each element from the start, in one order and the other.
pub(crate) fn each(dims: &[i64], from: &[i64], to: &[i64], mut copy: impl FnMut(i64, i64)) {
    if dims.contains(&0) {
        return;
    }
    let mut index = vec![0i64; dims.len()];
    let (mut at, mut target) = (0, 0);
    loop {
        copy(at, target);
        let mut dim = dims.len();
        loop {
            if dim == 0 {
                return;
            }
            dim -= 1;
            index[dim] += 1;
            at += from[dim];
            target += to[dim];
            if index[dim] < dims[dim] {
                break;
            }
            at -= from[dim] * dims[dim];
            target -= to[dim] * dims[dim];
            index[dim] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let dims = [2, 3];
        let (rows, columns) = (strides(&dims, &[1, 0], 1), strides(&dims, &[0, 1], 1));
        let from = [0u8, 1, 2, 3, 4, 5];
        let mut to = [9; 6];
        each(&dims, &rows, &columns, |at, target| {
            to[target as usize] = from[at as usize]
        });
        assert_eq!(to, [0, 3, 1, 4, 2, 5]);
        let mut count = 0;
        each(&[], &[], &[], |_, _| count += 1);
        each(&[3, 0], &[1, 1], &[1, 1], |_, _| count += 10);
        assert_eq!(count, 1, "a scalar is one element, and an empty array none");
    }
}
