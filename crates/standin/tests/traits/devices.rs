//! What it says it is, and what it is opened with.

use salus_pjrt::Value;
use salus_standin::state::{on_device, word};

use crate::common::*;

#[test]
fn it_is_called_cuda() {
    let state = StateFile::new("called");
    let client = client(&state, "kind=Stand-in H100,capability=9.0");
    assert_eq!(client.platform_name().as_deref(), Ok("cuda"));
    assert_eq!(client.platform_version().as_deref(), Ok("cuda 12090"));
    let device = device(&client);
    assert_eq!(device.kind().as_deref(), Ok("Stand-in H100"));
    let attributes = device.attributes().expect("it has some");
    let capability = (
        "compute_capability".to_owned(),
        Value::Text("9.0".to_owned()),
    );
    assert!(attributes.contains(&capability), "{attributes:?}");
    let kinds = device.memories().expect("it has two");
    let kinds: Vec<String> = kinds
        .iter()
        .map(|memory| memory.kind().expect("a kind"))
        .collect();
    assert_eq!(kinds, ["device", "pinned_host"]);
    let memory = default_memory(&client).kind();
    assert_eq!(memory.as_deref(), Ok("device"));
}

#[test]
fn unknown_options_are_refused_unless_it_does_not_look() {
    let state = StateFile::new("unknown");
    let cpu = [("cpu_device_count", Value::Int(2))];
    let refused = try_client(&state, "", &cpu)
        .err()
        .expect("CUDA has no such option");
    assert_eq!(
        refused.code,
        salus_pjrt::sys::PJRT_Error_Code_INVALID_ARGUMENT
    );
    assert!(refused.message.contains("cpu_device_count"), "{refused:?}");
    assert!(try_client(&state, "options=0", &cpu).is_ok());
    let wrong = [("memory_fraction", Value::Text("half".to_owned()))];
    assert!(try_client(&state, "", &wrong).is_err(), "no number");
    assert!(try_client(&state, "no_such_trait=1", &[]).is_err());
}

#[test]
fn visible_devices_are_the_only_ones() {
    let state = StateFile::new("visible");
    let all = client(&state, "devices=3");
    assert_eq!(all.addressable_devices().expect("devices").len(), 3);
    let some = [("visible_devices", Value::Ints(vec![2]))];
    let some = try_client(&state, "devices=3", &some).expect("it opens");
    let devices = some.addressable_devices().expect("devices");
    assert_eq!(devices.len(), 1);
    assert_eq!(
        (devices[0].id(), devices[0].local_hardware_id()),
        (Ok(0), Ok(2))
    );
    drop(bytes(&some, 4096));
    let counts = state.open();
    assert_eq!(counts.clients_now(0), 1);
    assert_eq!(counts.clients_now(2), 2);
    let memory = |device| {
        counts
            .device(device, on_device::TAKEN_MOST)
            .load(std::sync::atomic::Ordering::Relaxed)
    };
    assert!(
        memory(2) > 0 && memory(0) == 0,
        "only the third device's memory was touched"
    );
    let none = [("visible_devices", Value::Ints(vec![7]))];
    assert!(try_client(&state, "devices=3", &none).is_err());
    assert_eq!(
        counts
            .word(word::CLIENTS)
            .load(std::sync::atomic::Ordering::Relaxed),
        2
    );
}
