//! PJRT's transfer managers: arrays that are filled piece by piece.
//!
//! Pieces are gathered in this process; the last one makes an upload of the whole. JAX does not use
//! them; conformance tools do.
#![expect(
    unsafe_code,
    reason = "C entry points; copies from the caller's memory"
)]
#![allow(non_snake_case, reason = "the header's names")]

use std::sync::{Arc, Mutex};

use salus_channel::lock;
use salus_pjrt::sys;
use salus_wire::ArrayId;

use crate::c_api::c_args::{Args, Field, Handle, entry, field, lend};
use crate::c_api::error::{Error, ErrorCode, Result, invalid};
use crate::calls::upload;
use crate::objects::array_type::{ArrayType, host_element_bytes, list, order_of};
use crate::objects::buffer::{Buffer, Own, Readiness};
use crate::objects::client::{Client, client};
use crate::objects::device::Memory;
use crate::objects::event::{Completion, EndedBy, Event};

/// What C holds as `PJRT_AsyncHostToDeviceTransferManager`.
pub(crate) struct TransferManager {
    client: Arc<Client>,
    memory: u32,
    arrays: Vec<Arc<Staged>>,
}

impl Handle for TransferManager {
    type Raw = sys::PJRT_AsyncHostToDeviceTransferManager;
}

/// An array that is being filled.
pub(crate) struct Staged {
    id: ArrayId,
    array: ArrayType,
    /// Ends when the whole array was sent, or with the error that was set.
    pub(crate) completion: Arc<Completion>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    data: Vec<u8>,
    sent: bool,
    /// The job no longer has the buffer.
    abandoned: bool,
    retrieved: bool,
}

impl Staged {
    /// Notes that the job gave the buffer up; true if the service never heard of the array.
    pub(crate) fn abandon(&self) -> bool {
        let mut progress = lock(&self.progress);
        progress.abandoned = true;
        progress.data = Vec::new();
        !progress.sent
    }

    /// Takes a piece; the last one sends the array.
    fn add(&self, manager: &TransferManager, offset: i64, piece: &[u8], last: bool) -> Result<()> {
        let mut progress = lock(&self.progress);
        if progress.sent || self.completion.outcome().is_some() {
            return Err(invalid("a piece came after the last one of its array"));
        }
        let size = self.array.host_bytes as usize;
        let end = usize::try_from(offset)
            .ok()
            .and_then(|start| start.checked_add(piece.len()));
        let Some(end) = end.filter(|end| *end <= size) else {
            return Err(invalid(format!(
                "{} bytes at {offset} are not inside an array of {size} bytes",
                piece.len()
            )));
        };
        if !progress.abandoned {
            progress.data.resize(size, 0);
            progress.data[end - piece.len()..end].copy_from_slice(piece);
        }
        if !last || progress.abandoned {
            return Ok(());
        }
        let data = std::mem::take(&mut progress.data);
        upload::send(
            &manager.client,
            self.id,
            &self.array,
            manager.memory,
            |to| {
                // SAFETY: the block has the array's size, and so has `data`.
                unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
                Ok(())
            },
        )?;
        progress.sent = true;
        drop(progress);
        self.completion.end(Ok(()));
        Ok(())
    }
}

impl Drop for TransferManager {
    fn drop(&mut self) {
        for staged in &self.arrays {
            let never = invalid("the transfer manager was destroyed before the array was complete");
            if self.client.session.is_ours() {
                staged.completion.end(Err(never));
            }
        }
    }
}

fn staged<'a, T: sys::CStruct>(
    args: &Args<'a, T>,
    manager: &'a TransferManager,
    index: Field<T, i32>,
) -> Result<&'a Arc<Staged>> {
    let index = args.read(index)?;
    let found = usize::try_from(index)
        .ok()
        .and_then(|i| manager.arrays.get(i));
    found.ok_or_else(|| {
        invalid(format!(
            "there is no array {index} among the {} of this transfer manager",
            manager.arrays.len()
        ))
    })
}

entry! {
    fn PJRT_Client_CreateBuffersForAsyncHostToDevice(
        args: PJRT_Client_CreateBuffersForAsyncHostToDevice_Args
    ) {
        create(&args)
    }

    fn PJRT_AsyncHostToDeviceTransferManager_TransferData(
        args: PJRT_AsyncHostToDeviceTransferManager_TransferData_Args
    ) {
        let manager = args.handle::<TransferManager>(field!(Call.transfer_manager))?;
        let staged = staged(&args, manager, field!(Call.buffer_index))?;
        let size = args.read(field!(Call.transfer_size))?;
        let data = args.read(field!(Call.data))?.cast::<u8>();
        let size = usize::try_from(size)
            .map_err(|_| invalid(format!("a piece of {size} bytes")))?;
        let piece = if size == 0 || data.is_null() {
            &[]
        } else {
            // SAFETY: the caller has `size` bytes there.
            unsafe { std::slice::from_raw_parts(data, size) }
        };
        let last = args.read(field!(Call.is_last_transfer))?;
        staged.add(manager, args.read(field!(Call.offset))?, piece, last)?;
        args.hand(field!(Call.done_with_h2d_transfer), Event::ready())
    }

    fn PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(
        args: PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args
    ) {
        let manager = args.handle::<TransferManager>(field!(Call.transfer_manager))?;
        let staged = staged(&args, manager, field!(Call.buffer_index))?;
        if std::mem::replace(&mut lock(&staged.progress).retrieved, true) {
            return Err(invalid("the array was retrieved already"));
        }
        let own = Own {
            client: Arc::clone(&manager.client),
            array: ArrayType::of_shape(&staged.array.shape(), None)?,
            memory: manager.memory,
            readiness: Readiness::Staged(Arc::clone(staged)),
        };
        args.hand(field!(Call.buffer_out), Buffer::own(staged.id, own))
    }

    fn PJRT_AsyncHostToDeviceTransferManager_Device(
        args: PJRT_AsyncHostToDeviceTransferManager_Device_Args
    ) {
        let manager = args.handle::<TransferManager>(field!(Call.transfer_manager))?;
        args.put(field!(Call.device_out), lend(&manager.client.hardware.device))
    }

    fn PJRT_AsyncHostToDeviceTransferManager_BufferCount(
        args: PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args
    ) {
        let manager = args.handle::<TransferManager>(field!(Call.transfer_manager))?;
        args.put(field!(Call.buffer_count), manager.arrays.len())
    }

    fn PJRT_AsyncHostToDeviceTransferManager_BufferSize(
        args: PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args
    ) {
        let manager = args.handle::<TransferManager>(field!(Call.transfer_manager))?;
        let staged = staged(&args, manager, field!(Call.buffer_index))?;
        args.put(field!(Call.buffer_size), staged.array.device_bytes as usize)
    }

    fn PJRT_AsyncHostToDeviceTransferManager_SetBufferError(
        args: PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args
    ) {
        let manager = args.handle::<TransferManager>(field!(Call.transfer_manager))?;
        let staged = staged(&args, manager, field!(Call.buffer_index))?;
        let message = args.bytes(field!(Call.error_message), field!(Call.error_message_size))?;
        let code = ErrorCode::from_number(args.read(field!(Call.error_code))?);
        let message = String::from_utf8_lossy(message);
        staged.completion.end(Err(Error::new(code, message)));
        Ok(())
    }

    fn PJRT_AsyncHostToDeviceTransferManager_AddMetadata(
        args: PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args
    ) {
        // For tracing by the vendor; nothing here would read it.
        args.handle::<TransferManager>(field!(Call.transfer_manager))?;
        Ok(())
    }
}

entry! { sure
    fn PJRT_AsyncHostToDeviceTransferManager_Destroy(
        args: PJRT_AsyncHostToDeviceTransferManager_Destroy_Args
    ) {
        if let Some(manager) = args.own::<TransferManager>(field!(Call.transfer_manager))
            && !manager.client.session.is_ours()
        {
            std::mem::forget(manager);
        }
        Ok(())
    }
}

fn create(args: &Args<'_, sys::PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>) -> Result<()> {
    type Call = sys::PJRT_Client_CreateBuffersForAsyncHostToDevice_Args;
    let client = client(args, field!(Call.client))?;
    client.session.usable()?;
    let memory = args.handle_or_null::<Memory>(field!(Call.memory));
    let memory = client.hardware.memory_for(memory, None)?;
    let specs = args.read(field!(Call.shape_specs))?;
    let num_specs = args.read(field!(Call.num_shape_specs))?;
    if specs.is_null() && num_specs > 0 {
        return Err(invalid(format!("the list of {num_specs} shapes is NULL")));
    }
    let layouts = args.read(field!(Call.device_layouts))?;
    let num_layouts = args.read(field!(Call.num_device_layouts))?;
    let mut arrays = Vec::new();
    for index in 0..num_specs {
        // Whatever `struct_size` it says: no plugin of XLA looks at that, so a caller that leaves
        // it unset would not notice. They index the list like this, so it cannot grow either.
        // SAFETY: the caller has `count` specs in a row.
        let spec = unsafe { specs.add(index).read_unaligned() };
        let dims = &list(spec.dims, spec.num_dims);
        let element_type = spec.element_type;
        let layout = if layouts.is_null() || index >= num_layouts {
            std::ptr::null_mut()
        } else {
            // SAFETY: the caller has as many layouts.
            unsafe { *layouts.add(index) }
        };
        let order = order_of(layout, dims, host_element_bytes(element_type)?)?;
        arrays.push(Arc::new(Staged {
            id: client.session.next_array(),
            array: ArrayType::new(element_type, dims, order)?,
            completion: Completion::new(Arc::clone(&client.session), EndedBy::Job),
            progress: Mutex::default(),
        }));
    }
    let manager = TransferManager {
        client: Arc::clone(client),
        memory,
        arrays,
    };
    args.hand(field!(Call.transfer_manager), Box::new(manager))
}
