//! Tridiagonal systems that may be singular: JAX finds eigenvectors with them, by inverse iteration.
//!
//! LAPACK has this for real numbers only (`lagtf` and `lagts`), and JAX has its own: elimination with
//! scaled pivoting in which pivots that are too small to divide by grow a little until they are not.

use salus_pjrt::sys::*;
use salus_pjrt::{Call, Error, handle};

use super::arguments::{Arguments, Invocation};
use super::scalar::{Complex, Scalar};

pub(super) const TARGET: &str = "tridiagonal_solve_perturbed_ffi";

/// # Safety
/// The plugin calls it with its frame.
pub(super) unsafe extern "C" fn handler(frame: *mut XLA_FFI_CallFrame) -> *mut XLA_FFI_Error {
    // SAFETY: the caller's promise.
    unsafe { handle(frame, answer) }
}

/// Three diagonals of length n, `b` -> `x`.
fn answer(call: &Call<'_>) -> Result<(), Error> {
    let invocation = Invocation {
        target: TARGET,
        call,
    };
    let arguments = Arguments::of_matrices(invocation, (4, 1), 3)?;
    match arguments.operand_type(3) {
        f if f == XLA_FFI_DataType_F32 => solve_all::<f32>(&arguments),
        f if f == XLA_FFI_DataType_F64 => solve_all::<f64>(&arguments),
        f if f == XLA_FFI_DataType_C64 => solve_all::<Complex<f32>>(&arguments),
        // Any other is refused there.
        _ => solve_all::<Complex<f64>>(&arguments),
    }
}

fn solve_all<T: Scalar>(arguments: &Arguments<'_>) -> Result<(), Error> {
    let (n, columns) = (arguments.rows, arguments.columns);
    let lower = arguments.input::<T>(0, &[n])?;
    let diagonal = arguments.input::<T>(1, &[n])?;
    let upper = arguments.input::<T>(2, &[n])?;
    let x = arguments.in_place::<T>(3, 0, &[n, columns])?;
    for i in 0..arguments.count {
        // SAFETY: n entries each, n times as many in each of the columns; the diagonals are copied,
        // so that no program can make them change meanwhile.
        unsafe {
            let copied = |data: *mut T| std::slice::from_raw_parts(data, n).to_vec();
            let diagonals = [lower, diagonal, upper].map(|diagonal| copied(diagonal.at(i)));
            solve(
                diagonals,
                std::slice::from_raw_parts_mut(x.at(i), n * columns),
            );
        }
    }
    Ok(())
}

/// Solves for the right-hand sides in `x`, column by column, in place.
fn solve<T: Scalar>([lower, diagonal, mut upper]: [Vec<T>; 3], x: &mut [T]) {
    let n = diagonal.len();
    // JAX's diagonals are as long as the matrix is high: this entry stands outside.
    upper[n - 1] = T::ZERO;
    // Row k of the triangle: the pivot and the two to the right of it.
    let mut triangle = vec![[T::ZERO; 3]; n];
    triangle[0] = [diagonal[0], upper[0], T::ZERO];
    let mut largest = larger(diagonal[0].abs(), upper[0].abs());
    let mut scale = diagonal[0].abs() + upper[0].abs();
    for k in 0..n - 1 {
        let below = [lower[k + 1], diagonal[k + 1], upper[k + 1]];
        let scale_below = below[0].abs() + below[1].abs() + below[2].abs();
        let [pivot, right, _] = triangle[k];
        let weight = if pivot == T::ZERO {
            T::Real::ZERO
        } else {
            pivot.abs() / scale
        };
        if below[0] == T::ZERO {
            triangle[k + 1] = [below[1], below[2], T::ZERO];
            scale = scale_below;
        } else if below[0].abs() / scale_below <= weight {
            let factor = below[0] / pivot;
            triangle[k + 1] = [below[1] - factor * right, below[2], T::ZERO];
            scale = scale_below;
            for column in x.chunks_exact_mut(n) {
                column[k + 1] = column[k + 1] - factor * column[k];
            }
        } else {
            let factor = pivot / below[0];
            triangle[k] = below;
            triangle[k + 1] = [right - factor * below[1], -factor * below[2], T::ZERO];
            scale = triangle[k + 1][0].abs() + triangle[k + 1][1].abs();
            for column in x.chunks_exact_mut(n) {
                let eliminated = column[k] - factor * column[k + 1];
                column[k] = column[k + 1];
                column[k + 1] = eliminated;
            }
        }
        if k + 2 < n {
            for entry in triangle[k] {
                largest = larger(largest, entry.abs());
            }
        }
    }
    largest = larger(largest, triangle[n - 1][0].abs());
    substitute(&triangle, T::EPSILON * largest, x);
}

/// Back substitution; `perturbation` is what a pivot may grow by.
fn substitute<T: Scalar>(triangle: &[[T; 3]], perturbation: T::Real, x: &mut [T]) {
    let n = triangle.len();
    let mut row = Vec::with_capacity(x.len() / n);
    for k in (0..n).rev() {
        let [mut pivot, right, second] = triangle[k];
        row.clear();
        row.extend(x.chunks_exact(n).map(|column| {
            let mut rest = column[k];
            if k + 1 < n {
                rest = rest - right * column[k + 1];
            }
            if k + 2 < n {
                rest = rest - second * column[k + 2];
            }
            rest
        }));
        grow(&mut pivot, &mut row, perturbation);
        let inverse = T::ONE / pivot;
        for (column, &rest) in x.chunks_exact_mut(n).zip(&row) {
            column[k] = if n == 1 { rest / pivot } else { rest * inverse };
        }
    }
}

/// Lets `pivot` grow until neither its inverse nor `row` divided by it overflows.
fn grow<T: Scalar>(pivot: &mut T, row: &mut [T], perturbation: T::Real) {
    let (zero, one, tiny) = (T::Real::ZERO, T::Real::ONE, T::TINY);
    let huge = one / tiny;
    let size = larger(perturbation, tiny);
    let mut step = if pivot.real() < zero { -size } else { size };
    let largest = row.iter().fold(zero, |largest, x| larger(largest, x.abs()));
    while pivot.abs() < one {
        let size = pivot.abs();
        let overflows = if size < tiny {
            size == zero || largest * tiny > size
        } else {
            largest > size * huge
        };
        if overflows {
            *pivot = *pivot + T::from_real(step);
            step = step + step;
        } else {
            if size < tiny {
                let huge = T::from_real(huge);
                *pivot = *pivot * huge;
                row.iter_mut().for_each(|x| *x = *x * huge);
            }
            return;
        }
    }
}

fn larger<R: PartialOrd>(a: R, b: R) -> R {
    if a < b { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The matrix that `solve` is given, times `x`.
    fn times(lower: &[f64], diagonal: &[f64], upper: &[f64], x: &[f64]) -> Vec<f64> {
        let n = x.len();
        let left = |i: usize| if i > 0 { lower[i] * x[i - 1] } else { 0.0 };
        let right = |i: usize| if i + 1 < n { upper[i] * x[i + 1] } else { 0.0 };
        (0..n)
            .map(|i| left(i) + diagonal[i] * x[i] + right(i))
            .collect()
    }

    #[test]
    fn regular_systems_are_solved_with_and_without_exchanges() {
        let lower = [f64::NAN, 1.0, 8.0, 0.0, 2.0];
        let diagonal = [4.0, 1e-3, 2.0, -3.0, 5.0];
        let upper = [1.0, 2.0, -7.0, 1.0, f64::NAN];
        let expected = [1.0, -2.0, 3.0, 0.5, -0.25];
        let b = times(&lower, &diagonal, &upper, &expected);
        let mut x = [b.clone(), b.iter().map(|b| 2.0 * b).collect()].concat();
        solve([lower.to_vec(), diagonal.to_vec(), upper.to_vec()], &mut x);
        for i in 0..5 {
            assert!((x[i] - expected[i]).abs() < 1e-12, "{x:?}");
            assert!((x[5 + i] - 2.0 * expected[i]).abs() < 1e-12, "{x:?}");
        }
    }

    #[test]
    fn singular_systems_have_large_and_finite_solutions() {
        // Second differences with free ends: constants are mapped to zero.
        let (lower, upper) = (vec![-1.0; 4], vec![-1.0; 4]);
        let diagonal = vec![1.0, 2.0, 2.0, 1.0];
        let mut x = vec![1.0, 2.0, 3.0, 4.0];
        solve([lower, diagonal, upper], &mut x);
        let size = x.iter().fold(0.0_f64, |size, x| size.max(x.abs()));
        assert!(size.is_finite() && size > 1e14, "{x:?}");
        assert!(
            x.iter().all(|x| (x / size - x.signum()).abs() < 1e-6),
            "{x:?}"
        );
        let mut x = vec![1.0_f32];
        solve([vec![0.0], vec![0.0], vec![0.0]], &mut x);
        assert!(x[0].is_finite() && x[0] > 1e30, "{x:?}");
    }

    #[test]
    fn complex_systems_are_solved() {
        let c = |re, im| Complex { re, im };
        let diagonals = [
            vec![c(0.0, 0.0), c(1.0, 2.0)],
            vec![c(1e-3, 0.0), c(0.0, 3.0)],
            vec![c(2.0, -1.0), c(0.0, 0.0)],
        ];
        let expected: [Complex<f64>; 2] = [c(1.0, -1.0), c(0.5, 2.0)];
        let b = [
            diagonals[1][0] * expected[0] + diagonals[2][0] * expected[1],
            diagonals[0][1] * expected[0] + diagonals[1][1] * expected[1],
        ];
        let mut x = b.to_vec();
        solve(diagonals, &mut x);
        for (x, expected) in x.iter().zip(expected) {
            assert!((*x - expected).abs() < 1e-12, "{x:?}");
        }
    }
}
