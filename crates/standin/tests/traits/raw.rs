//! Slots that `salus_pjrt` has no handles for, called as C does.

use std::ffi::c_void;

use salus_pjrt::Library;
use salus_pjrt::sys::*;

use crate::common::library;

/// Calls a slot: its arguments, or the code of its error.
macro_rules! call {
    ($slot:ident($args:ident { $($field:ident: $value:expr),* $(,)? })) => {{
        // SAFETY: zeros are valid arguments; tests fill what the slot needs.
        unsafe {
            let mut args: $args = std::mem::zeroed();
            args.struct_size = $args::END;
            $(args.$field = $value;)*
            let error = (crate::raw::api().$slot.expect("a slot"))(&raw mut args);
            crate::raw::code(error).map(|()| args)
        }
    }};
}
pub(crate) use call;

pub(crate) fn api() -> &'static PJRT_Api {
    crate::common::plugin();
    let library = Library::open(&library(), "the stand-in").expect("it opens");
    let symbol = library.symbol(c"GetPjrtApi").expect("it is a plugin");
    // SAFETY: a function of this name has this type, and its table stays.
    unsafe {
        let get: unsafe extern "C" fn() -> *mut PJRT_Api = std::mem::transmute(symbol.as_ptr());
        &*get()
    }
}

/// # Safety
/// What a slot returned.
pub(crate) unsafe fn code(error: *mut PJRT_Error) -> Result<(), PJRT_Error_Code> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: a live error, which is ours to destroy.
    unsafe {
        let mut code: PJRT_Error_GetCode_Args = std::mem::zeroed();
        (code.struct_size, code.error) = (PJRT_Error_GetCode_Args::END, error);
        api().PJRT_Error_GetCode.expect("a slot")(&raw mut code);
        let mut destroy: PJRT_Error_Destroy_Args = std::mem::zeroed();
        (destroy.struct_size, destroy.error) = (PJRT_Error_Destroy_Args::END, error);
        api().PJRT_Error_Destroy.expect("a slot")(&raw mut destroy);
        Err(code.code)
    }
}

/// A text as a create option.
pub(crate) fn option(name: &str, value: &str) -> PJRT_NamedValue {
    PJRT_NamedValue {
        struct_size: PJRT_NamedValue::END,
        extension_start: std::ptr::null_mut(),
        name: name.as_ptr().cast(),
        name_size: name.len(),
        r#type: PJRT_NamedValue_kString,
        value: PJRT_NamedValue_Value {
            string_value: value.as_ptr().cast(),
        },
        value_size: value.len(),
    }
}

pub(crate) struct Client(*mut PJRT_Client);

impl Client {
    pub(crate) fn open(traits: &str) -> Client {
        let options = [option("standin", traits)];
        let made = call!(PJRT_Client_Create(PJRT_Client_Create_Args {
            create_options: options.as_ptr(),
            num_options: 1,
        }));
        Client(made.expect("a client opens").client)
    }

    pub(crate) fn map(&self, data: *mut c_void, size: usize) -> Result<(), PJRT_Error_Code> {
        call!(PJRT_Client_DmaMap(PJRT_Client_DmaMap_Args {
            client: self.0,
            data: data,
            size: size
        }))
        .map(drop)
    }

    pub(crate) fn unmap(&self, data: *mut c_void) -> Result<(), PJRT_Error_Code> {
        call!(PJRT_Client_DmaUnmap(PJRT_Client_DmaUnmap_Args {
            client: self.0,
            data: data
        }))
        .map(drop)
    }

    /// Whether an array in its default memory, or in the pinned one, is on the CPU.
    pub(crate) fn is_on_cpu(&self, memory: usize) -> bool {
        let devices = call!(PJRT_Client_AddressableDevices(
            PJRT_Client_AddressableDevices_Args { client: self.0 }
        ));
        // SAFETY: a client has a device, and it two memories.
        let device = unsafe { *devices.expect("devices").addressable_devices };
        let memories = call!(PJRT_Device_AddressableMemories(
            PJRT_Device_AddressableMemories_Args { device: device }
        ));
        // SAFETY: as above.
        let memory = unsafe { *memories.expect("memories").memories.add(memory) };
        let (numbers, dims) = ([0f32; 4], [4i64]);
        let made = call!(PJRT_Client_BufferFromHostBuffer(
            PJRT_Client_BufferFromHostBuffer_Args {
                client: self.0,
                data: numbers.as_ptr().cast(),
                r#type: PJRT_Buffer_Type_F32,
                dims: dims.as_ptr(),
                num_dims: 1,
                memory: memory,
            }
        ))
        .expect("there is room");
        let answer = call!(PJRT_Buffer_IsOnCpu(PJRT_Buffer_IsOnCpu_Args {
            buffer: made.buffer
        }));
        let event = made.done_with_host_buffer;
        let _ = call!(PJRT_Event_Destroy(PJRT_Event_Destroy_Args { event: event }));
        let _ = call!(PJRT_Buffer_Destroy(PJRT_Buffer_Destroy_Args {
            buffer: made.buffer
        }));
        answer.expect("it answers").is_on_cpu
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = call!(PJRT_Client_Destroy(PJRT_Client_Destroy_Args {
            client: self.0
        }));
    }
}

/// Pages that are unmapped when this is dropped.
pub(crate) struct Pages(*mut c_void, usize);

impl Pages {
    pub(crate) fn new(pages: usize) -> Pages {
        let len = pages * 4096;
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        assert!(start != libc::MAP_FAILED);
        Pages(start, len)
    }

    pub(crate) fn start(&self) -> *mut c_void {
        self.0
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.0, self.1) };
    }
}
