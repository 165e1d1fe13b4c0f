//! Copies an array with strides into dense, row-major memory.
//!
//! Cost: one `memcpy` where the source is dense; else runs as long as the source has them.
#![expect(unsafe_code, reason = "reads the caller's memory through strides")]

use crate::c_api::error::{Result, invalid};

/// Whether `strides` are those of a dense row-major array. Dimensions of one element have no say.
pub(crate) fn is_dense(dims: &[i64], strides: &[i64], element_bytes: usize) -> bool {
    let mut expected = element_bytes as i64;
    for (&dim, &stride) in dims.iter().zip(strides).rev() {
        if dim != 1 && stride != expected {
            return false;
        }
        expected = expected.saturating_mul(dim);
    }
    true
}

/// Copies into `to`, one element after another.
///
/// # Safety
/// `from` plus any sum of index times stride inside `dims` is an element that can be read; `to` is
/// writable for the dense size of the array and does not overlap it.
pub(crate) unsafe fn copy(
    from: *const u8,
    dims: &[i64],
    strides: &[i64],
    element_bytes: usize,
    to: *mut u8,
) -> Result<()> {
    if strides.len() != dims.len() {
        return Err(invalid(format!(
            "{} strides for {} dimensions",
            strides.len(),
            dims.len()
        )));
    }
    if dims.contains(&0) {
        return Ok(());
    }
    // The inner dimensions that are dense by themselves are copied in one run.
    let mut run = element_bytes;
    let mut outer = dims.len();
    while outer > 0 && (dims[outer - 1] == 1 || strides[outer - 1] == run as i64) {
        run *= dims[outer - 1] as usize;
        outer -= 1;
    }
    let walk = Walk {
        dims: &dims[..outer],
        strides: &strides[..outer],
        run,
    };
    let mut to = to;
    // SAFETY: the caller's promise.
    unsafe { walk.step(from, 0, &mut to) };
    Ok(())
}

struct Walk<'a> {
    dims: &'a [i64],
    strides: &'a [i64],
    /// Contiguous bytes in the source.
    run: usize,
}

impl Walk<'_> {
    /// # Safety
    /// As for [`copy`], from this depth inwards.
    unsafe fn step(&self, from: *const u8, depth: usize, to: &mut *mut u8) {
        let Some((&dim, &stride)) = self.dims.get(depth).zip(self.strides.get(depth)) else {
            // SAFETY: the caller's promise; `to` moves through the dense copy.
            unsafe {
                std::ptr::copy_nonoverlapping(from, *to, self.run);
                *to = to.add(self.run);
            }
            return;
        };
        if depth + 1 == self.dims.len() {
            // SAFETY: as above.
            unsafe { self.inner(from, dim, stride, to) };
            return;
        }
        for index in 0..dim {
            // SAFETY: an element inside `dims`.
            unsafe { self.step(from.offset((index * stride) as isize), depth + 1, to) };
        }
    }

    /// The innermost loop, with the usual element sizes known to the compiler.
    ///
    /// # Safety
    /// As for [`copy`], in the last dimension.
    unsafe fn inner(&self, from: *const u8, dim: i64, stride: i64, to: &mut *mut u8) {
        macro_rules! runs {
            ($($size:literal),*) => {
                match self.run {
                    $($size => for index in 0..dim {
                        // SAFETY: an element inside `dims`; `to` moves through the dense copy.
                        unsafe {
                            let source = from.offset((index * stride) as isize);
                            std::ptr::copy_nonoverlapping(source, *to, $size);
                            *to = to.add($size);
                        }
                    },)*
                    run => for index in 0..dim {
                        // SAFETY: as above.
                        unsafe {
                            let source = from.offset((index * stride) as isize);
                            std::ptr::copy_nonoverlapping(source, *to, run);
                            *to = to.add(run);
                        }
                    },
                }
            };
        }
        runs!(1, 2, 4, 8, 16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies from `from[start..]` as 32-bit numbers.
    fn copied(from: &[i32], start: usize, dims: &[i64], strides: &[i64]) -> Vec<i32> {
        let count = dims.iter().product::<i64>() as usize;
        let mut to = vec![0i32; count];
        // SAFETY: the tests' strides stay inside `from`.
        unsafe {
            let from = from.as_ptr().add(start).cast();
            copy(from, dims, strides, 4, to.as_mut_ptr().cast()).expect("strides fit");
        }
        to
    }

    #[test]
    fn transposed_sliced_reversed_and_broadcast() {
        let from: Vec<i32> = (0..12).collect();
        assert_eq!(copied(&from, 0, &[3, 4], &[16, 4]), from);
        assert_eq!(
            copied(&from, 0, &[4, 3], &[4, 16]),
            [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]
        );
        assert_eq!(copied(&from, 1, &[3, 2], &[16, 8]), [1, 3, 5, 7, 9, 11]);
        assert_eq!(copied(&from, 11, &[4], &[-4]), [11, 10, 9, 8]);
        assert_eq!(copied(&from, 8, &[3, 2], &[-16, 4]), [8, 9, 4, 5, 0, 1]);
        assert_eq!(copied(&from, 5, &[2, 2], &[0, 0]), [5, 5, 5, 5]);
        assert_eq!(copied(&from, 0, &[0, 3], &[12, 4]), [0i32; 0]);
        assert_eq!(copied(&from, 7, &[], &[]), [7]);
        assert_eq!(
            copied(&from, 0, &[1, 2, 1, 2], &[999, 16, 999, 8]),
            [0, 2, 4, 6]
        );
    }

    #[test]
    fn dense_is_seen_through_dimensions_of_one() {
        assert!(is_dense(&[2, 1, 3], &[12, -7, 4], 4));
        assert!(!is_dense(&[2, 3], &[4, 8], 4));
        assert!(is_dense(&[], &[], 4));
    }
}
