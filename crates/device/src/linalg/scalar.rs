//! The element types of LAPACK, in Rust's types and in XLA's numbers.

use std::ops::{Add, Div, Mul, Neg, Sub};

use salus_pjrt::sys::*;

/// What an array of a call consists of. Every pattern of bits is a value.
pub(super) trait Element: Copy + 'static {
    const TYPE: XLA_FFI_DataType;
}

impl Element for i32 {
    const TYPE: XLA_FFI_DataType = XLA_FFI_DataType_S32;
}

impl Element for i64 {
    const TYPE: XLA_FFI_DataType = XLA_FFI_DataType_S64;
}

/// What a matrix consists of.
pub(super) trait Scalar:
    Element
    + PartialEq
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    /// The type of eigenvalues of symmetric matrices, of singular values and of some workspaces.
    type Real: Scalar + PartialOrd;
    const IS_COMPLEX: bool;
    const ONE: Self;
    const ZERO: Self;
    /// The least normal number and the distance from 1 to the next.
    const TINY: Self::Real;
    const EPSILON: Self::Real;

    fn real(self) -> Self::Real;
    fn abs(self) -> Self::Real;
    fn from_real(real: Self::Real) -> Self;
    /// Workspace queries are answered in it.
    fn to_f64(self) -> f64;
    fn is_finite(self) -> bool;
}

/// As Fortran and C have it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(super) struct Complex<R> {
    pub(super) re: R,
    pub(super) im: R,
}

impl<R: Neg<Output = R>> Neg for Complex<R> {
    type Output = Self;

    fn neg(self) -> Self {
        Complex {
            re: -self.re,
            im: -self.im,
        }
    }
}

impl<R: Add<Output = R>> Add for Complex<R> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Complex {
            re: self.re + other.re,
            im: self.im + other.im,
        }
    }
}

impl<R: Sub<Output = R>> Sub for Complex<R> {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Complex {
            re: self.re - other.re,
            im: self.im - other.im,
        }
    }
}

impl<R: Copy + Add<Output = R> + Sub<Output = R> + Mul<Output = R>> Mul for Complex<R> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Complex {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

impl<R: Scalar<Real = R> + PartialOrd> Div for Complex<R> {
    type Output = Self;

    /// Without squares, which would lose small divisors.
    fn div(self, by: Self) -> Self {
        if by.re.abs() >= by.im.abs() {
            let ratio = by.im / by.re;
            let divisor = by.re + by.im * ratio;
            Complex {
                re: (self.re + self.im * ratio) / divisor,
                im: (self.im - self.re * ratio) / divisor,
            }
        } else {
            let ratio = by.re / by.im;
            let divisor = by.re * ratio + by.im;
            Complex {
                re: (self.re * ratio + self.im) / divisor,
                im: (self.im * ratio - self.re) / divisor,
            }
        }
    }
}

macro_rules! scalars {
    ($($real:ident: $type:ident, $complex_type:ident;)*) => { $(
        impl Element for $real {
            const TYPE: XLA_FFI_DataType = $type;
        }

        impl Scalar for $real {
            type Real = $real;
            const IS_COMPLEX: bool = false;
            const ONE: $real = 1.0;
            const ZERO: $real = 0.0;
            const TINY: $real = $real::MIN_POSITIVE;
            const EPSILON: $real = $real::EPSILON;

            fn real(self) -> $real {
                self
            }

            fn abs(self) -> $real {
                $real::abs(self)
            }

            fn from_real(real: $real) -> $real {
                real
            }

            fn to_f64(self) -> f64 {
                self.into()
            }

            fn is_finite(self) -> bool {
                $real::is_finite(self)
            }
        }

        impl Element for Complex<$real> {
            const TYPE: XLA_FFI_DataType = $complex_type;
        }

        impl Scalar for Complex<$real> {
            type Real = $real;
            const IS_COMPLEX: bool = true;
            const ONE: Self = Complex { re: 1.0, im: 0.0 };
            const ZERO: Self = Complex { re: 0.0, im: 0.0 };
            const TINY: $real = $real::MIN_POSITIVE;
            const EPSILON: $real = $real::EPSILON;

            fn real(self) -> $real {
                self.re
            }

            fn abs(self) -> $real {
                self.re.hypot(self.im)
            }

            fn from_real(re: $real) -> Self {
                Complex { re, im: 0.0 }
            }

            fn to_f64(self) -> f64 {
                self.re.into()
            }

            fn is_finite(self) -> bool {
                self.re.is_finite() && self.im.is_finite()
            }
        }
    )* };
}

scalars! {
    f32: XLA_FFI_DataType_F32, XLA_FFI_DataType_C64;
    f64: XLA_FFI_DataType_F64, XLA_FFI_DataType_C128;
}
