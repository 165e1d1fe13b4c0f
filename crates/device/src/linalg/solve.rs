//! Factorizations and what is solved with them: LU, Cholesky, QR, triangular and tridiagonal systems.
//!
//! Each function is one routine of LAPACK for all its element types; its first line says which
//! operands become which results.

use salus_pjrt::Error;

use super::arguments::{Arguments, Invocation};
use super::library::Routine;
use super::scalar::Scalar;

#[rustfmt::skip]
type Trsm<T> = unsafe extern "C" fn(
    &u8, &u8, &u8, &u8, &i32, &i32, &T, *const T, &i32, *mut T, &i32, usize, usize, usize, usize,
);

/// A triangular system: `a`, `b` -> `x` with `a x = b` or `x a = b`.
pub(super) fn trsm<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (2, 1), 1)?;
    let (m, n) = (arguments.rows, arguments.columns);
    let side = arguments.letter("side", b"LR")?;
    let uplo = arguments.letter("uplo", b"LU")?;
    let trans = arguments.letter("trans_x", b"NTC")?;
    let diag = arguments.letter("diag", b"NU")?;
    let order = if side == b'L' { m } else { n };
    let a = arguments.input::<T>(0, &[order, order])?;
    let b = arguments.in_place::<T>(1, 0, &[m, n])?;
    let [m, n, lda] = arguments.told_all([m, n, order])?;
    // SAFETY: the routine's type; `a` is as large as the side of `b` that it is on.
    unsafe {
        let trsm: Trsm<T> = routine.function()?;
        for i in 0..arguments.count {
            let (a, b) = (a.at(i), b.at(i));
            trsm(
                &side,
                &uplo,
                &trans,
                &diag,
                &m,
                &n,
                &T::ONE,
                a,
                &lda,
                b,
                &m,
                1,
                1,
                1,
                1,
            );
        }
    }
    Ok(())
}

type Getrf<T> = unsafe extern "C" fn(&i32, &i32, *mut T, &i32, *mut i32, &mut i32);

/// LU: `a` -> factors, pivots, info.
pub(super) fn getrf<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (1, 3), 0)?;
    let (m, n) = (arguments.rows, arguments.columns);
    let a = arguments.in_place::<T>(0, 0, &[m, n])?;
    let pivots = arguments.output::<i32>(1, &[m.min(n)])?;
    let info = arguments.output::<i32>(2, &[])?;
    let [m, n] = arguments.told_all([m, n])?;
    // SAFETY: the routine's type; a pivot for each step.
    unsafe {
        let getrf: Getrf<T> = routine.function()?;
        for i in 0..arguments.count {
            getrf(&m, &n, a.at(i), &m, pivots.at(i), &mut *info.at(i));
        }
    }
    Ok(())
}

type Potrf<T> = unsafe extern "C" fn(&u8, &i32, *mut T, &i32, &mut i32, usize);

/// Cholesky: `a` -> factor, info.
pub(super) fn potrf<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (1, 2), 0)?;
    let n = arguments.order()?;
    let a = arguments.in_place::<T>(0, 0, &[n, n])?;
    let info = arguments.output::<i32>(1, &[])?;
    let uplo = arguments.letter("uplo", b"LU")?;
    let n = arguments.told(n)?;
    // SAFETY: the routine's type; each matrix is n by n.
    unsafe {
        let potrf: Potrf<T> = routine.function()?;
        for i in 0..arguments.count {
            potrf(&uplo, &n, a.at(i), &n, &mut *info.at(i), 1);
        }
    }
    Ok(())
}

type Geqrf<T> = unsafe extern "C" fn(&i32, &i32, *mut T, &i32, *mut T, *mut T, &i32, &mut i32);

/// QR: `a` -> reflections and R, their factors.
pub(super) fn geqrf<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (1, 2), 0)?;
    let (m, n) = (arguments.rows, arguments.columns);
    let a = arguments.in_place::<T>(0, 0, &[m, n])?;
    let tau = arguments.output::<T>(1, &[m.min(n)])?;
    let [m, n] = arguments.told_all([m, n])?;
    // SAFETY: the routine's type; a factor for each step, and the workspace it asked for.
    arguments.each(None, |i, work, size, info| unsafe {
        let geqrf: Geqrf<T> = routine.function()?;
        geqrf(&m, &n, a.at(i), &m, tau.at(i), work, size, info);
        Ok(())
    })
}

type Geqp3Real<T> =
    unsafe extern "C" fn(&i32, &i32, *mut T, &i32, *mut i32, *mut T, *mut T, &i32, &mut i32);
#[rustfmt::skip]
type Geqp3Complex<T> = unsafe extern "C" fn(
    &i32, &i32, *mut T, &i32, *mut i32, *mut T, *mut T, &i32, *mut <T as Scalar>::Real, &mut i32,
);

/// QR with column pivoting: `a`, columns that stay in front -> reflections and R, order, factors.
pub(super) fn geqp3<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (2, 3), 0)?;
    let (m, n) = (arguments.rows, arguments.columns);
    let a = arguments.in_place::<T>(0, 0, &[m, n])?;
    let pivots = arguments.in_place::<i32>(1, 1, &[n])?;
    let tau = arguments.output::<T>(2, &[m.min(n)])?;
    let mut reals = arguments.workspace::<T::Real>(if T::IS_COMPLEX { 2 * n } else { 0 })?;
    let [m, n] = arguments.told_all([m, n])?;
    arguments.each(None, |i, work, size, info| {
        let (a, pivots, tau) = (a.at(i), pivots.at(i), tau.at(i));
        // SAFETY: the routine's type for each kind of number, and the workspaces it documents.
        unsafe {
            if T::IS_COMPLEX {
                let geqp3: Geqp3Complex<T> = routine.function()?;
                let reals = reals.data();
                geqp3(&m, &n, a, &m, pivots, tau, work, size, reals, info);
            } else {
                let geqp3: Geqp3Real<T> = routine.function()?;
                geqp3(&m, &n, a, &m, pivots, tau, work, size, info);
            }
        }
        Ok(())
    })
}

type Orgqr<T> =
    unsafe extern "C" fn(&i32, &i32, &i32, *mut T, &i32, *const T, *mut T, &i32, &mut i32);

/// Q of a QR: reflections, their factors -> Q.
pub(super) fn orgqr<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (2, 1), 0)?;
    let (m, n) = (arguments.rows, arguments.columns);
    let [k] = arguments.operand_extents(1)?;
    if k > n || n > m {
        return Err(arguments.wrong(format!(
            "{k} reflections make no {m} by {n} matrix: it must be at least as high as wide, and \
             as wide as their number"
        )));
    }
    let tau = arguments.input::<T>(1, &[k])?;
    let a = arguments.in_place::<T>(0, 0, &[m, n])?;
    let [m, n, k] = arguments.told_all([m, n, k])?;
    // SAFETY: the routine's type; k factors, and the workspace it asked for.
    arguments.each(None, |i, work, size, info| unsafe {
        let orgqr: Orgqr<T> = routine.function()?;
        orgqr(&m, &n, &k, a.at(i), &m, tau.at(i), work, size, info);
        Ok(())
    })
}

#[rustfmt::skip]
type Ormqr<T> = unsafe extern "C" fn(
    &u8, &u8, &i32, &i32, &i32, *const T, &i32, *const T, *mut T, &i32, *mut T, &i32, &mut i32,
    usize, usize,
);

/// A product with Q of a QR: reflections, their factors, `c` -> `q c` or `c q`.
pub(super) fn ormqr<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (3, 1), 2)?;
    let (m, n) = (arguments.rows, arguments.columns);
    let side = match arguments.integer("left")? {
        0 => b'R',
        _ => b'L',
    };
    let trans = match arguments.integer("transpose")? {
        0 => b'N',
        _ if T::IS_COMPLEX => b'C',
        _ => b'T',
    };
    let order = if side == b'L' { m } else { n };
    let [_, columns] = arguments.operand_extents(0)?;
    let [k] = arguments.operand_extents(1)?;
    if k > order.min(columns) {
        return Err(arguments.wrong(format!(
            "it has {k} reflections, but their matrix has {columns} columns and Q has order {order}"
        )));
    }
    let a = arguments.input::<T>(0, &[order, columns])?;
    let tau = arguments.input::<T>(1, &[k])?;
    let c = arguments.in_place::<T>(2, 0, &[m, n])?;
    let [m, n, k, lda] = arguments.told_all([m, n, k, order])?;
    arguments.each(None, |i, work, size, info| {
        let (a, tau, c) = (a.at(i), tau.at(i), c.at(i));
        // SAFETY: the routine's type; k columns and factors of reflections of the order of Q.
        unsafe {
            let ormqr: Ormqr<T> = routine.function()?;
            ormqr(
                &side, &trans, &m, &n, &k, a, &lda, tau, c, &m, work, size, info, 1, 1,
            );
        }
        Ok(())
    })
}

type Gtsv<T> = unsafe extern "C" fn(&i32, &i32, *mut T, *mut T, *mut T, *mut T, &i32, &mut i32);

/// A tridiagonal system: three diagonals of length n, `b` -> the same overwritten, `x`, info.
pub(super) fn gtsv<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (4, 5), 3)?;
    let (n, columns) = (arguments.rows, arguments.columns);
    let lower = arguments.in_place::<T>(0, 0, &[n])?;
    let diagonal = arguments.in_place::<T>(1, 1, &[n])?;
    let upper = arguments.in_place::<T>(2, 2, &[n])?;
    let b = arguments.in_place::<T>(3, 3, &[n, columns])?;
    let info = arguments.output::<i32>(4, &[])?;
    let [n, columns] = arguments.told_all([n, columns])?;
    // SAFETY: the routine's type. JAX's lower diagonal has an unused first entry.
    unsafe {
        let gtsv: Gtsv<T> = routine.function()?;
        for i in 0..arguments.count {
            let lower = lower.at(i).wrapping_add(1);
            let (diagonal, upper, info) = (diagonal.at(i), upper.at(i), &mut *info.at(i));
            gtsv(&n, &columns, lower, diagonal, upper, b.at(i), &n, info);
        }
    }
    Ok(())
}
