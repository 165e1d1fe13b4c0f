//! The Layouts extension (type 4): without it a non-default layout is read back as wrong data.

use std::ffi::c_char;

use super::{
    PJRT_Buffer, PJRT_Buffer_Type, PJRT_Client, PJRT_Error, PJRT_Executable, PJRT_Extension_Base,
    PJRT_TopologyDescription,
};

opaque! { PJRT_Layouts_MemoryLayout, PJRT_Layouts_SerializedLayout }

args! { PJRT_Layouts_MemoryLayout_Destroy_Args { layout: *mut PJRT_Layouts_MemoryLayout } }
args! { PJRT_Layouts_MemoryLayout_Serialize_Args {
    layout: *mut PJRT_Layouts_MemoryLayout,
    serialized_bytes: *const c_char,
    serialized_bytes_size: usize,
    serialized_layout: *mut PJRT_Layouts_SerializedLayout,
    serialized_layout_deleter:
        Option<unsafe extern "C-unwind" fn(layout: *mut PJRT_Layouts_SerializedLayout)>,
} }
args! { PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args {
    client: *mut PJRT_Client,
    r#type: PJRT_Buffer_Type,
    dims: *const i64,
    num_dims: usize,
    layout: *mut PJRT_Layouts_MemoryLayout,
} }
args! { PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args {
    buffer: *mut PJRT_Buffer,
    layout: *mut PJRT_Layouts_MemoryLayout,
} }
args! { PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args {
    topology_description: *mut PJRT_TopologyDescription,
    r#type: PJRT_Buffer_Type,
    dims: *const i64,
    num_dims: usize,
    layout: *mut PJRT_Layouts_MemoryLayout,
} }
args! { PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args {
    executable: *mut PJRT_Executable,
    num_outputs: usize,
    layouts: *mut *mut PJRT_Layouts_MemoryLayout,
} }

type Entry<Args> = Option<unsafe extern "C" fn(*mut Args) -> *mut PJRT_Error>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PJRT_Layouts_Extension {
    pub base: PJRT_Extension_Base,
    pub PJRT_Layouts_MemoryLayout_Destroy: Entry<PJRT_Layouts_MemoryLayout_Destroy_Args>,
    pub PJRT_Layouts_MemoryLayout_Serialize: Entry<PJRT_Layouts_MemoryLayout_Serialize_Args>,
    pub PJRT_Layouts_PJRT_Client_GetDefaultLayout:
        Entry<PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args>,
    pub PJRT_Layouts_PJRT_Buffer_MemoryLayout: Entry<PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args>,
    pub PJRT_Layouts_PJRT_Topology_GetDefaultLayout:
        Entry<PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args>,
    pub PJRT_Layouts_PJRT_Executable_GetOutputLayouts:
        Entry<PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args>,
}

// The vendor's struct is 72 bytes: 24 of base and six entries.
const _: () = assert!(size_of::<PJRT_Layouts_Extension>() == 72);
