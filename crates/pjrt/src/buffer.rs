//! Buffers: arrays on a device.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::api::Padded;
use crate::sys::*;
use crate::{Client, Error, Event, Memory};

/// An owned array. It may be dropped while work that uses it is pending; dropping one that was
/// donated to a running program blocks until that has ended.
pub struct Buffer {
    client: Client,
    raw: NonNull<PJRT_Buffer>,
}

// SAFETY: PJRT buffers may be used by any thread.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// The order of elements in memory, the fastest dimension first.
#[derive(Debug, Clone, Copy)]
pub struct HostLayout<'a> {
    pub minor_to_major: &'a [i64],
}

/// A layout as the vendor reads it.
pub(crate) struct RawLayout<'a> {
    raw: Option<Padded<PJRT_Buffer_MemoryLayout>>,
    /// The raw struct points into it.
    _order: std::marker::PhantomData<&'a [i64]>,
}

impl<'a> RawLayout<'a> {
    pub(crate) fn new(layout: Option<HostLayout<'a>>) -> RawLayout<'a> {
        let raw = layout.map(|layout| {
            let mut raw = Padded::<PJRT_Buffer_MemoryLayout>::new();
            raw.r#type = PJRT_Buffer_MemoryLayout_Type_Tiled;
            raw.value.tiled = PJRT_Buffer_MemoryLayout_Tiled {
                // Inside a union, so it cannot be padded: its true size.
                struct_size: PJRT_Buffer_MemoryLayout_Tiled::END,
                extension_start: std::ptr::null_mut(),
                minor_to_major: layout.minor_to_major.as_ptr(),
                minor_to_major_size: layout.minor_to_major.len(),
                tile_dims: std::ptr::null(),
                tile_dim_sizes: std::ptr::null(),
                num_tiles: 0,
            };
            raw
        });
        RawLayout {
            raw,
            _order: std::marker::PhantomData,
        }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut PJRT_Buffer_MemoryLayout {
        match &mut self.raw {
            Some(raw) => raw.as_mut_ptr(),
            None => std::ptr::null_mut(),
        }
    }
}

impl Buffer {
    /// # Safety
    /// `raw` is a buffer of this client that the caller owns, or null.
    pub(crate) unsafe fn new(client: Client, raw: *mut PJRT_Buffer) -> Result<Buffer, Error> {
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::internal("the vendor's plugin returned a null buffer"))?;
        Ok(Buffer { client, raw })
    }

    pub(crate) fn raw(&self) -> *mut PJRT_Buffer {
        self.raw.as_ptr()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub fn element_type(&self) -> Result<PJRT_Buffer_Type, Error> {
        let mut args = Padded::<PJRT_Buffer_ElementType_Args>::new();
        args.buffer = self.raw();
        // SAFETY: a live buffer.
        unsafe { call!(self.client.api(), PJRT_Buffer_ElementType, &mut args) }?;
        Ok(args.r#type)
    }

    pub fn dimensions(&self) -> Result<Vec<i64>, Error> {
        let mut args = Padded::<PJRT_Buffer_Dimensions_Args>::new();
        args.buffer = self.raw();
        // SAFETY: a live buffer, which owns the list.
        unsafe {
            call!(self.client.api(), PJRT_Buffer_Dimensions, &mut args)?;
            Ok(crate::api::list(args.dims, args.num_dims).to_vec())
        }
    }

    pub fn on_device_bytes(&self) -> Result<u64, Error> {
        let mut args = Padded::<PJRT_Buffer_OnDeviceSizeInBytes_Args>::new();
        args.buffer = self.raw();
        // SAFETY: a live buffer.
        unsafe {
            call!(
                self.client.api(),
                PJRT_Buffer_OnDeviceSizeInBytes,
                &mut args
            )
        }?;
        Ok(args.on_device_size_in_bytes as u64)
    }

    pub fn is_deleted(&self) -> Result<bool, Error> {
        let mut args = Padded::<PJRT_Buffer_IsDeleted_Args>::new();
        args.buffer = self.raw();
        // SAFETY: a live buffer.
        unsafe { call!(self.client.api(), PJRT_Buffer_IsDeleted, &mut args) }?;
        Ok(args.is_deleted)
    }

    /// Ready when the array's value is there.
    pub fn ready_event(&self) -> Result<Event, Error> {
        let mut args = Padded::<PJRT_Buffer_ReadyEvent_Args>::new();
        args.buffer = self.raw();
        // SAFETY: a live buffer; the event is owned by the caller.
        unsafe {
            call!(self.client.api(), PJRT_Buffer_ReadyEvent, &mut args)?;
            Event::new(self.client.api(), args.event)
        }
    }

    /// The address on the device; on platform `cpu`, of this process.
    pub fn unsafe_pointer(&self) -> Result<usize, Error> {
        let mut args = Padded::<PJRT_Buffer_UnsafePointer_Args>::new();
        args.buffer = self.raw();
        // SAFETY: a live buffer.
        unsafe { call!(self.client.api(), PJRT_Buffer_UnsafePointer, &mut args) }?;
        Ok(args.buffer_pointer)
    }

    /// Copies the elements to `dst` in `layout`, sub-byte types a byte each.
    ///
    /// # Safety
    /// `size` bytes at `dst` are writable, and nothing else uses them, until the event.
    pub unsafe fn to_host(
        &self,
        dst: *mut c_void,
        size: usize,
        layout: Option<HostLayout<'_>>,
    ) -> Result<Event, Error> {
        let mut layout = RawLayout::new(layout);
        let mut args = Padded::<PJRT_Buffer_ToHostBuffer_Args>::new();
        args.src = self.raw();
        args.host_layout = layout.as_mut_ptr();
        args.dst = dst;
        args.dst_size = size;
        // SAFETY: a live buffer; the layout lives during the call; the target is the caller's
        // promise.
        unsafe {
            call!(self.client.api(), PJRT_Buffer_ToHostBuffer, &mut args)?;
            Event::new(self.client.api(), args.event)
        }
    }

    /// Copies bytes as the device holds them.
    ///
    /// # Safety
    /// `size` bytes at `dst` are writable, and nothing else uses them, until the event.
    pub unsafe fn copy_raw_to_host(&self, dst: *mut c_void, size: usize) -> Result<Event, Error> {
        let mut args = Padded::<PJRT_Buffer_CopyRawToHost_Args>::new();
        args.buffer = self.raw();
        args.dst = dst;
        args.transfer_size = i64::try_from(size)
            .map_err(|_| Error::internal(format!("a copy of {size} bytes is too long")))?;
        // SAFETY: a live buffer; the target is the caller's promise.
        unsafe {
            call!(self.client.api(), PJRT_Buffer_CopyRawToHost, &mut args)?;
            Event::new(self.client.api(), args.event)
        }
    }

    /// A copy in another memory of the same client.
    pub fn copy_to_memory(&self, memory: &Memory) -> Result<Buffer, Error> {
        let mut args = Padded::<PJRT_Buffer_CopyToMemory_Args>::new();
        args.buffer = self.raw();
        args.dst_memory = memory.raw();
        // SAFETY: a live buffer and memory; the copy is owned by the caller.
        unsafe {
            call!(self.client.api(), PJRT_Buffer_CopyToMemory, &mut args)?;
            Buffer::new(self.client.clone(), args.dst_buffer)
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut args = Padded::<PJRT_Buffer_Destroy_Args>::new();
        args.buffer = self.raw();
        // SAFETY: owned, and not used afterwards. No caller could act on an error.
        let _ = unsafe { call!(self.client.api(), PJRT_Buffer_Destroy, &mut args) };
    }
}
