//! Whose memory it is, on a device that has its own: the stand-in for CUDA.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::*;
use salus_channel::Segment;
use salus_device::{
    Device, Error, HostMemory, PjrtConfig, PjrtDevice, Purpose, Source, TargetCompiler, Value,
};
use salus_formats::options;
use salus_standin::State;
use salus_standin::state::{in_place, on_device, word};

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

    fn state_path(&self) -> std::path::PathBuf {
        self.directory.path().join("state")
    }

    fn state(&self) -> Arc<State> {
        State::open(Some(&self.state_path())).expect("the file is there")
    }

    fn clients(&self) -> u64 {
        self.state().word(word::CLIENTS).load(Ordering::Relaxed)
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
        let text = format!(
            "state={},memory=1GiB{switches}",
            self.state_path().display()
        );
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
    let pools = machine.state().sum(0, in_place::POOL);
    assert_eq!(pools, has, "it has taken nothing yet");
    drop(device);
    machine.open(Purpose::Run, None).expect("it is free again");
}

#[test]
fn what_is_asked_for_is_what_is_taken() {
    let machine = Machine::new();
    let first = machine.open(Purpose::Run, Some(200 * MIB)).expect("free");
    assert_eq!(capacity(&first), 200 * MIB);
    let taken = machine.state().sum(0, in_place::POOL);
    assert!(taken > 456 * MIB, "and some more for gaps: {taken}");
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
    // The same where the pool grows, and so says nothing of how large it will be.
    let growing = vec![
        ("memory_fraction".into(), Value::Float(0.5)),
        ("preallocate".into(), Value::Bool(false)),
    ];
    let device = machine.open_with(Purpose::Run, Some(600 * MIB), "", growing);
    assert_eq!(capacity(&device.expect("free")), 512 * MIB);
}

#[test]
fn a_pool_that_is_a_little_smaller_than_it_may_be_is_what_there_is() {
    let machine = Machine::new();
    // What drivers take of the device for a client leaves less than nine tenths.
    let device = machine.open_with(Purpose::Run, None, ",context=150MiB", Vec::new());
    let device = device.expect("a step down is enough");
    let has = capacity(&device);
    let taken = machine.state().sum(0, in_place::POOL);
    assert_eq!(has, taken - 150 * MIB);
    assert!((691 * MIB..875 * MIB).contains(&has), "{has}");
}

#[test]
fn one_device_of_several_is_opened_and_has_one_lane() {
    let machine = Machine::new();
    let clients = |device| machine.state().clients_now(device);
    let open = |options| machine.open_with(Purpose::Try, None, ",devices=3", options);
    let first = open(Vec::new()).expect("it is free");
    assert_eq!([0, 1, 2].map(clients), [1, 0, 0]);
    let visible = |devices: &[i64]| vec![("visible_devices".into(), Value::Ints(devices.into()))];
    let third = open(visible(&[2])).expect("it is free");
    assert_eq!([0, 1, 2].map(clients), [1, 0, 1]);
    assert_eq!(third.description().local_hardware_id, 2);
    // Whoever lets more be seen gets the first of them.
    let two = open(visible(&[1, 2])).expect("they are free");
    let lanes = [&first, &third, &two].map(|device| device.description().lanes);
    assert_eq!(lanes, [1, 1, 1]);
    assert_eq!(two.description().local_hardware_id, 1);
}

#[test]
fn registered_memory_is_unregistered_while_it_is_mapped() {
    let machine = Machine::new();
    let device = machine.open(Purpose::Try, None).expect("it is free");
    let registered = || machine.state().sum(0, in_place::DMA_BYTES);
    for _ in 0..2 {
        let segment = Segment::create(4 * MIB, false).expect("memory");
        let memory: Arc<dyn HostMemory> = Arc::new(segment.into_parts().0);
        let registration = device.register(Arc::clone(&memory)).expect("it can");
        assert!(registration.is_some());
        assert_eq!(registered(), 4 * MIB);
        // The registration has it from now on.
        drop(memory);
        drop(registration);
        assert_eq!(registered(), 0);
    }
    let count = |word| machine.state().device(0, word).load(Ordering::Relaxed);
    assert_eq!(count(on_device::DMA_MAPS), 2);
    assert_eq!(count(on_device::DMA_FAULTS), 0);
}

#[test]
fn a_plugin_that_registers_nothing_is_no_error() {
    let machine = Machine::new();
    let device = machine.open_with(Purpose::Try, None, ",dma=0", Vec::new());
    let segment = Segment::create(MIB, false).expect("memory");
    let memory = Arc::new(segment.into_parts().0);
    let registered = device.expect("it is free").register(memory);
    assert!(registered.expect("it is said").is_none());
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
