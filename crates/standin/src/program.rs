//! Programs: compiled on the CPU plugin, and what a launch must know of them.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use salus_formats::element::packed_bytes;
use salus_formats::hlo::{self, HOST_MEMORY_SPACE};
use salus_formats::proto::{Wire, Writer, fields};
use salus_pjrt::sys::*;
use salus_wire::Shape;

use crate::c_api::error::Error;
use crate::c_api::inner::{self, Padded, bytes, call};
use crate::c_api::slot::slots;
use crate::client::{self, Client, DEVICE, PINNED, Raw};
use crate::state::word;

pub(crate) struct Program {
    pub(crate) loaded: Raw<PJRT_LoadedExecutable>,
    pub(crate) name: String,
    /// Bytes of each parameter.
    pub(crate) parameters: Vec<u64>,
    pub(crate) outputs: Vec<Output>,
    /// What it needs while it runs.
    pub(crate) temp: u64,
    /// Compute capability of its target.
    target: String,
    /// Whether it was compiled without a client.
    hidden: bool,
    kinds: Vec<Raw<c_char>>,
    kind_sizes: Vec<usize>,
}

pub(crate) struct Output {
    pub(crate) shape: Arc<Shape>,
    pub(crate) bytes: u64,
    /// Which of the device's memories.
    pub(crate) memory: usize,
    /// The parameter whose memory it takes over if that is donated.
    pub(crate) alias: Option<usize>,
}

pub(crate) fn shape_bytes(shape: &Shape) -> u64 {
    let elements = shape.dims.iter().map(|&dim| dim as usize).product();
    packed_bytes(shape.element_type, elements) as u64
}

impl Drop for Program {
    fn drop(&mut self) {
        let executable = self.loaded.0;
        // SAFETY: owned, and used by no launch any more, since each has a share of this.
        let _ = unsafe {
            call!(PJRT_LoadedExecutable_Destroy(
                PJRT_LoadedExecutable_Destroy_Args { executable }
            ))
        };
    }
}

/// Programs by the CPU plugin's handles: loaded ones, and what can be asked about.
static LOADED: Mutex<Option<HashMap<usize, Arc<Program>>>> = Mutex::new(None);
static EXECUTABLES: Mutex<Option<HashMap<usize, Arc<Program>>>> = Mutex::new(None);

fn with<T>(
    table: &Mutex<Option<HashMap<usize, Arc<Program>>>>,
    change: impl FnOnce(&mut HashMap<usize, Arc<Program>>) -> T,
) -> T {
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    change(table.get_or_insert_default())
}

pub(crate) fn loaded(raw: *mut PJRT_LoadedExecutable) -> Result<Arc<Program>, Error> {
    with(&LOADED, |table| table.get(&raw.addr()).cloned())
        .ok_or_else(|| Error::invalid("no loaded executable of the stand-in"))
}

fn executable(raw: *const PJRT_Executable) -> Result<Arc<Program>, Error> {
    with(&EXECUTABLES, |table| table.get(&raw.addr()).cloned())
        .ok_or_else(|| Error::invalid("no executable of the stand-in"))
}

/// What is to be compiled.
pub(crate) struct Source {
    program: *const PJRT_Program,
    options: Vec<u8>,
    tunes: bool,
}

impl Source {
    /// # Safety
    /// The arguments of a compilation, during its call.
    pub(crate) unsafe fn new(
        program: *const PJRT_Program,
        options: *const c_char,
        size: usize,
    ) -> Source {
        // SAFETY: the caller's promise.
        let mut options = unsafe { bytes::<u8>(options.cast(), size) }.to_vec();
        let tunes = !is_untuned(&options);
        options.extend(right_products());
        Source {
            program,
            options,
            tunes,
        }
    }

    fn compile(&self, client: Raw<PJRT_Client>) -> Result<Raw<PJRT_LoadedExecutable>, Error> {
        // SAFETY: a live client; the rest lives during the call.
        let made = unsafe {
            call!(PJRT_Client_Compile(PJRT_Client_Compile_Args {
                client: client.0,
                program: self.program,
                compile_options: self.options.as_ptr().cast(),
                compile_options_size: self.options.len(),
            }))
        }?;
        Ok(Raw(made.executable))
    }
}

/// An option override for what is wrong in the CPU plugin and is no trait of CUDA: it keeps right-hand
/// sides of products by their address (`salus_formats::requirements`).
fn right_products() -> Vec<u8> {
    let mut value = Writer::default();
    value.field(2, Wire::Varint(0));
    let mut entry = Writer::default();
    entry.field(1, Wire::Bytes(b"xla_cpu_use_xnnpack"));
    entry.field(2, Wire::Bytes(&value.finish()));
    let mut options = Writer::default();
    options.field(7, Wire::Bytes(&entry.finish()));
    options.finish()
}

/// Whether the options say `xla_gpu_autotune_level=0` (debug option 123).
fn is_untuned(options: &[u8]) -> bool {
    let nested = |message: &[u8], number: u32| -> Option<Vec<u8>> {
        let mut fields = fields(message).flatten();
        let found = fields.find(|&(found, _)| found == number)?;
        found.1.bytes().ok().map(<[u8]>::to_vec)
    };
    let debug = nested(options, 3).and_then(|build| nested(&build, 3));
    debug.is_some_and(|debug| {
        let mut fields = fields(&debug).flatten();
        fields.any(|(number, value)| number == 123 && value.varint() == Ok(0))
    })
}

/// Compiles with a client, which tunes on its device: SEC:2256, gpu_profiler.cc:218.
pub(crate) fn compile(client: &Arc<Client>, source: &Source) -> Result<Arc<Program>, Error> {
    client.healthy()?;
    client
        .state
        .word(word::COMPILED)
        .fetch_add(1, Ordering::Relaxed);
    if source.tunes {
        // What it cannot have, it does without. That it asked is what takes the pool.
        drop(client.devices[0].pool.allocate(client.config.autotune));
    }
    let loaded = source.compile(client.raw)?;
    Program::new(loaded, client.config.capability.clone(), false)
}

pub(crate) fn compile_hidden(
    client: Raw<PJRT_Client>,
    source: &Source,
    target: String,
) -> Result<Arc<Program>, Error> {
    Program::new(source.compile(client)?, target, true)
}

/// The handle to ask about a program, for a caller, who destroys it.
pub(crate) fn give_executable(program: &Arc<Program>) -> Result<*mut PJRT_Executable, Error> {
    let raw = program.executable()?;
    with(&EXECUTABLES, |table| {
        table.insert(raw.0.addr(), Arc::clone(program))
    });
    Ok(raw.0)
}

impl Program {
    fn new(
        loaded: Raw<PJRT_LoadedExecutable>,
        target: String,
        hidden: bool,
    ) -> Result<Arc<Program>, Error> {
        let mut program = Program {
            loaded,
            name: String::new(),
            parameters: Vec::new(),
            outputs: Vec::new(),
            temp: 0,
            target,
            hidden,
            kinds: Vec::new(),
            kind_sizes: Vec::new(),
        };
        let executable = program.executable()?;
        let read = program.read(executable);
        destroy_executable(executable.0)?;
        read?;
        Ok(Arc::new(program))
    }

    fn executable(&self) -> Result<Raw<PJRT_Executable>, Error> {
        let loaded_executable = self.loaded.0;
        // SAFETY: live.
        let made = unsafe {
            call!(PJRT_LoadedExecutable_GetExecutable(
                PJRT_LoadedExecutable_GetExecutable_Args { loaded_executable }
            ))
        }?;
        Ok(Raw(made.executable))
    }

    fn read(&mut self, executable: Raw<PJRT_Executable>) -> Result<(), Error> {
        let executable = executable.0;
        // SAFETY: live, and it owns what it answers.
        unsafe {
            let name = call!(PJRT_Executable_Name(PJRT_Executable_Name_Args {
                executable
            }))?;
            let text = bytes::<u8>(name.executable_name.cast(), name.executable_name_size);
            self.name = String::from_utf8_lossy(text).into_owned();
            let stats = call!(PJRT_Executable_GetCompiledMemoryStats(
                PJRT_Executable_GetCompiledMemoryStats_Args { executable }
            ))?;
            self.temp = stats.temp_size_in_bytes.max(0) as u64;
        }
        let (format, code) = optimized(executable)?;
        let module = hlo::boundary(&format, &code).map_err(|e| Error::internal(e.message))?;
        let parameters = module.parameters.iter();
        self.parameters = parameters
            .map(|placed| shape_bytes(&placed.shape))
            .collect();
        let output = |(index, result): (usize, hlo::Placed)| {
            let mut aliases = module.aliases.iter();
            let alias = aliases.find(|alias| alias.output as usize == index);
            Output {
                bytes: shape_bytes(&result.shape),
                shape: Arc::new(result.shape),
                memory: if result.memory_space == HOST_MEMORY_SPACE {
                    PINNED
                } else {
                    DEVICE
                },
                alias: alias.map(|alias| alias.parameter as usize),
            }
        };
        self.outputs = module.results.into_iter().enumerate().map(output).collect();
        for output in &self.outputs {
            let kind = ["device", "pinned_host"][output.memory];
            self.kinds.push(Raw(kind.as_ptr().cast_mut().cast()));
            self.kind_sizes.push(kind.len());
        }
        Ok(())
    }
}

fn destroy_executable(executable: *mut PJRT_Executable) -> Result<(), Error> {
    // SAFETY: owned, and not used afterwards.
    unsafe {
        call!(PJRT_Executable_Destroy(PJRT_Executable_Destroy_Args {
            executable
        }))
    }
    .map(drop)
}

/// Format and code of the optimized program.
fn optimized(executable: *mut PJRT_Executable) -> Result<(String, Vec<u8>), Error> {
    let mut program = Padded::<PJRT_Program>::new();
    let ask = |program: &mut Padded<PJRT_Program>| {
        let program = &raw mut program.args;
        // SAFETY: live; the program is filled during the call.
        unsafe {
            call!(PJRT_Executable_OptimizedProgram(
                PJRT_Executable_OptimizedProgram_Args {
                    executable,
                    program
                }
            ))
        }
    };
    ask(&mut program)?;
    let mut code = vec![0u8; program.args.code_size];
    program.args.code = code.as_mut_ptr().cast();
    ask(&mut program)?;
    // SAFETY: the format is a constant of the plugin.
    let format = unsafe { bytes::<u8>(program.args.format.cast(), program.args.format_size) };
    Ok((String::from_utf8_lossy(format).into_owned(), code))
}

/// What stands before the CPU plugin's bytes of a serialized program.
fn header(target: &str) -> Vec<u8> {
    let mut header = b"standin\0".to_vec();
    header.push(target.len() as u8);
    header.extend(target.as_bytes());
    header
}

slots! {
    fn PJRT_Client_Compile(args: PJRT_Client_Compile_Args) {
        let client = client::client(args.client)?;
        let source = Source::new(args.program, args.compile_options, args.compile_options_size);
        let program = compile(&client, &source)?;
        args.executable = program.loaded.0;
        with(&LOADED, |table| table.insert(args.executable.addr(), program));
        Ok(())
    }

    fn PJRT_LoadedExecutable_Destroy(args: PJRT_LoadedExecutable_Destroy_Args) {
        let program = with(&LOADED, |table| table.remove(&args.executable.addr()));
        drop(program);
        Ok(())
    }

    fn PJRT_LoadedExecutable_GetExecutable(args: PJRT_LoadedExecutable_GetExecutable_Args) {
        args.executable = give_executable(&loaded(args.loaded_executable)?)?;
        Ok(())
    }

    fn PJRT_Executable_Destroy(args: PJRT_Executable_Destroy_Args) {
        let program = with(&EXECUTABLES, |table| table.remove(&args.executable.addr()));
        let destroyed = destroy_executable(args.executable);
        drop(program);
        destroyed
    }

    fn PJRT_Executable_OutputMemoryKinds(args: PJRT_Executable_OutputMemoryKinds_Args) {
        let program = executable(args.executable)?;
        args.num_outputs = program.kinds.len();
        args.memory_kinds = program.kinds.as_ptr().cast();
        args.memory_kind_sizes = program.kind_sizes.as_ptr();
        Ok(())
    }

    /// T1: nothing that was compiled without a client says.
    fn PJRT_Executable_GetCostAnalysis(args: PJRT_Executable_GetCostAnalysis_Args) {
        if executable(args.executable)?.hidden {
            return Err(Error::unimplemented("GetCostAnalysis needs a client"));
        }
        let asked = args.executable;
        let made = call!(PJRT_Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args {
            executable: asked
        }))?;
        (args.properties, args.num_properties) = (made.properties, made.num_properties);
        Ok(())
    }

    fn PJRT_Executable_Serialize(args: PJRT_Executable_Serialize_Args) {
        let program = executable(args.executable)?;
        let made = call!(PJRT_Executable_Serialize(PJRT_Executable_Serialize_Args {
            executable: args.executable
        }))?;
        let mut serialized = Box::new(header(&program.target));
        serialized.extend(inner::bytes::<u8>(
            made.serialized_bytes.cast(),
            made.serialized_bytes_size,
        ));
        if let Some(delete) = made.serialized_executable_deleter {
            delete(made.serialized_executable);
        }
        args.serialized_bytes = serialized.as_ptr().cast();
        args.serialized_bytes_size = serialized.len();
        args.serialized_executable = Box::into_raw(serialized).cast();
        args.serialized_executable_deleter = Some(delete_serialized);
        Ok(())
    }

    fn PJRT_Executable_DeserializeAndLoad(args: PJRT_Executable_DeserializeAndLoad_Args) {
        let client = client::client(args.client)?;
        client.healthy()?;
        let serialized = inner::bytes::<u8>(
            args.serialized_executable.cast(),
            args.serialized_executable_size,
        );
        // xla/service/gpu/gpu_executable.cc compares what was compiled for with what is there.
        let header = header(&client.config.capability);
        let serialized = serialized.strip_prefix(&header[..]).ok_or_else(|| {
            let here = &client.config.capability;
            Error::invalid(format!("the executable is not for compute capability {here}"))
        })?;
        let made = call!(PJRT_Executable_DeserializeAndLoad(
            PJRT_Executable_DeserializeAndLoad_Args {
                client: args.client,
                serialized_executable: serialized.as_ptr().cast(),
                serialized_executable_size: serialized.len(),
                overridden_serialized_compile_options: args.overridden_serialized_compile_options,
                overridden_serialized_compile_options_size:
                    args.overridden_serialized_compile_options_size,
            }
        ))?;
        let target = client.config.capability.clone();
        let program = Program::new(Raw(made.loaded_executable), target, false)?;
        args.loaded_executable = program.loaded.0;
        with(&LOADED, |table| table.insert(args.loaded_executable.addr(), program));
        Ok(())
    }
}

unsafe extern "C-unwind" fn delete_serialized(serialized: *mut PJRT_SerializedExecutable) {
    // SAFETY: made by `PJRT_Executable_Serialize`, deleted once.
    drop(unsafe { Box::from_raw(serialized.cast::<Vec<u8>>()) });
}
