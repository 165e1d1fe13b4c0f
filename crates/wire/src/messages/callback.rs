//! Between the device host and a job, on a callback channel: a program that runs calls back.
//!
//! A channel carries one call at a time: `CallbackCall`, then `CallbackReturn`. Operands and results
//! are in a memfd of the channel that the device host makes, and replaces when it is too small.

use crate::codec::{wire_enum, wire_struct};
use crate::error::Error;
use crate::ids::OperationId;
use crate::limits;
use crate::types::Shape;

wire_enum! {
    /// From the device host.
    ToCallbacks { 1 = CallbackMemory, 2 = CallbackCall }
}

wire_enum! {
    /// From the job.
    FromCallbacks { 1 = CallbackReturn }
}

wire_struct! {
    /// The channel's memory from now on; its descriptor comes with this frame.
    CallbackMemory { bytes: u64 }

    /// A program of this launch calls.
    CallbackCall {
        operation: OperationId,
        /// Among those that the job gave with its launch.
        callback: u64,
        /// The function fills the results itself instead of returning them.
        buffers: bool,
        operands: Vec<CallbackArray> = limits::CALLBACK_ARRAYS,
        results: Vec<CallbackArray> = limits::CALLBACK_ARRAYS,
    }

    /// Results are in place, or why there are none.
    CallbackReturn { error: Option<Error> }

    /// An operand or a result: dense, row-major, elements of less than a byte packed. A result may
    /// share an operand's memory.
    CallbackArray { shape: Shape, offset: u64, bytes: u64 }
}
