//! Copies: nothing is wrapped, uploads wait for the stream, mapped ranges.

use salus_pjrt::sys::*;
use salus_pjrt::{FromHost, HostLayout, Semantics};
use salus_standin::state::{in_place, on_device};

use crate::common::*;

#[test]
fn memory_of_the_device_is_not_the_hosts() {
    let state = StateFile::new("not-host");
    let client = client(&state, "");
    let numbers = [1.0f32, 2.0, 3.0, 4.0];
    for semantics in [Semantics::ImmutableZeroCopy, Semantics::MutableZeroCopy] {
        // 64-byte aligned, so that the CPU plugin itself would wrap it.
        let mut lent = Box::new(Aligned([0.0; 64]));
        lent.0[..4].copy_from_slice(&numbers);
        let dims = [4];
        let from = FromHost {
            data: lent.0.as_ptr().cast(),
            element_type: F32,
            dims: &dims,
            byte_strides: None,
            semantics,
            layout: None,
        };
        // SAFETY: the memory stays until the event.
        let made = unsafe { client.buffer_from_host(&from, &default_memory(&client)) };
        let (buffer, done) = made.expect("there is room");
        done.wait().expect("it was copied, though the array lives");
        lent.0.fill(9.0);
        assert_eq!(read(&buffer), Ok(numbers.to_vec()));
        let address = buffer.unsafe_pointer().expect("it has one");
        assert!(address >> 47 != 0, "{address:#x} is none of a process");
    }
}

#[repr(align(64))]
struct Aligned([f32; 64]);

#[test]
fn elements_are_permuted_on_the_way() {
    let state = StateFile::new("permuted");
    let client = client(&state, "");
    let rows = [0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0];
    let (dims, columns) = ([2, 3], [0, 1]);
    let from = FromHost {
        data: rows.as_ptr().cast(),
        element_type: F32,
        dims: &dims,
        byte_strides: None,
        semantics: Semantics::ImmutableOnlyDuringCall,
        layout: Some(HostLayout {
            minor_to_major: &columns,
        }),
    };
    // SAFETY: six numbers, copied during the call.
    let (buffer, _) =
        unsafe { client.buffer_from_host(&from, &default_memory(&client)) }.expect("there is room");
    let mut read = [[9.0f32; 6]; 3];
    for (target, order) in read.iter_mut().zip([Some([1, 0]), Some([0, 1]), None]) {
        let start = target.as_mut_ptr().cast();
        // SAFETY: six numbers, which stay until we have waited.
        let event = unsafe {
            match &order {
                Some(order) => buffer.to_host(
                    start,
                    24,
                    Some(HostLayout {
                        minor_to_major: order,
                    }),
                ),
                None => buffer.copy_raw_to_host(start, 24),
            }
        };
        event.expect("it starts").wait().expect("it ends");
    }
    let by_columns = [0.0, 3.0, 1.0, 4.0, 2.0, 5.0];
    assert_eq!(read, [rows, by_columns, by_columns]);
}

#[test]
fn an_upload_waits_for_work_enqueued_before_and_a_read_does_not() {
    let state = StateFile::new("waits");
    let gate = &GATES[2];
    let client = client(&state, "");
    let other = crate::common::client(&state, "upload_waits=0");
    let held = gate.program(&client);
    let before = upload(&client, &[1.0; 4]);
    let (_, running) = launch(&client, &held, &[&before]).expect("enqueued");
    let after = upload(&client, &[2.0; 4]);
    assert_eq!(read(&before), Ok(vec![1.0; 4]), "reads overlap");
    let ready = after.ready_event().expect("an event");
    assert!(!ready.is_ready().expect("an event"), "the stream is held");
    // A client without the trait, whose stream is held likewise.
    let held = gate.program(&other);
    let array = upload(&other, &[1.0; 4]);
    let (_, also_running) = launch(&other, &held, &[&array]).expect("enqueued");
    assert_eq!(read(&upload(&other, &[3.0; 4])), Ok(vec![3.0; 4]));
    assert!(!also_running.is_ready().expect("an event"));
    gate.open();
    assert_eq!((ready.wait(), running.wait()), (Ok(()), Ok(())));
    assert_eq!(also_running.wait(), Ok(()));
}

#[test]
fn a_bandwidth_is_kept() {
    let state = StateFile::new("bandwidth");
    let client = client(&state, "bandwidth=16MiB");
    let started = std::time::Instant::now();
    let array = bytes(&client, 1 << 20).expect("there is room");
    read(&array).expect("it is there");
    // Each way a sixteenth of a second, at least; nothing is said of at most.
    assert!(started.elapsed() >= std::time::Duration::from_millis(125));
}

#[test]
fn copies_of_mapped_ranges_are_counted() {
    let state = StateFile::new("moved");
    let client = client(&state, "");
    let moved = state.open();
    let moved = || {
        moved
            .device(0, on_device::DMA_MOVED_BYTES)
            .load(std::sync::atomic::Ordering::Relaxed)
    };
    let mut numbers = vec![1.0f32; 4096];
    let start = numbers.as_mut_ptr().cast();
    let array = upload(&client, &numbers);
    assert_eq!(moved(), 0, "nothing is mapped");
    // SAFETY: the memory stays where it is until it is unmapped.
    unsafe { client.dma_map(start, 4 * 4096) }.expect("it is this process's");
    drop(upload(&client, &numbers[..1024]));
    assert_eq!(moved(), 4096);
    // SAFETY: as many bytes as the array has, until we have waited.
    let read = unsafe { array.copy_raw_to_host(start, 4 * 4096) };
    read.expect("it starts").wait().expect("it ends");
    assert_eq!(moved(), 4096 + 4 * 4096);
    client.dma_unmap(start).expect("it is mapped");
    drop(upload(&client, &numbers));
    assert_eq!(moved(), 4096 + 4 * 4096);
}

#[test]
fn mapped_ranges_are_counted_and_checked() {
    let state = StateFile::new("mapped");
    let raw = crate::raw::Client::open(&format!("state={}", state.path()));
    let counts = state.open();
    let device = |word| {
        counts
            .device(0, word)
            .load(std::sync::atomic::Ordering::Relaxed)
    };
    let memory = vec![1u8; 1 << 20];
    let start = memory.as_ptr().cast_mut().cast();
    assert_eq!(raw.map(start, memory.len()), Ok(()));
    assert_eq!(raw.map(start, 4096), Err(PJRT_Error_Code_INTERNAL), "twice");
    assert_eq!(counts.sum(0, in_place::DMA_RANGES), 1);
    assert_eq!(counts.sum(0, in_place::DMA_BYTES), 1 << 20);
    assert_eq!(raw.unmap(start), Ok(()));
    assert_eq!(counts.sum(0, in_place::DMA_BYTES), 0);
    assert_eq!(device(on_device::DMA_BYTES_MOST), 1 << 20);
    assert_eq!(device(on_device::DMA_FAULTS), 0);
    assert_eq!(
        raw.unmap(start),
        Err(PJRT_Error_Code_INTERNAL),
        "not mapped any more"
    );
    assert_eq!(device(on_device::DMA_FAULTS), 1);
    // Gone before it was unmapped.
    let pages = crate::raw::Pages::new(8);
    assert_eq!(raw.map(pages.start(), 8 * 4096), Ok(()));
    let start = pages.start();
    drop(pages);
    assert_eq!(raw.unmap(start), Ok(()));
    assert_eq!(device(on_device::DMA_FAULTS), 2);
    let without = crate::raw::Client::open(&format!("state={},dma=0", state.path()));
    let refused = without.map(memory.as_ptr().cast_mut().cast(), 4096);
    assert_eq!(refused, Err(PJRT_Error_Code_UNIMPLEMENTED));
}
