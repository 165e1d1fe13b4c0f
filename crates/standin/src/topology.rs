//! Topologies, and compiling without a client.
//!
//! Stands for `PJRT_DeviceTopology_Create` of API and for GPUC:210-230: a topology of a given target
//! configuration needs neither a device nor a client, and what is compiled for it is loaded elsewhere.
//! Underneath, a hidden client of the CPU plugin compiles, which holds no memory of a device and is
//! counted nowhere.

use std::ffi::c_char;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use salus_pjrt::sys::*;

use crate::c_api::error::Error;
use crate::c_api::inner::call;
use crate::c_api::named::{self, Named, Value};
use crate::c_api::slot::slots;
use crate::client::{self, PLATFORM, Raw, VERSION, create_inner, inner_devices};
use crate::config::Config;
use crate::device;
use crate::program;
use crate::state::{State, word};

pub(crate) struct Topology {
    config: Arc<Config>,
    target: String,
    attributes: Named,
    /// The CPU plugin's.
    inner: Raw<PJRT_TopologyDescription>,
    descriptions: Vec<Raw<PJRT_DeviceDescription>>,
}

impl Topology {
    /// That of a client of the CPU plugin.
    pub(crate) fn of_client(
        client: Raw<PJRT_Client>,
        config: &Arc<Config>,
    ) -> Result<Topology, Error> {
        Topology::new(client, config, target_config(config))
    }

    fn new(
        client: Raw<PJRT_Client>,
        config: &Arc<Config>,
        target: String,
    ) -> Result<Topology, Error> {
        let inner = call_topology(client)?;
        let describe = |device: Raw<PJRT_Device>| {
            // SAFETY: a live device.
            let described = unsafe {
                call!(PJRT_Device_GetDescription(
                    PJRT_Device_GetDescription_Args { device: device.0 }
                ))
            }?;
            Ok(Raw(described.device_description))
        };
        let devices = inner_devices(client)?.into_iter();
        let text = |name: &str, value: &str| (name.to_owned(), Value::Text(value.to_owned()));
        Ok(Topology {
            config: Arc::clone(config),
            attributes: Named::new(vec![
                text("platform_version", VERSION),
                text("target_config", &target),
            ]),
            target,
            inner,
            descriptions: devices.map(describe).collect::<Result<_, Error>>()?,
        })
    }

    pub(crate) fn as_raw(&self) -> *mut PJRT_TopologyDescription {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    pub(crate) fn inner(&self) -> *mut PJRT_TopologyDescription {
        self.inner.0
    }
}

/// # Safety
/// A live topology of ours.
pub(crate) unsafe fn topology<'a>(raw: *const PJRT_TopologyDescription) -> &'a Topology {
    // SAFETY: the caller's promise.
    unsafe { &*raw.cast::<Topology>() }
}

fn call_topology(client: Raw<PJRT_Client>) -> Result<Raw<PJRT_TopologyDescription>, Error> {
    // SAFETY: a live client, which owns it.
    let made = unsafe {
        call!(PJRT_Client_TopologyDescription(
            PJRT_Client_TopologyDescription_Args { client: client.0 }
        ))
    }?;
    Ok(Raw(made.topology))
}

/// The hidden client, made when it is first needed.
fn hidden() -> Result<Raw<PJRT_Client>, Error> {
    static HIDDEN: Mutex<Option<Raw<PJRT_Client>>> = Mutex::new(None);
    let mut hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner);
    match *hidden {
        Some(client) => Ok(client),
        None => Ok(*hidden.insert(create_inner(1)?)),
    }
}

/// A `GpuTargetConfigProto` as text, as far as anybody looks.
pub(crate) fn target_config(config: &Config) -> String {
    let (major, minor) = config.capability.split_once('.').unwrap_or(("8", "0"));
    format!(
        "gpu_device_info {{\n  threads_per_block_limit: 1024\n  threads_per_warp: 32\n  \
         core_count: 108\n  device_memory_size: {}\n  cuda_compute_capability {{\n    major: \
         {major}\n    minor: {minor}\n  }}\n}}\nplatform_name: \"CUDA\"\ndnn_version_info {{\n  \
         major: 9\n  minor: 10\n}}\nruntime_version {{\n  major: 12\n  minor: 9\n}}\n\
         device_description_str: \"{}\"\n",
        config.memory, config.kind
    )
}

/// `8.0` of a target configuration.
pub(crate) fn capability(target: &str) -> Result<String, Error> {
    let number = |name: &str, text: &str| -> Option<u32> {
        let digits = text.split_once(name)?.1.trim_start();
        let end = digits.find(|c: char| !c.is_ascii_digit());
        digits[..end.unwrap_or(digits.len())].parse().ok()
    };
    let inside = target
        .split_once("cuda_compute_capability")
        .and_then(|(_, rest)| rest.split_once('}'));
    let found = inside.and_then(|(inside, _)| {
        let major = number("major:", inside)?;
        // Text of a protobuf leaves out what is 0.
        Some(format!("{major}.{}", number("minor:", inside).unwrap_or(0)))
    });
    found.ok_or_else(|| Error::invalid("Failed to parse GpuTargetConfigProto"))
}

fn described() -> &'static (String, Named) {
    static DESCRIBED: OnceLock<(String, Named)> = OnceLock::new();
    DESCRIBED.get_or_init(|| {
        let config = Config::read("").unwrap_or_default();
        (config.kind.clone(), device::attributes(&config))
    })
}

pub(crate) fn kind_without_client() -> (*const u8, usize) {
    let kind = &described().0;
    (kind.as_ptr(), kind.len())
}

pub(crate) fn attributes_without_client() -> (*const PJRT_NamedValue, usize) {
    let attributes = &described().1;
    (attributes.as_ptr(), attributes.len())
}

fn create(options: &[(String, Value)]) -> Result<Box<Topology>, Error> {
    let text = |wanted: &str| {
        options.iter().find_map(|(name, value)| match value {
            Value::Text(text) if name == wanted => Some(&**text),
            _ => None,
        })
    };
    let config = Config::read(text("standin").unwrap_or("")).map_err(Error::invalid)?;
    if !config.topology {
        return Err(Error::unimplemented("PJRT_TopologyDescription_Create"));
    }
    if let Some(shape) = text("topology") {
        let sizes: Vec<Result<u32, _>> = shape.split('x').map(str::parse).collect();
        if sizes.len() != 3 || sizes.iter().any(Result::is_err) {
            return Err(Error::invalid(format!("no topology: {shape}")));
        }
    }
    let target = text("target_config").map_or_else(|| target_config(&config), str::to_owned);
    capability(&target)?;
    Ok(Box::new(Topology::new(
        hidden()?,
        &Arc::new(config),
        target,
    )?))
}

slots! {
    fn PJRT_TopologyDescription_Create(args: PJRT_TopologyDescription_Create_Args) {
        let topology = create(&named::read(args.create_options, args.num_options))?;
        args.topology = Box::into_raw(topology).cast();
        Ok(())
    }

    fn PJRT_TopologyDescription_Destroy(args: PJRT_TopologyDescription_Destroy_Args) {
        drop(Box::from_raw(args.topology.cast::<Topology>()));
        Ok(())
    }

    fn PJRT_TopologyDescription_PlatformName(args: PJRT_TopologyDescription_PlatformName_Args) {
        args.platform_name = PLATFORM.as_ptr().cast();
        args.platform_name_size = PLATFORM.len();
        Ok(())
    }

    fn PJRT_TopologyDescription_PlatformVersion(
        args: PJRT_TopologyDescription_PlatformVersion_Args
    ) {
        args.platform_version = VERSION.as_ptr().cast();
        args.platform_version_size = VERSION.len();
        Ok(())
    }

    fn PJRT_TopologyDescription_GetDeviceDescriptions(
        args: PJRT_TopologyDescription_GetDeviceDescriptions_Args
    ) {
        let descriptions = &topology(args.topology).descriptions;
        args.descriptions = descriptions.as_ptr().cast();
        args.num_descriptions = descriptions.len();
        Ok(())
    }

    fn PJRT_TopologyDescription_Attributes(args: PJRT_TopologyDescription_Attributes_Args) {
        let attributes = &topology(args.topology).attributes;
        (args.attributes, args.num_attributes) = (attributes.as_ptr(), attributes.len());
        Ok(())
    }

    fn PJRT_TopologyDescription_Serialize(args: PJRT_TopologyDescription_Serialize_Args) {
        let bytes = Box::new(topology(args.topology).target.clone().into_bytes());
        args.serialized_bytes = bytes.as_ptr().cast::<c_char>();
        args.serialized_bytes_size = bytes.len();
        args.serialized_topology = Box::into_raw(bytes).cast();
        args.serialized_topology_deleter = Some(delete_serialized);
        Ok(())
    }

    /// As CUDA's answers (T1).
    fn PJRT_TopologyDescription_Deserialize(args: PJRT_TopologyDescription_Deserialize_Args) {
        Err(Error::unimplemented("PJRT_TopologyDescription_Deserialize"))
    }

    fn PJRT_Compile(args: PJRT_Compile_Args) {
        let topology = topology(args.topology);
        let source = program::Source::new(
            args.program,
            args.compile_options,
            args.compile_options_size,
        );
        let made = match client::client(args.client) {
            Ok(client) => program::compile(&client, &source)?,
            Err(_) => {
                let state = State::open(topology.config.state.as_deref());
                if let Ok(state) = state {
                    let count = state.word(word::COMPILED_WITHOUT_CLIENT);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                program::compile_hidden(hidden()?, &source, capability(&topology.target)?)?
            }
        };
        args.executable = program::give_executable(&made)?;
        Ok(())
    }
}

unsafe extern "C-unwind" fn delete_serialized(serialized: *mut PJRT_SerializedTopology) {
    // SAFETY: made by `PJRT_TopologyDescription_Serialize`, deleted once.
    drop(unsafe { Box::from_raw(serialized.cast::<Vec<u8>>()) });
}
