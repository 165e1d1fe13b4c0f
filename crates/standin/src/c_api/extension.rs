//! Extensions: layouts and FFI, which see our handles where the CPU plugin has its own.

use std::sync::OnceLock;

use salus_pjrt::sys::*;

use crate::arrays::buffer::buffer;
use crate::c_api::error::Error;
use crate::c_api::inner::{self, Padded, bytes, taken};
use crate::c_api::slot::slots;
use crate::topology::topology;

#[repr(C)]
struct Chain {
    layouts: PJRT_Layouts_Extension,
    /// Callers read entries of newer versions behind it.
    _zeros: [u64; 64],
    ffi: PJRT_FFI_Extension,
    _more_zeros: [u64; 64],
    /// Only GPUs' plugins have it (API), by which one is known before there is a client. There is
    /// nothing in it but its head.
    custom_calls: PJRT_Extension_Base,
    _yet_more_zeros: [u64; 64],
}

/// The first of the chain. It is made once and stays.
pub(crate) fn chain() -> *mut PJRT_Extension_Base {
    static CHAIN: OnceLock<usize> = OnceLock::new();
    let address = *CHAIN.get_or_init(|| {
        let layouts: *const PJRT_Layouts_Extension = find(PJRT_Extension_Type_Layouts).cast();
        let ffi: *const PJRT_FFI_Extension = find(PJRT_Extension_Type_FFI).cast();
        if layouts.is_null() || ffi.is_null() {
            return 0;
        }
        // SAFETY: extensions of these types, which the CPU plugin never frees; its are as long as
        // API 0.81's.
        let (layouts, ffi) = unsafe { (*layouts, *ffi) };
        let chain = Box::leak(Box::new(Chain {
            layouts,
            _zeros: [0; 64],
            ffi,
            _more_zeros: [0; 64],
            custom_calls: PJRT_Extension_Base {
                struct_size: size_of::<PJRT_Extension_Base>(),
                r#type: PJRT_Extension_Type_Gpu_Custom_Call,
                next: std::ptr::null_mut(),
            },
            _yet_more_zeros: [0; 64],
        }));
        chain.layouts.base.struct_size = size_of::<PJRT_Layouts_Extension>();
        chain.layouts.base.next = (&raw mut chain.ffi).cast();
        chain.layouts.PJRT_Layouts_PJRT_Buffer_MemoryLayout = Some(layout_of_buffer);
        chain.layouts.PJRT_Layouts_PJRT_Topology_GetDefaultLayout = Some(layout_of_topology);
        chain.ffi.base.struct_size = size_of::<PJRT_FFI_Extension>();
        chain.ffi.base.next = &raw mut chain.custom_calls;
        chain.ffi.register_handler = Some(register_handler);
        (&raw mut chain.layouts).expose_provenance()
    });
    std::ptr::with_exposed_provenance_mut(address)
}

/// An extension of the CPU plugin's, or null.
fn find(wanted: PJRT_Extension_Type) -> *mut PJRT_Extension_Base {
    let mut next = inner::api().extension_start;
    // SAFETY: links of a chain that lives as long as the plugin.
    unsafe {
        while !next.is_null() && (*next).r#type != wanted {
            next = (*next).next;
        }
    }
    next
}

slots! {
    fn layout_of_buffer(args: PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args) {
        let layouts: *const PJRT_Layouts_Extension = find(PJRT_Extension_Type_Layouts).cast();
        let held = buffer(args.buffer).held()?;
        let mut inner = Padded::<PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args>::new();
        inner.args.buffer = held.data.wait()?.0.0;
        let function = (*layouts).PJRT_Layouts_PJRT_Buffer_MemoryLayout;
        args.layout = taken("Buffer_MemoryLayout", function, &mut inner)?.layout;
        Ok(())
    }

    fn layout_of_topology(args: PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args) {
        let layouts: *const PJRT_Layouts_Extension = find(PJRT_Extension_Type_Layouts).cast();
        let mut inner = Padded::<PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args>::new();
        inner.args.topology_description = topology(args.topology_description).inner();
        (inner.args.r#type, inner.args.dims) = (args.r#type, args.dims);
        inner.args.num_dims = args.num_dims;
        let function = (*layouts).PJRT_Layouts_PJRT_Topology_GetDefaultLayout;
        args.layout = taken("Topology_GetDefaultLayout", function, &mut inner)?.layout;
        Ok(())
    }

    /// Handlers for `CUDA` are the CPU plugin's for `Host`: programs run there.
    fn register_handler(args: PJRT_FFI_Register_Handler_Args) {
        let ffi: *const PJRT_FFI_Extension = find(PJRT_Extension_Type_FFI).cast();
        let platform = bytes::<u8>(args.platform_name.cast(), args.platform_name_size);
        let mut inner = *args;
        if platform.eq_ignore_ascii_case(b"cuda") {
            inner.platform_name = c"Host".as_ptr();
            inner.platform_name_size = 4;
        }
        let function = (*ffi).register_handler;
        let function = function.ok_or_else(|| Error::unimplemented("register_handler"))?;
        let error = function(&raw mut inner);
        match error.is_null() {
            true => Ok(()),
            false => Err(inner::take(error)),
        }
    }
}
