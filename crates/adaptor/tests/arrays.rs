//! Arrays: data in and out, shared memory, drops and their order.
#![expect(unsafe_code, reason = "plays the C caller")]

mod play;

use play::*;
use salus_pjrt::sys::*;
use salus_wire::{ArrayFailed, Error, ErrorCode, Form, ReadDone, Released};

fn failure(message: &str) -> Error {
    Error::new(ErrorCode::Internal, message)
}

#[test]
fn an_upload_is_dense_whatever_the_strides() {
    let (client, mut service) = Service::open(4, true);
    let data: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let dense = put(client, &data).expect("an upload");
    let upload = next!(service, Upload);
    assert_eq!(upload.shape, shape(&[12]));
    assert_eq!(upload.data.offset % 64, 0);
    assert_eq!(floats(&service.read(&upload.data)), data);

    let transposed = put_strided(client, data.as_ptr(), &[4, 3], &[4, 16]).expect("an upload");
    let upload = next!(service, Upload);
    assert_eq!(
        floats(&service.read(&upload.data)),
        [0., 4., 8., 1., 5., 9., 2., 6., 10., 3., 7., 11.]
    );

    // SAFETY: the last element; the stride goes backwards from there.
    let last = unsafe { data.as_ptr().add(11) };
    let reversed = put_strided(client, last, &[12], &[-4]).expect("an upload");
    let upload = next!(service, Upload);
    assert_eq!(floats(&service.read(&upload.data))[..3], [11., 10., 9.]);

    let empty = put_strided(client, std::ptr::null(), &[0, 3], &[12, 4]).expect("an upload");
    assert_eq!(next!(service, Upload).data.length, 0);

    for buffer in [dense, transposed, reversed, empty] {
        destroy(buffer);
    }
    destroy_client(client);
}

#[test]
fn a_layout_travels_with_the_shape() {
    let (client, mut service) = Service::open(4, true);
    let data = [0f32; 6];
    let (dims, order) = ([2i64, 3], [0i64, 1]);
    let mut tiled = args::<PJRT_Buffer_MemoryLayout_Tiled>();
    tiled.minor_to_major = order.as_ptr();
    tiled.minor_to_major_size = 2;
    let mut layout = args::<PJRT_Buffer_MemoryLayout>();
    layout.value.tiled = tiled;
    layout.r#type = PJRT_Buffer_MemoryLayout_Type_Tiled;
    let mut put = args::<PJRT_Client_BufferFromHostBuffer_Args>();
    put.client = client;
    put.data = data.as_ptr().cast();
    put.r#type = F32;
    put.dims = dims.as_ptr();
    put.num_dims = 2;
    put.device_layout = &raw mut layout;
    call(api().PJRT_Client_BufferFromHostBuffer, &mut put).expect("an upload");
    assert_eq!(
        next!(service, Upload).shape.minor_to_major,
        Some(vec![0, 1])
    );
    destroy_event(put.done_with_host_buffer);

    let mut known = args::<PJRT_Buffer_GetMemoryLayout_Args>();
    known.buffer = put.buffer;
    call(api().PJRT_Buffer_GetMemoryLayout, &mut known).expect("known");
    // SAFETY: our layouts are tiled ones, with a list that the buffer owns.
    let known = unsafe {
        let tiled = known.layout.value.tiled;
        std::slice::from_raw_parts(tiled.minor_to_major, tiled.minor_to_major_size)
    };
    assert_eq!(known, [0, 1]);
    // Read without a layout, it comes as it is on the device.
    let mut to = [0f32; 6];
    let event = read_into(put.buffer, &mut to).expect("a read");
    let read = next!(service, ReadArray);
    assert_eq!(
        read.form,
        Form::Host {
            minor_to_major: vec![0, 1]
        }
    );
    service.send(ReadDone {
        request: read.request,
        error: Some(failure("enough")),
    });
    assert!(await_event(event).is_err());
    destroy(put.buffer);
    destroy_client(client);
}

#[test]
fn released_memory_is_used_again() {
    let (client, mut service) = Service::open(4, true);
    for count in [10usize, 3 << 20] {
        let data = vec![1.5f32; count];
        let segments = service.num_segments();
        let mut last = None;
        for _ in 0..4 {
            let buffer = put(client, &data).expect("an upload");
            let upload = next!(service, Upload);
            assert_eq!(floats(&service.read(&upload.data)), data);
            if let Some(last) = last.replace(upload.data) {
                assert_eq!(last, upload.data);
            }
            destroy(buffer);
            assert_eq!(next!(service, DropArrays).arrays, [upload.array]);
            service.send(Released {
                regions: vec![upload.data],
            });
            settle(client, &mut service);
        }
        assert_eq!(service.num_segments(), segments + 1);
    }
    destroy_client(client);
}

/// Returns when the adaptor has handled all that the service sent. The program is large enough not
/// to take a block that a test's arrays would get.
fn settle(client: *mut PJRT_Client, service: &mut Service) {
    let address = client as usize;
    let compiling =
        std::thread::spawn(move || compile(address as *mut PJRT_Client, &[0; 1000]).err());
    let request = next!(service, Compile);
    service.send(salus_wire::CompileFailed {
        program: request.program,
        error: failure("settled"),
    });
    assert!(compiling.join().expect("no panic").is_some());
}

#[test]
fn two_live_uploads_never_share_memory() {
    let (client, mut service) = Service::open(4, true);
    let mut uploads = Vec::new();
    for index in 0..200usize {
        let data = vec![index as f32; 1 + index * 37 % 5000];
        let buffer = put(client, &data).expect("an upload");
        let upload = next!(service, Upload);
        uploads.push((buffer, data, upload.data));
    }
    for (_, data, region) in &uploads {
        assert_eq!(&floats(&service.read(region)), data);
    }
    for (buffer, ..) in uploads {
        destroy(buffer);
    }
    destroy_client(client);
}

#[test]
fn a_read_is_ordered_before_the_drop_and_drops_are_batched() {
    let (client, mut service) = Service::open(4, true);
    let (a, a_id) = array(client, &mut service);
    let (b, b_id) = array(client, &mut service);
    let mut to = [0f32; 4];
    let event = read_into(a, &mut to).expect("a read");
    destroy(a);
    destroy(b);
    let read = next!(service, ReadArray);
    assert_eq!(read.array, a_id);
    // Nobody sends another frame: the drops leave by themselves, in one.
    assert_eq!(next!(service, DropArrays).arrays, [a_id, b_id]);
    assert!(!is_ready(event));
    service.write(&read.target, &bytes(&[5., 6., 7., 8.]));
    service.send(ReadDone {
        request: read.request,
        error: None,
    });
    await_event(event).expect("read");
    assert_eq!(to, [5., 6., 7., 8.]);
    destroy_client(client);
}

#[test]
fn drops_ride_before_the_next_frame() {
    let (client, mut service) = Service::open(4, true);
    let (a, a_id) = array(client, &mut service);
    destroy(a);
    let (b, b_id) = {
        let buffer = put(client, &[0.0; 4]).expect("an upload");
        // Either on its own or just before: the drop always comes first.
        assert_eq!(next!(service, DropArrays).arrays, [a_id]);
        (buffer, next!(service, Upload).array)
    };
    // Deleted and then destroyed: sent once.
    let mut delete = args::<PJRT_Buffer_Delete_Args>();
    delete.buffer = b;
    call(api().PJRT_Buffer_Delete, &mut delete).expect("never fails");
    assert!(is_deleted(b));
    destroy(b);
    assert_eq!(next!(service, DropArrays).arrays, [b_id]);
    let (c, c_id) = array(client, &mut service);
    destroy(c);
    assert_eq!(next!(service, DropArrays).arrays, [c_id]);
    destroy_client(client);
}

#[test]
fn many_drops_leave_at_once() {
    let (client, mut service) = Service::open(4, true);
    let mut ids = Vec::new();
    let buffers: Vec<_> = (0..300)
        .map(|_| {
            let (buffer, id) = array(client, &mut service);
            ids.push(id);
            buffer
        })
        .collect();
    buffers.into_iter().for_each(destroy);
    let mut dropped = Vec::new();
    while dropped.len() < ids.len() {
        dropped.extend(next!(service, DropArrays).arrays);
    }
    assert_eq!(dropped, ids);
    destroy_client(client);
}

#[test]
fn reads_say_sizes_and_errors() {
    let (client, mut service) = Service::open(4, true);
    let (a, _) = array(client, &mut service);
    let mut size = args::<PJRT_Buffer_ToHostBuffer_Args>();
    size.src = a;
    call(api().PJRT_Buffer_ToHostBuffer, &mut size).expect("a question");
    assert_eq!(size.dst_size, 16);
    let (code, text) = read_into(a, &mut [0.0; 3]).expect_err("too small");
    assert_eq!(code, PJRT_Error_Code_INVALID_ARGUMENT);
    assert_eq!(text, "the destination has 12 bytes and the array 16");

    let mut to = [9f32; 4];
    let event = read_into(a, &mut to).expect("a read");
    let read = next!(service, ReadArray);
    service.send(ReadDone {
        request: read.request,
        error: Some(failure("burnt")),
    });
    assert_eq!(
        await_event(event),
        Err((PJRT_Error_Code_INTERNAL, "burnt".into()))
    );
    assert_eq!(to, [9.0; 4]);

    let mut raw = args::<PJRT_Buffer_CopyRawToHost_Args>();
    raw.buffer = a;
    raw.dst = to.as_mut_ptr().cast();
    raw.offset = 8;
    raw.transfer_size = 9;
    assert!(call(api().PJRT_Buffer_CopyRawToHost, &mut raw).is_err());
    raw.transfer_size = 8;
    call(api().PJRT_Buffer_CopyRawToHost, &mut raw).expect("a read");
    let read = next!(service, ReadArray);
    assert_eq!(read.form, Form::Raw);
    service.write(&read.target, &bytes(&[1., 2., 3., 4.]));
    service.send(ReadDone {
        request: read.request,
        error: None,
    });
    await_event(raw.event).expect("read");
    assert_eq!(to, [3., 4., 9., 9.]);
    destroy(a);
    destroy_client(client);
}

fn refer(buffer: usize) -> Result<(), Failure> {
    let mut refer = args::<PJRT_Buffer_IncreaseExternalReferenceCount_Args>();
    refer.buffer = buffer as *mut PJRT_Buffer;
    call(api().PJRT_Buffer_IncreaseExternalReferenceCount, &mut refer)
}

fn let_go(buffer: *mut PJRT_Buffer) {
    let mut let_go = args::<PJRT_Buffer_DecreaseExternalReferenceCount_Args>();
    let_go.buffer = buffer;
    call(
        api().PJRT_Buffer_DecreaseExternalReferenceCount,
        &mut let_go,
    )
    .expect("never fails");
}

#[test]
fn a_pointer_shows_one_copy_to_all_who_refer_to_it() {
    let (client, mut service) = Service::open(4, true);
    let (a, a_id) = array(client, &mut service);
    let address = a as usize;
    let readers: Vec<_> = (0..2)
        .map(|_| std::thread::spawn(move || refer(address)))
        .collect();
    let read = next!(service, ReadArray);
    assert_eq!((read.array, read.form), (a_id, Form::Raw));
    service.write(&read.target, &bytes(&[1., 2., 3., 4.]));
    service.send(ReadDone {
        request: read.request,
        error: None,
    });
    for reader in readers {
        reader.join().expect("no panic").expect("a copy");
    }
    let mut pointer = args::<PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args>();
    pointer.buffer = a;
    call(
        api().PJRT_Buffer_OpaqueDeviceMemoryDataPointer,
        &mut pointer,
    )
    .expect("a pointer");
    // SAFETY: referred to twice.
    let seen = unsafe { *pointer.device_memory_ptr.cast::<[f32; 4]>() };
    assert_eq!(seen, [1., 2., 3., 4.]);
    let_go(a);
    let_go(a);
    // Nobody refers to it, so the next one gets a new copy; here it fails.
    let reader = std::thread::spawn(move || refer(address));
    let read = next!(service, ReadArray);
    service.send(ReadDone {
        request: read.request,
        error: Some(failure("burnt")),
    });
    let outcome = reader.join().expect("no panic");
    assert_eq!(outcome, Err((PJRT_Error_Code_INTERNAL, "burnt".into())));
    destroy(a);
    destroy_client(client);
}

#[test]
fn who_waits_for_a_read_hears_for_all_others() {
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, &signature(0, 1, 0));
    let (a, _) = array(client, &mut service);
    let launched = launch(program, &[], 1, &[]).expect("launched");
    let operation = next!(service, Launch).operation;
    let address = a as usize;
    let reader = std::thread::spawn(move || refer(address));
    let read = next!(service, ReadArray);
    // Another thread waits for the launch while the first one listens.
    let event = launched.event as usize;
    let other = std::thread::spawn(move || await_event(event as *mut PJRT_Event));
    assert_eq!(next!(service, Await).operation, operation);
    // The read ends first: the other one is still heard.
    service.write(&read.target, &bytes(&[1., 2., 3., 4.]));
    service.send(ReadDone {
        request: read.request,
        error: None,
    });
    reader.join().expect("no panic").expect("a copy");
    service.send(salus_wire::Completed {
        done: vec![operation],
        failed: Vec::new(),
    });
    other.join().expect("no panic").expect("it ended well");
    let_go(a);
    destroy(a);
    launched.outputs.into_iter().for_each(destroy);
    destroy_executable(program);
    destroy_client(client);
}

#[test]
fn there_are_no_pointers_into_a_device_elsewhere() {
    let (client, mut service) = Service::open(4, false);
    let (a, _) = array(client, &mut service);
    let mut on_cpu = args::<PJRT_Buffer_IsOnCpu_Args>();
    on_cpu.buffer = a;
    on_cpu.is_on_cpu = true;
    call(api().PJRT_Buffer_IsOnCpu, &mut on_cpu).expect("never fails");
    assert!(!on_cpu.is_on_cpu);
    let (code, _) = refer(a as usize).expect_err("not here");
    assert_eq!(code, PJRT_Error_Code_UNIMPLEMENTED);
    // Nor is memory of this process taken for the device's.
    let memory = [0u64; 8];
    let dims = [4i64];
    let mut view = args::<PJRT_Client_CreateViewOfDeviceBuffer_Args>();
    view.client = client;
    view.device_buffer_ptr = memory.as_ptr().cast_mut().cast();
    view.dims = dims.as_ptr();
    view.num_dims = dims.len();
    view.element_type = PJRT_Buffer_Type_F32;
    let refused = call(api().PJRT_Client_CreateViewOfDeviceBuffer, &mut view);
    let (code, _) = refused.expect_err("it would be a copy");
    assert_eq!(code, PJRT_Error_Code_UNIMPLEMENTED);
    destroy(a);
    destroy_client(client);
}

#[test]
fn an_upload_that_failed_says_so() {
    let (client, mut service) = Service::open(4, true);
    let (a, id) = array(client, &mut service);
    await_event(ready_event(a)).expect("as far as we know");
    service.send(ArrayFailed {
        array: id,
        error: failure("no room"),
    });
    settle(client, &mut service);
    let outcome = await_event(ready_event(a));
    assert_eq!(outcome, Err((PJRT_Error_Code_INTERNAL, "no room".into())));
    destroy(a);
    destroy_client(client);
}

#[test]
fn copies_to_another_memory_are_operations() {
    let (client, mut service) = Service::open(4, true);
    let (a, id) = array(client, &mut service);
    let mut memories = args::<PJRT_Client_AddressableMemories_Args>();
    memories.client = client;
    call(api().PJRT_Client_AddressableMemories, &mut memories).expect("known");
    let mut copy = args::<PJRT_Buffer_CopyToMemory_Args>();
    copy.buffer = a;
    // SAFETY: the device has two memories.
    copy.dst_memory = unsafe { *memories.addressable_memories.add(1) };
    call(api().PJRT_Buffer_CopyToMemory, &mut copy).expect("a copy");
    let frame = next!(service, CopyArray);
    assert_eq!((frame.array, frame.memory), (id, 1));
    let event = ready_event(copy.dst_buffer);
    assert!(!is_ready(event));
    service.send(salus_wire::Completed {
        done: vec![frame.operation],
        failed: Vec::new(),
    });
    await_event(event).expect("copied");
    let mut memory = args::<PJRT_Buffer_Memory_Args>();
    memory.buffer = copy.dst_buffer;
    call(api().PJRT_Buffer_Memory, &mut memory).expect("known");
    assert_eq!(memory.memory, copy.dst_memory);
    destroy(a);
    destroy(copy.dst_buffer);
    destroy_client(client);
}

#[test]
fn an_array_filled_in_pieces_is_sent_with_the_last() {
    let (client, mut service) = Service::open(4, true);
    let dims = [4i64];
    let mut spec = args::<PJRT_ShapeSpec>();
    spec.dims = dims.as_ptr();
    spec.num_dims = 1;
    spec.element_type = F32;
    let mut create = args::<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
    create.client = client;
    create.shape_specs = &raw mut spec;
    create.num_shape_specs = 1;
    call(
        api().PJRT_Client_CreateBuffersForAsyncHostToDevice,
        &mut create,
    )
    .expect("made");
    let mut retrieve = args::<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>();
    retrieve.transfer_manager = create.transfer_manager;
    call(
        api().PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer,
        &mut retrieve,
    )
    .expect("a buffer");
    let ready = ready_event(retrieve.buffer_out);
    assert!(!is_ready(ready));
    // No frame ends it, so a thread that waits must not wait for one.
    let (to, waited) = std::sync::mpsc::channel();
    let waiting = ready_event(retrieve.buffer_out) as usize;
    std::thread::spawn(move || to.send(await_event(waiting as *mut PJRT_Event)));
    let piece = |offset: i64, data: [f32; 2], last: bool| {
        let mut piece = args::<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>();
        piece.transfer_manager = create.transfer_manager;
        piece.data = data.as_ptr().cast();
        piece.offset = offset;
        piece.transfer_size = 8;
        piece.is_last_transfer = last;
        let outcome = call(
            api().PJRT_AsyncHostToDeviceTransferManager_TransferData,
            &mut piece,
        );
        outcome.map(|()| destroy_event(piece.done_with_h2d_transfer))
    };
    piece(8, [3., 4.], false).expect("the end first");
    assert!(read_into(retrieve.buffer_out, &mut [0.0; 4]).is_ok_and(|e| await_event(e).is_err()));
    assert!(piece(12, [0., 0.], false).is_err());
    piece(0, [1., 2.], true).expect("the last");
    await_event(ready).expect("complete");
    assert_eq!(waited.recv_timeout(DEADLINE), Ok(Ok(())));
    let upload = next!(service, Upload);
    assert_eq!(floats(&service.read(&upload.data)), [1., 2., 3., 4.]);
    let mut done = args::<PJRT_AsyncHostToDeviceTransferManager_Destroy_Args>();
    done.transfer_manager = create.transfer_manager;
    call(
        api().PJRT_AsyncHostToDeviceTransferManager_Destroy,
        &mut done,
    )
    .expect("never fails");
    destroy(retrieve.buffer_out);
    assert_eq!(next!(service, DropArrays).arrays, [upload.array]);
    destroy_client(client);
}
