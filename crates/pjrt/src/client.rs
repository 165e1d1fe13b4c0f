//! A client: the vendor's runtime on its devices.
//!
//! Everything made from a client holds a share of it, so it is destroyed last.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::api::{Api, Padded, list, text};
use crate::buffer::RawLayout;
use crate::sys::*;
use crate::value::lend_named;
use crate::{Buffer, Device, Error, Event, HostLayout, LoadedExecutable, Memory, Topology, Value};

#[derive(Clone)]
pub struct Client(Arc<Owned>);

struct Owned {
    api: Api,
    raw: NonNull<PJRT_Client>,
}

// SAFETY: PJRT clients may be used by any thread.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        let mut args = Padded::<PJRT_Client_Destroy_Args>::new();
        args.client = self.raw.as_ptr();
        // SAFETY: owned, and everything made from it is gone. No caller could act on an error.
        let _ = unsafe { call!(self.api, PJRT_Client_Destroy, &mut args) };
    }
}

/// What the vendor may do with host memory that becomes a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Semantics {
    ImmutableOnlyDuringCall,
    ImmutableUntilTransferCompletes,
    ImmutableZeroCopy,
    MutableZeroCopy,
}

/// Host memory that becomes a buffer.
pub struct FromHost<'a> {
    pub data: *const c_void,
    pub element_type: PJRT_Buffer_Type,
    pub dims: &'a [i64],
    /// Strides of the host's elements; dense and row-major if `None`.
    pub byte_strides: Option<&'a [i64]>,
    pub semantics: Semantics,
    /// The layout on the device; the vendor's default if `None`.
    pub layout: Option<HostLayout<'a>>,
}

/// A program as a vendor takes it; it points to `format` and `code`.
pub(crate) fn lend_program(format: &str, code: &[u8]) -> Padded<PJRT_Program> {
    let mut program = Padded::<PJRT_Program>::new();
    // The header forgot a const: the vendor only reads.
    program.code = code.as_ptr().cast_mut().cast();
    program.code_size = code.len();
    program.format = format.as_ptr().cast();
    program.format_size = format.len();
    program
}

impl Client {
    pub(crate) fn create(api: Api, options: &[(String, Value)]) -> Result<Client, Error> {
        let options = lend_named(options);
        let mut args = Padded::<PJRT_Client_Create_Args>::new();
        args.create_options = options.as_ptr();
        args.num_options = options.len();
        // SAFETY: the options live during the call; there is no key-value store.
        unsafe { call!(api, PJRT_Client_Create, &mut args) }?;
        let raw = NonNull::new(args.client)
            .ok_or_else(|| Error::internal("the vendor's plugin returned a null client"))?;
        Ok(Client(Arc::new(Owned { api, raw })))
    }

    pub(crate) fn api(&self) -> Api {
        self.0.api
    }

    pub(crate) fn raw(&self) -> *mut PJRT_Client {
        self.0.raw.as_ptr()
    }

    pub fn platform_name(&self) -> Result<String, Error> {
        let mut args = Padded::<PJRT_Client_PlatformName_Args>::new();
        args.client = self.raw();
        // SAFETY: a live client, which owns the text.
        unsafe {
            call!(self.api(), PJRT_Client_PlatformName, &mut args)?;
            Ok(text(args.platform_name, args.platform_name_size))
        }
    }

    pub fn platform_version(&self) -> Result<String, Error> {
        let mut args = Padded::<PJRT_Client_PlatformVersion_Args>::new();
        args.client = self.raw();
        // SAFETY: a live client, which owns the text.
        unsafe {
            call!(self.api(), PJRT_Client_PlatformVersion, &mut args)?;
            Ok(text(args.platform_version, args.platform_version_size))
        }
    }

    pub fn addressable_devices(&self) -> Result<Vec<Device>, Error> {
        let mut args = Padded::<PJRT_Client_AddressableDevices_Args>::new();
        args.client = self.raw();
        // SAFETY: a live client, which owns the list and the devices.
        let devices = unsafe {
            call!(self.api(), PJRT_Client_AddressableDevices, &mut args)?;
            list(args.addressable_devices, args.num_addressable_devices)
        };
        devices
            .iter()
            // SAFETY: the client's own.
            .map(|&device| unsafe { Device::new(self.clone(), device) })
            .collect()
    }

    /// What the client's devices are like.
    pub fn topology(&self) -> Result<Topology, Error> {
        let mut args = Padded::<PJRT_Client_TopologyDescription_Args>::new();
        args.client = self.raw();
        // SAFETY: a live client, which owns the topology.
        unsafe {
            call!(self.api(), PJRT_Client_TopologyDescription, &mut args)?;
            Topology::of(self.clone(), args.topology)
        }
    }

    /// Compiles `code`, which is in `format` (`mlir`, `hlo`), and loads it.
    pub fn compile(
        &self,
        format: &str,
        code: &[u8],
        options: &[u8],
    ) -> Result<LoadedExecutable, Error> {
        let mut program = lend_program(format, code);
        let mut args = Padded::<PJRT_Client_Compile_Args>::new();
        args.client = self.raw();
        args.program = program.as_mut_ptr();
        args.compile_options = options.as_ptr().cast();
        args.compile_options_size = options.len();
        // SAFETY: a live client; program and options live during the call. What comes back is
        // owned by the caller.
        unsafe {
            call!(self.api(), PJRT_Client_Compile, &mut args)?;
            LoadedExecutable::new(self.clone(), args.executable)
        }
    }

    /// Loads what [`crate::Executable::serialize`] gave, with its own options or with others.
    ///
    /// Loading is equivalent to running native code: only bytes of a trusted compiler may be loaded.
    pub fn deserialize_and_load(
        &self,
        serialized: &[u8],
        options: Option<&[u8]>,
    ) -> Result<LoadedExecutable, Error> {
        let mut args = Padded::<PJRT_Executable_DeserializeAndLoad_Args>::new();
        args.client = self.raw();
        args.serialized_executable = serialized.as_ptr().cast();
        args.serialized_executable_size = serialized.len();
        if let Some(options) = options {
            args.overridden_serialized_compile_options = options.as_ptr().cast();
            args.overridden_serialized_compile_options_size = options.len();
        }
        // SAFETY: a live client; bytes and options live during the call. What comes back is owned
        // by the caller.
        unsafe {
            call!(self.api(), PJRT_Executable_DeserializeAndLoad, &mut args)?;
            LoadedExecutable::new(self.clone(), args.loaded_executable)
        }
    }

    /// Has the vendor register host memory, so that transfers from and to it need no copy.
    ///
    /// # Safety
    /// The `len` bytes at `data` stay mapped until [`Client::dma_unmap`] was called for them, and no
    /// part of them is registered.
    pub unsafe fn dma_map(&self, data: *mut c_void, len: usize) -> Result<(), Error> {
        let mut args = Padded::<PJRT_Client_DmaMap_Args>::new();
        args.client = self.raw();
        args.data = data;
        args.size = len;
        // SAFETY: a live client; the memory is the caller's promise.
        unsafe { call!(self.api(), PJRT_Client_DmaMap, &mut args) }
    }

    /// The vendor forgets memory that was registered with [`Client::dma_map`], by its address.
    pub fn dma_unmap(&self, data: *mut c_void) -> Result<(), Error> {
        let mut args = Padded::<PJRT_Client_DmaUnmap_Args>::new();
        args.client = self.raw();
        args.data = data;
        // SAFETY: a live client, which looks the address up among those that were registered.
        unsafe { call!(self.api(), PJRT_Client_DmaUnmap, &mut args) }
    }

    /// Makes a buffer in `memory` of host memory, and the event that says when the vendor no
    /// longer needs that memory.
    ///
    /// # Safety
    /// The host memory that `host` describes is readable until the call returns
    /// ([`Semantics::ImmutableOnlyDuringCall`]) or until the event; it does not change until then,
    /// unless the semantics are [`Semantics::MutableZeroCopy`], which also make it writable by the
    /// vendor.
    pub unsafe fn buffer_from_host(
        &self,
        host: &FromHost<'_>,
        memory: &Memory,
    ) -> Result<(Buffer, Event), Error> {
        let mut layout = RawLayout::new(host.layout);
        let mut args = Padded::<PJRT_Client_BufferFromHostBuffer_Args>::new();
        args.client = self.raw();
        args.data = host.data;
        args.r#type = host.element_type;
        args.dims = host.dims.as_ptr();
        args.num_dims = host.dims.len();
        if let Some(strides) = host.byte_strides {
            args.byte_strides = strides.as_ptr();
            args.num_byte_strides = strides.len();
        }
        args.host_buffer_semantics = match host.semantics {
            Semantics::ImmutableOnlyDuringCall => PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
            Semantics::ImmutableUntilTransferCompletes => {
                PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes
            }
            Semantics::ImmutableZeroCopy => PJRT_HostBufferSemantics_kImmutableZeroCopy,
            Semantics::MutableZeroCopy => PJRT_HostBufferSemantics_kMutableZeroCopy,
        };
        args.memory = memory.raw();
        args.device_layout = layout.as_mut_ptr();
        // SAFETY: a live client and a memory of it; dims, strides and layout live during the call;
        // the host memory is the caller's promise.
        unsafe {
            call!(self.api(), PJRT_Client_BufferFromHostBuffer, &mut args)?;
            let buffer = Buffer::new(self.clone(), args.buffer)?;
            let done = Event::new(self.api(), args.done_with_host_buffer)?;
            Ok((buffer, done))
        }
    }
}
