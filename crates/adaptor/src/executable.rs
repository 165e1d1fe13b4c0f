//! Programs: what is known of them without asking the device.
//!
//! The reply to a compilation carries the whole signature, so all questions are answered here. A
//! program has two lives: its description, kept by outputs that point into it, and its place in
//! the service ([`Loaded`]), which ends with the last handle.
//!
//! Promise: lists and texts stay where they are for as long as the handle they were asked of.
//! Not here: compilation ([`crate::compile`]), launches ([`crate::execute`]).
#![expect(unsafe_code, reason = "C entry points")]
#![allow(non_snake_case, reason = "the header's names")]

use std::ffi::c_char;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use salus_pjrt::sys;
use salus_wire::{Signature, Token};

use crate::client::Client;
use crate::error::{Result, invalid, unimplemented};
use crate::fence::{Args, Handle, entry, lend};
use crate::layouts::Layout;
use crate::serialized::{Serialized, deleter};
use crate::shape::ArrayType;
use crate::values::Attributes;

/// A program's description.
pub(crate) struct Program {
    pub(crate) client: Arc<Client>,
    pub(crate) id: u64,
    pub(crate) outputs: Vec<Output>,
    /// Parameters that a launch donates unless told to keep them, ascending.
    pub(crate) donated: Vec<u32>,
    pub(crate) num_parameters: usize,
    signature: Signature,
    source: Source,
    lists: Lists,
}

pub(crate) struct Output {
    pub(crate) array: ArrayType,
    /// Index into the device's memories.
    pub(crate) memory: u32,
}

/// What was compiled, kept for `Serialize`.
pub(crate) struct Source {
    pub(crate) format: String,
    pub(crate) code: Vec<u8>,
    pub(crate) options: Vec<u8>,
}

/// The signature as C reads it; pointers lead into this struct and the signature, whose contents
/// never change.
struct Lists {
    types: Vec<sys::PJRT_Buffer_Type>,
    dims: Vec<i64>,
    ranks: Vec<usize>,
    kinds: Vec<*const c_char>,
    kind_sizes: Vec<usize>,
    cost: Attributes,
    layouts: Vec<*mut sys::PJRT_Layouts_MemoryLayout>,
    _layouts: Box<[Layout]>,
}

// SAFETY: the pointers lead to immutable data of the same program.
unsafe impl Send for Lists {}
// SAFETY: as above.
unsafe impl Sync for Lists {}

/// A program's place in the service, which ends with the last handle on it.
pub(crate) struct Loaded {
    pub(crate) program: Arc<Program>,
    deleted: AtomicBool,
}

/// What C holds as `PJRT_LoadedExecutable`.
pub(crate) struct LoadedExecutable(pub(crate) Arc<Loaded>);

/// What C holds as `PJRT_Executable`.
pub(crate) struct Executable(pub(crate) Arc<Loaded>);

impl Handle for LoadedExecutable {
    type Raw = sys::PJRT_LoadedExecutable;
}
impl Handle for Executable {
    type Raw = sys::PJRT_Executable;
}

impl Program {
    /// A program as it was compiled, with the first handle on its place in the service.
    pub(crate) fn load(
        client: Arc<Client>,
        id: u64,
        signature: Signature,
        source: Source,
    ) -> Result<Arc<Loaded>> {
        let outputs = signature
            .outputs
            .iter()
            .map(|output| {
                Ok(Output {
                    array: ArrayType::of_shape(&output.shape, Some(&output.layout_text))?,
                    memory: output.memory,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let num_parameters = signature.parameters.len();
        if let Some(beyond) = signature
            .donated
            .iter()
            .find(|d| **d as usize >= num_parameters)
        {
            return Err(invalid(format!(
                "the service says that parameter {beyond} of {num_parameters} is donated"
            )));
        }
        let program = Self {
            client,
            id,
            lists: Lists::new(&signature, &outputs),
            outputs,
            donated: signature.donated.clone(),
            num_parameters,
            signature,
            source,
        };
        Ok(Arc::new(Loaded {
            program: Arc::new(program),
            deleted: AtomicBool::new(false),
        }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.signature.name
    }

    pub(crate) fn layouts(&self) -> &[*mut sys::PJRT_Layouts_MemoryLayout] {
        &self.lists.layouts
    }

    fn fingerprint(&self) -> Result<&[u8]> {
        let fingerprint = self.signature.fingerprint.as_deref();
        fingerprint
            .ok_or_else(|| unimplemented("the device's plugin gives programs no fingerprint"))
    }
}

impl Lists {
    fn new(signature: &Signature, outputs: &[Output]) -> Self {
        let layouts: Box<[Layout]> = outputs
            .iter()
            .map(|output| Layout::of_program(output.array.layout_text.clone()))
            .collect();
        let kinds = signature.output_memory_kinds.as_deref().unwrap_or(&[]);
        let arrays = outputs.iter().map(|output| &output.array);
        Self {
            types: arrays.clone().map(|array| array.element_type).collect(),
            dims: arrays
                .clone()
                .flat_map(|array| array.dims.clone())
                .collect(),
            ranks: arrays.map(|array| array.dims.len()).collect(),
            kinds: kinds.iter().map(|kind| kind.as_ptr().cast()).collect(),
            kind_sizes: kinds.iter().map(String::len).collect(),
            cost: Attributes::new(signature.cost.clone()),
            layouts: layouts.iter().map(lend).collect(),
            _layouts: layouts,
        }
    }
}

impl Loaded {
    /// An error if the program was deleted.
    pub(crate) fn usable(&self) -> Result<()> {
        if self.deleted.load(Ordering::Acquire) {
            return Err(invalid(format!(
                "the program `{}` has been deleted",
                self.program.name()
            )));
        }
        Ok(())
    }

    fn delete(&self) {
        let session = &self.program.client.session;
        if session.is_ours() && !self.deleted.swap(true, Ordering::AcqRel) {
            session.drop_program(self.program.id);
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.delete();
    }
}

impl Executable {
    pub(crate) fn program(&self) -> &Program {
        &self.0.program
    }
}

fn program<'a, T: sys::CStruct>(
    args: &Args<'a, T>,
    place: impl Fn(&T) -> &*mut sys::PJRT_Executable,
) -> Result<&'a Program> {
    Ok(args.handle::<Executable>(place)?.program())
}

fn loaded<'a, T: sys::CStruct>(
    args: &Args<'a, T>,
    place: impl Fn(&T) -> &*mut sys::PJRT_LoadedExecutable,
) -> Result<&'a Arc<Loaded>> {
    Ok(&args.handle::<LoadedExecutable>(place)?.0)
}

/// Leaks what a forked child inherited.
fn destroy<T>(handle: Option<Box<T>>, loaded: impl Fn(&T) -> &Loaded) {
    if let Some(handle) = handle
        && !loaded(&handle).program.client.session.is_ours()
    {
        std::mem::forget(handle);
    }
}

/// A serialized `DeviceAssignmentProto`: one replica, one computation, device 0.
const ONE_DEVICE: &[u8] = &[8, 1, 16, 1, 26, 3, 10, 1, 0];

entry! { sure
    fn PJRT_Executable_Destroy(args: PJRT_Executable_Destroy_Args) {
        destroy(args.own::<Executable>(|a| &a.executable), |e| &e.0);
        Ok(())
    }

    fn PJRT_LoadedExecutable_Destroy(args: PJRT_LoadedExecutable_Destroy_Args) {
        destroy(args.own::<LoadedExecutable>(|a| &a.executable), |e| &e.0);
        Ok(())
    }

    fn PJRT_LoadedExecutable_GetDeviceAssignment(
        args: PJRT_LoadedExecutable_GetDeviceAssignment_Args
    ) {
        let serialized = Serialized::new(ONE_DEVICE.to_vec());
        args.put(|a| &a.serialized_bytes, serialized.start())?;
        args.put(|a| &a.serialized_bytes_size, serialized.len())?;
        args.put(|a| &a.serialized_device_assignment_deleter, deleter())?;
        args.put(|a| &a.serialized_device_assignment, serialized.give())
    }

    fn PJRT_Executable_Name(args: PJRT_Executable_Name_Args) {
        let name = program(&args, |a| &a.executable)?.name();
        args.put_text(|a| &a.executable_name, |a| &a.executable_name_size, name);
        Ok(())
    }

    fn PJRT_Executable_NumReplicas(args: PJRT_Executable_NumReplicas_Args) {
        args.put(|a| &a.num_replicas, 1)
    }

    fn PJRT_Executable_NumPartitions(args: PJRT_Executable_NumPartitions_Args) {
        args.put(|a| &a.num_partitions, 1)
    }

    fn PJRT_LoadedExecutable_IsDeleted(args: PJRT_LoadedExecutable_IsDeleted_Args) {
        let loaded = loaded(&args, |a| &a.executable)?;
        args.put(|a| &a.is_deleted, loaded.usable().is_err())
    }
}

entry! {
    fn PJRT_LoadedExecutable_GetExecutable(args: PJRT_LoadedExecutable_GetExecutable_Args) {
        let loaded = loaded(&args, |a| &a.loaded_executable)?;
        args.hand(|a| &a.executable, Box::new(Executable(Arc::clone(loaded))))
    }

    fn PJRT_LoadedExecutable_AddressableDevices(
        args: PJRT_LoadedExecutable_AddressableDevices_Args
    ) {
        let place = loaded(&args, |a| &a.executable)?.program.client.place;
        args.put(|a| &a.addressable_devices, place.devices())?;
        args.put(|a| &a.num_addressable_devices, 1)
    }

    fn PJRT_LoadedExecutable_Delete(args: PJRT_LoadedExecutable_Delete_Args) {
        loaded(&args, |a| &a.executable)?.delete();
        Ok(())
    }

    fn PJRT_LoadedExecutable_Fingerprint(args: PJRT_LoadedExecutable_Fingerprint_Args) {
        let fingerprint = loaded(&args, |a| &a.executable)?.program.fingerprint()?;
        args.put(|a| &a.executable_fingerprint, fingerprint.as_ptr().cast())?;
        args.put(|a| &a.executable_fingerprint_size, fingerprint.len())
    }

    fn PJRT_Executable_Fingerprint(args: PJRT_Executable_Fingerprint_Args) {
        let fingerprint = program(&args, |a| &a.executable)?.fingerprint()?;
        args.put(|a| &a.executable_fingerprint, fingerprint.as_ptr().cast())?;
        args.put(|a| &a.executable_fingerprint_size, fingerprint.len())
    }

    fn PJRT_Executable_NumOutputs(args: PJRT_Executable_NumOutputs_Args) {
        args.put(|a| &a.num_outputs, program(&args, |a| &a.executable)?.outputs.len())
    }

    fn PJRT_Executable_SizeOfGeneratedCodeInBytes(
        args: PJRT_Executable_SizeOfGeneratedCodeInBytes_Args
    ) {
        let bytes = program(&args, |a| &a.executable)?.signature.code_bytes;
        args.put(|a| &a.size_in_bytes, bytes)
    }

    fn PJRT_Executable_GetCostAnalysis(args: PJRT_Executable_GetCostAnalysis_Args) {
        let cost = &program(&args, |a| &a.executable)?.lists.cost;
        args.put(|a| &a.num_properties, cost.len())?;
        args.put(|a| &a.properties, cost.as_ptr())
    }

    fn PJRT_Executable_OutputElementTypes(args: PJRT_Executable_OutputElementTypes_Args) {
        let types = &program(&args, |a| &a.executable)?.lists.types;
        args.put(|a| &a.output_types, types.as_ptr().cast_mut())?;
        args.put(|a| &a.num_output_types, types.len())
    }

    fn PJRT_Executable_OutputDimensions(args: PJRT_Executable_OutputDimensions_Args) {
        let lists = &program(&args, |a| &a.executable)?.lists;
        args.put(|a| &a.num_outputs, lists.ranks.len())?;
        args.put(|a| &a.dims, lists.dims.as_ptr())?;
        args.put(|a| &a.dim_sizes, lists.ranks.as_ptr())
    }

    fn PJRT_Executable_OutputMemoryKinds(args: PJRT_Executable_OutputMemoryKinds_Args) {
        let program = program(&args, |a| &a.executable)?;
        if program.signature.output_memory_kinds.is_none() {
            return Err(unimplemented("the device's plugin tells no memory kinds of outputs"));
        }
        args.put(|a| &a.num_outputs, program.lists.kinds.len())?;
        args.put(|a| &a.memory_kinds, program.lists.kinds.as_ptr())?;
        args.put(|a| &a.memory_kind_sizes, program.lists.kind_sizes.as_ptr())
    }

    fn PJRT_Executable_GetCompiledMemoryStats(args: PJRT_Executable_GetCompiledMemoryStats_Args) {
        memory_stats(&args)
    }

    fn PJRT_Executable_OptimizedProgram(args: PJRT_Executable_OptimizedProgram_Args) {
        optimized_program(&args)
    }

    fn PJRT_Executable_Serialize(args: PJRT_Executable_Serialize_Args) {
        let source = &args.handle_const::<Executable>(|a| &a.executable)?.program().source;
        let token = Token {
            format: source.format.clone(),
            code: source.code.clone(),
            options: source.options.clone(),
        };
        let serialized = Serialized::new(token.encode());
        args.put(|a| &a.serialized_bytes, serialized.start())?;
        args.put(|a| &a.serialized_bytes_size, serialized.len())?;
        args.put(|a| &a.serialized_executable_deleter, deleter())?;
        args.put(|a| &a.serialized_executable, serialized.give())
    }
}

fn memory_stats(args: &Args<'_, sys::PJRT_Executable_GetCompiledMemoryStats_Args>) -> Result<()> {
    let stats = program(args, |a| &a.executable)?.signature.memory;
    let stats = stats.ok_or_else(|| unimplemented("the device's plugin tells no memory stats"))?;
    args.put(
        |a| &a.generated_code_size_in_bytes,
        stats.generated_code_bytes,
    )?;
    args.put(|a| &a.argument_size_in_bytes, stats.argument_bytes)?;
    args.put(|a| &a.output_size_in_bytes, stats.output_bytes)?;
    args.put(|a| &a.alias_size_in_bytes, stats.alias_bytes)?;
    args.put(|a| &a.temp_size_in_bytes, stats.temp_bytes)?;
    // Older callers end somewhere below.
    args.put_optional(
        |a| &a.host_generated_code_size_in_bytes,
        stats.host_generated_code_bytes,
    );
    args.put_optional(
        |a| &a.host_argument_size_in_bytes,
        stats.host_argument_bytes,
    );
    args.put_optional(|a| &a.host_output_size_in_bytes, stats.host_output_bytes);
    args.put_optional(|a| &a.host_alias_size_in_bytes, stats.host_alias_bytes);
    args.put_optional(|a| &a.host_temp_size_in_bytes, stats.host_temp_bytes);
    let peak = stats.argument_bytes + stats.output_bytes - stats.alias_bytes + stats.temp_bytes;
    args.put_optional(|a| &a.peak_memory_in_bytes, peak);
    Ok(())
}

fn optimized_program(args: &Args<'_, sys::PJRT_Executable_OptimizedProgram_Args>) -> Result<()> {
    const FORMAT: &str = "hlo_with_config";
    let optimized = &program(args, |a| &a.executable)?
        .signature
        .optimized_program;
    if optimized.is_empty() {
        return Err(unimplemented(
            "the device's plugin gives no optimized program",
        ));
    }
    let target = args.inner_mut(|a| &a.program)?;
    target.put_text(|p| &p.format, |p| &p.format_size, FORMAT);
    let code = target.read(|p| &p.code)?;
    if code.is_null() {
        return target.put(|p| &p.code_size, optimized.len());
    }
    let room = target.read(|p| &p.code_size)?;
    if room < optimized.len() {
        return Err(invalid(format!(
            "the optimized program has {} bytes and there is room for {room}",
            optimized.len()
        )));
    }
    // SAFETY: the caller has `room` bytes there.
    unsafe { std::ptr::copy_nonoverlapping(optimized.as_ptr(), code.cast(), optimized.len()) };
    target.put(|p| &p.code_size, optimized.len())
}
