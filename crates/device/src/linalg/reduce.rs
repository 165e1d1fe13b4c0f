//! Reductions to simpler forms by similar matrices: Schur, Hessenberg, tridiagonal.
//!
//! Each function is one routine of LAPACK for all its element types; its first line says which
//! operands become which results.

use std::ffi::c_void;

use salus_pjrt::Error;

use super::arguments::{Arguments, Invocation};
use super::library::Routine;
use super::scalar::Scalar;

#[rustfmt::skip]
type GeesReal<T> = unsafe extern "C" fn(
    &u8, &u8, *const c_void, &i32, *mut T, &i32, *mut i32, *mut T, *mut T, *mut T, &i32, *mut T,
    &i32, *mut i32, &mut i32, usize, usize,
);
#[rustfmt::skip]
type GeesComplex<T> = unsafe extern "C" fn(
    &u8, &u8, *const c_void, &i32, *mut T, &i32, *mut i32, *mut T, *mut T, &i32, *mut T, &i32,
    *mut <T as Scalar>::Real, *mut i32, &mut i32, usize, usize,
);

/// Schur: `a` -> form, vectors, eigenvalues (real: in two parts), how many were selected, info.
pub(super) fn gees<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let results = if T::IS_COMPLEX { 5 } else { 6 };
    let arguments = Arguments::of_matrices(invocation, (1, results), 0)?;
    let n = arguments.order()?;
    let a = arguments.in_place::<T>(0, 0, &[n, n])?;
    let vectors = arguments.output::<T>(1, &[n, n])?;
    let values = arguments.output::<T>(2, &[n])?;
    // The same again where there is no such part, and then unused.
    let imaginary_parts = arguments.output::<T>(results - 3, &[n])?;
    let selected = arguments.output::<i32>(results - 2, &[])?;
    let info = arguments.output::<i32>(results - 1, &[])?;
    let mode = arguments.letter("mode", b"NV")?;
    // Sorting would need a function of the program's.
    let sort = arguments.letter("sort", b"N")?;
    let mut reals = arguments.workspace::<T::Real>(if T::IS_COMPLEX { n } else { 0 })?;
    let n = arguments.told(n)?;
    let (none, flags) = (std::ptr::null(), std::ptr::null_mut());
    arguments.each(Some(info), |i, work, size, info| {
        let (a, vectors, selected) = (a.at(i), vectors.at(i), selected.at(i));
        let (re, im) = (values.at(i), imaginary_parts.at(i));
        // SAFETY: the routine's type for each kind of number; without sorting it calls no function
        // and sets no flags.
        unsafe {
            if T::IS_COMPLEX {
                let gees: GeesComplex<T> = routine.function()?;
                let reals = reals.data();
                gees(
                    &mode, &sort, none, &n, a, &n, selected, re, vectors, &n, work, size, reals,
                    flags, info, 1, 1,
                );
            } else {
                let gees: GeesReal<T> = routine.function()?;
                gees(
                    &mode, &sort, none, &n, a, &n, selected, re, im, vectors, &n, work, size,
                    flags, info, 1, 1,
                );
            }
        }
        Ok(())
    })
}

type Gehrd<T> =
    unsafe extern "C" fn(&i32, &i32, &i32, *mut T, &i32, *mut T, *mut T, &i32, &mut i32);

/// Hessenberg: `a` -> form and reflections, their factors, info.
pub(super) fn gehrd<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (1, 3), 0)?;
    let n = arguments.order()?;
    let a = arguments.in_place::<T>(0, 0, &[n, n])?;
    let tau = arguments.output::<T>(1, &[n.saturating_sub(1)])?;
    let info = arguments.output::<i32>(2, &[])?;
    let (low, high) = (arguments.integer("low")?, arguments.integer("high")?);
    let n = arguments.told(n)?;
    if n > 0 && !(1 <= low && low <= high && high <= i64::from(n)) {
        return Err(arguments.wrong(format!("its rows {low} to {high} are not within 1 to {n}")));
    }
    let (low, high) = (low as i32, high as i32);
    // SAFETY: the routine's type; a factor for each step, and the workspace it asked for.
    arguments.each(Some(info), |i, work, size, info| unsafe {
        let gehrd: Gehrd<T> = routine.function()?;
        gehrd(&n, &low, &high, a.at(i), &n, tau.at(i), work, size, info);
        Ok(())
    })
}

#[rustfmt::skip]
type Sytrd<T> = unsafe extern "C" fn(
    &u8, &i32, *mut T, &i32, *mut <T as Scalar>::Real, *mut <T as Scalar>::Real, *mut T, *mut T,
    &i32, &mut i32, usize,
);

/// Tridiagonal: symmetric `a` -> reflections, diagonal, off-diagonal, factors, info.
pub(super) fn sytrd<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (1, 5), 0)?;
    let n = arguments.order()?;
    let off = n.saturating_sub(1);
    let a = arguments.in_place::<T>(0, 0, &[n, n])?;
    let diagonal = arguments.output::<T::Real>(1, &[n])?;
    let off_diagonal = arguments.output::<T::Real>(2, &[off])?;
    let tau = arguments.output::<T>(3, &[off])?;
    let info = arguments.output::<i32>(4, &[])?;
    let uplo = arguments.letter("uplo", b"LU")?;
    let n = arguments.told(n)?;
    arguments.each(Some(info), |i, work, size, info| {
        let (d, e, tau) = (diagonal.at(i), off_diagonal.at(i), tau.at(i));
        // SAFETY: the routine's type; n entries in the diagonal, one less where steps count.
        unsafe {
            let sytrd: Sytrd<T> = routine.function()?;
            sytrd(&uplo, &n, a.at(i), &n, d, e, tau, work, size, info, 1);
        }
        Ok(())
    })
}
