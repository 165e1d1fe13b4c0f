//! Data in: host memory becomes arrays.
//!
//! The data is copied into shared memory inside the call, so the caller may change or free its own
//! at once; the device takes the shared block as it is where it can.
//!
//! Cost: one copy, warm in steady state; small ones leave with the next frame, and no answer is awaited.
#![expect(
    unsafe_code,
    reason = "C entry points; copies from the caller's memory"
)]
#![allow(non_snake_case, reason = "the header's names")]

use std::ffi::c_void;
use std::sync::Arc;

use salus_pjrt::sys;
use salus_wire::Upload;

use crate::buffer::{Buffer, Own, Readiness};
use crate::client::{Client, client};
use crate::device::{Device, Memory};
use crate::error::{Result, invalid, unimplemented};
use crate::event::Event;
use crate::fence::{Args, entry};
use crate::shape::{ArrayType, host_element_bytes, order_of};
use crate::strided;

/// Makes an array of `array.host_bytes` bytes, row-major, that `fill` writes.
pub(crate) fn upload(
    client: &Arc<Client>,
    array: ArrayType,
    memory: u32,
    fill: impl FnOnce(*mut u8) -> Result<()>,
) -> Result<Box<Buffer>> {
    let id = client.session.next_ids(1);
    send(client, id, &array, memory, fill)?;
    let own = Own {
        client: Arc::clone(client),
        array,
        memory,
        readiness: Readiness::Ready,
    };
    Ok(Buffer::own(id, own))
}

/// Sends an array's data under an id that is known already.
pub(crate) fn send(
    client: &Arc<Client>,
    id: u64,
    array: &ArrayType,
    memory: u32,
    fill: impl FnOnce(*mut u8) -> Result<()>,
) -> Result<()> {
    let session = &client.session;
    session.usable()?;
    let block = session.segments.block(session, array.host_bytes)?;
    fill(block.address())?;
    session.send_upload(Upload {
        array: id,
        shape: array.shape(),
        memory,
        data: block.into_upload(),
    })
}

entry! {
    fn PJRT_Client_BufferFromHostBuffer(args: PJRT_Client_BufferFromHostBuffer_Args) {
        from_host(&args)
    }

    fn PJRT_Client_CreateUninitializedBuffer(args: PJRT_Client_CreateUninitializedBuffer_Args) {
        let client = client(&args, |a| &a.client)?;
        let dims = args.list(|a| &a.shape_dims, |a| &a.shape_num_dims)?;
        let element_type = args.read(|a| &a.shape_element_type)?;
        let element_bytes = host_element_bytes(element_type)?;
        let order = order_of(args.read(|a| &a.shape_layout)?, dims, element_bytes)?;
        let array = ArrayType::new(element_type, dims, order)?;
        let memory = client.place.memory_for(
            args.handle_or_null::<Memory>(|a| &a.memory),
            args.handle_or_null::<Device>(|a| &a.device),
        )?;
        let bytes = array.host_bytes as usize;
        let buffer = upload(client, array, memory, |to| {
            // SAFETY: the block has so many bytes. Zeros, lest another array's data show.
            unsafe { to.write_bytes(0, bytes) };
            Ok(())
        })?;
        args.hand(|a| &a.buffer, buffer)
    }

    fn PJRT_Client_CreateViewOfDeviceBuffer(args: PJRT_Client_CreateViewOfDeviceBuffer_Args) {
        view(&args)
    }
}

/// What the CPU plugin wants of memory that it uses without copying.
const VIEW_ALIGNMENT: usize = 64;

fn from_host(args: &Args<'_, sys::PJRT_Client_BufferFromHostBuffer_Args>) -> Result<()> {
    let client = client(args, |a| &a.client)?;
    let dims = args.list(|a| &a.dims, |a| &a.num_dims)?;
    let strides = args.list(|a| &a.byte_strides, |a| &a.num_byte_strides)?;
    let element_type = args.read(|a| &a.r#type)?;
    let element_bytes = host_element_bytes(element_type)?;
    let order = order_of(args.read(|a| &a.device_layout)?, dims, element_bytes)?;
    let array = ArrayType::new(element_type, dims, order)?;
    let memory = client.place.memory_for(
        args.handle_or_null::<Memory>(|a| &a.memory),
        args.handle_or_null::<Device>(|a| &a.device),
    )?;
    let data = args.read(|a| &a.data)?.cast::<u8>();
    let bytes = array.host_bytes as usize;
    if data.is_null() && bytes > 0 {
        return Err(invalid(
            "`data` of PJRT_Client_BufferFromHostBuffer_Args is NULL",
        ));
    }
    let buffer = upload(client, array, memory, |to| {
        if strides.is_empty() || strided::is_dense(dims, strides, element_bytes) {
            if bytes > 0 {
                // SAFETY: a dense array of the caller's, into a block of its size.
                unsafe { std::ptr::copy_nonoverlapping(data, to, bytes) };
            }
            return Ok(());
        }
        // SAFETY: the caller describes its memory by these dimensions and strides; the block has
        // the dense size.
        unsafe { strided::copy(data, dims, strides, element_bytes, to) }
    })?;
    args.hand(|a| &a.buffer, buffer)?;
    // The data has been copied, so the caller may do with it what it likes.
    args.hand(|a| &a.done_with_host_buffer, Event::ready())
}

/// Imports memory of this process, for instance by DLPack.
fn view(args: &Args<'_, sys::PJRT_Client_CreateViewOfDeviceBuffer_Args>) -> Result<()> {
    let client = client(args, |a| &a.client)?;
    let dims = args.list(|a| &a.dims, |a| &a.num_dims)?;
    let element_type = args.read(|a| &a.element_type)?;
    let element_bytes = host_element_bytes(element_type)?;
    let order = order_of(args.read(|a| &a.layout)?, dims, element_bytes)?;
    let array = ArrayType::new(element_type, dims, order)?;
    if !client.on_host {
        return Err(unimplemented(
            "device memory of another process cannot be imported; copy the array through the host",
        ));
    }
    if array.device_bytes != array.host_bytes {
        return Err(unimplemented(
            "packed arrays of types smaller than a byte cannot be imported",
        ));
    }
    let memory = client.place.memory_for(
        args.handle_or_null::<Memory>(|a| &a.memory),
        args.handle_or_null::<Device>(|a| &a.device),
    )?;
    let data = args.read(|a| &a.device_buffer_ptr)?;
    if data.is_null() && array.host_bytes > 0 {
        return Err(invalid(
            "`device_buffer_ptr` of PJRT_Client_CreateViewOfDeviceBuffer_Args is NULL",
        ));
    }
    // A caller that asks for a view promises not to be given a copy where the vendor itself would
    // need one, and JAX relies on the refusal.
    if data.addr() % VIEW_ALIGNMENT != 0 {
        return Err(invalid(format!(
            "memory at {data:p} cannot be imported: it is not aligned to {VIEW_ALIGNMENT} bytes; \
             copy the array"
        )));
    }
    let strides = strides_of(dims, &array.minor_to_major, element_bytes);
    let buffer = upload(client, array, memory, |to| {
        // SAFETY: the caller describes its memory by dimensions and layout; the block has the
        // dense size.
        unsafe { strided::copy(data.cast::<u8>(), dims, &strides, element_bytes, to) }
    })?;
    args.hand(|a| &a.buffer, buffer)?;
    release(args, data)
}

/// Tells the owner of imported memory that it is no longer needed: it was copied.
fn release(
    args: &Args<'_, sys::PJRT_Client_CreateViewOfDeviceBuffer_Args>,
    data: *mut c_void,
) -> Result<()> {
    if let Some(callback) = args.read(|a| &a.on_delete_callback)? {
        let argument = args.read(|a| &a.on_delete_callback_arg)?;
        // SAFETY: the caller registered the function for this pointer and argument.
        unsafe { callback(data, argument) };
    }
    Ok(())
}

fn strides_of(dims: &[i64], minor_to_major: &[i64], element_bytes: usize) -> Vec<i64> {
    let mut strides = vec![0; dims.len()];
    let mut stride = element_bytes as i64;
    for &dim in minor_to_major {
        strides[dim as usize] = stride;
        stride = stride.saturating_mul(dims[dim as usize].max(1));
    }
    strides
}
