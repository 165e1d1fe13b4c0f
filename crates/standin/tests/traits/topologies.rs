//! Topologies: compiling for a device without one.

use std::sync::atomic::Ordering;

use salus_formats::options;
use salus_pjrt::sys::*;
use salus_standin::state::{in_place, word};

use crate::common::*;
use crate::raw::{call, option};

const TARGET: &str =
    "gpu_device_info { cuda_compute_capability { major: 8 } } platform_name: \"CUDA\"";

fn create(target: &str, traits: &str) -> Result<*mut PJRT_TopologyDescription, PJRT_Error_Code> {
    let options = [
        option("target_config", target),
        option("topology", "1x1x1"),
        option("standin", traits),
    ];
    let made = call!(PJRT_TopologyDescription_Create(
        PJRT_TopologyDescription_Create_Args {
            create_options: options.as_ptr(),
            num_options: options.len(),
        }
    ));
    made.map(|args| args.topology)
}

fn destroy(topology: *mut PJRT_TopologyDescription) {
    let destroyed = call!(PJRT_TopologyDescription_Destroy(
        PJRT_TopologyDescription_Destroy_Args { topology: topology }
    ));
    assert!(destroyed.is_ok());
}

/// A serialized program, compiled without a client.
fn compile_for(topology: *mut PJRT_TopologyDescription, code: &str) -> Vec<u8> {
    let mut code = code.as_bytes().to_vec();
    let options = options::rebuild(&[], &[]).expect("no options are options");
    let program = PJRT_Program {
        struct_size: PJRT_Program::END,
        extension_start: std::ptr::null_mut(),
        code: code.as_mut_ptr().cast(),
        code_size: code.len(),
        format: c"mlir".as_ptr(),
        format_size: 4,
    };
    let made = call!(PJRT_Compile(PJRT_Compile_Args {
        topology: topology,
        program: &raw const program,
        compile_options: options.as_ptr().cast(),
        compile_options_size: options.len(),
    }));
    let executable = made.expect("it compiles").executable;
    let cost = call!(PJRT_Executable_GetCostAnalysis(
        PJRT_Executable_GetCostAnalysis_Args {
            executable: executable
        }
    ));
    assert_eq!(
        cost.err(),
        Some(PJRT_Error_Code_UNIMPLEMENTED),
        "as CUDA's answers"
    );
    let serialized = call!(PJRT_Executable_Serialize(PJRT_Executable_Serialize_Args {
        executable: executable
    }))
    .expect("it serializes");
    // SAFETY: as many bytes, until the deleter runs.
    let bytes = unsafe {
        let start = serialized.serialized_bytes.cast::<u8>();
        let bytes = std::slice::from_raw_parts(start, serialized.serialized_bytes_size).to_vec();
        serialized.serialized_executable_deleter.expect("a deleter")(
            serialized.serialized_executable,
        );
        bytes
    };
    let destroyed = call!(PJRT_Executable_Destroy(PJRT_Executable_Destroy_Args {
        executable: executable
    }));
    assert!(destroyed.is_ok());
    bytes
}

#[test]
fn a_program_is_compiled_without_a_client_and_loaded_with_one() {
    let state = StateFile::new("compiled");
    let traits = format!("state={}", state.path());
    let topology = create(TARGET, &traits).expect("it needs no device");
    let program = compile_for(topology, &double("double", 4, false));
    destroy(topology);
    let counts = state.open();
    let count = |word| counts.word(word).load(Ordering::Relaxed);
    assert_eq!((count(word::CLIENTS), count(word::COMPILED)), (0, 0));
    assert_eq!(count(word::COMPILED_WITHOUT_CLIENT), 1);
    assert_eq!(
        counts.sum(0, in_place::POOL),
        0,
        "it took no memory of the device"
    );
    let client = client(&state, "");
    let loaded = client
        .deserialize_and_load(&program, None)
        .expect("it is for this device");
    let array = upload(&client, &[1.5; 4]);
    let (output, _) = launch(&client, &loaded, &[&array]).expect("enqueued");
    assert_eq!(read(&output), Ok(vec![3.0; 4]));
}

#[test]
fn a_program_for_another_device_is_refused() {
    let state = StateFile::new("another");
    let target = TARGET.replace("major: 8", "major: 9");
    let topology = create(&target, "").expect("it needs no device");
    let program = compile_for(topology, &double("double", 4, false));
    destroy(topology);
    let ampere = client(&state, "");
    let refused = ampere
        .deserialize_and_load(&program, None)
        .err()
        .expect("it is for another");
    assert_eq!(refused.code, PJRT_Error_Code_INVALID_ARGUMENT);
    let hopper = client(&state, "capability=9.0");
    assert!(hopper.deserialize_and_load(&program, None).is_ok());
}

#[test]
fn a_topology_says_its_target() {
    let topology = create(TARGET, "").expect("it needs no device");
    let made = call!(PJRT_TopologyDescription_Attributes(
        PJRT_TopologyDescription_Attributes_Args { topology: topology }
    ))
    .expect("it has some");
    // SAFETY: a list of the topology, whose texts it owns.
    let found = unsafe {
        let list = std::slice::from_raw_parts(made.attributes, made.num_attributes);
        list.iter().any(|named| {
            let text = |start: *const std::ffi::c_char, len| {
                std::slice::from_raw_parts(start.cast::<u8>(), len)
            };
            text(named.name, named.name_size) == b"target_config"
                && text(named.value.string_value, named.value_size) == TARGET.as_bytes()
        })
    };
    assert!(found);
    destroy(topology);
}

#[test]
fn what_cannot_be_made_is_refused() {
    assert_eq!(
        create("nonsense", ""),
        Err(PJRT_Error_Code_INVALID_ARGUMENT)
    );
    assert_eq!(
        create(TARGET, "topology=0"),
        Err(PJRT_Error_Code_UNIMPLEMENTED)
    );
}

#[test]
fn only_pinned_memory_is_on_the_cpu() {
    let state = StateFile::new("on-cpu");
    let open = |traits: &str| crate::raw::Client::open(&format!("state={},{traits}", state.path()));
    let client = open("");
    assert_eq!([0, 1].map(|memory| client.is_on_cpu(memory)), [false, true]);
    assert!(open("on_cpu=1").is_on_cpu(0));
}
