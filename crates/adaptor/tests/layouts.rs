//! The Layouts extension as JAX and conformance tools use it.
#![expect(unsafe_code, reason = "plays the C caller")]

mod play;

use play::*;
use salus_pjrt::sys::*;

fn extension() -> &'static PJRT_Layouts_Extension {
    // SAFETY: the only extension is this one, a static.
    unsafe { &*api().extension_start.cast::<PJRT_Layouts_Extension>() }
}

/// A layout's text; the bytes are given back.
fn serialized(layout: *mut PJRT_Layouts_MemoryLayout) -> String {
    let mut serialize = args::<PJRT_Layouts_MemoryLayout_Serialize_Args>();
    serialize.layout = layout;
    call(
        extension().PJRT_Layouts_MemoryLayout_Serialize,
        &mut serialize,
    )
    .expect("never fails");
    // SAFETY: the bytes live until the deleter runs, once.
    unsafe {
        let bytes = text(serialize.serialized_bytes, serialize.serialized_bytes_size);
        serialize.serialized_layout_deleter.expect("a deleter")(serialize.serialized_layout);
        bytes
    }
}

fn destroyed(layout: *mut PJRT_Layouts_MemoryLayout) {
    let mut destroy = args::<PJRT_Layouts_MemoryLayout_Destroy_Args>();
    destroy.layout = layout;
    call(extension().PJRT_Layouts_MemoryLayout_Destroy, &mut destroy).expect("never fails");
}

#[test]
fn defaults_are_descending_whatever_the_type() {
    let (client, _service) = Service::open(4, true);
    for (element_type, rank, expected) in [
        (F32, 0, "{}"),
        (F32, 3, "{2,1,0}"),
        (PJRT_Buffer_Type_S4, 2, "{1,0}"),
    ] {
        let dims = [5i64; 3];
        let mut default = args::<PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args>();
        default.client = client;
        default.r#type = element_type;
        default.dims = dims.as_ptr();
        default.num_dims = rank;
        let slot = extension().PJRT_Layouts_PJRT_Client_GetDefaultLayout;
        call(slot, &mut default).expect("known");
        assert_eq!(serialized(default.layout), expected);
        destroyed(default.layout);
    }
    destroy_client(client);
}

#[test]
fn an_arrays_layout_is_the_callers_and_an_outputs_the_programs() {
    let (client, mut service) = Service::open(4, true);
    let (a, _) = array(client, &mut service);
    let mut of_array = args::<PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args>();
    of_array.buffer = a;
    let slot = extension().PJRT_Layouts_PJRT_Buffer_MemoryLayout;
    call(slot, &mut of_array).expect("never fails");
    assert_eq!(serialized(of_array.layout), "{0}");
    destroyed(of_array.layout);

    let mut odd = signature(0, 2, 0);
    odd.outputs[1].layout_text = "{0:T(8,128)}".into();
    let (program, _) = compiled(client, &mut service, &odd);
    let mut handle = args::<PJRT_LoadedExecutable_GetExecutable_Args>();
    handle.loaded_executable = program;
    call(api().PJRT_LoadedExecutable_GetExecutable, &mut handle).expect("a handle");
    let mut of_outputs = args::<PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args>();
    of_outputs.executable = handle.executable;
    let slot = extension().PJRT_Layouts_PJRT_Executable_GetOutputLayouts;
    call(slot, &mut of_outputs).expect("known");
    assert_eq!(of_outputs.num_outputs, 2);
    // SAFETY: the program owns two layouts.
    let second = unsafe { *of_outputs.layouts.add(1) };
    assert_eq!(serialized(second), "{0:T(8,128)}");
    // Somebody might destroy it all the same: it lives on.
    destroyed(second);
    assert_eq!(serialized(second), "{0:T(8,128)}");
    let mut destroy_handle = args::<PJRT_Executable_Destroy_Args>();
    destroy_handle.executable = handle.executable;
    call(api().PJRT_Executable_Destroy, &mut destroy_handle).expect("never fails");
    destroy_executable(program);
    destroy(a);
    destroy_client(client);
}
