//! Buffers: the job's names for arrays on the device, and all that is known of them without asking.
//!
//! Promise: every question but the data's is answered here, also for deleted buffers and when the
//! service is gone. The service is sent one drop when an array is no longer needed.
//! Cost: an output is one allocation; its type belongs to the program, its end to the launch.
//! Not here: uploads ([`crate::calls::upload`]) and reads ([`crate::calls::read`]).
#![expect(unsafe_code, reason = "C entry points")]
#![allow(non_snake_case, reason = "the header's names")]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use salus_pjrt::sys::{self, CStruct};
use salus_wire::{ArrayId, CopyArray};

use crate::c_api::c_args::{Handle, entry, field, lend};
use crate::c_api::error::{Error, Result, invalid, precondition};
use crate::calls::read::HostView;
use crate::calls::transfer_manager::Staged;
use crate::connection::session::Session;
use crate::objects::array_type::{ArrayType, describe};
use crate::objects::client::Client;
use crate::objects::device::{Device, Memory};
use crate::objects::event::{Completion, Event};
use crate::objects::program::Program;

pub(crate) struct Buffer {
    pub(crate) id: ArrayId,
    origin: Origin,
    state: AtomicU8,
    /// The launch that last took it as a donated argument, to find one that takes it twice.
    stamp: AtomicU64,
    pub(crate) host: Mutex<HostView>,
}

/// Where an array comes from, and so who knows its type and its end.
enum Origin {
    Output {
        program: Arc<Program>,
        index: u32,
        completion: Arc<Completion>,
    },
    Own(Box<Own>),
}

pub(crate) struct Own {
    pub(crate) client: Arc<Client>,
    pub(crate) array: ArrayType,
    pub(crate) memory: u32,
    pub(crate) readiness: Readiness,
}

pub(crate) enum Readiness {
    /// An upload: as good as there, unless the service says otherwise.
    Ready,
    /// A copy on the device.
    After(Arc<Completion>),
    /// Being filled piece by piece.
    Staged(Arc<Staged>),
}

const ALIVE: u8 = 0;
/// A drop was sent to the service.
const DELETED: u8 = 1;
/// A launch took it over.
const DONATED: u8 = 2;

impl Handle for Buffer {
    type Raw = sys::PJRT_Buffer;
}

impl Buffer {
    pub(crate) fn output(
        id: ArrayId,
        program: Arc<Program>,
        index: u32,
        completion: Arc<Completion>,
    ) -> Box<Self> {
        Self::new(
            id,
            Origin::Output {
                program,
                index,
                completion,
            },
        )
    }

    pub(crate) fn own(id: ArrayId, own: Own) -> Box<Self> {
        Self::new(id, Origin::Own(Box::new(own)))
    }

    fn new(id: ArrayId, origin: Origin) -> Box<Self> {
        Box::new(Self {
            id,
            origin,
            state: AtomicU8::new(ALIVE),
            stamp: AtomicU64::new(0),
            host: Mutex::default(),
        })
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        match &self.origin {
            Origin::Output { program, .. } => &program.client,
            Origin::Own(own) => &own.client,
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.client().session
    }

    pub(crate) fn array(&self) -> &ArrayType {
        match &self.origin {
            Origin::Output { program, index, .. } => &program.outputs[*index as usize].array,
            Origin::Own(own) => &own.array,
        }
    }

    fn memory(&self) -> &Memory {
        let index = match &self.origin {
            Origin::Output { program, index, .. } => program.outputs[*index as usize].memory,
            Origin::Own(own) => own.memory,
        };
        self.client().hardware.memory(index)
    }

    fn is_deleted(&self) -> bool {
        self.state.load(Ordering::Acquire) != ALIVE
    }

    /// An error if the array was deleted or donated.
    pub(crate) fn alive(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            ALIVE => Ok(()),
            state => Err(self.gone(state)),
        }
    }

    /// An error if the array cannot be named to the service.
    pub(crate) fn usable(&self) -> Result<()> {
        self.alive()?;
        if let Origin::Own(own) = &self.origin
            && let Readiness::Staged(staged) = &own.readiness
        {
            return match staged.completion.outcome() {
                Some(outcome) => outcome.clone(),
                None => Err(precondition(format!(
                    "the array {} is still being filled by its transfer manager: send its last \
                     piece first",
                    describe(self.array())
                ))),
            };
        }
        Ok(())
    }

    #[cold]
    fn gone(&self, state: u8) -> Error {
        let how = match state {
            DONATED => "donated to a launch, which reused its memory",
            _ => "deleted",
        };
        invalid(format!(
            "the array {} has been deleted or donated: it was {how}",
            describe(self.array())
        ))
    }

    /// Stamps it as donated to a launch; false if that launch has it already.
    pub(crate) fn stamp(&self, launch: u64) -> bool {
        self.stamp.swap(launch, Ordering::Relaxed) != launch
    }

    pub(crate) fn is_stamped(&self, launch: u64) -> bool {
        self.stamp.load(Ordering::Relaxed) == launch
    }

    pub(crate) fn donated(&self) {
        let _ = self
            .state
            .compare_exchange(ALIVE, DONATED, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn delete(&self) {
        if self.state.swap(DELETED, Ordering::AcqRel) == ALIVE {
            self.forget_array(self.array().device_bytes);
        }
    }

    /// Tells the service that the job no longer has the array.
    fn forget_array(&self, bytes: u64) {
        if let Origin::Own(own) = &self.origin
            && let Readiness::Staged(staged) = &own.readiness
            && staged.abandon()
        {
            return;
        }
        self.session().drop_array(self.id, bytes);
    }

    fn ready_event(&self) -> Box<Event> {
        if let Err(error) = self.alive() {
            return Event::failed(error);
        }
        match &self.origin {
            Origin::Output { completion, .. } => Event::of(Arc::clone(completion), true),
            Origin::Own(own) => match &own.readiness {
                Readiness::After(completion) => Event::of(Arc::clone(completion), true),
                Readiness::Staged(staged) => Event::of(Arc::clone(&staged.completion), true),
                Readiness::Ready => match self.session().array_failure(self.id) {
                    Some(error) => Event::failed(error),
                    None => Event::ready(),
                },
            },
        }
    }

    /// A copy in another memory of the device.
    fn copy_to(&self, memory: u32) -> Result<Box<Buffer>> {
        self.usable()?;
        let client = self.client();
        let copy = client.session.next_array();
        let completion = client.session.operate(|operation| {
            CopyArray {
                operation,
                array: self.id,
                copy,
                memory,
            }
            .into()
        })?;
        let array = self.array();
        let own = Own {
            client: Arc::clone(client),
            array: ArrayType::of_shape(&array.shape(), Some(&array.layout_text))?,
            memory,
            readiness: Readiness::After(completion),
        };
        Ok(Buffer::own(copy, own))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match *self.state.get_mut() {
            ALIVE => self.forget_array(self.array().device_bytes),
            // Its memory lives on in an output, so this frees nothing.
            DONATED => self.forget_array(0),
            _ => {}
        }
    }
}

entry! { sure
    fn PJRT_Buffer_Destroy(args: PJRT_Buffer_Destroy_Args) {
        if let Some(buffer) = args.own::<Buffer>(field!(Call.buffer))
            && !buffer.session().is_ours()
        {
            // A forked child owns nothing of its parent's.
            std::mem::forget(buffer);
        }
        Ok(())
    }

    fn PJRT_Buffer_ElementType(args: PJRT_Buffer_ElementType_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        args.put(field!(Call.r#type), buffer.array().element_type)
    }

    fn PJRT_Buffer_Dimensions(args: PJRT_Buffer_Dimensions_Args) {
        let dims = &args.handle::<Buffer>(field!(Call.buffer))?.array().dims;
        args.put(field!(Call.dims), dims.as_ptr())?;
        args.put(field!(Call.num_dims), dims.len())
    }

    fn PJRT_Buffer_UnpaddedDimensions(args: PJRT_Buffer_UnpaddedDimensions_Args) {
        let dims = &args.handle::<Buffer>(field!(Call.buffer))?.array().dims;
        args.put(field!(Call.unpadded_dims), dims.as_ptr())?;
        args.put(field!(Call.num_dims), dims.len())
    }

    fn PJRT_Buffer_DynamicDimensionIndices(args: PJRT_Buffer_DynamicDimensionIndices_Args) {
        args.handle::<Buffer>(field!(Call.buffer))?;
        args.put(field!(Call.dynamic_dim_indices), std::ptr::null())?;
        args.put(field!(Call.num_dynamic_dims), 0)
    }

    fn PJRT_Buffer_Device(args: PJRT_Buffer_Device_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        args.put(field!(Call.device), lend(&buffer.client().hardware.device))
    }

    fn PJRT_Buffer_Memory(args: PJRT_Buffer_Memory_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        args.put(field!(Call.memory), lend(buffer.memory()))
    }

    fn PJRT_Buffer_Delete(args: PJRT_Buffer_Delete_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        if buffer.session().is_ours() {
            buffer.delete();
        }
        Ok(())
    }

    fn PJRT_Buffer_IsDeleted(args: PJRT_Buffer_IsDeleted_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        args.put(field!(Call.is_deleted), buffer.is_deleted())
    }

    fn PJRT_Buffer_IsOnCpu(args: PJRT_Buffer_IsOnCpu_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        args.put(field!(Call.is_on_cpu), buffer.client().on_host)
    }

    fn PJRT_Buffer_ReadyEvent(args: PJRT_Buffer_ReadyEvent_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        args.hand(field!(Call.event), buffer.ready_event())
    }
}

entry! {
    fn PJRT_Buffer_OnDeviceSizeInBytes(args: PJRT_Buffer_OnDeviceSizeInBytes_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        args.put(field!(Call.on_device_size_in_bytes), buffer.array().device_bytes as usize)
    }

    fn PJRT_Buffer_GetMemoryLayout(args: PJRT_Buffer_GetMemoryLayout_Args) {
        let order = &args.handle::<Buffer>(field!(Call.buffer))?.array().minor_to_major;
        let tiled = sys::PJRT_Buffer_MemoryLayout_Tiled {
            struct_size: sys::PJRT_Buffer_MemoryLayout_Tiled::END,
            extension_start: std::ptr::null_mut(),
            minor_to_major: order.as_ptr(),
            minor_to_major_size: order.len(),
            tile_dims: std::ptr::null(),
            tile_dim_sizes: std::ptr::null(),
            num_tiles: 0,
        };
        let layout = sys::PJRT_Buffer_MemoryLayout {
            struct_size: sys::PJRT_Buffer_MemoryLayout::END,
            extension_start: std::ptr::null_mut(),
            value: sys::PJRT_Buffer_MemoryLayout_Value { tiled },
            r#type: sys::PJRT_Buffer_MemoryLayout_Type_Tiled,
        };
        args.put(field!(Call.layout), layout)
    }

    fn PJRT_Buffer_CopyToMemory(args: PJRT_Buffer_CopyToMemory_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        let memory = args.handle::<Memory>(field!(Call.dst_memory))?;
        let memory = buffer.client().hardware.memory_for(Some(memory), None)?;
        args.hand(field!(Call.dst_buffer), buffer.copy_to(memory)?)
    }

    fn PJRT_Buffer_CopyToDevice(args: PJRT_Buffer_CopyToDevice_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        let device = args.handle::<Device>(field!(Call.dst_device))?;
        let memory = buffer.client().hardware.memory_for(None, Some(device))?;
        args.hand(field!(Call.dst_buffer), buffer.copy_to(memory)?)
    }
}
