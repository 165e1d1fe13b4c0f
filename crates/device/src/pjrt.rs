//! The real device: any vendor's PJRT plugin.
//!
//! One client. On the CPU plugin a lane is one of the client's virtual devices, elsewhere there is
//! one lane. Arrays live in a memory of a lane: memory `m` of lane `l` has the number
//! `l * description().memories.len() + m`, so that lane 0 is what the description shows.
//!
//! `done` closures of one lane's launches may be called out of order by some microseconds: the
//! plugin runs launches in order, but each completion is reported by the thread that ran it.
//!
//! Cost (CPU plugin): an upload 1 µs at any size when wrapped, a launch 3 µs and 1 µs more per
//! argument, a small read 0.4 µs, loading 10 to 70 ms.
//! Not here: the environment. Whoever wants other thread pools sets `PJRT_NPROC` before it starts.
#![expect(unsafe_code, reason = "hands launches to the vendor's plugin")]

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use salus_pjrt::{Buffer, Client, Launch, LoadedExecutable, Plugin};

use crate::callbacks::{self, CallingProgram, Home, Sites};
use crate::element::is_token;
use crate::failure::{
    INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED, error, optional, vendor, vendor_values,
};
use crate::transfer::Transfers;
use crate::vet::{self, Verdict};
use crate::{
    Callbacks, Compiled, Description, Device, Done, Error, HostMemory, HostTarget, Lent, MemoryUse,
    ReadForm, Shape, Signature, Source, Value, describe, linalg, signature,
};

/// Which plugin, and how to open it.
#[derive(Debug, Clone)]
pub struct PjrtConfig {
    pub plugin: PathBuf,
    /// Options for the vendor's client, by the vendor's names.
    pub options: Vec<(String, Value)>,
    /// Overrides what the plugin or the machine says.
    pub capacity_bytes: Option<u64>,
    /// Wanted; only the CPU plugin has more than one.
    pub lanes: u32,
    /// LAPACK's library, for linear algebra on the CPU plugin.
    pub lapack: Option<PathBuf>,
}

pub struct PjrtDevice {
    client: Client,
    transfers: Transfers,
    /// One virtual device each.
    lanes: Vec<salus_pjrt::Device>,
    /// Of all lanes, lane by lane.
    memories: Vec<salus_pjrt::Memory>,
    description: Description,
    sites: Sites,
    /// Never sent twice, so that launches of two sessions cannot be taken for one.
    next_launch: AtomicI32,
}

pub struct PjrtProgram {
    kind: ProgramKind,
    num_parameters: usize,
    outputs: Vec<Arc<Shape>>,
    /// Index into the description's memories.
    output_memories: Vec<u32>,
    /// Of each output on the device: asked at the first launch, the same at all others.
    output_bytes: OnceLock<Vec<u64>>,
}

enum ProgramKind {
    Loaded(LoadedExecutable),
    CallsBack(CallingProgram),
}

pub struct PjrtArray {
    pub(crate) buffer: Buffer,
    pub(crate) shape: Arc<Shape>,
    /// On the device.
    pub(crate) bytes: u64,
    /// What keeps its memory alive, where that is not the buffer's own.
    pub(crate) keeper: Option<Keeper>,
}

pub(crate) type Keeper = Arc<dyn Any + Send + Sync>;

type Options = Vec<(String, salus_pjrt::Value)>;

/// `launch` is not for such programs.
const CALLS_BACK: &str = "the program calls back, so it must be run to its end";

/// The option by which the CPU plugin takes its number of virtual devices.
const CPU_LANES: &str = "cpu_device_count";

fn open_plugin(path: &Path) -> Result<Plugin, Error> {
    if !path.is_file() {
        return Err(error(
            NOT_FOUND,
            format!(
                "there is no plugin at {}; name another file or install it",
                path.display()
            ),
        ));
    }
    Plugin::open(path).map_err(vendor)
}

impl PjrtDevice {
    /// Opens the plugin's library ahead of [`PjrtDevice::open`], which then needs no file any more.
    pub fn open_library(path: &Path) -> Result<(), Error> {
        open_plugin(path).map(drop)
    }

    pub fn open(config: &PjrtConfig) -> Result<PjrtDevice, Error> {
        let plugin = open_plugin(&config.plugin)?;
        let (client, options) = open_client(&plugin, config)?;
        if let Some(registered) = callbacks::register(&client) {
            registered?;
        }
        let mut lanes = client.addressable_devices().map_err(vendor)?;
        if client.platform_name().map_err(vendor)? != "cpu" {
            // Devices of other plugins are devices, not lanes: the first is ours.
            lanes.truncate(1);
        } else if let Some(ffi) = client.ffi() {
            linalg::register(ffi, config.lapack.as_deref());
        }
        let description = describe::describe(&plugin, &client, &lanes, config.capacity_bytes)?;
        let mut memories = Vec::new();
        for lane in &lanes {
            memories.extend(lane.memories().map_err(vendor)?);
        }
        Ok(PjrtDevice {
            transfers: Transfers::new(client.clone(), description.on_host),
            sites: Sites::new(plugin, options),
            client,
            lanes,
            memories,
            description,
            next_launch: AtomicI32::new(1),
        })
    }

    fn compile_unjudged(
        &self,
        source: &Source<'_>,
    ) -> Result<(salus_pjrt::Executable, salus_pjrt::Program), Error> {
        let loaded = self
            .client
            .compile(source.format, source.code, source.options)
            .map_err(vendor)?;
        let executable = loaded.executable().map_err(vendor)?;
        let program = signature::optimized_program(&executable)?;
        Ok((executable, program))
    }

    /// Compiles a program again whose sorts must be stable, from what the vendor has made of it.
    fn compile_stable(
        &self,
        source: &Source<'_>,
        unstable: &salus_pjrt::Executable,
        program: salus_pjrt::Program,
    ) -> Result<(salus_pjrt::Executable, salus_pjrt::Program), Error> {
        let refused = |why: &str| {
            error(
                UNIMPLEMENTED,
                format!(
                    "the program sorts unstably, which Salus could not make stable: {why}\n\nhint: \
                     ask for a stable sort, such as `jnp.sort(x, stable=True)`"
                ),
            )
        };
        let code = vet::with_stable_sorts(&program.format, &program.code);
        let code = code.map_err(|_| refused("its optimized form cannot be read"))?;
        let again = self.compile_unjudged(&Source {
            format: "hlo",
            code: &code,
            options: source.options,
        });
        let (stable, optimized) = again.map_err(|e| refused(&e.message))?;
        if vet::judge(&optimized.format, &optimized.code)? != Verdict::Run {
            return Err(refused("the vendor has made it unstable again"));
        }
        // The job knows the program by what it was before.
        let before = signature::of(unstable, program, &self.description)?;
        let after = signature::of(&stable, optimized.clone(), &self.description)?;
        let boundary = |one: &Signature| {
            let outputs: Vec<_> = one
                .outputs
                .iter()
                .map(|o| (o.shape.clone(), o.aliases))
                .collect();
            (one.parameters.clone(), outputs, one.donated.clone())
        };
        if boundary(&before) != boundary(&after) {
            return Err(refused("its parameters or results have other layouts then"));
        }
        Ok((stable, optimized))
    }

    fn memory(&self, number: u32) -> Result<&salus_pjrt::Memory, Error> {
        self.memories.get(number as usize).ok_or_else(|| {
            let have = self.memories.len();
            error(
                INVALID_ARGUMENT,
                format!("memory {number} of a device with {have} memories"),
            )
        })
    }
}

impl PjrtArray {
    pub(crate) fn new(buffer: Buffer, shape: Arc<Shape>) -> Result<PjrtArray, Error> {
        let bytes = buffer.on_device_bytes().map_err(vendor)?;
        Ok(PjrtArray {
            buffer,
            shape,
            bytes,
            keeper: None,
        })
    }
}

/// Opens a client with `config.lanes` virtual devices if it is the CPU plugin's.
fn open_client(plugin: &Plugin, config: &PjrtConfig) -> Result<(Client, Options), Error> {
    let create = |lanes: Option<u32>| {
        let mut options = vendor_values(&config.options);
        if let Some(lanes) = lanes {
            // The number of lanes is said in one place only.
            options.retain(|(name, _)| name != CPU_LANES);
            options.push((
                CPU_LANES.to_owned(),
                salus_pjrt::Value::Int(i64::from(lanes)),
            ));
        }
        let client = plugin.create_client(&options).map_err(|vendor| {
            let (path, (major, minor)) = (plugin.path().display(), plugin.api_version());
            error(
                vendor.code,
                format!(
                    "the plugin {path} (PJRT API {major}.{minor}) cannot open its device: \
                     {}\n\nhint: is the device there, and visible to this user? \
                     `salus doctor` shows what the plugin says",
                    vendor.message
                ),
            )
        })?;
        Ok((client, options))
    };
    let lanes = config.lanes.max(1);
    // Which platform it is, only a client can say, and other plugins refuse the option. The file's
    // name is a guess that saves opening twice.
    let name = config
        .plugin
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let looks_like_cpu = name.is_some_and(|name| name.contains("cpu"));
    let (client, options) = create(looks_like_cpu.then_some(lanes))?;
    let devices = client.addressable_devices().map_err(vendor)?.len();
    let is_cpu = client.platform_name().map_err(vendor)? == "cpu";
    if is_cpu && devices != lanes as usize && !looks_like_cpu {
        drop(client);
        return create(Some(lanes));
    }
    Ok((client, options))
}

impl Device for PjrtDevice {
    type Program = PjrtProgram;
    type Array = PjrtArray;

    fn description(&self) -> &Description {
        &self.description
    }

    fn compile(&self, source: &Source<'_>) -> Result<Compiled, Error> {
        let (executable, program) = self.compile_unjudged(source)?;
        let (executable, program) = match vet::judge(&program.format, &program.code)? {
            Verdict::Run => (executable, program),
            Verdict::SortsUnstably => self.compile_stable(source, &executable, program)?,
        };
        let serialized = optional(executable.serialize())?.ok_or_else(|| {
            error(
                UNIMPLEMENTED,
                format!(
                    "the plugin {} cannot serialize programs, and Salus compiles in another \
                     process than it runs in",
                    self.description.plugin_path
                ),
            )
        })?;
        Ok(Compiled {
            executable: serialized,
            signature: signature::of(&executable, program, &self.description)?,
        })
    }

    fn load(&self, compiled: &Compiled) -> Result<PjrtProgram, Error> {
        let signature = &compiled.signature;
        let outputs = signature.outputs.iter();
        let outputs: Vec<Arc<Shape>> = outputs
            .map(|output| Arc::new(output.shape.clone()))
            .collect();
        let program = |kind, outputs| PjrtProgram {
            kind,
            num_parameters: signature.parameters.len(),
            outputs,
            output_memories: signature.outputs.iter().map(|o| o.memory).collect(),
            output_bytes: OnceLock::new(),
        };
        if signature.calls_back {
            let calling = CallingProgram::new(compiled.executable.clone(), outputs.clone());
            return Ok(program(ProgramKind::CallsBack(calling), outputs));
        }
        let loaded = self
            .client
            .deserialize_and_load(&compiled.executable, None)
            .map_err(vendor)?;
        // `launch` relies on it: the vendor writes as many outputs as the program has.
        let count = loaded
            .executable()
            .and_then(|executable| executable.num_outputs())
            .map_err(vendor)?;
        if count != signature.outputs.len() {
            return Err(error(
                INVALID_ARGUMENT,
                format!(
                    "the program `{}` has {count} outputs, its signature {}",
                    signature.name,
                    signature.outputs.len()
                ),
            ));
        }
        Ok(program(ProgramKind::Loaded(loaded), outputs))
    }

    fn upload(&self, host: HostMemory, shape: &Shape, memory: u32) -> Result<PjrtArray, Error> {
        let target = self.memory(memory)?;
        let each = self.description.memories.len() as u32;
        let is_default = memory % each == self.description.default_memory;
        self.transfers.upload(host, shape, target, is_default)
    }

    fn launch(
        &self,
        program: &PjrtProgram,
        lane: u32,
        arguments: &[&PjrtArray],
        keep: &[u32],
        done: Done,
    ) -> Result<Vec<PjrtArray>, Error> {
        let device = self.lanes.get(lane as usize).ok_or_else(|| {
            let have = self.lanes.len();
            error(
                INVALID_ARGUMENT,
                format!("lane {lane} of a device with {have} lanes"),
            )
        })?;
        if arguments.len() != program.num_parameters {
            let (have, wanted) = (arguments.len(), program.num_parameters);
            return Err(error(
                INVALID_ARGUMENT,
                format!("{have} arguments for a program with {wanted} parameters"),
            ));
        }
        let arguments: Vec<&Buffer> = arguments.iter().map(|array| &array.buffer).collect();
        let keep: Vec<i64> = keep.iter().map(|&index| i64::from(index)).collect();
        let launch = Launch {
            device,
            arguments: &arguments,
            num_outputs: program.outputs.len(),
            keep: &keep,
            launch_id: self.next_launch.fetch_add(1, Ordering::Relaxed),
            context: None,
        };
        let ProgramKind::Loaded(loaded) = &program.kind else {
            return Err(error(INVALID_ARGUMENT, CALLS_BACK));
        };
        // SAFETY: `load` compared the number of outputs; the caller checked types and shapes.
        let (outputs, complete) = unsafe { loaded.execute(&launch) }.map_err(vendor)?;
        let bytes = program.output_bytes.get_or_init(|| {
            // The vendor answers this from the shape, without waiting; none means unknown: 0.
            outputs
                .iter()
                .map(|output| output.on_device_bytes().unwrap_or(0))
                .collect()
        });
        complete.on_ready(move |result| done(result.map_err(vendor)));
        let outputs = outputs.into_iter().zip(&program.outputs).zip(bytes);
        let array = |((buffer, shape), &bytes): ((Buffer, &Arc<Shape>), &u64)| PjrtArray {
            buffer,
            shape: shape.clone(),
            bytes,
            keeper: None,
        };
        Ok(outputs.map(array).collect())
    }

    fn run_calling_back(
        &self,
        program: &PjrtProgram,
        lane: u32,
        arguments: Vec<Lent<'_, PjrtArray>>,
        keep: &[u32],
        callbacks: Arc<dyn Callbacks>,
    ) -> Result<Vec<PjrtArray>, Error> {
        let ProgramKind::CallsBack(calling) = &program.kind else {
            return Err(error(INVALID_ARGUMENT, "the program does not call back"));
        };
        let each = self.description.memories.len() as u32;
        let memory = |output: usize| self.memory(lane * each + program.output_memories[output]);
        let home = Home {
            transfers: &self.transfers,
            memory: &memory,
        };
        self.sites.run(calling, &home, arguments, keep, callbacks)
    }

    fn on_ready(&self, array: &PjrtArray, done: Done) {
        match array.buffer.ready_event() {
            Ok(event) => event.on_ready(move |result| done(result.map_err(vendor))),
            Err(failed) => done(Err(vendor(failed))),
        }
    }

    fn read(&self, array: &PjrtArray, target: HostTarget, form: &ReadForm, done: Done) {
        self.transfers.read(array, target, form, done);
    }

    fn array_bytes(&self, array: &PjrtArray) -> u64 {
        array.bytes
    }

    fn memory_use(&self) -> Option<MemoryUse> {
        let stats = self.lanes.first()?.memory_stats().ok()?;
        let bytes = u64::try_from(stats.bytes_in_use).ok()?;
        let peak = stats
            .peak_bytes_in_use
            .and_then(|peak| u64::try_from(peak).ok());
        Some(MemoryUse {
            bytes,
            peak_bytes: peak.unwrap_or(bytes),
        })
    }

    fn host_address(&self, array: &PjrtArray) -> Option<usize> {
        let on_host = self.description.on_host;
        on_host.then(|| array.buffer.unsafe_pointer().ok())?
    }

    fn copy_to_memory(&self, array: &PjrtArray, memory: u32) -> Result<PjrtArray, Error> {
        let target = self.memory(memory)?;
        if is_token(&array.shape) {
            return self.transfers.another_token(target);
        }
        let buffer = array.buffer.copy_to_memory(target).map_err(vendor)?;
        PjrtArray::new(buffer, array.shape.clone())
    }
}
