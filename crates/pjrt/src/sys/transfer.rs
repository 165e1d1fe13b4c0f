//! Copy-to-device streams: declared so that the table is whole; nothing here uses them.

use super::{PJRT_Chunk, PJRT_CopyToDeviceStream, PJRT_Event};

args! { PJRT_CopyToDeviceStream_Destroy_Args { stream: *mut PJRT_CopyToDeviceStream } }
args! { PJRT_CopyToDeviceStream_AddChunk_Args {
    stream: *mut PJRT_CopyToDeviceStream,
    chunk: *mut PJRT_Chunk,
    transfer_complete: *mut PJRT_Event,
} }
args! { PJRT_CopyToDeviceStream_TotalBytes_Args {
    stream: *mut PJRT_CopyToDeviceStream,
    total_bytes: i64,
} }
args! { PJRT_CopyToDeviceStream_GranuleSize_Args {
    stream: *mut PJRT_CopyToDeviceStream,
    granule_size_in_bytes: i64,
} }
args! { PJRT_CopyToDeviceStream_CurrentBytes_Args {
    stream: *mut PJRT_CopyToDeviceStream,
    current_bytes: i64,
} }
