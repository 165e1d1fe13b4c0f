//! Uploads: host memory to arrays of a vendor's plugin.
//!
//! On platform `cpu` the device's memory is this process's, and aligned memory is wrapped instead of
//! copied. Elsewhere an upload is the vendor's transfer.
#![expect(unsafe_code, reason = "hands host memory to the vendor's plugin")]

use std::sync::{Arc, OnceLock};

use salus_channel::HOST_ALIGNMENT;
use salus_pjrt::{Client, FromHost, HostLayout, Memory, Semantics};

use super::PjrtArray;
use super::read::device_bytes;
use crate::element::{is_sub_byte, upload_bytes};
use crate::failure::{INVALID_ARGUMENT, error, vendor};
use crate::layout;
use crate::{Error, HostBytes, HostMemory, Shape};

/// Uploads to a client's devices, and reads (`read.rs`).
pub(crate) struct Transfers {
    client: Client,
    /// Whether the device's memory is this process's.
    pub(super) on_host: bool,
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
        host: Box<dyn HostMemory>,
        shape: &Shape,
        memory: &Memory,
        is_default: bool,
    ) -> Result<PjrtArray, Error> {
        let wanted = upload_bytes(shape)?;
        let bytes = HostBytes::of(&*host);
        if bytes.len() != wanted {
            return Err(error(
                INVALID_ARGUMENT,
                format!("{} bytes for {shape:?}, which has {wanted}", bytes.len()),
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
            return self.copy_now(bytes, shape, Some(order), memory);
        }
        let mut permuted = vec![0; wanted];
        let rows = layout::default(order.len());
        layout::permute(wanted, shape, &rows, order, |from, to, len| {
            let from = bytes.range(from as u64, len as u64);
            from.expect("inside").read(&mut permuted[to..to + len]);
        })?;
        self.copy_now(
            HostBytes::of_slice(&mut permuted),
            shape,
            Some(order),
            memory,
        )
    }

    /// An upload in the default layout: wrapped, copied by the vendor while others go on, or
    /// copied now.
    fn upload_rows(
        &self,
        host: Box<dyn HostMemory>,
        shape: &Shape,
        memory: &Memory,
        is_default: bool,
    ) -> Result<PjrtArray, Error> {
        let bytes = HostBytes::of(&*host);
        // The CPU plugin silently copies what is less aligned.
        let aligned = bytes.is_aligned(HOST_ALIGNMENT);
        let wrap = is_default && aligned && !bytes.is_empty() && !is_sub_byte(shape.element_type);
        let semantics = match (self.on_host, wrap) {
            // The only kind that a program may overwrite in place when it is donated.
            (true, true) => Semantics::MutableZeroCopy,
            (true, false) => return self.copy_now(bytes, shape, None, memory),
            (false, _) => Semantics::ImmutableUntilTransferCompletes,
        };
        let from = from_host(bytes, shape, semantics, None);
        // SAFETY: as many bytes as the shape has are readable, and writable by the device, until
        // `host` is dropped, which is when the event says that they are no longer needed.
        let made = unsafe { self.client.buffer_from_host(&from, memory) };
        let (buffer, done) = made.map_err(vendor)?;
        done.on_ready(move |_| drop(host));
        PjrtArray::new(buffer, Arc::new(shape.clone()))
    }

    /// An upload that has copied the bytes, as many as the shape has, when it returns.
    fn copy_now(
        &self,
        bytes: HostBytes<'_>,
        shape: &Shape,
        order: Option<&[i64]>,
        memory: &Memory,
    ) -> Result<PjrtArray, Error> {
        let from = from_host(bytes, shape, Semantics::ImmutableOnlyDuringCall, order);
        // SAFETY: the bytes have the shape's length, and are mapped during the call.
        let made = unsafe { self.client.buffer_from_host(&from, memory) };
        let (buffer, _) = made.map_err(vendor)?;
        PjrtArray::new(buffer, Arc::new(shape.clone()))
    }

    /// Has the device allocate something, and waits for it.
    pub(crate) fn touch(&self, memory: &Memory) -> Result<(), Error> {
        let shape = Shape {
            element_type: salus_pjrt::sys::PJRT_Buffer_Type_U8,
            dims: vec![1],
            minor_to_major: None,
        };
        let array = self.copy_now(HostBytes::of_slice(&mut [0]), &shape, None, memory)?;
        let ready = array.buffer.ready_event().and_then(|ready| ready.wait());
        ready.map_err(vendor)
    }

    /// A token in another memory. The CPU plugin aborts the process when it is to copy one, and takes
    /// an array of no booleans for one.
    pub(crate) fn another_token(&self, memory: &Memory) -> Result<PjrtArray, Error> {
        let shape = Shape {
            element_type: salus_pjrt::sys::PJRT_Buffer_Type_PRED,
            dims: vec![0],
            minor_to_major: None,
        };
        self.copy_now(HostBytes::of_slice(&mut []), &shape, None, memory)
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
        let mut rows = [0, 1, 2, 3];
        let rows = HostBytes::of_slice(&mut rows);
        let array = self.copy_now(rows, &shape, Some(&[0, 1]), memory)?;
        array
            .buffer
            .ready_event()
            .and_then(|ready| ready.wait())
            .map_err(vendor)?;
        let mut held = [0; 4];
        // SAFETY: the array is ready and has four bytes.
        unsafe { device_bytes(&array.buffer, held.len()) }?.read(&mut held);
        Ok(*self.permutes.get_or_init(|| held == [0, 2, 1, 3]))
    }
}

/// An array without elements may be anywhere, but vendors want an address.
static NOTHING: [u64; 8] = [0; 8];

fn from_host<'a>(
    bytes: HostBytes<'_>,
    shape: &'a Shape,
    semantics: Semantics,
    order: Option<&'a [i64]>,
) -> FromHost<'a> {
    let data: *const u8 = match bytes.is_empty() {
        true => (&raw const NOTHING).cast(),
        false => bytes.as_ptr(),
    };
    FromHost {
        data: data.cast(),
        element_type: shape.element_type,
        dims: &shape.dims,
        byte_strides: None,
        semantics,
        layout: order.map(|minor_to_major| HostLayout { minor_to_major }),
    }
}
