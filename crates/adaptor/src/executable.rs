//! Executables: the handles by which C knows programs, and its questions about them.
//!
//! Promise: nothing here asks the service; lists and texts stay where they are for as long as the
//! handle they were asked of.
//! Not here: the answers ([`crate::program`]), compilation, launches.
#![expect(unsafe_code, reason = "C entry points")]
#![allow(non_snake_case, reason = "the header's names")]

use std::sync::Arc;

use salus_pjrt::sys;
use salus_wire::Token;

use crate::error::{Result, invalid, unimplemented};
use crate::fence::{Args, Handle, entry};
use crate::program::{Loaded, Program};
use crate::serialized::{Serialized, deleter};

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
        let lists = &program(&args, |a| &a.executable)?.lists;
        args.put(|a| &a.num_outputs, lists.kinds.len())?;
        args.put(|a| &a.memory_kinds, lists.kinds.as_ptr())?;
        args.put(|a| &a.memory_kind_sizes, lists.kind_sizes.as_ptr())
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
