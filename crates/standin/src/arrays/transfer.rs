//! Copies: from the host, to the host, and between memories.
//!
//! A copy into a new buffer waits for all work that was enqueued before it (SEC:656,
//! local_device_state.cc:409), because the memory may still be another's; a read waits only for what it
//! reads. Nothing is wrapped: memory of the device is not the host's.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use salus_formats::element::host_element_bytes;
use salus_pjrt::sys::*;
use salus_wire::Shape;

use crate::arrays::buffer::{Buffer, Data, Held, Inner, buffer, order, wait_inner};
use crate::arrays::order::{each, strides};
use crate::c_api::error::Error;
use crate::c_api::event::{self, Event};
use crate::c_api::inner::{Padded, bytes, call};
use crate::c_api::slot::slots;
use crate::client::{self, Client, DEVICE, Raw};
use crate::program::shape_bytes;
use crate::state::on_device;

/// Host memory that a copy reads or writes.
struct Host {
    start: *mut u8,
    len: usize,
}

// SAFETY: PJRT's caller leaves it alone until the event of the copy.
unsafe impl Send for Host {}

enum Source {
    /// The caller's, until the event says that it is no longer needed.
    Lent(Host),
    Staged(Vec<u8>),
}

impl Source {
    fn start(&self) -> *const u8 {
        match self {
            Source::Lent(host) => host.start,
            Source::Staged(bytes) => bytes.as_ptr(),
        }
    }
}

/// Takes the time that a copy of this many bytes takes, of which some has passed.
fn pace(client: &Client, started: Instant, bytes: usize, mapped: bool) {
    let config = &client.config;
    if config.bandwidth == 0 {
        return;
    }
    let factor = if mapped { config.dma_factor } else { 1 };
    let seconds = bytes as f64 / (config.bandwidth * factor) as f64;
    let lasts = Duration::from_secs_f64(seconds);
    std::thread::sleep(lasts.saturating_sub(started.elapsed()));
}

/// The order that a layout of the caller's names.
///
/// # Safety
/// Null, or a layout as the header says.
unsafe fn named_order(layout: *const PJRT_Buffer_MemoryLayout) -> Result<Option<Vec<i64>>, Error> {
    // SAFETY: the caller's promise; the type says which member is filled.
    unsafe {
        if layout.is_null() {
            return Ok(None);
        }
        if (*layout).r#type != PJRT_Buffer_MemoryLayout_Type_Tiled {
            return Err(Error::unimplemented("layouts by strides"));
        }
        let tiled = (*layout).value.tiled;
        Ok(Some(
            bytes(tiled.minor_to_major, tiled.minor_to_major_size).to_vec(),
        ))
    }
}

/// A layout for the CPU plugin that names an order.
fn layout_of(order: &[i64]) -> Padded<PJRT_Buffer_MemoryLayout> {
    let mut layout = Padded::<PJRT_Buffer_MemoryLayout>::new();
    layout.args.r#type = PJRT_Buffer_MemoryLayout_Type_Tiled;
    layout.args.value.tiled = PJRT_Buffer_MemoryLayout_Tiled {
        struct_size: PJRT_Buffer_MemoryLayout_Tiled::END,
        extension_start: std::ptr::null_mut(),
        minor_to_major: order.as_ptr(),
        minor_to_major_size: order.len(),
        tile_dims: std::ptr::null(),
        tile_dim_sizes: std::ptr::null(),
        num_tiles: 0,
    };
    layout
}

/// What an upload of these arguments makes, and whether the caller's memory is still needed.
///
/// # Safety
/// Arguments as the header says.
unsafe fn source(
    args: &PJRT_Client_BufferFromHostBuffer_Args,
    shape: &Shape,
) -> Result<(Source, usize), Error> {
    let element = host_element_bytes(shape.element_type)
        .ok_or_else(|| Error::invalid("no type of arrays"))?;
    let len = shape.dims.iter().product::<i64>() as usize * element;
    // SAFETY: the caller's promise.
    let given = unsafe { bytes(args.byte_strides, args.num_byte_strides) };
    let rows: Vec<i64> = (0..shape.dims.len() as i64).rev().collect();
    let rows = strides(&shape.dims, &rows, element);
    let from = if given.is_empty() { &rows } else { given };
    let to = strides(&shape.dims, &order(shape), element);
    let dense = *from == to;
    let lent = args.host_buffer_semantics != PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    let start = args.data.cast::<u8>();
    if dense && lent {
        let start = start.cast_mut();
        return Ok((Source::Lent(Host { start, len }), len));
    }
    let mut staged = vec![0u8; len];
    // SAFETY: the strides and dimensions are those of the caller's memory; the target is dense.
    unsafe {
        if dense {
            staged.copy_from_slice(bytes(start, len));
        } else {
            let target = staged.as_mut_ptr();
            each(&shape.dims, from, &to, |at, offset| {
                let from = start.offset(at as isize);
                from.copy_to_nonoverlapping(target.add(offset as usize), element);
            });
        }
    }
    Ok((Source::Staged(staged), len))
}

/// Makes a buffer of the CPU plugin of bytes in the device's order.
fn make(memory: Raw<PJRT_Memory>, shape: &Shape, source: &Source) -> Result<Inner, Error> {
    static NOTHING: [u64; 8] = [0; 8];
    let minor_to_major = order(shape);
    let mut layout = layout_of(&minor_to_major);
    let is_default = shape.minor_to_major.is_none();
    let data: *const u8 = match shape.dims.contains(&0) {
        true => (&raw const NOTHING).cast(),
        false => source.start(),
    };
    // SAFETY: as many bytes as the shape has; all lives during the call, which copies.
    unsafe {
        let (client, ..) = client::memory(memory.0)?;
        let made = call!(PJRT_Client_BufferFromHostBuffer(
            PJRT_Client_BufferFromHostBuffer_Args {
                client: client.raw.0,
                data: data.cast::<c_void>(),
                r#type: shape.element_type,
                dims: shape.dims.as_ptr(),
                num_dims: shape.dims.len(),
                host_buffer_semantics: PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
                memory: memory.0,
                device_layout: match is_default {
                    true => std::ptr::null_mut(),
                    false => &raw mut layout.args,
                },
            }
        ))?;
        let inner = Inner(Raw(made.buffer));
        wait_inner(made.done_with_host_buffer)?;
        inner.wait()?;
        Ok(inner)
    }
}

/// Memory for a new buffer: a block on the device, nothing on the host.
fn hold(client: &Client, device: usize, memory: usize, bytes: u64) -> Result<Held, Error> {
    let block = match memory {
        DEVICE => client.devices[device].pool.allocate(bytes)?,
        _ => None,
    };
    Ok(Held {
        data: Data::pending(),
        block: block.map(Arc::new),
    })
}

/// # Safety
/// Arguments as the header says.
unsafe fn upload(args: &mut PJRT_Client_BufferFromHostBuffer_Args) -> Result<(), Error> {
    let (client, device, memory) = if args.memory.is_null() {
        let (client, device) = client::device(args.device)?;
        (client, device, DEVICE)
    } else {
        client::memory(args.memory)?
    };
    client.healthy()?;
    // SAFETY: the caller's promise.
    let (dims, order) = unsafe {
        (
            bytes(args.dims, args.num_dims),
            named_order(args.device_layout)?,
        )
    };
    let rows = |order: &Vec<i64>| order.iter().copied().eq((0..dims.len() as i64).rev());
    let shape = Arc::new(Shape {
        element_type: args.r#type,
        dims: dims.to_vec(),
        minor_to_major: order.filter(|order| !rows(order)),
    });
    // SAFETY: the caller's promise.
    let (source, len) = unsafe { source(args, &shape) }?;
    let size = shape_bytes(&shape);
    let held = hold(&client, device, memory, size)?;
    let target = client.devices[device].memories[memory];
    let done = match source {
        Source::Staged(_) => Event::over(Ok(())),
        Source::Lent(_) => Event::new(),
    };
    let place = client.devices[device].pool.place();
    place.count(on_device::UPLOADS, 1);
    place.count(on_device::UPLOADED_BYTES, len as u64);
    let mapped = client.is_mapped(args.data.addr(), len, device);
    let job = {
        let (client, shape) = (Arc::clone(&client), Arc::clone(&shape));
        let (data, done) = (Arc::clone(&held.data), Arc::clone(&done));
        move || {
            let started = Instant::now();
            let made = client
                .healthy()
                .and_then(|()| make(target, &shape, &source));
            pace(&client, started, len, mapped);
            done.set(made.as_ref().map(drop).map_err(Error::clone));
            data.settle(made);
        }
    };
    let here = &client.devices[device];
    let before = match client.config.upload_waits && memory == DEVICE {
        true => here.compute.last(),
        false => Event::over(Ok(())),
    };
    let later = Arc::clone(&client);
    before.on_ready(move |_| later.devices[device].uploads.push(job));
    args.buffer = Buffer::new(&client, (device, memory), shape, size, held).give();
    args.done_with_host_buffer = event::give(done);
    Ok(())
}

/// Fills host memory when the data is there.
fn read(
    from: &Buffer,
    host: Host,
    fill: impl FnOnce(&Inner, &Host) -> Result<(), Error> + Send + 'static,
) -> Result<*mut PJRT_Event, Error> {
    let held = from.held()?;
    let over = Event::new();
    let place = from.device().pool.place();
    place.count(on_device::READS, 1);
    place.count(on_device::READ_BYTES, host.len as u64);
    let mapped = from
        .client
        .is_mapped(host.start.addr(), host.len, from.device);
    let (client, device) = (Arc::clone(&from.client), from.device);
    let ready = Arc::clone(&held.data.ready);
    let set = Arc::clone(&over);
    ready.on_ready(move |_| {
        let later = Arc::clone(&client);
        later.devices[device].reads.push(move || {
            let started = Instant::now();
            let filled = held.data.wait().and_then(|inner| {
                client.healthy()?;
                fill(inner, &host)
            });
            pace(&client, started, host.len, mapped);
            drop(held);
            set.set(filled);
        });
    });
    Ok(event::give(over))
}

/// Has the CPU plugin write its elements as they are ordered on the device.
fn to_host(inner: &Inner, order: &[i64], start: *mut u8, len: usize) -> Result<(), Error> {
    let mut layout = layout_of(order);
    // SAFETY: a live buffer; the target has as many bytes and is left alone until we have waited.
    unsafe {
        let made = call!(PJRT_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args {
            src: inner.0.0,
            host_layout: &raw mut layout.args,
            dst: start.cast(),
            dst_size: len,
        }))?;
        wait_inner(made.event)
    }
}

fn copy_to_memory(from: &Buffer, target: *mut PJRT_Memory) -> Result<Buffer, Error> {
    let (client, device, memory) = client::memory(target)?;
    if !Arc::ptr_eq(&client, &from.client) {
        return Err(Error::invalid("the memory is another client's"));
    }
    client.healthy()?;
    let source = from.held()?;
    let held = hold(&client, device, memory, from.bytes)?;
    let (data, bytes) = (Arc::clone(&held.data), from.bytes as usize);
    let target = Raw(target);
    let ready = Arc::clone(&source.data.ready);
    let later = Arc::clone(&client);
    ready.on_ready(move |_| {
        let queue = Arc::clone(&later);
        queue.devices[device].uploads.push(move || {
            let started = Instant::now();
            let copied = later.healthy().and_then(|()| {
                let inner = source.data.wait()?.0;
                // SAFETY: a live buffer and memory of one client.
                let made = unsafe {
                    call!(PJRT_Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args {
                        buffer: inner.0,
                        dst_memory: { target }.0,
                    }))
                }?;
                let copy = Inner(Raw(made.dst_buffer));
                copy.wait()?;
                Ok(copy)
            });
            pace(&later, started, bytes, true);
            drop(source);
            data.settle(copied);
        });
    });
    let place = (device, memory);
    Ok(Buffer::new(
        &client,
        place,
        Arc::clone(&from.shape),
        from.bytes,
        held,
    ))
}

slots! {
    fn PJRT_Client_BufferFromHostBuffer(args: PJRT_Client_BufferFromHostBuffer_Args) {
        upload(args)
    }

    fn PJRT_Buffer_ToHostBuffer(args: PJRT_Buffer_ToHostBuffer_Args) {
        let from = buffer(args.src);
        let shape = Arc::clone(&from.shape);
        let element = host_element_bytes(shape.element_type).unwrap_or(0);
        let len = shape.dims.iter().product::<i64>() as usize * element;
        if args.dst.is_null() {
            args.dst_size = len;
            return Ok(());
        }
        if args.dst_size < len {
            let size = args.dst_size;
            return Err(Error::invalid(format!("{size} bytes for an array of {len}")));
        }
        let device_order = from.order();
        let host_order = named_order(args.host_layout)?.unwrap_or_else(|| device_order.clone());
        let host = Host { start: args.dst.cast(), len };
        args.event = read(from, host, move |inner, host| {
            if host_order == device_order {
                return to_host(inner, &device_order, host.start, host.len);
            }
            let mut aside = vec![0u8; host.len];
            to_host(inner, &device_order, aside.as_mut_ptr(), host.len)?;
            let dense = |order: &[i64]| strides(&shape.dims, order, element);
            let (from, to) = (dense(&device_order), dense(&host_order));
            each(&shape.dims, &from, &to, |at, offset| {
                let target = host.start.add(offset as usize);
                aside.as_ptr().add(at as usize).copy_to_nonoverlapping(target, element);
            });
            Ok(())
        })?;
        Ok(())
    }

    fn PJRT_Buffer_CopyRawToHost(args: PJRT_Buffer_CopyRawToHost_Args) {
        let from = buffer(args.buffer);
        let (offset, len) = (args.offset as u64, args.transfer_size as u64);
        if offset.checked_add(len).is_none_or(|end| end > from.bytes) {
            let bytes = from.bytes;
            return Err(Error::invalid(format!("{len} bytes at {offset} of {bytes}")));
        }
        let host = Host { start: args.dst.cast(), len: len as usize };
        args.event = read(from, host, move |inner, host| {
            let start = std::ptr::with_exposed_provenance::<u8>(inner.address()?);
            start.add(offset as usize).copy_to_nonoverlapping(host.start, host.len);
            Ok(())
        })?;
        Ok(())
    }

    fn PJRT_Buffer_CopyToMemory(args: PJRT_Buffer_CopyToMemory_Args) {
        args.dst_buffer = copy_to_memory(buffer(args.buffer), args.dst_memory)?.give();
        Ok(())
    }

    fn PJRT_Buffer_CopyToDevice(args: PJRT_Buffer_CopyToDevice_Args) {
        let (client, index) = client::device(args.dst_device)?;
        let memory = client.devices[index].memories[DEVICE].0;
        args.dst_buffer = copy_to_memory(buffer(args.buffer), memory)?.give();
        Ok(())
    }
}
