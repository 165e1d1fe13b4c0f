//! Structs inside argument structs whose `struct_size` real callers leave unset.
//!
//! XLA's own client sets neither it nor `extension_start` in layouts, and no plugin of XLA looks at
//! the sizes of layouts and shapes: what stands there is whatever lay on the caller's stack.
#![expect(unsafe_code, reason = "plays the C caller")]

mod play;

use play::*;
use salus_pjrt::sys::*;
use salus_wire::{Form, ReadDone};

/// Unset, what torch_xla was seen to pass, a stack address, and one field short.
const SIZES: [usize; 5] = [0, 2, 0x7fff_dead_beef, usize::MAX, 24];

fn garbage(size: usize) -> *mut PJRT_Extension_Base {
    std::ptr::without_provenance_mut(size.wrapping_mul(3) | 1)
}

fn tiled(order: &[i64], size: usize) -> PJRT_Buffer_MemoryLayout {
    let mut tiled = args::<PJRT_Buffer_MemoryLayout_Tiled>();
    tiled.struct_size = size;
    tiled.extension_start = garbage(size);
    tiled.minor_to_major = order.as_ptr();
    tiled.minor_to_major_size = order.len();
    // Only meaningful where there are tiles.
    tiled.tile_dims = std::ptr::without_provenance(0x6);
    tiled.tile_dim_sizes = std::ptr::without_provenance(0x6);
    let mut layout = args::<PJRT_Buffer_MemoryLayout>();
    layout.struct_size = size;
    layout.extension_start = garbage(size);
    layout.value.tiled = tiled;
    layout.r#type = PJRT_Buffer_MemoryLayout_Type_Tiled;
    layout
}

fn strided(strides: &[i64], size: usize) -> PJRT_Buffer_MemoryLayout {
    let mut list = args::<PJRT_Buffer_MemoryLayout_Strides>();
    list.struct_size = size;
    list.extension_start = garbage(size);
    list.byte_strides = strides.as_ptr();
    list.num_byte_strides = strides.len();
    // What the union has behind the strides is not the caller's to set.
    let mut layout = tiled(&[], usize::MAX);
    layout.struct_size = size;
    layout.value.strides = list;
    layout.r#type = PJRT_Buffer_MemoryLayout_Type_Strides;
    layout
}

/// An array of 2 x 3 with this layout on the device; the order that was sent to the service.
fn upload(
    client: *mut PJRT_Client,
    service: &mut Service,
    layout: &mut PJRT_Buffer_MemoryLayout,
) -> (*mut PJRT_Buffer, Option<Vec<i64>>) {
    let (data, dims) = ([0f32; 6], [2i64, 3]);
    let mut put = args::<PJRT_Client_BufferFromHostBuffer_Args>();
    put.client = client;
    put.data = data.as_ptr().cast();
    put.r#type = F32;
    put.dims = dims.as_ptr();
    put.num_dims = 2;
    put.device_layout = layout;
    call(api().PJRT_Client_BufferFromHostBuffer, &mut put).expect("an upload");
    destroy_event(put.done_with_host_buffer);
    (put.buffer, next!(service, Upload).shape.minor_to_major)
}

/// The order in which an array is read into this host layout.
fn read(
    buffer: *mut PJRT_Buffer,
    service: &mut Service,
    layout: &mut PJRT_Buffer_MemoryLayout,
) -> Form {
    let mut to = [0f32; 6];
    let mut read = args::<PJRT_Buffer_ToHostBuffer_Args>();
    read.src = buffer;
    read.dst = to.as_mut_ptr().cast();
    read.dst_size = size_of_val(&to);
    read.host_layout = layout;
    call(api().PJRT_Buffer_ToHostBuffer, &mut read).expect("a read");
    let request = next!(service, ReadArray);
    service.write(&request.target, &bytes(&[1., 2., 3., 4., 5., 6.]));
    service.send(ReadDone {
        request: request.request,
        error: None,
    });
    await_event(read.event).expect("read");
    assert_eq!(to, [1., 2., 3., 4., 5., 6.]);
    request.form
}

#[test]
fn a_layout_counts_whatever_size_it_says() {
    let (client, mut service) = Service::open(4, true);
    let host = |order: [i64; 2]| Form::Host {
        minor_to_major: order.to_vec(),
    };
    for size in SIZES {
        let mut layout = tiled(&[0, 1], size);
        let (a, order) = upload(client, &mut service, &mut layout);
        assert_eq!(order, Some(vec![0, 1]), "struct_size {size}");
        // 2 x 3 floats, the first dimension the fastest.
        let mut layout = strided(&[4, 8], size);
        let (b, order) = upload(client, &mut service, &mut layout);
        assert_eq!(order, Some(vec![0, 1]), "struct_size {size}");

        let form = read(a, &mut service, &mut tiled(&[1, 0], size));
        assert_eq!(form, host([1, 0]), "struct_size {size}");
        let form = read(a, &mut service, &mut strided(&[12, 4], size));
        assert_eq!(form, host([1, 0]), "struct_size {size}");
        let form = read(b, &mut service, &mut strided(&[4, 8], size));
        assert_eq!(form, host([0, 1]), "struct_size {size}");
        destroy(a);
        destroy(b);
        let mut dropped = 0;
        while dropped < 2 {
            dropped += next!(service, DropArrays).arrays.len();
        }
    }
    destroy_client(client);
}

#[test]
fn a_layout_of_no_known_type_is_refused() {
    let (client, mut service) = Service::open(4, true);
    let (a, _) = array(client, &mut service);
    let mut layout = tiled(&[0], 0);
    layout.r#type = 7;
    let mut to = [0f32; 4];
    let mut read = args::<PJRT_Buffer_ToHostBuffer_Args>();
    read.src = a;
    read.dst = to.as_mut_ptr().cast();
    read.dst_size = size_of_val(&to);
    read.host_layout = &raw mut layout;
    let (code, text) = call(api().PJRT_Buffer_ToHostBuffer, &mut read).expect_err("no layout");
    assert_eq!(code, PJRT_Error_Code_INVALID_ARGUMENT);
    assert_eq!(text, "7 is not a type of layout");
    destroy(a);
    destroy_client(client);
}

#[test]
fn shapes_in_a_row_count_whatever_sizes_they_say() {
    let (client, _service) = Service::open(4, true);
    let dims = [[2i64, 3], [4, 5]];
    for size in SIZES {
        let mut specs = [args::<PJRT_ShapeSpec>(); 2];
        for (spec, dims) in specs.iter_mut().zip(&dims) {
            spec.struct_size = size;
            spec.extension_start = garbage(size);
            spec.dims = dims.as_ptr();
            spec.num_dims = 2;
            spec.element_type = F32;
        }
        let mut layout = tiled(&[0, 1], size);
        let mut layouts = [std::ptr::null_mut(), &raw mut layout];
        let mut create = args::<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
        create.client = client;
        create.shape_specs = specs.as_mut_ptr();
        create.num_shape_specs = 2;
        create.device_layouts = layouts.as_mut_ptr();
        create.num_device_layouts = 2;
        call(
            api().PJRT_Client_CreateBuffersForAsyncHostToDevice,
            &mut create,
        )
        .expect("made");
        for (index, bytes) in [(0, 24), (1, 80)] {
            let mut size = args::<PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args>();
            size.transfer_manager = create.transfer_manager;
            size.buffer_index = index;
            call(
                api().PJRT_AsyncHostToDeviceTransferManager_BufferSize,
                &mut size,
            )
            .expect("known");
            assert_eq!(size.buffer_size, bytes);
        }
        let mut done = args::<PJRT_AsyncHostToDeviceTransferManager_Destroy_Args>();
        done.transfer_manager = create.transfer_manager;
        call(
            api().PJRT_AsyncHostToDeviceTransferManager_Destroy,
            &mut done,
        )
        .expect("never fails");
    }
    destroy_client(client);
}

#[test]
fn a_list_of_shapes_that_is_null_is_refused() {
    let (client, _service) = Service::open(4, true);
    let mut create = args::<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
    create.client = client;
    create.num_shape_specs = 2;
    let (code, _) = call(
        api().PJRT_Client_CreateBuffersForAsyncHostToDevice,
        &mut create,
    )
    .expect_err("NULL");
    assert_eq!(code, PJRT_Error_Code_INVALID_ARGUMENT);
    destroy_client(client);
}
