//! Executables: what a compiler made, what can be asked of it, and launching it.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::api::{Api, Padded, bytes, list, text};
use crate::sys::*;
use crate::value::copy_named;
use crate::{Buffer, Client, Device, Error, Event, ExecuteContext, Value};

/// A compiled program as a thing to ask about.
pub struct Executable {
    api: Api,
    raw: NonNull<PJRT_Executable>,
    /// The vendors' are parts of it: the CPU plugin's is gone with it. One that was compiled for a
    /// topology stands by itself.
    _loaded: Option<Arc<Loaded>>,
}

// SAFETY: PJRT executables may be used by any thread.
unsafe impl Send for Executable {}
// SAFETY: as above.
unsafe impl Sync for Executable {}

/// A compiled program as a thing to launch. It may be dropped while launches are running.
pub struct LoadedExecutable(Arc<Loaded>);

struct Loaded {
    client: Client,
    raw: NonNull<PJRT_LoadedExecutable>,
}

// SAFETY: PJRT executables may be used by any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// A program's text in some format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub format: String,
    pub code: Vec<u8>,
}

/// Bytes by purpose, as the compiler knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStats {
    pub generated_code_bytes: i64,
    pub argument_bytes: i64,
    pub output_bytes: i64,
    pub alias_bytes: i64,
    pub temp_bytes: i64,
    pub host_generated_code_bytes: i64,
    pub host_argument_bytes: i64,
    pub host_output_bytes: i64,
    pub host_alias_bytes: i64,
    pub host_temp_bytes: i64,
}

/// One launch on one device.
pub struct Launch<'a> {
    pub device: &'a Device,
    pub arguments: &'a [&'a Buffer],
    pub num_outputs: usize,
    /// Arguments that the program would donate and must not.
    pub keep: &'a [i64],
    pub launch_id: i32,
    /// What handlers of the program's custom calls find; it outlives the launch.
    pub context: Option<&'a ExecuteContext>,
}

impl LoadedExecutable {
    /// # Safety
    /// `raw` is a loaded executable of this client that the caller owns, or null.
    pub(crate) unsafe fn new(
        client: Client,
        raw: *mut PJRT_LoadedExecutable,
    ) -> Result<LoadedExecutable, Error> {
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::internal("the vendor's plugin returned a null executable"))?;
        Ok(LoadedExecutable(Arc::new(Loaded { client, raw })))
    }

    pub fn executable(&self) -> Result<Executable, Error> {
        let mut args = Padded::<PJRT_LoadedExecutable_GetExecutable_Args>::new();
        args.loaded_executable = self.0.raw.as_ptr();
        // SAFETY: a live executable; what comes back is owned by the caller.
        unsafe {
            call!(
                self.0.client.api(),
                PJRT_LoadedExecutable_GetExecutable,
                &mut args
            )?;
        }
        // SAFETY: as above, and it is a part of this one.
        unsafe { Executable::new(self.0.client.api(), args.executable, Some(&self.0)) }
    }

    /// Launches, and returns the outputs and the event of the launch's end.
    ///
    /// `launch.num_outputs` must be what [`Executable::num_outputs`] says: the vendor writes that
    /// many.
    ///
    /// # Safety
    /// The number of outputs is right. Types and shapes of the arguments are the program's: a
    /// vendor checks byte sizes at most.
    pub unsafe fn execute(&self, launch: &Launch<'_>) -> Result<(Vec<Buffer>, Event), Error> {
        let arguments: Vec<*mut PJRT_Buffer> = launch.arguments.iter().map(|b| b.raw()).collect();
        let argument_list = arguments.as_ptr();
        let mut outputs = vec![std::ptr::null_mut::<PJRT_Buffer>(); launch.num_outputs];
        let output_list = outputs.as_mut_ptr();
        let mut complete: *mut PJRT_Event = std::ptr::null_mut();

        let mut options = Padded::<PJRT_ExecuteOptions>::new();
        options.launch_id = launch.launch_id;
        options.context = launch
            .context
            .map_or(std::ptr::null_mut(), ExecuteContext::raw);
        options.non_donatable_input_indices = launch.keep.as_ptr();
        options.num_non_donatable_input_indices = launch.keep.len();

        let mut args = Padded::<PJRT_LoadedExecutable_Execute_Args>::new();
        args.executable = self.0.raw.as_ptr();
        args.options = options.as_mut_ptr();
        args.argument_lists = &raw const argument_list;
        args.num_devices = 1;
        args.num_args = arguments.len();
        args.output_lists = &raw const output_list;
        args.device_complete_events = &raw mut complete;
        args.execute_device = launch.device.raw();
        // SAFETY: everything is live; lists live during the call and are as long as said, which
        // for the outputs is the caller's promise. Outputs and event are owned by the caller.
        unsafe {
            call!(
                self.0.client.api(),
                PJRT_LoadedExecutable_Execute,
                &mut args
            )?;
            let outputs = outputs
                .into_iter()
                .map(|raw| Buffer::new(self.0.client.clone(), raw))
                .collect::<Result<_, _>>()?;
            Ok((outputs, Event::new(self.0.client.api(), complete)?))
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let mut args = Padded::<PJRT_LoadedExecutable_Destroy_Args>::new();
        args.executable = self.raw.as_ptr();
        // SAFETY: owned, and not used afterwards. No caller could act on an error.
        let _ = unsafe { call!(self.client.api(), PJRT_LoadedExecutable_Destroy, &mut args) };
    }
}

impl Executable {
    /// # Safety
    /// `raw` is an executable of this plugin that the caller owns, or null; it is a part of `loaded`
    /// or stands by itself.
    unsafe fn new(
        api: Api,
        raw: *mut PJRT_Executable,
        loaded: Option<&Arc<Loaded>>,
    ) -> Result<Executable, Error> {
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::internal("the vendor's plugin returned a null executable"))?;
        Ok(Executable {
            api,
            raw,
            _loaded: loaded.cloned(),
        })
    }

    /// # Safety
    /// `raw` is an executable that this plugin compiled for a topology and the caller owns, or null.
    pub(crate) unsafe fn by_itself(
        api: Api,
        raw: *mut PJRT_Executable,
    ) -> Result<Executable, Error> {
        // SAFETY: the caller's promise.
        unsafe { Executable::new(api, raw, None) }
    }

    pub(crate) fn raw(&self) -> *mut PJRT_Executable {
        self.raw.as_ptr()
    }

    pub(crate) fn api(&self) -> Api {
        self.api
    }

    pub fn name(&self) -> Result<String, Error> {
        let mut args = Padded::<PJRT_Executable_Name_Args>::new();
        args.executable = self.raw();
        // SAFETY: a live executable, which owns the text.
        unsafe {
            call!(self.api(), PJRT_Executable_Name, &mut args)?;
            Ok(text(args.executable_name, args.executable_name_size))
        }
    }

    pub fn num_outputs(&self) -> Result<usize, Error> {
        let mut args = Padded::<PJRT_Executable_NumOutputs_Args>::new();
        args.executable = self.raw();
        // SAFETY: a live executable.
        unsafe { call!(self.api(), PJRT_Executable_NumOutputs, &mut args) }?;
        Ok(args.num_outputs)
    }

    pub fn fingerprint(&self) -> Result<Vec<u8>, Error> {
        let mut args = Padded::<PJRT_Executable_Fingerprint_Args>::new();
        args.executable = self.raw();
        // SAFETY: a live executable, which owns the bytes.
        unsafe {
            call!(self.api(), PJRT_Executable_Fingerprint, &mut args)?;
            Ok(bytes(
                args.executable_fingerprint,
                args.executable_fingerprint_size,
            ))
        }
    }

    pub fn code_bytes(&self) -> Result<i64, Error> {
        let mut args = Padded::<PJRT_Executable_SizeOfGeneratedCodeInBytes_Args>::new();
        args.executable = self.raw();
        // SAFETY: a live executable.
        unsafe {
            call!(
                self.api(),
                PJRT_Executable_SizeOfGeneratedCodeInBytes,
                &mut args
            )?;
        }
        Ok(args.size_in_bytes)
    }

    pub fn cost_analysis(&self) -> Result<Vec<(String, Value)>, Error> {
        let mut args = Padded::<PJRT_Executable_GetCostAnalysis_Args>::new();
        args.executable = self.raw();
        // SAFETY: a live executable, which owns the list.
        unsafe {
            call!(self.api(), PJRT_Executable_GetCostAnalysis, &mut args)?;
            Ok(copy_named(args.properties, args.num_properties))
        }
    }

    pub fn memory_stats(&self) -> Result<MemoryStats, Error> {
        let mut args = Padded::<PJRT_Executable_GetCompiledMemoryStats_Args>::new();
        args.executable = self.raw();
        // SAFETY: a live executable.
        unsafe {
            call!(
                self.api(),
                PJRT_Executable_GetCompiledMemoryStats,
                &mut args
            )?;
        }
        Ok(MemoryStats {
            generated_code_bytes: args.generated_code_size_in_bytes,
            argument_bytes: args.argument_size_in_bytes,
            output_bytes: args.output_size_in_bytes,
            alias_bytes: args.alias_size_in_bytes,
            temp_bytes: args.temp_size_in_bytes,
            host_generated_code_bytes: args.host_generated_code_size_in_bytes,
            host_argument_bytes: args.host_argument_size_in_bytes,
            host_output_bytes: args.host_output_size_in_bytes,
            host_alias_bytes: args.host_alias_size_in_bytes,
            host_temp_bytes: args.host_temp_size_in_bytes,
        })
    }

    pub fn output_types(&self) -> Result<Vec<PJRT_Buffer_Type>, Error> {
        let mut args = Padded::<PJRT_Executable_OutputElementTypes_Args>::new();
        args.executable = self.raw();
        // SAFETY: a live executable, which owns the list.
        unsafe {
            call!(self.api(), PJRT_Executable_OutputElementTypes, &mut args)?;
            Ok(list(args.output_types, args.num_output_types).to_vec())
        }
    }

    pub fn output_dimensions(&self) -> Result<Vec<Vec<i64>>, Error> {
        let mut args = Padded::<PJRT_Executable_OutputDimensions_Args>::new();
        args.executable = self.raw();
        // SAFETY: a live executable, which owns both lists; the sizes add up to the length of the
        // dimensions.
        unsafe {
            call!(self.api(), PJRT_Executable_OutputDimensions, &mut args)?;
            let ranks = list(args.dim_sizes, args.num_outputs);
            let mut dims = list(args.dims, ranks.iter().sum());
            let mut split = |&rank: &usize| {
                let (first, rest) = dims.split_at(rank);
                dims = rest;
                first.to_vec()
            };
            Ok(ranks.iter().map(&mut split).collect())
        }
    }

    pub fn output_memory_kinds(&self) -> Result<Vec<String>, Error> {
        let mut args = Padded::<PJRT_Executable_OutputMemoryKinds_Args>::new();
        args.executable = self.raw();
        // SAFETY: a live executable, which owns lists and texts.
        unsafe {
            call!(self.api(), PJRT_Executable_OutputMemoryKinds, &mut args)?;
            let kinds = list(args.memory_kinds, args.num_outputs);
            let sizes = list(args.memory_kind_sizes, args.num_outputs);
            Ok(kinds
                .iter()
                .zip(sizes)
                .map(|(&kind, &size)| text(kind, size))
                .collect())
        }
    }

    /// The program after optimization, in the vendor's format.
    pub fn optimized_program(&self) -> Result<Program, Error> {
        let mut program = Padded::<PJRT_Program>::new();
        let mut args = Padded::<PJRT_Executable_OptimizedProgram_Args>::new();
        args.executable = self.raw();
        args.program = program.as_mut_ptr();
        // SAFETY: a live executable; without a target this asks for the size.
        unsafe { call!(self.api(), PJRT_Executable_OptimizedProgram, &mut args) }?;
        let mut code = vec![0u8; program.code_size];
        program.code = code.as_mut_ptr().cast();
        args.program = program.as_mut_ptr();
        // SAFETY: as above, and the target has the length that the vendor asked for.
        unsafe { call!(self.api(), PJRT_Executable_OptimizedProgram, &mut args) }?;
        code.truncate(program.code_size);
        Ok(Program {
            // SAFETY: the format is the vendor's constant.
            format: unsafe { text(program.format, program.format_size) },
            code,
        })
    }

    /// Bytes that [`Client::deserialize_and_load`] takes.
    pub fn serialize(&self) -> Result<Vec<u8>, Error> {
        let mut args = Padded::<PJRT_Executable_Serialize_Args>::new();
        args.executable = self.raw();
        // SAFETY: a live executable; the bytes live until the deleter runs.
        unsafe {
            call!(self.api(), PJRT_Executable_Serialize, &mut args)?;
            let copy = bytes(args.serialized_bytes, args.serialized_bytes_size);
            if let Some(delete) = args.serialized_executable_deleter {
                delete(args.serialized_executable);
            }
            Ok(copy)
        }
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        let mut args = Padded::<PJRT_Executable_Destroy_Args>::new();
        args.executable = self.raw();
        // SAFETY: owned, and not used afterwards. No caller could act on an error.
        let _ = unsafe { call!(self.api(), PJRT_Executable_Destroy, &mut args) };
    }
}
