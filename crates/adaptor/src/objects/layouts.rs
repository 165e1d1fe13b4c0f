//! The Layouts extension: the order of elements in an array, as text (`{1,0}`).
//!
//! Without it a non-default layout would be read back as wrong data.
#![expect(unsafe_code, reason = "C entry points")]
#![allow(non_snake_case, reason = "the header's names")]

use salus_pjrt::sys;

use crate::c_api::c_args::{Handle, entry, field};
use crate::c_api::owned_bytes::{Serialized, deleter};
use crate::objects::array_type::default_layout_text;
use crate::objects::buffer::Buffer;
use crate::objects::client::client;
use crate::objects::executable::Executable;
use crate::objects::topology::Topology;

/// What C holds as `PJRT_Layouts_MemoryLayout`: its own, or part of a program.
pub(crate) struct Layout {
    text: String,
    /// Layouts of outputs live and die with their program, whatever the caller does.
    of_program: bool,
}

impl Handle for Layout {
    type Raw = sys::PJRT_Layouts_MemoryLayout;
}

impl Layout {
    fn new(text: String) -> Box<Self> {
        Box::new(Self {
            text,
            of_program: false,
        })
    }

    pub(crate) fn of_program(text: String) -> Self {
        Self {
            text,
            of_program: true,
        }
    }
}

entry! { sure
    fn PJRT_Layouts_MemoryLayout_Destroy(args: PJRT_Layouts_MemoryLayout_Destroy_Args) {
        if !args.handle::<Layout>(field!(Call.layout))?.of_program {
            drop(args.own::<Layout>(field!(Call.layout)));
        }
        Ok(())
    }

    fn PJRT_Layouts_MemoryLayout_Serialize(args: PJRT_Layouts_MemoryLayout_Serialize_Args) {
        let layout = args.handle::<Layout>(field!(Call.layout))?;
        let serialized = Serialized::new(layout.text.clone().into_bytes());
        args.put(field!(Call.serialized_bytes), serialized.start())?;
        args.put(field!(Call.serialized_bytes_size), serialized.len())?;
        args.put(field!(Call.serialized_layout_deleter), deleter())?;
        args.put(field!(Call.serialized_layout), serialized.give())
    }

    fn PJRT_Layouts_PJRT_Buffer_MemoryLayout(args: PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        args.hand(field!(Call.layout), Layout::new(buffer.array().layout_text.clone()))
    }
}

entry! {
    fn PJRT_Layouts_PJRT_Client_GetDefaultLayout(
        args: PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args
    ) {
        client(&args, field!(Call.client))?;
        let text = default_layout_text(args.read(field!(Call.num_dims))?);
        args.hand(field!(Call.layout), Layout::new(text))
    }

    fn PJRT_Layouts_PJRT_Topology_GetDefaultLayout(
        args: PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args
    ) {
        args.handle::<Topology>(field!(Call.topology_description))?;
        let text = default_layout_text(args.read(field!(Call.num_dims))?);
        args.hand(field!(Call.layout), Layout::new(text))
    }

    fn PJRT_Layouts_PJRT_Executable_GetOutputLayouts(
        args: PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args
    ) {
        let executable = args.handle::<Executable>(field!(Call.executable))?;
        let layouts = executable.program().layouts();
        args.put(field!(Call.num_outputs), layouts.len())?;
        args.put(field!(Call.layouts), layouts.as_ptr().cast_mut())
    }
}
