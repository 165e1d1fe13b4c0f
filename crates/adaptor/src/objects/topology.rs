//! The topology of a client: its one device, for cache keys and for compilation without a device.
#![expect(unsafe_code, reason = "C entry points")]
#![allow(non_snake_case, reason = "the header's names")]

use std::sync::{Arc, OnceLock, Weak};

use salus_pjrt::sys;
use salus_wire::Value;

use crate::c_api::c_args::{Handle, entry, field};
use crate::c_api::error::{Result, precondition, unimplemented};
use crate::c_api::named_values::Attributes;
use crate::c_api::owned_bytes::{Serialized, deleter};
use crate::objects::client::Client;
use crate::objects::device::{DeviceDescription, bearable};

pub(crate) struct Topology {
    /// The client that owns it.
    client: Weak<Client>,
    serialized: Vec<u8>,
    descriptions: OnceLock<[&'static DeviceDescription; 1]>,
    attributes: Attributes,
}

impl Handle for Topology {
    type Raw = sys::PJRT_TopologyDescription;
}

impl Topology {
    pub(crate) fn new(
        client: Weak<Client>,
        serialized: Vec<u8>,
        attributes: &[(String, Value)],
    ) -> Self {
        Self {
            client,
            serialized,
            descriptions: OnceLock::new(),
            attributes: Attributes::new(bearable(attributes)),
        }
    }

    pub(crate) fn client(&self) -> Result<Arc<Client>> {
        self.client
            .upgrade()
            .ok_or_else(|| precondition("the client of this topology has been destroyed"))
    }
}

entry! { sure
    fn PJRT_TopologyDescription_Destroy(_args: PJRT_TopologyDescription_Destroy_Args) {
        // Topologies belong to their clients; there are no others.
        Ok(())
    }

    fn PJRT_TopologyDescription_PlatformName(args: PJRT_TopologyDescription_PlatformName_Args) {
        let client = args.handle_const::<Topology>(field!(Call.topology))?.client()?;
        // The client outlives its topology, which the caller has.
        args.put_text(field!(Call.platform_name), field!(Call.platform_name_size), &client.platform_name);
        Ok(())
    }

    fn PJRT_TopologyDescription_PlatformVersion(
        args: PJRT_TopologyDescription_PlatformVersion_Args
    ) {
        let client = args.handle::<Topology>(field!(Call.topology))?.client()?;
        let version = &client.platform_version;
        args.put_text(field!(Call.platform_version), field!(Call.platform_version_size), version);
        Ok(())
    }

    fn PJRT_TopologyDescription_Attributes(args: PJRT_TopologyDescription_Attributes_Args) {
        let topology = args.handle::<Topology>(field!(Call.topology))?;
        args.put(field!(Call.attributes), topology.attributes.as_ptr())?;
        args.put(field!(Call.num_attributes), topology.attributes.len())
    }
}

entry! {
    fn PJRT_TopologyDescription_GetDeviceDescriptions(
        args: PJRT_TopologyDescription_GetDeviceDescriptions_Args
    ) {
        let topology = args.handle_const::<Topology>(field!(Call.topology))?;
        let hardware = topology.client()?.hardware;
        let descriptions = topology.descriptions.get_or_init(|| [&hardware.device.description]);
        args.put(field!(Call.descriptions), descriptions.as_ptr().cast())?;
        args.put(field!(Call.num_descriptions), descriptions.len())
    }

    fn PJRT_TopologyDescription_Serialize(args: PJRT_TopologyDescription_Serialize_Args) {
        let topology = args.handle::<Topology>(field!(Call.topology))?;
        let serialized = Serialized::new(topology.serialized.clone());
        args.put(field!(Call.serialized_bytes), serialized.start())?;
        args.put(field!(Call.serialized_bytes_size), serialized.len())?;
        args.put(field!(Call.serialized_topology_deleter), deleter())?;
        args.put(field!(Call.serialized_topology), serialized.give())
    }

    fn PJRT_TopologyDescription_Create(_args: PJRT_TopologyDescription_Create_Args) {
        Err(unimplemented(
            "PJRT_TopologyDescription_Create: Salus describes the device of a session only; take \
             the topology of a client",
        ))
    }

    fn PJRT_TopologyDescription_Deserialize(_args: PJRT_TopologyDescription_Deserialize_Args) {
        Err(unimplemented(
            "PJRT_TopologyDescription_Deserialize: Salus describes the device of a session only; \
             take the topology of a client",
        ))
    }
}
