//! The table as a C caller finds it: every slot, and callers of other sizes than ours.
#![expect(unsafe_code, reason = "plays the C caller")]

mod play;

use std::ptr::null_mut;

use play::*;
use salus_pjrt::sys::*;

/// The table as machine words.
fn words(count: usize) -> &'static [usize] {
    // SAFETY: the table is in at least 4 KiB of static memory.
    unsafe { std::slice::from_raw_parts(pjrt_salus::GetPjrtApi().cast::<usize>(), count) }
}

#[test]
fn every_slot_is_filled_and_zeros_lie_behind() {
    assert_eq!(api().struct_size, PJRT_Api::END);
    assert_eq!(api().pjrt_api_version.major_version, 0);
    assert_eq!(api().pjrt_api_version.minor_version, 81);
    let slots = PJRT_Api::END / 8 - 5;
    assert_eq!(slots, 118);
    for (index, slot) in words(5 + slots)[5..].iter().enumerate() {
        assert_ne!(*slot, 0, "{} is NULL", PJRT_Api::FIELDS[3 + index].name);
    }
    assert!(words(512)[5 + slots..].iter().all(|word| *word == 0));
}

#[test]
fn the_extensions_are_chained_and_have_zeros_behind() {
    let mut next = api().extension_start;
    let mut found = Vec::new();
    while !next.is_null() {
        // SAFETY: each extension is in at least 4 KiB of static memory.
        let (base, words) = unsafe {
            let words = std::slice::from_raw_parts(next.cast::<usize>(), 512);
            (*next, words)
        };
        let end = base.struct_size / 8;
        assert!(words[3..4].iter().all(|entry| *entry != 0));
        assert!(words[end..].iter().all(|word| *word == 0));
        found.push((base.r#type, base.struct_size));
        next = base.next;
    }
    assert_eq!(
        found,
        [
            (PJRT_Extension_Type_Layouts, 72),
            (PJRT_Extension_Type_FFI, 48),
            (PJRT_Extension_Type_Profiler, 40),
        ]
    );
}

#[test]
fn what_is_not_supported_says_its_name() {
    let mut map = args::<PJRT_Client_DmaMap_Args>();
    let (code, text) = call(api().PJRT_Client_DmaMap, &mut map).expect_err("unsupported");
    assert_eq!(code, PJRT_Error_Code_UNIMPLEMENTED);
    assert_eq!(text, "PJRT_Client_DmaMap is not supported by Salus");
}

#[test]
fn null_structs_and_null_handles_are_errors_or_nothing() {
    let refused = |result: Result<(), Failure>| {
        let (code, text) = result.expect_err("NULL");
        assert_eq!(code, PJRT_Error_Code_INVALID_ARGUMENT);
        assert!(text.contains("NULL"), "{text}");
    };
    refused(call(api().PJRT_Client_Create, null_mut()));
    refused(call(api().PJRT_LoadedExecutable_Execute, null_mut()));
    let mut compile = args::<PJRT_Client_Compile_Args>();
    refused(call(api().PJRT_Client_Compile, &mut compile));
    let mut execute = args::<PJRT_LoadedExecutable_Execute_Args>();
    refused(call(api().PJRT_LoadedExecutable_Execute, &mut execute));
    let mut event = args::<PJRT_Event_OnReady_Args>();
    refused(call(api().PJRT_Event_OnReady, &mut event));
    // An error of these would abort the process.
    destroy(null_mut());
    destroy_event(null_mut());
    destroy_client(null_mut());
    destroy_executable(null_mut());
    call(api().PJRT_Buffer_Destroy, null_mut()).expect("never fails");
    call(api().PJRT_Buffer_Memory, null_mut()).expect("never fails");
    let mut error = args::<PJRT_Error_Destroy_Args>();
    // SAFETY: JAX destroys the null error at each step.
    unsafe { api().PJRT_Error_Destroy.expect("filled")(&mut error) };
}

#[test]
fn a_struct_one_field_short_is_refused_and_not_written_behind() {
    let mut name = args::<PJRT_Executable_NumOutputs_Args>();
    name.struct_size -= 8;
    name.num_outputs = 77;
    let (code, _) = call(api().PJRT_Executable_NumOutputs, &mut name).expect_err("short");
    assert_eq!(code, PJRT_Error_Code_INVALID_ARGUMENT);
    assert_eq!(name.num_outputs, 77);

    let mut options = args::<PJRT_Client_Create_Args>();
    options.struct_size = 24;
    let (code, text) = call(api().PJRT_Client_Create, &mut options).expect_err("short");
    assert_eq!(code, PJRT_Error_Code_INVALID_ARGUMENT);
    assert_eq!(
        text,
        "PJRT_Client_Create_Args has struct_size 24, which ends before its field `num_options` \
         does (32)"
    );
}

#[test]
fn the_plugin_says_something_before_there_is_a_client() {
    let mut initialize = args::<PJRT_Plugin_Initialize_Args>();
    call(api().PJRT_Plugin_Initialize, &mut initialize).expect("nothing to do");
    let mut attributes = args::<PJRT_Plugin_Attributes_Args>();
    call(api().PJRT_Plugin_Attributes, &mut attributes).expect("never fails");
    assert!(attributes.num_attributes > 0 && !attributes.attributes.is_null());
}

/// Its header computed the size from the field before the last, and JAX reads the last all the same.
#[test]
fn the_number_of_attributes_is_written_for_jax_0_6() {
    let mut attributes = args::<PJRT_Plugin_Attributes_Args>();
    attributes.struct_size = 24;
    call(api().PJRT_Plugin_Attributes, &mut attributes).expect("never fails");
    assert!(attributes.num_attributes > 0 && !attributes.attributes.is_null());
}
