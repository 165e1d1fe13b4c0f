//! A topology: what devices are like, to compile for them with or without a client.
//!
//! One that a client owns keeps the client alive; one that was made by itself needs neither a client
//! nor a device.

use std::ptr::NonNull;

use crate::api::{Api, Padded, bytes, text};
use crate::client::lend_program;
use crate::sys::*;
use crate::value::{copy_named, lend_named};
use crate::{Client, Error, Executable, Value};

pub struct Topology {
    api: Api,
    raw: NonNull<PJRT_TopologyDescription>,
    owner: Owner,
}

enum Owner {
    Ours,
    Client { _client: Client },
}

// SAFETY: PJRT topologies may be used by any thread.
unsafe impl Send for Topology {}
// SAFETY: as above.
unsafe impl Sync for Topology {}

impl Topology {
    pub(crate) fn create(
        api: Api,
        name: &str,
        options: &[(String, Value)],
    ) -> Result<Topology, Error> {
        let options = lend_named(options);
        let mut args = Padded::<PJRT_TopologyDescription_Create_Args>::new();
        args.topology_name = name.as_ptr().cast();
        args.topology_name_size = name.len();
        args.create_options = options.as_ptr();
        args.num_options = options.len();
        // SAFETY: name and options live during the call; what comes back is owned by the caller.
        unsafe { call!(api, PJRT_TopologyDescription_Create, &mut args) }?;
        Topology::new(api, args.topology, Owner::Ours)
    }

    pub(crate) fn deserialize(api: Api, serialized: &[u8]) -> Result<Topology, Error> {
        let mut args = Padded::<PJRT_TopologyDescription_Deserialize_Args>::new();
        args.serialized_topology = serialized.as_ptr().cast();
        args.serialized_topology_size = serialized.len();
        // SAFETY: the bytes live during the call; what comes back is owned by the caller.
        unsafe { call!(api, PJRT_TopologyDescription_Deserialize, &mut args) }?;
        Topology::new(api, args.topology, Owner::Ours)
    }

    /// # Safety
    /// `raw` is the topology that this client owns, or null.
    pub(crate) unsafe fn of(
        client: Client,
        raw: *mut PJRT_TopologyDescription,
    ) -> Result<Topology, Error> {
        Topology::new(client.api(), raw, Owner::Client { _client: client })
    }

    fn new(api: Api, raw: *mut PJRT_TopologyDescription, owner: Owner) -> Result<Topology, Error> {
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::internal("the vendor's plugin returned a null topology"))?;
        Ok(Topology { api, raw, owner })
    }

    pub fn platform_name(&self) -> Result<String, Error> {
        let mut args = Padded::<PJRT_TopologyDescription_PlatformName_Args>::new();
        args.topology = self.raw.as_ptr();
        // SAFETY: a live topology, which owns the text.
        unsafe {
            call!(self.api, PJRT_TopologyDescription_PlatformName, &mut args)?;
            Ok(text(args.platform_name, args.platform_name_size))
        }
    }

    pub fn attributes(&self) -> Result<Vec<(String, Value)>, Error> {
        let mut args = Padded::<PJRT_TopologyDescription_Attributes_Args>::new();
        args.topology = self.raw.as_ptr();
        // SAFETY: a live topology, which owns the list.
        unsafe {
            call!(self.api, PJRT_TopologyDescription_Attributes, &mut args)?;
            Ok(copy_named(args.attributes, args.num_attributes))
        }
    }

    /// The topology as the vendor serializes it.
    pub fn serialize(&self) -> Result<Vec<u8>, Error> {
        let mut args = Padded::<PJRT_TopologyDescription_Serialize_Args>::new();
        args.topology = self.raw.as_ptr();
        // SAFETY: a live topology; the bytes live until the deleter runs.
        unsafe {
            call!(self.api, PJRT_TopologyDescription_Serialize, &mut args)?;
            let copy = bytes(args.serialized_bytes, args.serialized_bytes_size);
            if let Some(delete) = args.serialized_topology_deleter {
                delete(args.serialized_topology);
            }
            Ok(copy)
        }
    }

    /// Compiles `code`, which is in `format` (`mlir`, `hlo`), for such devices. No client takes part.
    pub fn compile(&self, format: &str, code: &[u8], options: &[u8]) -> Result<Executable, Error> {
        let mut program = lend_program(format, code);
        let mut args = Padded::<PJRT_Compile_Args>::new();
        args.topology = self.raw.as_ptr();
        args.program = program.as_mut_ptr();
        args.compile_options = options.as_ptr().cast();
        args.compile_options_size = options.len();
        // SAFETY: a live topology; program and options live during the call. What comes back is
        // owned by the caller and, without a client, a part of nothing.
        unsafe {
            call!(self.api, PJRT_Compile, &mut args)?;
            Executable::by_itself(self.api, args.executable)
        }
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        if let Owner::Ours = self.owner {
            let mut args = Padded::<PJRT_TopologyDescription_Destroy_Args>::new();
            args.topology = self.raw.as_ptr();
            // SAFETY: owned, and not used afterwards. No caller could act on an error.
            let _ = unsafe { call!(self.api, PJRT_TopologyDescription_Destroy, &mut args) };
        }
    }
}
