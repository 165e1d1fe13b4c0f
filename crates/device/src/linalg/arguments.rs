//! What a program hands to a handler, checked: numbers of operands and results, their types and
//! shapes, and attributes. All of it is untrusted, and LAPACK itself checks next to nothing.
//!
//! An array is a stack of matrices, vectors or numbers: its leading dimensions are the same for
//! all arrays of a call, and each is worked on for itself. JAX lays matrices out by column, as
//! LAPACK wants them; a program that does not gets wrong numbers and nothing worse.
//!
//! Promise: what is handed out is as large as was asked for. A result holds nothing of what was
//! in its memory before: LAPACK leaves some of them alone.

use salus_pjrt::sys::*;
use salus_pjrt::{Call, Error, FfiBuffer};

use super::scalar::{Element, Scalar};

/// A call as it comes, and to whom.
#[derive(Clone, Copy)]
pub(super) struct Invocation<'a> {
    pub(super) target: &'static str,
    pub(super) call: &'a Call<'a>,
}

pub(super) struct Arguments<'a> {
    invocation: Invocation<'a>,
    operands: Vec<FfiBuffer<'a>>,
    results: Vec<FfiBuffer<'a>>,
    /// The leading dimensions.
    batch: &'a [i64],
    /// How many matrices to work on: none if they are empty.
    pub(super) count: usize,
    /// The main operand's.
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// The size of a workspace that asks which size it should have.
pub(super) const QUESTION: i32 = -1;

/// A stack: its address, and how far its entries are apart.
#[derive(Clone, Copy)]
pub(super) struct Stack<T> {
    data: *mut T,
    step: usize,
}

impl<T> Stack<T> {
    /// The address of entry `index`, which exists if `index` is below [`Arguments::count`].
    pub(super) fn at(self, index: usize) -> *mut T {
        self.data.wrapping_add(index * self.step)
    }
}

impl<'a> Arguments<'a> {
    /// The arguments of a call that must have this many operands and results.
    pub(super) fn of(
        invocation: Invocation<'a>,
        (operands, results): (usize, usize),
    ) -> Result<Arguments<'a>, Error> {
        let arguments = Arguments {
            invocation,
            operands: invocation.call.operands()?,
            results: invocation.call.results()?,
            batch: &[],
            count: 1,
            rows: 0,
            columns: 0,
        };
        let have = (arguments.operands.len(), arguments.results.len());
        if have != (operands, results) {
            return Err(arguments.wrong(format!(
                "it has {} operands and {} results, and takes {operands} and gives {results}",
                have.0, have.1
            )));
        }
        Ok(arguments)
    }

    /// The same, where operand `main` is a stack of matrices.
    pub(super) fn of_matrices(
        invocation: Invocation<'a>,
        counts: (usize, usize),
        main: usize,
    ) -> Result<Arguments<'a>, Error> {
        let mut arguments = Arguments::of(invocation, counts)?;
        let dims = arguments.operands[main].dims;
        let Some((batch, &[rows, columns])) = dims.split_last_chunk() else {
            return Err(arguments.wrong(format!(
                "operand {main} has shape {dims:?} and should be a matrix or a stack of them"
            )));
        };
        // LAPACK counts in 32 bits.
        let extent = |dim: i64| i32::try_from(dim).ok().filter(|&dim| dim >= 0);
        let (Some(rows), Some(columns)) = (extent(rows), extent(columns)) else {
            return Err(arguments.wrong(format!(
                "operand {main} has shape {dims:?}, and LAPACK's limit is {} rows or columns",
                i32::MAX
            )));
        };
        arguments.rows = rows as usize;
        arguments.columns = columns as usize;
        arguments.batch = batch;
        arguments.count = if dims.contains(&0) {
            0
        } else {
            // No more than the operand's elements, which are in memory.
            batch.iter().map(|&dim| dim as usize).product()
        };
        Ok(arguments)
    }

    /// The order of the main operand, which must be square.
    pub(super) fn order(&self) -> Result<usize, Error> {
        if self.rows == self.columns {
            return Ok(self.rows);
        }
        let (rows, columns) = (self.rows, self.columns);
        Err(self.wrong(format!(
            "its matrix is {rows} by {columns} and should be square"
        )))
    }

    /// An operand that is only read.
    pub(super) fn input<T: Element>(
        &self,
        index: usize,
        extents: &[usize],
    ) -> Result<Stack<T>, Error> {
        self.stack("operand", &self.operands, index, extents)
    }

    /// A result, all zeros.
    pub(super) fn output<T: Element>(
        &self,
        index: usize,
        extents: &[usize],
    ) -> Result<Stack<T>, Error> {
        let stack = self.stack::<T>("result", &self.results, index, extents)?;
        clear(&self.results[index], size_of::<T>());
        Ok(stack)
    }

    /// A result that begins as a copy of an operand.
    pub(super) fn in_place<T: Element>(
        &self,
        operand: usize,
        result: usize,
        extents: &[usize],
    ) -> Result<Stack<T>, Error> {
        let from = self.stack::<T>("operand", &self.operands, operand, extents)?;
        let to = self.stack::<T>("result", &self.results, result, extents)?;
        let elements = self.results[result].elements();
        // The plugin gives both the same place if it can.
        if from.data != to.data && elements > 0 {
            // SAFETY: both have the same shape and type; `copy` allows them to overlap.
            unsafe { std::ptr::copy(from.data, to.data, elements) };
        }
        Ok(to)
    }

    pub(super) fn operand_type(&self, index: usize) -> XLA_FFI_DataType {
        self.operands[index].element_type
    }

    /// All dimensions of an operand.
    pub(super) fn operand_shape(&self, index: usize) -> Vec<usize> {
        let dims = self.operands[index].dims.iter();
        dims.map(|&dim| dim as usize).collect()
    }

    /// The last `N` dimensions of an operand whose size the others do not say.
    pub(super) fn operand_extents<const N: usize>(
        &self,
        index: usize,
    ) -> Result<[usize; N], Error> {
        self.extents("operand", &self.operands, index)
    }

    /// The last `N` dimensions of a result whose size the operands do not say.
    pub(super) fn result_extents<const N: usize>(&self, index: usize) -> Result<[usize; N], Error> {
        self.extents("result", &self.results, index)
    }

    fn extents<const N: usize>(
        &self,
        what: &str,
        buffers: &[FfiBuffer<'a>],
        index: usize,
    ) -> Result<[usize; N], Error> {
        let dims = buffers[index].dims;
        match dims.last_chunk() {
            Some(last) => Ok(last.map(|dim| dim as usize)),
            None => Err(self.wrong(format!(
                "{what} {index} has shape {dims:?} and should have {N} dimensions or more"
            ))),
        }
    }

    fn stack<T: Element>(
        &self,
        what: &str,
        buffers: &[FfiBuffer<'a>],
        index: usize,
        extents: &[usize],
    ) -> Result<Stack<T>, Error> {
        let buffer = &buffers[index];
        if buffer.element_type != T::TYPE {
            return Err(self.wrong(format!(
                "{what} {index} has elements of type {} and should have {}",
                buffer.element_type,
                T::TYPE
            )));
        }
        let extents_i64 = extents.iter().map(|&extent| extent as i64);
        let due: Vec<i64> = self.batch.iter().copied().chain(extents_i64).collect();
        if buffer.dims != due {
            return Err(self.wrong(format!(
                "{what} {index} has shape {:?} and should have {due:?}",
                buffer.dims
            )));
        }
        Ok(Stack {
            data: buffer.data.cast(),
            step: extents.iter().product(),
        })
    }

    /// An attribute that is one of some letters.
    pub(super) fn letter(&self, name: &str, allowed: &[u8]) -> Result<u8, Error> {
        let value = self.integer(name)?;
        let letter = u8::try_from(value).ok().filter(|c| allowed.contains(c));
        letter.ok_or_else(|| {
            self.wrong(format!(
                "its attribute `{name}` is {value} and should be one of the letters {}",
                allowed.escape_ascii()
            ))
        })
    }

    pub(super) fn integer(&self, name: &str) -> Result<i64, Error> {
        self.invocation
            .call
            .integer(name)
            .map_err(|error| self.wrong(error.message))
    }

    /// Asks a routine for its workspace, then runs it on each matrix.
    ///
    /// `run` gets the number of a matrix, the workspace, its size (-1 if it is a question) and the
    /// place for the outcome. It is not called if there is no matrix.
    pub(super) fn each<T: Scalar>(
        &self,
        info: Option<Stack<i32>>,
        mut run: impl FnMut(usize, *mut T, &i32, &mut i32) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.count == 0 {
            return Ok(());
        }
        let (mut optimal, mut answer) = (T::ZERO, 0);
        run(0, &mut optimal, &QUESTION, &mut answer)?;
        let size = self.answered(optimal, answer)?;
        let mut work = self.workspace::<T>(size as usize)?;
        for i in 0..self.count {
            let mut unused = 0;
            // SAFETY: one number for each matrix.
            let info = info.map_or(&mut unused, |info| unsafe { &mut *info.at(i) });
            run(i, work.data(), &size, info)?;
        }
        Ok(())
    }

    /// The result of a workspace query.
    fn answered<T: Scalar>(&self, optimal: T, info: i32) -> Result<i32, Error> {
        let elements = optimal.to_f64();
        // Written so that NaN is refused.
        if info == 0 && (0.0..=f64::from(i32::MAX)).contains(&elements) {
            return Ok((elements as i32).max(1));
        }
        Err(self.wrong(format!(
            "its matrix of {} by {} is too large for LAPACK, which counts in 32 bits \
             (info {info}, workspace {elements})",
            self.rows, self.columns
        )))
    }

    /// A size as LAPACK takes it.
    pub(super) fn told(&self, elements: usize) -> Result<i32, Error> {
        i32::try_from(elements).map_err(|_| {
            self.wrong(format!(
                "its matrix of {} by {} is too large for LAPACK: a workspace of {elements} \
                 elements, and its limit is {}",
                self.rows,
                self.columns,
                i32::MAX
            ))
        })
    }

    /// As [`Arguments::told`].
    pub(super) fn told_all<const N: usize>(&self, sizes: [usize; N]) -> Result<[i32; N], Error> {
        let mut told = [0; N];
        for (told, size) in told.iter_mut().zip(sizes) {
            *told = self.told(size)?;
        }
        Ok(told)
    }

    /// Memory for LAPACK to work in.
    pub(super) fn workspace<T>(&self, elements: usize) -> Result<Workspace<T>, Error> {
        let mut memory = Vec::new();
        match memory.try_reserve_exact(elements.max(1)) {
            Ok(()) => Ok(Workspace(memory)),
            Err(_) => Err(Error::new(
                PJRT_Error_Code_RESOURCE_EXHAUSTED,
                format!(
                    "`{}` needs {} bytes of scratch for a matrix of {} by {}, and they are not \
                     there",
                    self.invocation.target,
                    elements.saturating_mul(size_of::<T>()),
                    self.rows,
                    self.columns
                ),
            )),
        }
    }

    pub(super) fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::new(
            PJRT_Error_Code_INVALID_ARGUMENT,
            format!("the custom call `{}`: {what}", self.invocation.target),
        )
    }
}

fn clear(buffer: &FfiBuffer<'_>, element_bytes: usize) {
    let bytes = buffer.elements() * element_bytes;
    if bytes > 0 {
        // SAFETY: the result has that many elements of that size.
        unsafe { buffer.data.cast::<u8>().write_bytes(0, bytes) };
    }
}

/// Memory whose contents mean nothing.
pub(super) struct Workspace<T>(Vec<T>);

impl<T> Workspace<T> {
    pub(super) fn data(&mut self) -> *mut T {
        self.0.as_mut_ptr()
    }
}
