//! Host memory to arrays of a vendor's plugin, and back.
//!
//! On platform `cpu` the device's memory is this process's: aligned memory is wrapped instead of
//! copied, and small reads are copied in place. Elsewhere both are the vendor's transfers.
#![expect(unsafe_code, reason = "hands host memory to the vendor's plugin")]

use std::sync::Arc;
use std::sync::OnceLock;

use salus_pjrt::{Buffer, Client, Event, FromHost, HostLayout, Memory, Semantics};

use crate::element::{host_bytes, is_sub_byte, upload_bytes};
use crate::failure::{INVALID_ARGUMENT, error, vendor};
use crate::layout;
use crate::pjrt::PjrtArray;
use crate::{Done, Error, HostMemory, HostTarget, ReadForm, Shape};

/// Zero copy needs this alignment; the CPU plugin silently copies what has less.
const ZERO_COPY_ALIGNMENT: usize = 64;

/// Reads up to this are copied in the caller's thread. The vendor's way hops to another thread,
/// which costs as much as copying some hundred KiB.
const INLINE_READ_BYTES_MAX: usize = 1 << 20;

/// How a client's transfers go.
pub(crate) struct Transfers {
    client: Client,
    /// Whether the device's memory is this process's.
    on_host: bool,
    /// Whether the vendor permutes elements into a layout that it is given.
    permutes: OnceLock<bool>,
}

impl Transfers {
    pub(crate) fn new(client: Client, on_host: bool) -> Transfers {
        Transfers {
            client,
            on_host,
            permutes: OnceLock::new(),
        }
    }

    /// Makes an array of host memory, in `memory`, which may be a device's default one.
    pub(crate) fn upload(
        &self,
        host: HostMemory,
        shape: &Shape,
        memory: &Memory,
        is_default: bool,
    ) -> Result<PjrtArray, Error> {
        let wanted = upload_bytes(shape)?;
        if host.len != wanted {
            return Err(error(
                INVALID_ARGUMENT,
                format!("{} bytes for {shape:?}, which has {wanted}", host.len),
            ));
        }
        let order = shape.minor_to_major.as_deref();
        let Some(order) = order.filter(|order| !layout::is_default(order)) else {
            return self.upload_rows(host, shape, memory, is_default);
        };
        if order.len() != shape.dims.len() {
            return Err(error(
                INVALID_ARGUMENT,
                format!("{order:?} is no order for {shape:?}"),
            ));
        }
        if wanted == 0 || self.permutes(memory)? {
            return self.copy_now(data_of(&host), shape, Some(order), memory);
        }
        // SAFETY: `host.len` bytes are readable until `release` is dropped, at the end of this.
        let rows = unsafe { std::slice::from_raw_parts(host.address, host.len) };
        let mut permuted = vec![0; wanted];
        layout::copy(
            rows,
            &mut permuted,
            shape,
            &layout::default(order.len()),
            order,
        )?;
        self.copy_now(permuted.as_ptr(), shape, Some(order), memory)
    }

    /// An upload in the default layout: wrapped, copied by the vendor while others go on, or
    /// copied now.
    fn upload_rows(
        &self,
        host: HostMemory,
        shape: &Shape,
        memory: &Memory,
        is_default: bool,
    ) -> Result<PjrtArray, Error> {
        let aligned = (host.address as usize).is_multiple_of(ZERO_COPY_ALIGNMENT);
        let wrap = is_default && aligned && host.len > 0 && !is_sub_byte(shape.element_type);
        let semantics = match (self.on_host, wrap) {
            // The only kind that a program may overwrite in place when it is donated.
            (true, true) => Semantics::MutableZeroCopy,
            (true, false) => return self.copy_now(data_of(&host), shape, None, memory),
            (false, _) => Semantics::ImmutableUntilTransferCompletes,
        };
        let from = from_host(data_of(&host), shape, semantics, None);
        // SAFETY: `host.len` bytes, the shape's, are readable, and writable by the device, until
        // `release` is dropped, which is when the event says that they are no longer needed.
        let made = unsafe { self.client.buffer_from_host(&from, memory) };
        let (buffer, done) = made.map_err(vendor)?;
        let release = host.release;
        done.on_ready(move |_| drop(release));
        PjrtArray::new(buffer, Arc::new(shape.clone()))
    }

    /// An upload that has copied the data when it returns. `data` has the shape's bytes.
    fn copy_now(
        &self,
        data: *const u8,
        shape: &Shape,
        order: Option<&[i64]>,
        memory: &Memory,
    ) -> Result<PjrtArray, Error> {
        let from = from_host(data, shape, Semantics::ImmutableOnlyDuringCall, order);
        // SAFETY: the callers' data has the shape's length and lives during the call.
        let made = unsafe { self.client.buffer_from_host(&from, memory) };
        let (buffer, _) = made.map_err(vendor)?;
        PjrtArray::new(buffer, Arc::new(shape.clone()))
    }

    /// A token in another memory. The CPU plugin aborts the process when it is to copy one, and takes
    /// an array of no booleans for one.
    pub(crate) fn another_token(&self, memory: &Memory) -> Result<PjrtArray, Error> {
        let shape = Shape {
            element_type: salus_pjrt::sys::PJRT_Buffer_Type_PRED,
            dims: vec![0],
            minor_to_major: None,
        };
        self.copy_now([].as_ptr(), &shape, None, memory)
    }

    /// The CPU plugin of API 0.81 takes a layout's name but leaves the elements where they are,
    /// so arrays come back scrambled; newer ones may do it right. Tried out once.
    fn permutes(&self, memory: &Memory) -> Result<bool, Error> {
        if let Some(&known) = self.permutes.get() {
            return Ok(known);
        }
        if !self.on_host {
            return Ok(*self.permutes.get_or_init(|| true));
        }
        let shape = Shape {
            element_type: salus_pjrt::sys::PJRT_Buffer_Type_U8,
            dims: vec![2, 2],
            minor_to_major: Some(vec![0, 1]),
        };
        let array = self.copy_now([0, 1, 2, 3].as_ptr(), &shape, Some(&[0, 1]), memory)?;
        array
            .buffer
            .ready_event()
            .and_then(|ready| ready.wait())
            .map_err(vendor)?;
        let mut held = [0; 4];
        // SAFETY: the array is ready and has four bytes, and so has the target.
        unsafe { copy_out(&array.buffer, held.as_mut_ptr(), held.len()) }?;
        Ok(*self.permutes.get_or_init(|| held == [0, 2, 1, 3]))
    }

    pub(crate) fn read(&self, array: &PjrtArray, target: HostTarget, form: &ReadForm, done: Done) {
        match self.start_read(array, &target, form) {
            Ok(Reading::Over) => {
                drop(target);
                done(Ok(()));
            }
            Ok(Reading::Filling(event)) => event.on_ready(move |result| {
                // The whole of it, not its address alone: the memory stays mapped until now.
                drop(target);
                done(result.map_err(vendor));
            }),
            Ok(Reading::Aside(event, aside)) => event.on_ready(move |result| {
                let result = result.map_err(vendor).and_then(|()| aside.copy_to(&target));
                drop(target);
                done(result);
            }),
            Err(failed) => done(Err(failed)),
        }
    }

    fn start_read(
        &self,
        array: &PjrtArray,
        target: &HostTarget,
        form: &ReadForm,
    ) -> Result<Reading, Error> {
        let shape = &*array.shape;
        let raw = *form == ReadForm::Raw;
        let wanted = if raw {
            array.bytes as usize
        } else {
            host_bytes(shape)?
        };
        if target.len != wanted {
            return Err(error(
                INVALID_ARGUMENT,
                format!(
                    "a target of {} bytes for {wanted} bytes of {shape:?}",
                    target.len
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
            // SAFETY: the array is ready, as the caller promises, and has these bytes; the target
            // is writable for its length, and is no array.
            unsafe { copy_out(&array.buffer, target.address, wanted) }?;
            return Ok(Reading::Over);
        }
        if self.on_host && !same_order {
            return start_aside(array, host_order, wanted);
        }
        let address = target.address.cast();
        // SAFETY: the target is writable for its length until `read` drops it, after the event.
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
    // them so long and moves only their owner.
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
    fn copy_to(&self, target: &HostTarget) -> Result<(), Error> {
        // SAFETY: the target is writable for its length, and nobody else uses it, until `done`.
        let to = unsafe { std::slice::from_raw_parts_mut(target.address, target.len) };
        layout::copy(
            &self.bytes,
            to,
            &self.shape,
            &layout::of(&self.shape),
            &self.host_order,
        )
    }
}

/// Copies a ready array of platform `cpu`.
///
/// # Safety
/// The array has `len` bytes on the device, which is this process, and `target` is writable for
/// as many.
unsafe fn copy_out(buffer: &Buffer, target: *mut u8, len: usize) -> Result<(), Error> {
    let source = buffer.unsafe_pointer().map_err(vendor)? as *const u8;
    // SAFETY: the caller's promise; the buffer is borrowed, so its memory stays.
    unsafe { std::ptr::copy_nonoverlapping(source, target, len) };
    Ok(())
}

/// Where the data is. An array without elements has no place of its own.
fn data_of(host: &HostMemory) -> *const u8 {
    static NOTHING: [u64; 8] = [0; 8];
    if host.len == 0 {
        (&raw const NOTHING).cast()
    } else {
        host.address
    }
}

fn from_host<'a>(
    data: *const u8,
    shape: &'a Shape,
    semantics: Semantics,
    order: Option<&'a [i64]>,
) -> FromHost<'a> {
    FromHost {
        data: data.cast(),
        element_type: shape.element_type,
        dims: &shape.dims,
        byte_strides: None,
        semantics,
        layout: order.map(|minor_to_major| HostLayout { minor_to_major }),
    }
}
