//! The client: one session, and all that is known about its device.
//!
//! Promise: after `Welcome` every question about platform and devices is answered here. Buffers
//! and programs keep the client's memory, so they may be destroyed after it.
//! Not here: arrays, programs, the connection.
#![expect(unsafe_code, reason = "C entry points")]
#![allow(non_snake_case, reason = "the header's names")]

use std::sync::Arc;

use salus_pjrt::sys;
use salus_wire::Value;

use crate::c_api::c_args::{Args, Field, Handle, entry, field, lend};
use crate::c_api::error::{Result, invalid, not_found, unimplemented};
use crate::c_api::named_values::options;
use crate::calls::profiler;
use crate::connection::connect::{self, Choice};
use crate::connection::session::Session;
use crate::objects::device::{Hardware, remember_plugin_attributes};
use crate::objects::topology::Topology;

pub(crate) struct Client {
    pub(crate) session: Arc<Session>,
    pub(crate) hardware: &'static Hardware,
    pub(crate) platform_name: String,
    pub(crate) platform_version: String,
    /// Whether host pointers to arrays mean something here (platform `cpu`).
    pub(crate) on_host: bool,
    pub(crate) topology: Topology,
}

/// What C holds as `PJRT_Client`.
pub(crate) struct ClientHandle(pub(crate) Arc<Client>);

impl Handle for ClientHandle {
    type Raw = sys::PJRT_Client;
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.0.session.close();
    }
}

impl Client {
    pub(crate) fn connect(choice: Choice) -> Result<Arc<Self>> {
        let opened = connect::open(choice)?;
        let hardware = Hardware::new(&opened.welcome.description)?;
        let session = Session::start(opened.socket, opened.inbox, opened.path, &opened.welcome)?;
        let description = opened.welcome.description;
        hardware.device.belongs_to(&session);
        remember_plugin_attributes(description.plugin_attributes);
        // JAX hashes it into the keys of its compilation cache.
        let platform_version = format!(
            "{} salus {}",
            description.platform_version, opened.welcome.version
        );
        Ok(Arc::new_cyclic(|client| Self {
            session,
            hardware,
            topology: Topology::new(
                client.clone(),
                description.serialized_topology.unwrap_or_else(|| {
                    format!(
                        "salus\n{}\n{platform_version}\n{}",
                        description.platform_name, description.kind
                    )
                    .into_bytes()
                }),
                &description.topology_attributes,
            ),
            platform_name: description.platform_name,
            platform_version,
            on_host: description.on_host,
        }))
    }
}

/// The client that a caller names, if it can be used by this process.
pub(crate) fn client<'a, T: sys::CStruct>(
    args: &Args<'a, T>,
    field: Field<T, *mut sys::PJRT_Client>,
) -> Result<&'a Arc<Client>> {
    Ok(&args.handle::<ClientHandle>(field)?.0)
}

fn choice(args: &Args<'_, sys::PJRT_Client_Create_Args>) -> Result<Choice> {
    type Call = sys::PJRT_Client_Create_Args;
    let given = args.list(field!(Call.create_options), field!(Call.num_options))?;
    let mut choice = Choice::default();
    // Others are meant for vendors' plugins. The key-value callbacks are never touched: JAX leaves
    // them uninitialised.
    // SAFETY: the caller follows the header.
    for option in unsafe { options(given) } {
        match (option.0.as_str(), option.1) {
            ("socket", Value::Text(text)) => choice.socket = Some(text),
            ("name", Value::Text(text)) => choice.name = Some(text),
            ("num_nodes", Value::Int(processes)) => check_alone(processes)?,
            _ => {}
        }
    }
    Ok(choice)
}

/// Refuses to be one of several processes: each would compute by itself, as if it were alone.
fn check_alone(processes: i64) -> Result<()> {
    if processes <= 1 {
        return Ok(());
    }
    Err(unimplemented(format!(
        "`jax.distributed` was initialized for {processes} processes, and a job of Salus has one \
         process and one device: run the script as one process, or without Salus \
         (`JAX_PLATFORMS=cpu` or the vendor's own plugin)"
    )))
}

entry! {
    fn PJRT_Plugin_Initialize(_args: PJRT_Plugin_Initialize_Args) {
        Ok(())
    }

    fn PJRT_Client_Create(args: PJRT_Client_Create_Args) {
        let client = Client::connect(choice(&args)?)?;
        profiler::remember(&client);
        args.hand(field!(Call.client), Box::new(ClientHandle(client)))
    }

    fn PJRT_Client_LookupDevice(args: PJRT_Client_LookupDevice_Args) {
        let client = client(&args, field!(Call.client))?;
        match args.read(field!(Call.id))? {
            0 => args.put(field!(Call.device), lend(&client.hardware.device)),
            id => Err(not_found(format!("a session has one device, number 0; there is no {id}"))),
        }
    }

    fn PJRT_Client_LookupAddressableDevice(args: PJRT_Client_LookupAddressableDevice_Args) {
        let client = client(&args, field!(Call.client))?;
        let id = args.read(field!(Call.local_hardware_id))?;
        let ours = client.hardware.device.local_hardware_id;
        if id == ours {
            args.put(field!(Call.addressable_device), lend(&client.hardware.device))
        } else {
            Err(not_found(format!(
                "a session has one device, whose local hardware id is {ours}; there is no {id}"
            )))
        }
    }

    fn PJRT_Client_DefaultDeviceAssignment(args: PJRT_Client_DefaultDeviceAssignment_Args) {
        default_assignment(&args)
    }

    fn PJRT_Client_TopologyDescription(args: PJRT_Client_TopologyDescription_Args) {
        let client = client(&args, field!(Call.client))?;
        args.put(field!(Call.topology), lend(&client.topology))
    }
}

fn default_assignment(
    args: &Args<'_, sys::PJRT_Client_DefaultDeviceAssignment_Args>,
) -> Result<()> {
    type Call = sys::PJRT_Client_DefaultDeviceAssignment_Args;
    let (replicas, partitions) = (
        args.read(field!(Call.num_replicas))?,
        args.read(field!(Call.num_partitions))?,
    );
    if replicas != 1 || partitions != 1 {
        return Err(invalid(format!(
            "{replicas} replicas of {partitions} partitions cannot be assigned: a session has one \
             device"
        )));
    }
    let room = args.read(field!(Call.default_assignment_size))?;
    let at = args.read(field!(Call.default_assignment))?;
    if room == 0 || at.is_null() {
        return Err(invalid("there is no room for the assignment of one device"));
    }
    // SAFETY: the caller has room for at least one number there.
    unsafe { at.write_unaligned(0) };
    Ok(())
}

entry! { sure
    fn PJRT_Client_Destroy(args: PJRT_Client_Destroy_Args) {
        if let Some(handle) = args.own::<ClientHandle>(field!(Call.client))
            && !handle.0.session.is_ours()
        {
            // A forked child owns nothing of its parent's.
            std::mem::forget(handle);
        }
        Ok(())
    }

    fn PJRT_Client_PlatformName(args: PJRT_Client_PlatformName_Args) {
        let client = client(&args, field!(Call.client))?;
        args.put_text(field!(Call.platform_name), field!(Call.platform_name_size), &client.platform_name);
        Ok(())
    }

    fn PJRT_Client_PlatformVersion(args: PJRT_Client_PlatformVersion_Args) {
        let client = client(&args, field!(Call.client))?;
        let version = &client.platform_version;
        args.put_text(field!(Call.platform_version), field!(Call.platform_version_size), version);
        Ok(())
    }

    fn PJRT_Client_UpdateGlobalProcessInfo(_args: PJRT_Client_UpdateGlobalProcessInfo_Args) {
        // JAX calls this whenever `jax.distributed` is in use, from a thread of its own, and any
        // error aborts the process. A client of several processes was refused when it was created,
        // so there is nothing to learn from it.
        Ok(())
    }

    fn PJRT_Client_ProcessIndex(args: PJRT_Client_ProcessIndex_Args) {
        args.put(field!(Call.process_index), 0)
    }

    fn PJRT_Client_Devices(args: PJRT_Client_Devices_Args) {
        let client = client(&args, field!(Call.client))?;
        args.put(field!(Call.devices), client.hardware.devices())?;
        args.put(field!(Call.num_devices), 1)
    }

    fn PJRT_Client_AddressableDevices(args: PJRT_Client_AddressableDevices_Args) {
        let client = client(&args, field!(Call.client))?;
        args.put(field!(Call.addressable_devices), client.hardware.devices())?;
        args.put(field!(Call.num_addressable_devices), 1)
    }

    fn PJRT_Client_AddressableMemories(args: PJRT_Client_AddressableMemories_Args) {
        let client = client(&args, field!(Call.client))?;
        let (list, count) = client.hardware.memory_list();
        args.put(field!(Call.addressable_memories), list)?;
        args.put(field!(Call.num_addressable_memories), count)
    }
}
