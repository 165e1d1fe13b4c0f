//! The Layouts extension: the layout of a buffer or of a program's outputs, as text (`{1,0}`).

use std::mem::offset_of;
use std::ptr::NonNull;

use crate::api::{Api, Padded, text};
use crate::sys::*;
use crate::{Buffer, Client, Error, Executable};

/// The extension's functions. An entry exists if it ends within the extension's `struct_size`.
#[derive(Clone, Copy)]
struct Layouts {
    api: Api,
    table: NonNull<PJRT_Layouts_Extension>,
}

/// Calls an entry of the extension as `call!` calls a slot of the table.
macro_rules! call_layouts {
    ($layouts:expr, $entry:ident, $args:expr) => {{
        let layouts: Layouts = $layouts;
        let function = if layouts.reaches(offset_of!(PJRT_Layouts_Extension, $entry)) {
            (&raw const (*layouts.table.as_ptr()).$entry).read()
        } else {
            None
        };
        layouts.api.call(stringify!($entry), function, $args)
    }};
}

impl Layouts {
    fn of(api: Api) -> Result<Layouts, Error> {
        match api.extension(PJRT_Extension_Type_Layouts) {
            Some(table) => Ok(Layouts {
                api,
                table: table.cast(),
            }),
            None => Err(api.lacks("Layouts extension")),
        }
    }

    fn reaches(self, offset: usize) -> bool {
        // SAFETY: every extension starts with the base, whose first field is its size.
        let size = unsafe { (&raw const (*self.table.as_ptr()).base.struct_size).read() };
        offset + size_of::<usize>() <= size
    }

    /// # Safety
    /// `layout` is a layout of this plugin that lives during the call.
    unsafe fn serialize(self, layout: *mut PJRT_Layouts_MemoryLayout) -> Result<String, Error> {
        let mut args = Padded::<PJRT_Layouts_MemoryLayout_Serialize_Args>::new();
        args.layout = layout;
        // SAFETY: the caller's promise; the bytes live until the deleter runs.
        unsafe {
            call_layouts!(self, PJRT_Layouts_MemoryLayout_Serialize, &mut args)?;
            let copy = text(args.serialized_bytes, args.serialized_bytes_size);
            if let Some(delete) = args.serialized_layout_deleter {
                delete(args.serialized_layout);
            }
            Ok(copy)
        }
    }

    /// # Safety
    /// `layout` is a layout of this plugin, owned by the caller and not used afterwards.
    unsafe fn destroy(self, layout: *mut PJRT_Layouts_MemoryLayout) {
        let mut args = Padded::<PJRT_Layouts_MemoryLayout_Destroy_Args>::new();
        args.layout = layout;
        // SAFETY: the caller's promise. No caller could act on an error.
        let _ = unsafe { call_layouts!(self, PJRT_Layouts_MemoryLayout_Destroy, &mut args) };
    }
}

impl Buffer {
    pub fn layout_text(&self) -> Result<String, Error> {
        let layouts = Layouts::of(self.client().api())?;
        let mut args = Padded::<PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args>::new();
        args.buffer = self.raw();
        // SAFETY: a live buffer; the layout is owned by the caller.
        unsafe {
            call_layouts!(layouts, PJRT_Layouts_PJRT_Buffer_MemoryLayout, &mut args)?;
            let text = layouts.serialize(args.layout);
            layouts.destroy(args.layout);
            text
        }
    }
}

impl Client {
    /// The layout that an array of this type and these dimensions gets by default.
    pub fn default_layout_text(
        &self,
        element_type: PJRT_Buffer_Type,
        dims: &[i64],
    ) -> Result<String, Error> {
        let layouts = Layouts::of(self.api())?;
        let mut args = Padded::<PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args>::new();
        args.client = self.raw();
        args.r#type = element_type;
        args.dims = dims.as_ptr();
        args.num_dims = dims.len();
        // SAFETY: a live client; the dimensions live during the call; the layout is owned by the
        // caller.
        unsafe {
            call_layouts!(
                layouts,
                PJRT_Layouts_PJRT_Client_GetDefaultLayout,
                &mut args
            )?;
            let text = layouts.serialize(args.layout);
            layouts.destroy(args.layout);
            text
        }
    }
}

impl Executable {
    pub fn output_layout_texts(&self) -> Result<Vec<String>, Error> {
        let layouts = Layouts::of(self.api())?;
        let mut args = Padded::<PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args>::new();
        args.executable = self.raw();
        // SAFETY: a live executable, which owns the layouts and their list.
        unsafe {
            call_layouts!(
                layouts,
                PJRT_Layouts_PJRT_Executable_GetOutputLayouts,
                &mut args
            )?;
            crate::api::list(args.layouts, args.num_outputs)
                .iter()
                .map(|&layout| layouts.serialize(layout))
                .collect()
        }
    }
}
