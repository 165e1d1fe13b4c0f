//! Singular values, by divide and conquer (`gesdd`) or by QR iterations (`gesvd`).
//!
//! Both: `a` -> `a` overwritten, singular values, U, V^H, info.

use salus_pjrt::Error;

use super::arguments::{Arguments, Invocation, Stack};
use super::library::Routine;
use super::scalar::Scalar;

#[rustfmt::skip]
type GesddReal<T> = unsafe extern "C" fn(
    &u8, &i32, &i32, *mut T, &i32, *mut <T as Scalar>::Real, *mut T, &i32, *mut T, &i32, *mut T,
    &i32, *mut i32, &mut i32, usize,
);
#[rustfmt::skip]
type GesddComplex<T> = unsafe extern "C" fn(
    &u8, &i32, &i32, *mut T, &i32, *mut <T as Scalar>::Real, *mut T, &i32, *mut T, &i32, *mut T,
    &i32, *mut <T as Scalar>::Real, *mut i32, &mut i32, usize,
);
#[rustfmt::skip]
type GesvdReal<T> = unsafe extern "C" fn(
    &u8, &u8, &i32, &i32, *mut T, &i32, *mut <T as Scalar>::Real, *mut T, &i32, *mut T, &i32,
    *mut T, &i32, &mut i32, usize, usize,
);
#[rustfmt::skip]
type GesvdComplex<T> = unsafe extern "C" fn(
    &u8, &u8, &i32, &i32, *mut T, &i32, *mut <T as Scalar>::Real, *mut T, &i32, *mut T, &i32,
    *mut T, &i32, *mut <T as Scalar>::Real, &mut i32, usize, usize,
);

/// What both have in common.
struct Svd<T: Scalar> {
    mode: u8,
    m: i32,
    n: i32,
    /// Rows of V^H.
    ldvt: i32,
    a: Stack<T>,
    values: Stack<T::Real>,
    u: Stack<T>,
    vt: Stack<T>,
    info: Stack<i32>,
}

impl<T: Scalar> Svd<T> {
    fn of(arguments: &Arguments<'_>) -> Result<Svd<T>, Error> {
        let (m, n) = (arguments.rows, arguments.columns);
        let (least, most) = (m.min(n), m.max(n));
        let mode = arguments.letter("mode", b"ASN")?;
        let (u, vt) = match mode {
            b'A' => ([m, m], [n, n]),
            b'S' => ([m, least], [least, n]),
            // Not computed, so the program may give them any size.
            _ => (arguments.result_extents(2)?, arguments.result_extents(3)?),
        };
        // LAPACK computes with products like these in 32 bits and does not look whether they fit.
        let product = least.saturating_mul(2 * most + 5 * least);
        arguments.told(product.saturating_add(256 * (most + least)))?;
        let ldvt = if mode == b'A' { n } else { least };
        Ok(Svd {
            mode,
            m: arguments.told(m)?,
            n: arguments.told(n)?,
            ldvt: arguments.told(ldvt)?,
            a: arguments.in_place(0, 0, &[m, n])?,
            values: arguments.output(1, &[least])?,
            u: arguments.output(2, &u)?,
            vt: arguments.output(3, &vt)?,
            info: arguments.output(4, &[])?,
        })
    }
}

pub(super) fn gesdd<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (1, 5), 0)?;
    let svd = Svd::<T>::of(&arguments)?;
    let least = arguments.rows.min(arguments.columns);
    let most = arguments.rows.max(arguments.columns);
    let reals = match (T::IS_COMPLEX, svd.mode) {
        (false, _) => 0,
        (true, b'N') => 7 * least,
        (true, _) => (5 * least * (least + 1)).max(2 * least * (most + least) + least),
    };
    let mut reals = arguments.workspace::<T::Real>(reals)?;
    let mut integers = arguments.workspace::<i32>(8 * least)?;
    let Svd {
        mode, m, n, ldvt, ..
    } = &svd;
    arguments.each(Some(svd.info), |i, work, size, info| {
        let (a, s, u, vt) = (svd.a.at(i), svd.values.at(i), svd.u.at(i), svd.vt.at(i));
        let (r, k) = (reals.data(), integers.data());
        // SAFETY: the routine's type for each kind of number, and the workspaces it documents.
        unsafe {
            if T::IS_COMPLEX {
                let gesdd: GesddComplex<T> = routine.function()?;
                gesdd(
                    mode, m, n, a, m, s, u, m, vt, ldvt, work, size, r, k, info, 1,
                );
            } else {
                let gesdd: GesddReal<T> = routine.function()?;
                gesdd(mode, m, n, a, m, s, u, m, vt, ldvt, work, size, k, info, 1);
            }
        }
        Ok(())
    })
}

pub(super) fn gesvd<T: Scalar>(invocation: Invocation<'_>, routine: &Routine) -> Result<(), Error> {
    let arguments = Arguments::of_matrices(invocation, (1, 5), 0)?;
    let svd = Svd::<T>::of(&arguments)?;
    let reals = 5 * arguments.rows.min(arguments.columns);
    let mut reals = arguments.workspace::<T::Real>(if T::IS_COMPLEX { reals } else { 0 })?;
    let Svd {
        mode, m, n, ldvt, ..
    } = &svd;
    arguments.each(Some(svd.info), |i, work, size, info| {
        let (a, s, u, vt) = (svd.a.at(i), svd.values.at(i), svd.u.at(i), svd.vt.at(i));
        let r = reals.data();
        // SAFETY: the routine's type for each kind of number, and the workspaces it documents.
        unsafe {
            if T::IS_COMPLEX {
                let gesvd: GesvdComplex<T> = routine.function()?;
                gesvd(
                    mode, mode, m, n, a, m, s, u, m, vt, ldvt, work, size, r, info, 1, 1,
                );
            } else {
                let gesvd: GesvdReal<T> = routine.function()?;
                gesvd(
                    mode, mode, m, n, a, m, s, u, m, vt, ldvt, work, size, info, 1, 1,
                );
            }
        }
        Ok(())
    })
}
