//! Arrays of one of the plugin's clients as arrays of another.
#![expect(unsafe_code, reason = "wraps the memory of a vendor's array")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::channel;

use super::upload::Transfers;
use super::{Keeper, PjrtArray};
use crate::element::{host_bytes, is_sub_byte, is_token};
use crate::failure::{INTERNAL, error, vendor};
use crate::layout;
use crate::{Error, HeapMemory, HostMemory, ReadForm};

/// The array in another client: wrapped, so that it may be overwritten in place when it is donated,
/// or copied where it cannot be wrapped. The keeper keeps the memory alive.
pub(super) fn carry(
    array: &PjrtArray,
    from: &Transfers,
    (to, memory): (&Transfers, &salus_pjrt::Memory),
    keeper: Keeper,
) -> Result<PjrtArray, Error> {
    let shape = &array.shape;
    if is_token(shape) {
        return to.another_token(memory);
    }
    let len = host_bytes(shape)?;
    let order = shape.minor_to_major.as_deref();
    let plain = order.is_none_or(layout::is_default) && !is_sub_byte(shape.element_type);
    if plain && len > 0 {
        let wrapped = ArrayMemory {
            address: array.buffer.unsafe_pointer().map_err(vendor)?,
            len,
            _keeper: Arc::clone(&keeper),
        };
        return Ok(PjrtArray {
            keeper: Some(keeper),
            ..to.upload(Box::new(wrapped), shape, memory, true)?
        });
    }
    let copy = Arc::new(HeapMemory::zeroed(len));
    if len > 0 {
        let target = Box::new((Arc::clone(&copy), keeper));
        let (sender, outcome) = channel();
        let minor_to_major = layout::default(shape.dims.len());
        let form = ReadForm::Host { minor_to_major };
        let done = Box::new(move |result| drop(sender.send(result)));
        from.read(array, target, &form, done);
        let outcome = outcome.recv();
        outcome.unwrap_or_else(|_| Err(error(INTERNAL, "a read was forgotten")))?;
    }
    to.upload(Box::new(copy), shape, memory, false)
}

/// The memory of an array of one client, as another client wraps it.
struct ArrayMemory {
    address: usize,
    len: usize,
    _keeper: Keeper,
}

// SAFETY: a ready array of platform `cpu`, whose memory is this process's: it has `len` bytes there
// and keeps them until `_keeper` is dropped.
unsafe impl HostMemory for ArrayMemory {
    fn span(&self) -> NonNull<[u8]> {
        let start = NonNull::new(self.address as *mut u8).unwrap_or(NonNull::dangling());
        NonNull::slice_from_raw_parts(start, self.len)
    }
}
