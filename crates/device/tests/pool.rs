//! Whose memory it is, on a device that has its own: the stand-in for CUDA.

mod common;

use std::sync::atomic::Ordering;

use common::*;
use salus_device::{Device, Error, PjrtConfig, PjrtDevice, Purpose, Source, TargetCompiler, Value};
use salus_formats::options;
use salus_standin::State;
use salus_standin::state::word;

const MIB: u64 = 1 << 20;

/// A machine with a device of 1 GiB, whose memory all clients here share.
struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        Machine {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    fn state(&self) -> std::path::PathBuf {
        self.directory.path().join("state")
    }

    fn clients(&self) -> u64 {
        let state = State::open(Some(&self.state())).expect("the file is there");
        state.word(word::CLIENTS).load(Ordering::Relaxed)
    }

    fn open(&self, purpose: Purpose, memory: Option<u64>) -> Result<PjrtDevice, Error> {
        self.open_with(purpose, memory, "", Vec::new())
    }

    fn open_with(
        &self,
        purpose: Purpose,
        capacity_bytes: Option<u64>,
        switches: &str,
        mut options: Vec<(String, Value)>,
    ) -> Result<PjrtDevice, Error> {
        let text = format!("state={},memory=1GiB{switches}", self.state().display());
        options.push(("standin".into(), Value::Text(text)));
        PjrtDevice::open(&PjrtConfig {
            plugin: standin_plugin(),
            options,
            capacity_bytes,
            purpose,
            ..PjrtConfig::default()
        })
    }
}

fn capacity(device: &PjrtDevice) -> u64 {
    device.description().capacity_bytes
}

#[test]
fn nine_tenths_are_taken_at_once_and_nobody_else_gets_them() {
    let machine = Machine::new();
    let device = machine.open(Purpose::Run, None).expect("it is free");
    assert_eq!(
        machine.clients(),
        1,
        "it is known for a GPU before it is opened"
    );
    let has = capacity(&device);
    assert!((910 * MIB..922 * MIB).contains(&has), "{has}");
    let refused = machine.open(Purpose::Run, None).err();
    let refused = refused.expect("the first has it");
    assert_eq!(refused.code, salus_wire::ErrorCode::ResourceExhausted);
    assert!(refused.message.starts_with("0.90 GiB"), "{refused}");
    // Whoever only tries something out is content with little, and takes it when it is needed.
    let beside = machine
        .open(Purpose::Try, None)
        .expect("there is some left");
    assert!(capacity(&beside) < 64 * MIB, "{}", capacity(&beside));
    drop(device);
    machine.open(Purpose::Run, None).expect("it is free again");
}

#[test]
fn what_is_asked_for_is_what_is_taken() {
    let machine = Machine::new();
    let first = machine.open(Purpose::Run, Some(200 * MIB)).expect("free");
    assert_eq!(capacity(&first), 200 * MIB);
    let second = machine.open(Purpose::Run, Some(200 * MIB));
    assert_eq!(capacity(&second.expect("the rest is free")), 200 * MIB);
    let refused = machine.open(Purpose::Run, Some(2048 * MIB)).err();
    let refused = refused.expect("the device has no more than 1 GiB").message;
    assert!(refused.contains("2.00 GiB"), "{refused}");
    assert!(refused.contains("the device has 1.00 GiB"), "{refused}");
}

#[test]
fn the_operators_options_count_more() {
    let machine = Machine::new();
    let half = vec![("memory_fraction".into(), Value::Float(0.5))];
    let device = machine.open_with(Purpose::Run, None, "", half.clone());
    assert_eq!(capacity(&device.expect("free")), 512 * MIB);
    let device = machine.open_with(Purpose::Run, Some(600 * MIB), "", half);
    assert_eq!(
        capacity(&device.expect("free")),
        512 * MIB,
        "the least of both"
    );
}

#[test]
fn without_figures_of_the_plugin_the_operator_must_say_how_much() {
    let machine = Machine::new();
    let platform = || vec![("allocator".into(), Value::Text("platform".into()))];
    let refused = machine.open_with(Purpose::Run, None, "", platform()).err();
    let refused = refused.expect("it is not the machine's memory that counts");
    assert!(refused.hint.is_some_and(|hint| hint.contains("--memory")));
    let device = machine.open_with(Purpose::Run, Some(100 * MIB), "", platform());
    assert_eq!(capacity(&device.expect("said")), 100 * MIB);
}

#[test]
fn programs_are_compiled_without_a_client_and_run_where_there_is_one() {
    let machine = Machine::new();
    let device = machine.open(Purpose::Run, None).expect("it is free");
    let compiler = TargetCompiler::open(&standin_plugin(), device.description())
        .expect("the topology says what is needed");
    let code = Standin.code(Sample::Increment);
    let source = Source {
        format: "mlir",
        code: code.as_bytes(),
        options: &options::rebuild(&[], &[]).expect("no options are options"),
    };
    let compiled = compiler.compile(&source).expect("it compiles");
    assert_eq!(machine.clients(), 1);
    let with_client = device.compile(&source).expect("it compiles").signature;
    assert_eq!(compiled.signature.parameters, with_client.parameters);
    assert_eq!(compiled.signature.outputs, with_client.outputs);
    device.load(&compiled).expect("it can be loaded");
}

#[test]
fn a_plugin_that_says_nothing_of_its_device_cannot_be_compiled_for() {
    let device = Standin.open(1);
    let mut description = device.description().clone();
    description.topology_attributes.clear();
    description.serialized_topology = None;
    let refused = TargetCompiler::open(&standin_plugin(), &description).err();
    let refused = refused.expect("nothing is known");
    assert_eq!(refused.code, salus_wire::ErrorCode::Unimplemented);
}
