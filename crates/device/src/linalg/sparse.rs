//! A sparse matrix by rows times a dense vector or matrix, as `jax.experimental.sparse` calls it.
//!
//! Where the entries of the matrix lie is data, which only the running program knows: each index is
//! checked before it is used.

use salus_pjrt::sys::*;
use salus_pjrt::{Call, Error, handle};

use super::arguments::{Arguments, Invocation, Stack};
use super::scalar::{Complex, Element};

pub(super) const TARGET: &str = "cpu_csr_sparse_dense_ffi";

/// # Safety
/// The plugin calls it with its frame.
pub(super) unsafe extern "C" fn handler(frame: *mut XLA_FFI_CallFrame) -> *mut XLA_FFI_Error {
    // SAFETY: the caller's promise.
    unsafe { handle(frame, answer) }
}

/// Entries, where each row begins among them, their columns, dense rows -> the product.
fn answer(call: &Call<'_>) -> Result<(), Error> {
    let invocation = Invocation {
        target: TARGET,
        call,
    };
    let arguments = Arguments::of(invocation, (4, 1))?;
    let entry_type = arguments.operand_type(0);
    let run = match entry_type {
        t if t == i32::TYPE => by_index::<i32>,
        t if t == i64::TYPE => by_index::<i64>,
        t if t == f32::TYPE => by_index::<f32>,
        t if t == f64::TYPE => by_index::<f64>,
        t if t == Complex::<f32>::TYPE => by_index::<Complex<f32>>,
        t if t == Complex::<f64>::TYPE => by_index::<Complex<f64>>,
        other => {
            return Err(arguments.wrong(format!(
                "its entries have type {other}, of which it knows no product"
            )));
        }
    };
    run(&arguments)
}

fn by_index<T: Entry>(arguments: &Arguments<'_>) -> Result<(), Error> {
    match arguments.operand_type(1) {
        t if t == i64::TYPE => multiply::<T, i64>(arguments),
        // Any other is refused there.
        _ => multiply::<T, i32>(arguments),
    }
}

/// What is multiplied. Integers wrap, as they do in XLA.
trait Entry: Element {
    /// `self + a * b`
    fn plus_product(self, a: Self, b: Self) -> Self;
}

macro_rules! entries {
    ($($type:ty: |$sum:ident, $a:ident, $b:ident| $result:expr;)*) => { $(
        impl Entry for $type {
            fn plus_product(self, $a: Self, $b: Self) -> Self {
                let $sum = self;
                $result
            }
        }
    )* };
}

entries! {
    i32: |sum, a, b| sum.wrapping_add(a.wrapping_mul(b));
    i64: |sum, a, b| sum.wrapping_add(a.wrapping_mul(b));
    f32: |sum, a, b| sum + a * b;
    f64: |sum, a, b| sum + a * b;
    Complex<f32>: |sum, a, b| sum + a * b;
    Complex<f64>: |sum, a, b| sum + a * b;
}

fn multiply<T: Entry, I: Element + TryInto<usize>>(arguments: &Arguments<'_>) -> Result<(), Error> {
    let [entries] = arguments.operand_extents(0)?;
    let [starts] = arguments.operand_extents(1)?;
    let dense_shape = arguments.operand_shape(3);
    let (rows_of_dense, width) = match dense_shape[..] {
        [rows] => (rows, None),
        [rows, width] => (rows, Some(width)),
        _ => return Err(arguments.wrong("its dense operand is no vector and no matrix")),
    };
    let rows = starts
        .checked_sub(1)
        .ok_or_else(|| arguments.wrong("it does not say where rows begin"))?;
    let product_shape: Vec<usize> = [rows].into_iter().chain(width).collect();
    let width = width.unwrap_or(1);
    let values = arguments.input::<T>(0, &[entries])?;
    let starts = arguments.input::<I>(1, &[starts])?;
    let columns = arguments.input::<I>(2, &[entries])?;
    let dense = arguments.input::<T>(3, &dense_shape)?;
    let product = arguments.output::<T>(0, &product_shape)?;
    // Read and written through pointers: a program may give its arrays one place.
    let [values, dense, product] = [values, dense, product].map(|array| array.at(0));
    let index = |of: Stack<I>, at: usize, limit: usize| {
        // SAFETY: both are as long as they are read.
        let index = unsafe { of.at(0).add(at).read() };
        let index = index.try_into().ok().filter(|index| *index < limit);
        index.ok_or_else(|| arguments.wrong(format!("its index {at} is not below {limit}")))
    };
    for row in 0..rows {
        let first = index(starts, row, entries + 1)?;
        let end = index(starts, row + 1, entries + 1)?;
        for entry in first..end {
            let column = index(columns, entry, rows_of_dense)?;
            for k in 0..width {
                // SAFETY: below the numbers of entries, rows and columns, which are the shapes.
                unsafe {
                    let factor = dense.add(column * width + k).read();
                    let sum = product.add(row * width + k);
                    sum.write(sum.read().plus_product(values.add(entry).read(), factor));
                }
            }
        }
    }
    Ok(())
}
