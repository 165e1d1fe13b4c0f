//! Reads: arrays into host memory.
//!
//! `ToHostBuffer` never waits, because Python holds its lock in it: the service fills a shared
//! block; the thread that receives the reply copies it to its destination and ends the event. Where
//! arrays are in host memory anyway (platform `cpu`), callers may look at a copy by pointer instead; it
//! stays while somebody refers to it.
//!
//! Promise: a read is ordered before the array's destruction if it was asked for before.
//! Not here: uploads.
#![expect(
    unsafe_code,
    reason = "C entry points; copies into the caller's memory"
)]
#![allow(non_snake_case, reason = "the header's names")]

use std::sync::Arc;

use salus_channel::lock;
use salus_pjrt::sys;
use salus_wire::{ArrayId, Form, ReadArray, Region};

use crate::c_api::c_args::{Args, entry, field};
use crate::c_api::error::{Error, Result, invalid, unimplemented};
use crate::connection::segments::Block;
use crate::connection::session::Session;
use crate::objects::array_type::{host_element_bytes, order_of};
use crate::objects::buffer::Buffer;
use crate::objects::event::{Completion, EndedBy, Event};

/// A read that the service has yet to answer.
pub(crate) struct ReadInto {
    pub(crate) completion: Arc<Completion>,
    copy: Option<CopyOut>,
}

/// What is copied when the block is filled.
struct CopyOut {
    block: Block,
    offset: usize,
    to: *mut u8,
    length: usize,
}

// SAFETY: the caller keeps the destination until the event, whichever thread writes it.
unsafe impl Send for CopyOut {}

impl ReadInto {
    /// Runs in the thread that read the reply.
    pub(crate) fn end(self, error: Option<Error>) {
        let outcome = match (error, self.copy) {
            (Some(error), _) => Err(error),
            (None, None) => Ok(()),
            (None, Some(copy)) => {
                // SAFETY: `offset + length` is inside the block, and the caller of `ToHostBuffer`
                // keeps `length` bytes at `to` writable until the event.
                unsafe {
                    let from = copy.block.address().add(copy.offset);
                    std::ptr::copy_nonoverlapping(from, copy.to, copy.length);
                }
                Ok(())
            }
        };
        self.completion.end(outcome);
    }
}

/// A copy of the array in host memory that callers look at by pointer.
#[derive(Default)]
pub(crate) struct HostView {
    block: Option<Box<Block>>,
    references: u32,
    /// A bare pointer was given out, which is good as long as the buffer.
    lent: bool,
}

impl Drop for HostView {
    fn drop(&mut self) {
        if self.references > 0 {
            // Somebody still looks at it, against the rules: a leak is better than a crash.
            std::mem::forget(self.block.take());
        }
    }
}

/// Asks the service to fill a region.
fn request(
    session: &Arc<Session>,
    array: ArrayId,
    target: Region,
    form: Form,
    copy: Option<CopyOut>,
) -> Result<Arc<Completion>> {
    let completion = Completion::new(Arc::clone(session), EndedBy::Reply);
    let into = ReadInto {
        completion: Arc::clone(&completion),
        copy,
    };
    session.send_read(into, |request| ReadArray {
        request,
        array,
        target,
        form,
    })?;
    Ok(completion)
}

impl Buffer {
    /// An asynchronous read into the caller's memory.
    fn read_into(
        &self,
        form: Form,
        bytes: u64,
        offset: usize,
        to: *mut u8,
        length: usize,
    ) -> Result<Box<Event>> {
        let session = self.session();
        let block = session.block(bytes)?;
        let region = block.region();
        let copy = CopyOut {
            block,
            offset,
            to,
            length,
        };
        let completion = request(session, self.id, region, form, Some(copy))?;
        session.expect_reply();
        Ok(Event::of(completion, true))
    }

    /// The address of a copy in host memory, made if there is none.
    fn look(&self, held: &mut HostView) -> Result<*mut u8> {
        if !self.client().on_host {
            return Err(unimplemented(
                "arrays of this device are not in host memory, so there is no pointer to them; \
                 read them with ToHostBuffer (numpy.asarray)",
            ));
        }
        if let Some(block) = &held.block {
            return Ok(block.address());
        }
        self.usable()?;
        let session = self.session();
        session.may_wait()?;
        let block = session.block(self.array().device_bytes)?;
        let completion = request(session, self.id, block.region(), Form::Raw, None)?;
        session.wait_for(&completion).clone()?;
        let address = block.address();
        held.block = Some(Box::new(block));
        Ok(address)
    }

    fn lend_address(&self) -> Result<*mut u8> {
        self.session().usable()?;
        let mut held = lock(&self.host);
        let address = self.look(&mut held)?;
        held.lent = true;
        Ok(address)
    }
}

entry! {
    fn PJRT_Buffer_ToHostBuffer(args: PJRT_Buffer_ToHostBuffer_Args) {
        to_host(&args)
    }

    fn PJRT_Buffer_CopyRawToHost(args: PJRT_Buffer_CopyRawToHost_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        let (offset, size) = (args.read(field!(Call.offset))?, args.read(field!(Call.transfer_size))?);
        let bytes = buffer.array().device_bytes;
        let inside = offset >= 0 && size >= 0 && offset.saturating_add(size) as u64 <= bytes;
        if !inside {
            return Err(invalid(format!(
                "{size} bytes from {offset} on cannot be copied out of an array of {bytes} bytes"
            )));
        }
        let to = args.read(field!(Call.dst))?;
        if to.is_null() && size > 0 {
            return Err(invalid("`dst` of PJRT_Buffer_CopyRawToHost_Args is NULL"));
        }
        let event = match buffer.usable() {
            Err(error) => Event::failed(error),
            Ok(()) => {
                buffer.read_into(Form::Raw, bytes, offset as usize, to.cast(), size as usize)?
            }
        };
        args.hand(field!(Call.event), event)
    }

    fn PJRT_Buffer_UnsafePointer(args: PJRT_Buffer_UnsafePointer_Args) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        args.put(field!(Call.buffer_pointer), buffer.lend_address()? as usize)
    }

    fn PJRT_Buffer_OpaqueDeviceMemoryDataPointer(
        args: PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args
    ) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        let held = lock(&buffer.host);
        let address = held.block.as_ref().map(|block| block.address());
        drop(held);
        let address = match address {
            Some(address) => address,
            None => buffer.lend_address()?,
        };
        args.put(field!(Call.device_memory_ptr), address.cast())
    }

    fn PJRT_Buffer_IncreaseExternalReferenceCount(
        args: PJRT_Buffer_IncreaseExternalReferenceCount_Args
    ) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        buffer.session().may_wait()?;
        // A second reader waits here for the first one's copy.
        let mut held = lock(&buffer.host);
        buffer.alive()?;
        buffer.look(&mut held)?;
        held.references += 1;
        Ok(())
    }
}

entry! { sure
    fn PJRT_Buffer_DecreaseExternalReferenceCount(
        args: PJRT_Buffer_DecreaseExternalReferenceCount_Args
    ) {
        let buffer = args.handle::<Buffer>(field!(Call.buffer))?;
        if !buffer.session().is_ours() {
            return Ok(());
        }
        let mut held = lock(&buffer.host);
        held.references = held.references.saturating_sub(1);
        if held.references == 0 && !held.lent {
            let block = held.block.take();
            drop(held);
            drop(block);
        }
        Ok(())
    }
}

fn to_host(args: &Args<'_, sys::PJRT_Buffer_ToHostBuffer_Args>) -> Result<()> {
    type Call = sys::PJRT_Buffer_ToHostBuffer_Args;
    let buffer = args.handle::<Buffer>(field!(Call.src))?;
    let array = buffer.array();
    let needed = array.host_bytes;
    let to = args.read(field!(Call.dst))?;
    if to.is_null() {
        args.put(field!(Call.dst_size), needed as usize)?;
        args.put_optional(field!(Call.event), std::ptr::null_mut());
        return Ok(());
    }
    if let Err(error) = buffer.usable() {
        return args.hand(field!(Call.event), Event::failed(error));
    }
    let room = args.read(field!(Call.dst_size))?;
    if (room as u64) < needed {
        return Err(invalid(format!(
            "the destination has {room} bytes and the array {needed}"
        )));
    }
    let element_bytes = host_element_bytes(array.element_type)?;
    let order = order_of(
        args.read(field!(Call.host_layout))?,
        &array.dims,
        element_bytes,
    )?;
    let form = Form::Host {
        minor_to_major: order.unwrap_or_else(|| array.minor_to_major.clone()),
    };
    let event = buffer.read_into(form, needed, 0, to.cast(), needed as usize)?;
    args.hand(field!(Call.event), event)
}
