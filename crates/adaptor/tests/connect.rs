//! Opening a session, and every way in which that fails.
#![expect(unsafe_code, reason = "plays the C caller")]

mod play;

use std::io::Write;
use std::os::unix::net::UnixListener;

use play::*;
use salus_pjrt::sys::*;
use salus_wire::{Error, ErrorCode, FromService, Refused, Welcome};

/// What `Client_Create` says when the service behaves like `service`.
fn refused(service: impl FnOnce(UnixListener) + Send + 'static) -> Failure {
    let path = fresh_path();
    let listener = UnixListener::bind(&path).expect("a socket is made");
    let service = std::thread::spawn(move || service(listener));
    let failure = create(path.to_str().expect("UTF-8")).expect_err("no session");
    service.join().expect("the service does its part");
    let _ = std::fs::remove_file(&path);
    (
        failure.0,
        failure.1.replace(path.to_str().expect("UTF-8"), "PATH"),
    )
}

#[test]
fn no_service() {
    let (code, text) = create("/nonexistent/salus.sock").expect_err("no service");
    assert_eq!(code, PJRT_Error_Code_UNAVAILABLE);
    assert_eq!(
        text,
        "no Salus service listens at /nonexistent/salus.sock (there is no such socket); start one \
         with `salus serve`, or run the job with `salus run -- python …`, which starts one"
    );
}

#[test]
fn a_socket_left_behind() {
    let path = fresh_path();
    drop(UnixListener::bind(&path).expect("a socket is made"));
    let (code, text) = create(path.to_str().expect("UTF-8")).expect_err("nobody there");
    assert_eq!(code, PJRT_Error_Code_UNAVAILABLE);
    assert!(text.contains("nobody answers"), "{text}");
    let _ = std::fs::remove_file(path);
}

#[test]
fn refused_by_the_service() {
    let failure = refused(|listener| {
        Service::accept(&listener).send(Refused {
            error: Error::new(ErrorCode::FailedPrecondition, "versions"),
        });
    });
    let text = "the Salus service at PATH refused this job: versions";
    assert_eq!(failure, (PJRT_Error_Code_FAILED_PRECONDITION, text.into()));
}

#[test]
fn a_service_of_another_version() {
    let (code, text) = refused(|listener| {
        Service::accept(&listener).send(Welcome {
            protocol: 99,
            session: 1,
            version: "99.0".into(),
            description: description(true),
            window: 4,
        });
    });
    assert_eq!(code, PJRT_Error_Code_FAILED_PRECONDITION);
    assert!(
        text.contains("version 99.0 and chose protocol 99"),
        "{text}"
    );
}

#[test]
fn a_service_that_hangs_up_and_one_that_is_none() {
    let (code, text) = refused(|listener| drop(Service::accept(&listener)));
    assert_eq!(code, PJRT_Error_Code_UNAVAILABLE);
    assert!(text.contains("it closed the connection"), "{text}");

    let (code, text) = refused(|listener| {
        let mut service = Service::accept(&listener);
        service
            .socket
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .expect("written");
    });
    assert_eq!(code, PJRT_Error_Code_FAILED_PRECONDITION);
    assert!(text.contains("does not speak Salus' protocol"), "{text}");
}

#[test]
fn a_frame_that_has_no_place() {
    let (code, _) = refused(|listener| {
        Service::accept(&listener).send(FromService::Released(salus_wire::Released {
            regions: Vec::new(),
        }));
    });
    assert_eq!(code, PJRT_Error_Code_FAILED_PRECONDITION);
}

/// As `jax.distributed` has it. The refusal comes before a connection, and from a call that may fail.
#[test]
fn one_of_several_processes_is_refused() {
    let (code, text) = create_among("/nonexistent/salus.sock", 3).expect_err("three processes");
    assert_eq!(code, PJRT_Error_Code_UNIMPLEMENTED);
    assert_eq!(
        text,
        "`jax.distributed` was initialized for 3 processes, and a job of Salus has one process and \
         one device: run the script as one process, or without Salus (`JAX_PLATFORMS=cpu` or the \
         vendor's own plugin)"
    );
}

/// XLA aborts the process at any error here, so there is none, whatever it says.
#[test]
fn news_of_other_processes_is_no_error() {
    let (client, _service) = Service::open(4, true);
    for count in [0usize, 1, 2, 1000] {
        let mut news = args::<PJRT_Client_UpdateGlobalProcessInfo_Args>();
        news.client = client;
        // Not even looked at.
        news.process_infos = std::ptr::without_provenance_mut(0x6);
        news.num_process_infos = count;
        call(api().PJRT_Client_UpdateGlobalProcessInfo, &mut news).expect("never fails");
    }
    destroy_client(client);
}

#[test]
fn all_that_jax_asks_at_the_start_is_answered_from_welcome() {
    let (client, service) = Service::open(4, true);
    let mut version = args::<PJRT_Client_PlatformVersion_Args>();
    version.client = client;
    call(api().PJRT_Client_PlatformVersion, &mut version).expect("known");
    // SAFETY: the client owns the text.
    let version = unsafe { text(version.platform_version, version.platform_version_size) };
    assert_eq!(version, "1.0 salus 9.9");

    let mut devices = args::<PJRT_Client_Devices_Args>();
    devices.client = client;
    call(api().PJRT_Client_Devices, &mut devices).expect("known");
    assert_eq!(devices.num_devices, 1);
    // SAFETY: the list has one device.
    let device = unsafe { *devices.devices };
    let mut lookup = args::<PJRT_Client_LookupDevice_Args>();
    lookup.client = client;
    call(api().PJRT_Client_LookupDevice, &mut lookup).expect("device 0");
    assert_eq!(lookup.device, device);
    lookup.id = 1;
    assert!(call(api().PJRT_Client_LookupDevice, &mut lookup).is_err());
    let mut hardware = args::<PJRT_Client_LookupAddressableDevice_Args>();
    hardware.client = client;
    hardware.local_hardware_id = 7;
    call(api().PJRT_Client_LookupAddressableDevice, &mut hardware).expect("hardware 7");

    let mut description = args::<PJRT_Device_GetDescription_Args>();
    description.device = device;
    call(api().PJRT_Device_GetDescription, &mut description).expect("known");
    let mut attributes = args::<PJRT_DeviceDescription_Attributes_Args>();
    attributes.device_description = description.device_description;
    call(api().PJRT_DeviceDescription_Attributes, &mut attributes).expect("known");
    // The service knows a fraction, too, at which XLA's client would abort the process.
    assert_eq!(attributes.num_attributes, 1);
    // SAFETY: the device owns one attribute, a number.
    assert_eq!(unsafe { (*attributes.attributes).value.int64_value }, 6);

    let mut memories = args::<PJRT_Device_AddressableMemories_Args>();
    memories.device = device;
    call(api().PJRT_Device_AddressableMemories, &mut memories).expect("known");
    assert_eq!(memories.num_memories, 2);
    let mut default = args::<PJRT_Device_DefaultMemory_Args>();
    default.device = device;
    call(api().PJRT_Device_DefaultMemory, &mut default).expect("known");
    // SAFETY: the list has two memories.
    assert_eq!(default.memory, unsafe { *memories.memories });
    let mut kind = args::<PJRT_Memory_Kind_Args>();
    // SAFETY: as above.
    kind.memory = unsafe { *memories.memories.add(1) };
    call(api().PJRT_Memory_Kind, &mut kind).expect("known");
    // SAFETY: the memory owns the text.
    assert_eq!(unsafe { text(kind.kind, kind.kind_size) }, "pinned_host");

    let mut topology = args::<PJRT_Client_TopologyDescription_Args>();
    topology.client = client;
    call(api().PJRT_Client_TopologyDescription, &mut topology).expect("known");
    let mut attributes = args::<PJRT_TopologyDescription_Attributes_Args>();
    attributes.topology = topology.topology;
    call(api().PJRT_TopologyDescription_Attributes, &mut attributes).expect("known");
    assert_eq!(attributes.num_attributes, 1);
    // SAFETY: the topology owns its one attribute, which is a text.
    unsafe {
        let attribute = &*attributes.attributes;
        let name = text(attribute.name, attribute.name_size);
        let value = text(attribute.value.string_value, attribute.value_size);
        assert_eq!((&*name, &*value), ("target_config", "sm 9.0"));
    }
    let mut serialized = args::<PJRT_TopologyDescription_Serialize_Args>();
    serialized.topology = topology.topology;
    call(api().PJRT_TopologyDescription_Serialize, &mut serialized).expect("known");
    // SAFETY: the bytes live until the deleter runs.
    unsafe {
        let bytes = text(
            serialized.serialized_bytes,
            serialized.serialized_bytes_size,
        );
        assert_eq!(bytes, "topology");
        serialized.serialized_topology_deleter.expect("a deleter")(serialized.serialized_topology);
    }
    drop(service);
    destroy_client(client);
}
