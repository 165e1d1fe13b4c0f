//! Eigenvalues, of symmetric and of general matrices.
//!
//! Each function is one routine of LAPACK for the element types it has the same form for; its first
//! line says which operands become which results.

use salus_pjrt::Error;

use super::arguments::{Arguments, Invocation, QUESTION, Stack};
use super::library::Routine;
use super::scalar::{Complex, Element, Scalar};

#[rustfmt::skip]
type Syevd<T> = unsafe extern "C" fn(
    &u8, &u8, &i32, *mut T, &i32, *mut <T as Scalar>::Real, *mut T, &i32, *mut i32, &i32, &mut i32,
    usize, usize,
);
#[rustfmt::skip]
type Heevd<T> = unsafe extern "C" fn(
    &u8, &u8, &i32, *mut T, &i32, *mut <T as Scalar>::Real, *mut T, &i32,
    *mut <T as Scalar>::Real, &i32, *mut i32, &i32, &mut i32, usize, usize,
);

/// Symmetric and Hermitian: `a` -> eigenvectors, eigenvalues, info.
pub(super) fn syevd<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (1, 3), 0)?;
    let n = arguments.order()?;
    let a = arguments.in_place::<T>(0, 0, &[n, n])?;
    let values = arguments.output::<T::Real>(1, &[n])?;
    let info = arguments.output::<i32>(2, &[])?;
    let mode = arguments.letter("mode", b"NV")?;
    let uplo = arguments.letter("uplo", b"LU")?;
    // The least that LAPACK documents, as JAX has it: another size may change the last bits.
    let (main, reals, integers) = match (T::IS_COMPLEX, mode) {
        (false, b'N') => (2 * n + 1, 0, 1),
        (false, _) => (1 + 6 * n + 2 * n * n, 0, 3 + 5 * n),
        (true, b'N') => (n + 1, n.max(1), 1),
        (true, _) => (2 * n + n * n, 1 + 5 * n + 2 * n * n, 3 + 5 * n),
    };
    let [n, sizes @ ..] = arguments.told_all([n, main, reals, integers])?;
    let mut work = arguments.workspace::<T>(main)?;
    let mut real_work = arguments.workspace::<T::Real>(reals)?;
    let mut integer_work = arguments.workspace::<i32>(integers)?;
    let [main, reals, integers] = &sizes;
    for i in 0..arguments.count {
        let (a, values, work) = (a.at(i), values.at(i), work.data());
        let (r, k) = (real_work.data(), integer_work.data());
        // SAFETY: the routine's type for each kind of number, and the workspaces it documents.
        unsafe {
            let info = &mut *info.at(i);
            if T::IS_COMPLEX {
                let heevd: Heevd<T> = routine.function()?;
                heevd(
                    &mode, &uplo, &n, a, &n, values, work, main, r, reals, k, integers, info, 1, 1,
                );
            } else {
                let syevd: Syevd<T> = routine.function()?;
                syevd(
                    &mode, &uplo, &n, a, &n, values, work, main, k, integers, info, 1, 1,
                );
            }
        }
    }
    Ok(())
}

/// The result for matrices that are not finite: LAPACK might never return for them.
const NOT_FINITE: i32 = -4;

/// Copies matrix `index` to `to`. False if the copy, which no job can change, is not finite.
///
/// # Safety
/// Matrix `index` is there and has that many elements, and so has `to`, which is a workspace.
unsafe fn copy_finite<T: Scalar>(
    from: Stack<T>,
    index: usize,
    to: *mut T,
    elements: usize,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(from.at(index).cast_const(), to, elements);
        let copy = std::slice::from_raw_parts(to, elements);
        copy.iter().all(|x| x.is_finite())
    }
}

#[rustfmt::skip]
type GeevReal<T> = unsafe extern "C" fn(
    &u8, &u8, &i32, *mut T, &i32, *mut T, *mut T, *mut T, &i32, *mut T, &i32, *mut T, &i32,
    &mut i32, usize, usize,
);

/// General, real: `a` -> real and imaginary parts of eigenvalues, left and right vectors, info.
pub(super) fn geev_real<T: Scalar>(
    invocation: Invocation<'_>,
    routine: &Routine,
) -> Result<(), Error>
where
    Complex<T>: Element,
{
    let arguments = Arguments::of_matrices(invocation, (1, 5), 0)?;
    let n = arguments.order()?;
    let a = arguments.input::<T>(0, &[n, n])?;
    let real_parts = arguments.output::<T>(0, &[n])?;
    let imaginary_parts = arguments.output::<T>(1, &[n])?;
    let left = arguments.output::<Complex<T>>(2, &[n, n])?;
    let right = arguments.output::<Complex<T>>(3, &[n, n])?;
    let info = arguments.output::<i32>(4, &[])?;
    let with_left = arguments.letter("compute_left", b"NV")?;
    let with_right = arguments.letter("compute_right", b"NV")?;
    let mut copy = arguments.workspace::<T>(n * n)?;
    let mut packed_left = arguments.workspace::<T>(n * n)?;
    let mut packed_right = arguments.workspace::<T>(n * n)?;
    let order = &arguments.told(n)?;
    arguments.each(Some(info), |i, work, size, info| {
        let (copy, vl, vr) = (copy.data(), packed_left.data(), packed_right.data());
        // SAFETY: a matrix that is there, and a workspace as large.
        if *size != QUESTION && !unsafe { copy_finite(a, i, copy, n * n) } {
            *info = NOT_FINITE;
            return Ok(());
        }
        let (re, im) = (real_parts.at(i), imaginary_parts.at(i));
        // SAFETY: the routine's type; all matrices are n by n, all vectors have n entries.
        unsafe {
            let geev: GeevReal<T> = routine.function()?;
            geev(
                &with_left,
                &with_right,
                order,
                copy,
                order,
                re,
                im,
                vl,
                order,
                vr,
                order,
                work,
                size,
                info,
                1,
                1,
            );
            if *size == QUESTION || *info != 0 {
                return Ok(());
            }
            if with_left == b'V' {
                unpack(n, im, vl, left.at(i));
            }
            if with_right == b'V' {
                unpack(n, im, vr, right.at(i));
            }
        }
        Ok(())
    })
}

/// LAPACK packs a pair of conjugate eigenvectors into two columns: real parts, imaginary parts.
///
/// # Safety
/// `n` imaginary parts of eigenvalues, and n by n numbers in each matrix.
unsafe fn unpack<T: Scalar>(n: usize, imaginary: *const T, packed: *const T, to: *mut Complex<T>) {
    // SAFETY: the caller's promise; LAPACK wrote all of what is read.
    let (imaginary, packed, to) = unsafe {
        (
            std::slice::from_raw_parts(imaginary, n),
            std::slice::from_raw_parts(packed, n * n),
            std::slice::from_raw_parts_mut(to, n * n),
        )
    };
    let mut j = 0;
    while j < n {
        // Pairs are complete; a last column marked as one of two is not read beyond.
        let is_real = imaginary[j] == T::ZERO || !imaginary[j].is_finite() || j + 1 == n;
        for i in j * n..(j + 1) * n {
            let re = packed[i];
            if is_real {
                to[i] = Complex { re, im: T::ZERO };
            } else {
                let im = packed[i + n];
                to[i] = Complex { re, im };
                to[i + n] = Complex { re, im: -im };
            }
        }
        j += if is_real { 1 } else { 2 };
    }
}

#[rustfmt::skip]
type GeevComplex<T> = unsafe extern "C" fn(
    &u8, &u8, &i32, *mut T, &i32, *mut T, *mut T, &i32, *mut T, &i32, *mut T, &i32,
    *mut <T as Scalar>::Real, &mut i32, usize, usize,
);

/// General, complex: `a` -> eigenvalues, left and right vectors, info.
pub(super) fn geev_complex<T: Scalar>(
    invocation: Invocation<'_>,
    routine: &Routine,
) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (1, 4), 0)?;
    let n = arguments.order()?;
    let a = arguments.input::<T>(0, &[n, n])?;
    let values = arguments.output::<T>(0, &[n])?;
    let left = arguments.output::<T>(1, &[n, n])?;
    let right = arguments.output::<T>(2, &[n, n])?;
    let info = arguments.output::<i32>(3, &[])?;
    let with_left = arguments.letter("compute_left", b"NV")?;
    let with_right = arguments.letter("compute_right", b"NV")?;
    let mut copy = arguments.workspace::<T>(n * n)?;
    let mut reals = arguments.workspace::<T::Real>(2 * n)?;
    let order = &arguments.told(n)?;
    arguments.each(Some(info), |i, work, size, info| {
        let (copy, reals) = (copy.data(), reals.data());
        // SAFETY: a matrix that is there, and a workspace as large.
        if *size != QUESTION && !unsafe { copy_finite(a, i, copy, n * n) } {
            *info = NOT_FINITE;
            return Ok(());
        }
        let (w, vl, vr) = (values.at(i), left.at(i), right.at(i));
        // SAFETY: the routine's type; all matrices are n by n, the vector has n entries.
        unsafe {
            let geev: GeevComplex<T> = routine.function()?;
            geev(
                &with_left,
                &with_right,
                order,
                copy,
                order,
                w,
                vl,
                order,
                vr,
                order,
                work,
                size,
                reals,
                info,
                1,
                1,
            );
        }
        Ok(())
    })
}
