//! Topologies.

use std::ffi::c_char;

use super::{
    PJRT_Client, PJRT_DeviceDescription, PJRT_Executable, PJRT_NamedValue, PJRT_Program,
    PJRT_TopologyDescription,
};

opaque! { PJRT_SerializedTopology }

args! { PJRT_TopologyDescription_Create_Args {
    topology_name: *const c_char,
    topology_name_size: usize,
    create_options: *const PJRT_NamedValue,
    num_options: usize,
    topology: *mut PJRT_TopologyDescription,
} }
args! { PJRT_TopologyDescription_Destroy_Args { topology: *mut PJRT_TopologyDescription } }
args! { PJRT_TopologyDescription_PlatformVersion_Args {
    topology: *mut PJRT_TopologyDescription,
    platform_version: *const c_char,
    platform_version_size: usize,
} }
args! { PJRT_TopologyDescription_PlatformName_Args {
    topology: *const PJRT_TopologyDescription,
    platform_name: *const c_char,
    platform_name_size: usize,
} }
args! { PJRT_TopologyDescription_GetDeviceDescriptions_Args {
    topology: *const PJRT_TopologyDescription,
    descriptions: *const *mut PJRT_DeviceDescription,
    num_descriptions: usize,
} }
args! { PJRT_TopologyDescription_Serialize_Args {
    topology: *mut PJRT_TopologyDescription,
    serialized_bytes: *const c_char,
    serialized_bytes_size: usize,
    serialized_topology: *mut PJRT_SerializedTopology,
    serialized_topology_deleter:
        Option<unsafe extern "C-unwind" fn(serialized_topology: *mut PJRT_SerializedTopology)>,
} }
args! { PJRT_TopologyDescription_Deserialize_Args {
    serialized_topology: *const c_char,
    serialized_topology_size: usize,
    topology: *mut PJRT_TopologyDescription,
} }
args! { PJRT_TopologyDescription_Attributes_Args {
    topology: *mut PJRT_TopologyDescription,
    attributes: *const PJRT_NamedValue,
    num_attributes: usize,
} }
args! { PJRT_Compile_Args {
    topology: *const PJRT_TopologyDescription,
    program: *const PJRT_Program,
    compile_options: *const c_char,
    compile_options_size: usize,
    client: *mut PJRT_Client,
    executable: *mut PJRT_Executable,
} }
