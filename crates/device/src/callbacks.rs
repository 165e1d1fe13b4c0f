//! What a program's callbacks are to a device and its user: functions of the job that launched it,
//! called while it runs.
//!
//! Not here: how the plugin calls them (`plugin/handler.rs`), and how a call reaches the job (the
//! daemon).

use std::any::Any;

pub use salus_formats::callback::Style;

use crate::{Error, HostBytes};

/// The functions that a job gave with a launch.
pub trait Callbacks: Send + Sync {
    /// Runs one of them. Blocks until its results are in place, or there are none.
    fn call(
        &self,
        callback: u64,
        style: Style,
        operands: &[CallArray<'_>],
        results: &[CallArray<'_>],
    ) -> Result<(), Error>;
}

/// An operand or a result of a call, where it is: dense and row-major, elements of less than a byte
/// packed. It is the call's own until the call returns.
#[derive(Debug, Clone, Copy)]
pub struct CallArray<'a> {
    /// As PJRT numbers it.
    pub element_type: u32,
    pub dims: &'a [i64],
    pub bytes: HostBytes<'a>,
}

/// An argument of a launch that calls back: the array, and what keeps it alive.
pub struct Lent<'a, A> {
    pub array: &'a A,
    pub keep: Box<dyn Any + Send + Sync>,
}
