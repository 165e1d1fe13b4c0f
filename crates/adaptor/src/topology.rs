//! The topology of a client: its one device, for cache keys and for compilation without a device.
#![expect(unsafe_code, reason = "C entry points")]
#![allow(non_snake_case, reason = "the header's names")]

use std::sync::{Arc, OnceLock, Weak};

use salus_pjrt::sys;

use crate::client::Client;
use crate::device::DeviceDescription;
use crate::error::{Result, precondition, unimplemented};
use crate::fence::{Handle, entry};
use crate::serialized::{Serialized, deleter};
use crate::values::Attributes;

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
    pub(crate) fn new(client: Weak<Client>, serialized: Vec<u8>) -> Self {
        Self {
            client,
            serialized,
            descriptions: OnceLock::new(),
            attributes: Attributes::new(Vec::new()),
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
        let client = args.handle_const::<Topology>(|a| &a.topology)?.client()?;
        // The client outlives its topology, which the caller has.
        args.put_text(|a| &a.platform_name, |a| &a.platform_name_size, &client.platform_name);
        Ok(())
    }

    fn PJRT_TopologyDescription_PlatformVersion(
        args: PJRT_TopologyDescription_PlatformVersion_Args
    ) {
        let client = args.handle::<Topology>(|a| &a.topology)?.client()?;
        let version = &client.platform_version;
        args.put_text(|a| &a.platform_version, |a| &a.platform_version_size, version);
        Ok(())
    }

    fn PJRT_TopologyDescription_Attributes(args: PJRT_TopologyDescription_Attributes_Args) {
        let topology = args.handle::<Topology>(|a| &a.topology)?;
        args.put(|a| &a.attributes, topology.attributes.as_ptr())?;
        args.put(|a| &a.num_attributes, topology.attributes.len())
    }
}

entry! {
    fn PJRT_TopologyDescription_GetDeviceDescriptions(
        args: PJRT_TopologyDescription_GetDeviceDescriptions_Args
    ) {
        let topology = args.handle_const::<Topology>(|a| &a.topology)?;
        let place = topology.client()?.place;
        let descriptions = topology.descriptions.get_or_init(|| [&place.device.description]);
        args.put(|a| &a.descriptions, descriptions.as_ptr().cast())?;
        args.put(|a| &a.num_descriptions, descriptions.len())
    }

    fn PJRT_TopologyDescription_Serialize(args: PJRT_TopologyDescription_Serialize_Args) {
        let topology = args.handle::<Topology>(|a| &a.topology)?;
        let serialized = Serialized::new(topology.serialized.clone());
        args.put(|a| &a.serialized_bytes, serialized.start())?;
        args.put(|a| &a.serialized_bytes_size, serialized.len())?;
        args.put(|a| &a.serialized_topology_deleter, deleter())?;
        args.put(|a| &a.serialized_topology, serialized.give())
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
