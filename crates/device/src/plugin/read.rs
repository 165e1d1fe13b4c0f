//! Reads: arrays of a vendor's plugin to host memory.
//!
//! On platform `cpu` the device's memory is this process's, and small arrays are copied in place.
//! Elsewhere a read is the vendor's transfer.
#![expect(unsafe_code, reason = "gives the vendor's plugin host memory to fill")]

use std::sync::Arc;

use salus_pjrt::{Buffer, Event, HostLayout};

use super::PjrtArray;
use super::upload::Transfers;
use crate::element::{host_bytes, is_sub_byte};
use crate::failure::{INVALID_ARGUMENT, error, vendor};
use crate::layout;
use crate::{Done, Error, HostBytes, HostMemory, ReadForm, Shape};

/// Reads up to this are copied in the caller's thread. The vendor's way hops to another thread,
/// which costs as much as copying some hundred KiB.
const INLINE_READ_BYTES_MAX: usize = 1 << 20;

impl Transfers {
    pub(crate) fn read(
        &self,
        array: &PjrtArray,
        target: Box<dyn HostMemory>,
        form: &ReadForm,
        done: Done,
    ) {
        match self.start_read(array, HostBytes::of(&*target), form) {
            Ok(Reading::Over) => {
                drop(target);
                done(Ok(()));
            }
            Ok(Reading::Filling(event)) => event.on_ready(move |result| {
                // It kept the memory mapped until now.
                drop(target);
                done(result.map_err(vendor));
            }),
            Ok(Reading::Aside(event, aside)) => event.on_ready(move |result| {
                let result = result.map_err(vendor).and_then(|()| {
                    let target = HostBytes::of(&*target);
                    aside.copy_to(target)
                });
                drop(target);
                done(result);
            }),
            Err(failed) => done(Err(failed)),
        }
    }

    fn start_read(
        &self,
        array: &PjrtArray,
        target: HostBytes<'_>,
        form: &ReadForm,
    ) -> Result<Reading, Error> {
        let shape = &*array.shape;
        let raw = *form == ReadForm::Raw;
        let wanted = if raw {
            array.bytes as usize
        } else {
            host_bytes(shape)?
        };
        if target.len() != wanted {
            return Err(error(
                INVALID_ARGUMENT,
                format!(
                    "a target of {} bytes for {wanted} bytes of {shape:?}",
                    target.len()
                ),
            ));
        }
        if wanted == 0 {
            return Ok(Reading::Over);
        }
        let device_order = layout::of(shape);
        let host_order = match form {
            ReadForm::Raw => &device_order,
            ReadForm::Host { minor_to_major } => minor_to_major,
        };
        if host_order.len() != shape.dims.len() {
            return Err(error(
                INVALID_ARGUMENT,
                format!("{host_order:?} is no order for {shape:?}"),
            ));
        }
        let packed = is_sub_byte(shape.element_type);
        let same_order = *host_order == device_order;
        let same_bytes = raw || (same_order && !packed);
        if self.on_host && same_bytes && (packed || wanted <= INLINE_READ_BYTES_MAX) {
            // SAFETY: the array is ready, as the caller promises, and has as many bytes.
            unsafe { device_bytes(&array.buffer, wanted) }?.copy_to(target);
            return Ok(Reading::Over);
        }
        if self.on_host && !same_order {
            return start_aside(array, host_order, wanted);
        }
        let address = target.as_ptr().cast();
        // SAFETY: the target has `wanted` bytes and is mapped until `read` drops it, after the event.
        let transfer = unsafe {
            if raw && !self.on_host {
                array.buffer.copy_raw_to_host(address, wanted)
            } else {
                let minor_to_major = host_order;
                array
                    .buffer
                    .to_host(address, wanted, Some(HostLayout { minor_to_major }))
            }
        };
        transfer.map(Reading::Filling).map_err(vendor)
    }
}

/// How far a read is when it was started.
enum Reading {
    Over,
    /// The vendor fills the target until the event.
    Filling(Event),
    /// The vendor fills memory beside it, in the device's order, until the event.
    Aside(Event, Aside),
}

/// An array's elements in the device's order, on their way to another.
///
/// The CPU plugin takes a host layout but leaves the elements in the device's order, so it is
/// given that one, which is right for every version, and the rest is done here.
struct Aside {
    bytes: Vec<u8>,
    shape: Arc<Shape>,
    host_order: Vec<i64>,
}

fn start_aside(array: &PjrtArray, host_order: &[i64], len: usize) -> Result<Reading, Error> {
    let device_order = layout::of(&array.shape);
    let mut bytes = vec![0; len];
    let minor_to_major = &device_order;
    let layout = Some(HostLayout { minor_to_major });
    // SAFETY: the bytes are on the heap, where they stay until the event, because `read` holds
    // them until then and moves only their owner.
    let event = unsafe { array.buffer.to_host(bytes.as_mut_ptr().cast(), len, layout) };
    let aside = Aside {
        bytes,
        shape: array.shape.clone(),
        host_order: host_order.to_vec(),
    };
    event
        .map(|event| Reading::Aside(event, aside))
        .map_err(vendor)
}

impl Aside {
    fn copy_to(&self, target: HostBytes<'_>) -> Result<(), Error> {
        let device_order = layout::of(&self.shape);
        let (len, order) = (self.bytes.len(), &self.host_order);
        layout::permute(len, &self.shape, &device_order, order, |from, to, len| {
            let to = target.range(to as u64, len as u64);
            to.expect("inside").write(&self.bytes[from..from + len]);
        })
    }
}

/// The memory of a ready array of platform `cpu`.
///
/// # Safety
/// The array has `len` bytes on the device, which is this process.
pub(super) unsafe fn device_bytes(buffer: &Buffer, len: usize) -> Result<HostBytes<'_>, Error> {
    let start = buffer.unsafe_pointer().map_err(vendor)? as *mut u8;
    // SAFETY: the caller's promise; the buffer is borrowed, so its memory stays.
    Ok(unsafe { HostBytes::from_raw(start, len) })
}
