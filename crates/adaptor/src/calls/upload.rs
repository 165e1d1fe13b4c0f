//! Uploads: host memory becomes arrays.
//!
//! The data is copied into shared memory inside the call, so the caller may change or free its own
//! at once; the device takes the shared block as it is where it can.
//!
//! Cost: one copy, warm in steady state; small uploads are deferred, and no reply is awaited.
#![expect(
    unsafe_code,
    reason = "C entry points; copies from the caller's memory"
)]
#![allow(non_snake_case, reason = "the header's names")]

use std::ffi::c_void;
use std::sync::Arc;

use salus_pjrt::sys;
use salus_wire::{ArrayId, Upload};

use crate::c_api::c_args::{Args, entry, field};
use crate::c_api::error::{Result, invalid, unimplemented};
use crate::calls::strided;
use crate::objects::array_type::{ArrayType, host_element_bytes, order_of};
use crate::objects::buffer::{Buffer, Own, Readiness};
use crate::objects::client::{Client, client};
use crate::objects::device::{Device, Memory};
use crate::objects::event::Event;

/// Makes an array of `array.host_bytes` bytes, row-major, that `fill` writes.
pub(crate) fn upload(
    client: &Arc<Client>,
    array: ArrayType,
    memory: u32,
    fill: impl FnOnce(*mut u8) -> Result<()>,
) -> Result<Box<Buffer>> {
    let id = client.session.next_array();
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
    id: ArrayId,
    array: &ArrayType,
    memory: u32,
    fill: impl FnOnce(*mut u8) -> Result<()>,
) -> Result<()> {
    let session = &client.session;
    session.usable()?;
    let block = session.block(array.host_bytes)?;
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
        let client = client(&args, field!(Call.client))?;
        let dims = args.list(field!(Call.shape_dims), field!(Call.shape_num_dims))?;
        let element_type = args.read(field!(Call.shape_element_type))?;
        let element_bytes = host_element_bytes(element_type)?;
        let order = order_of(args.read(field!(Call.shape_layout))?, dims, element_bytes)?;
        let array = ArrayType::new(element_type, dims, order)?;
        let memory = client.hardware.memory_for(
            args.handle_or_null::<Memory>(field!(Call.memory)),
            args.handle_or_null::<Device>(field!(Call.device)),
        )?;
        let bytes = array.host_bytes as usize;
        let buffer = upload(client, array, memory, |to| {
            // SAFETY: the block has `bytes` bytes. Zeros, lest another array's data show.
            unsafe { to.write_bytes(0, bytes) };
            Ok(())
        })?;
        args.hand(field!(Call.buffer), buffer)
    }

    fn PJRT_Client_CreateViewOfDeviceBuffer(args: PJRT_Client_CreateViewOfDeviceBuffer_Args) {
        view(&args)
    }
}

/// What the CPU plugin wants of memory that it uses without copying.
const VIEW_ALIGNMENT: usize = 64;

fn from_host(args: &Args<'_, sys::PJRT_Client_BufferFromHostBuffer_Args>) -> Result<()> {
    type Call = sys::PJRT_Client_BufferFromHostBuffer_Args;
    let client = client(args, field!(Call.client))?;
    let dims = args.list(field!(Call.dims), field!(Call.num_dims))?;
    let strides = args.list(field!(Call.byte_strides), field!(Call.num_byte_strides))?;
    let element_type = args.read(field!(Call.r#type))?;
    let element_bytes = host_element_bytes(element_type)?;
    let order = order_of(args.read(field!(Call.device_layout))?, dims, element_bytes)?;
    let array = ArrayType::new(element_type, dims, order)?;
    let memory = client.hardware.memory_for(
        args.handle_or_null::<Memory>(field!(Call.memory)),
        args.handle_or_null::<Device>(field!(Call.device)),
    )?;
    let data = args.read(field!(Call.data))?.cast::<u8>();
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
    args.hand(field!(Call.buffer), buffer)?;
    // The data has been copied, so the caller may do with it what it likes.
    args.hand(field!(Call.done_with_host_buffer), Event::ready())
}

/// Imports memory of this process, for instance by DLPack.
fn view(args: &Args<'_, sys::PJRT_Client_CreateViewOfDeviceBuffer_Args>) -> Result<()> {
    type Call = sys::PJRT_Client_CreateViewOfDeviceBuffer_Args;
    let client = client(args, field!(Call.client))?;
    let dims = args.list(field!(Call.dims), field!(Call.num_dims))?;
    let element_type = args.read(field!(Call.element_type))?;
    let element_bytes = host_element_bytes(element_type)?;
    let order = order_of(args.read(field!(Call.layout))?, dims, element_bytes)?;
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
    let memory = client.hardware.memory_for(
        args.handle_or_null::<Memory>(field!(Call.memory)),
        args.handle_or_null::<Device>(field!(Call.device)),
    )?;
    let data = args.read(field!(Call.device_buffer_ptr))?;
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
    args.hand(field!(Call.buffer), buffer)?;
    release(args, data)
}

/// Tells the owner of imported memory that it is no longer needed: it was copied.
fn release(
    args: &Args<'_, sys::PJRT_Client_CreateViewOfDeviceBuffer_Args>,
    data: *mut c_void,
) -> Result<()> {
    type Call = sys::PJRT_Client_CreateViewOfDeviceBuffer_Args;
    if let Some(callback) = args.read(field!(Call.on_delete_callback))? {
        let argument = args.read(field!(Call.on_delete_callback_arg))?;
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
