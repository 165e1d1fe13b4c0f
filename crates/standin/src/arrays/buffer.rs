//! Buffers: ours are handles on data that may not be there yet, and on memory of the pool.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use salus_pjrt::sys::*;
use salus_wire::Shape;

use crate::c_api::error::Error;
use crate::c_api::event::{self, Event};
use crate::c_api::inner::call;
use crate::c_api::slot::slots;
use crate::client::{Client, DEVICE, Device, PINNED, Raw};
use crate::pool::Block;

/// Data on its way: the CPU plugin's buffer, once there is one.
pub(crate) struct Data {
    pub(crate) ready: Arc<Event>,
    inner: OnceLock<Inner>,
}

/// A buffer of the CPU plugin.
pub(crate) struct Inner(pub(crate) Raw<PJRT_Buffer>);

impl Drop for Inner {
    fn drop(&mut self) {
        let buffer = self.0.0;
        // SAFETY: owned, and not used afterwards.
        let _ = unsafe { call!(PJRT_Buffer_Destroy(PJRT_Buffer_Destroy_Args { buffer })) };
    }
}

impl Inner {
    /// Waits until the CPU plugin has written it.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        let buffer = self.0.0;
        // SAFETY: live; the event is ours.
        unsafe {
            let made = call!(PJRT_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args {
                buffer
            }))?;
            wait_inner(made.event)
        }
    }

    /// Where its bytes are in this process.
    pub(crate) fn address(&self) -> Result<usize, Error> {
        let buffer = self.0.0;
        // SAFETY: live.
        let made = unsafe {
            call!(PJRT_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args {
                buffer
            }))
        };
        Ok(made?.buffer_pointer)
    }
}

/// Waits for an event of the CPU plugin, and destroys it.
///
/// # Safety
/// The event is the CPU plugin's, and the caller's.
pub(crate) unsafe fn wait_inner(event: *mut PJRT_Event) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    unsafe {
        let outcome = call!(PJRT_Event_Await(PJRT_Event_Await_Args { event }));
        let _ = call!(PJRT_Event_Destroy(PJRT_Event_Destroy_Args { event }));
        outcome.map(drop)
    }
}

impl Data {
    pub(crate) fn pending() -> Arc<Data> {
        Arc::new(Data {
            ready: Event::new(),
            inner: OnceLock::new(),
        })
    }

    /// It is there now, or never will be.
    pub(crate) fn settle(&self, made: Result<Inner, Error>) {
        let outcome = made.map(|inner| drop(self.inner.set(inner)));
        self.ready.set(outcome);
    }

    /// Waits for it.
    pub(crate) fn wait(&self) -> Result<&Inner, Error> {
        self.ready.wait()?;
        self.inner
            .get()
            .ok_or_else(|| Error::internal("ready without data"))
    }
}

pub(crate) struct Buffer {
    pub(crate) client: Arc<Client>,
    pub(crate) device: usize,
    pub(crate) memory: usize,
    pub(crate) shape: Arc<Shape>,
    pub(crate) bytes: u64,
    held: Mutex<Option<Held>>,
    ready: Arc<Event>,
}

/// What a buffer holds until it is deleted or donated.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) data: Arc<Data>,
    /// None in host memory, and for no bytes.
    pub(crate) block: Option<Arc<Block>>,
}

impl Buffer {
    pub(crate) fn new(
        client: &Arc<Client>,
        (device, memory): (usize, usize),
        shape: Arc<Shape>,
        bytes: u64,
        held: Held,
    ) -> Buffer {
        Buffer {
            client: Arc::clone(client),
            device,
            memory,
            shape,
            bytes,
            ready: Arc::clone(&held.data.ready),
            held: Mutex::new(Some(held)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn held(&self) -> Result<Held, Error> {
        self.lock().clone().ok_or_else(deleted)
    }

    /// Takes away what it holds: it is deleted from now on.
    pub(crate) fn take(&self) -> Result<Held, Error> {
        self.lock().take().ok_or_else(deleted)
    }

    pub(crate) fn device(&self) -> &Device {
        &self.client.devices[self.device]
    }

    /// Dimensions from the fastest, as they are on the device.
    pub(crate) fn order(&self) -> Vec<i64> {
        order(&self.shape)
    }

    pub(crate) fn give(self) -> *mut PJRT_Buffer {
        Box::into_raw(Box::new(self)).cast()
    }
}

pub(crate) fn order(shape: &Shape) -> Vec<i64> {
    let rows = || (0..shape.dims.len() as i64).rev().collect();
    shape.minor_to_major.clone().unwrap_or_else(rows)
}

fn deleted() -> Error {
    Error::invalid("Buffer has been deleted or donated.")
}

/// # Safety
/// A live buffer of ours.
pub(crate) unsafe fn buffer<'a>(raw: *mut PJRT_Buffer) -> &'a Buffer {
    // SAFETY: the caller's promise.
    unsafe { &*raw.cast::<Buffer>() }
}

slots! {
    fn PJRT_Buffer_Destroy(args: PJRT_Buffer_Destroy_Args) {
        drop(Box::from_raw(args.buffer.cast::<Buffer>()));
        Ok(())
    }

    fn PJRT_Buffer_Delete(args: PJRT_Buffer_Delete_Args) {
        drop(buffer(args.buffer).take());
        Ok(())
    }

    fn PJRT_Buffer_IsDeleted(args: PJRT_Buffer_IsDeleted_Args) {
        args.is_deleted = buffer(args.buffer).lock().is_none();
        Ok(())
    }

    fn PJRT_Buffer_ElementType(args: PJRT_Buffer_ElementType_Args) {
        args.r#type = buffer(args.buffer).shape.element_type;
        Ok(())
    }

    fn PJRT_Buffer_Dimensions(args: PJRT_Buffer_Dimensions_Args) {
        let dims = &buffer(args.buffer).shape.dims;
        (args.dims, args.num_dims) = (dims.as_ptr(), dims.len());
        Ok(())
    }

    fn PJRT_Buffer_UnpaddedDimensions(args: PJRT_Buffer_UnpaddedDimensions_Args) {
        let dims = &buffer(args.buffer).shape.dims;
        (args.unpadded_dims, args.num_dims) = (dims.as_ptr(), dims.len());
        Ok(())
    }

    fn PJRT_Buffer_DynamicDimensionIndices(args: PJRT_Buffer_DynamicDimensionIndices_Args) {
        (args.dynamic_dim_indices, args.num_dynamic_dims) = (std::ptr::null(), 0);
        Ok(())
    }

    fn PJRT_Buffer_GetMemoryLayout(args: PJRT_Buffer_GetMemoryLayout_Args) {
        let held = buffer(args.buffer).held()?;
        let inner = held.data.wait()?.0;
        let made = call!(PJRT_Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args {
            buffer: inner.0
        }))?;
        args.layout = made.layout;
        Ok(())
    }

    fn PJRT_Buffer_OnDeviceSizeInBytes(args: PJRT_Buffer_OnDeviceSizeInBytes_Args) {
        args.on_device_size_in_bytes = buffer(args.buffer).bytes as usize;
        Ok(())
    }

    fn PJRT_Buffer_Device(args: PJRT_Buffer_Device_Args) {
        args.device = buffer(args.buffer).device().raw.0;
        Ok(())
    }

    fn PJRT_Buffer_Memory(args: PJRT_Buffer_Memory_Args) {
        let buffer = buffer(args.buffer);
        args.memory = buffer.device().memories[buffer.memory].0;
        Ok(())
    }

    /// Only what is pinned on the host (xla/pjrt: `IsOnCpu`).
    fn PJRT_Buffer_IsOnCpu(args: PJRT_Buffer_IsOnCpu_Args) {
        let buffer = buffer(args.buffer);
        args.is_on_cpu = buffer.memory == PINNED || buffer.client.config.on_cpu;
        Ok(())
    }

    fn PJRT_Buffer_ReadyEvent(args: PJRT_Buffer_ReadyEvent_Args) {
        let buffer = buffer(args.buffer);
        let event = match buffer.held() {
            Ok(_) => Arc::clone(&buffer.ready),
            Err(error) => Event::over(Err(error)),
        };
        args.event = event::give(event);
        Ok(())
    }

    fn PJRT_Buffer_UnsafePointer(args: PJRT_Buffer_UnsafePointer_Args) {
        args.buffer_pointer = address(buffer(args.buffer))?;
        Ok(())
    }

    fn PJRT_Buffer_OpaqueDeviceMemoryDataPointer(
        args: PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args
    ) {
        let address = address(buffer(args.buffer))?;
        args.device_memory_ptr = std::ptr::with_exposed_provenance_mut(address);
        Ok(())
    }

    fn PJRT_Buffer_IncreaseExternalReferenceCount(
        args: PJRT_Buffer_IncreaseExternalReferenceCount_Args
    ) {
        let held = buffer(args.buffer).held()?;
        held.data.wait()?;
        // A share that the decrease takes back.
        std::mem::forget(held.data);
        Ok(())
    }

    fn PJRT_Buffer_DecreaseExternalReferenceCount(
        args: PJRT_Buffer_DecreaseExternalReferenceCount_Args
    ) {
        let held = buffer(args.buffer).held()?;
        Arc::decrement_strong_count(Arc::as_ptr(&held.data));
        Ok(())
    }
}

/// On the device, an address that is none in this process.
fn address(buffer: &Buffer) -> Result<usize, Error> {
    let held = buffer.held()?;
    let inner = held.data.wait()?;
    match (&held.block, buffer.memory) {
        _ if buffer.client.config.on_cpu => inner.address(),
        (Some(block), DEVICE) => Ok(block.address()),
        (None, DEVICE) => Ok(0),
        _ => inner.address(),
    }
}
