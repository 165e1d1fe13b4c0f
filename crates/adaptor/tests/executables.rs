//! What a program says about itself, beyond what launches need.
#![expect(unsafe_code, reason = "plays the C caller")]

mod play;

use play::*;
use salus_pjrt::sys::*;
use salus_wire::Signature;

/// The kinds of memory that a program with this signature has its outputs in.
fn output_kinds(signature: &Signature) -> Vec<String> {
    let (client, mut service) = Service::open(4, true);
    let (program, _) = compiled(client, &mut service, signature);
    let mut handle = args::<PJRT_LoadedExecutable_GetExecutable_Args>();
    handle.loaded_executable = program;
    call(api().PJRT_LoadedExecutable_GetExecutable, &mut handle).expect("a handle");
    let mut kinds = args::<PJRT_Executable_OutputMemoryKinds_Args>();
    kinds.executable = handle.executable;
    call(api().PJRT_Executable_OutputMemoryKinds, &mut kinds).expect("known");
    let found = (0..kinds.num_outputs)
        // SAFETY: the program has this many kinds, each as long as its size.
        .map(|i| unsafe { text(*kinds.memory_kinds.add(i), *kinds.memory_kind_sizes.add(i)) })
        .collect();
    let mut destroy = args::<PJRT_Executable_Destroy_Args>();
    destroy.executable = handle.executable;
    call(api().PJRT_Executable_Destroy, &mut destroy).expect("never fails");
    destroy_executable(program);
    destroy_client(client);
    found
}

#[test]
fn outputs_are_in_the_memory_that_the_vendor_says_or_else_in_the_services() {
    let mut program = signature(0, 3, 0);
    program.outputs[1].memory = 1;
    // A memory that the service did not describe counts as the default.
    program.outputs[2].memory = 9;
    assert_eq!(output_kinds(&program), ["device", "pinned_host", "device"]);
    let said = ["unpinned_host", "device", "device"];
    program.output_memory_kinds = Some(said.map(String::from).to_vec());
    assert_eq!(output_kinds(&program), said);
    assert!(output_kinds(&signature(1, 0, 0)).is_empty());
}
