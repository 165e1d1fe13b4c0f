//! Executables: the handles by which C knows programs, and its questions about them.
//!
//! Promise: nothing here asks the service; lists and texts stay where they are for as long as the
//! handle they were asked of.
//! Not here: the answers ([`crate::objects::program`]), compilation, launches.
#![expect(unsafe_code, reason = "C entry points")]
#![allow(non_snake_case, reason = "the header's names")]

use std::sync::Arc;

use salus_pjrt::sys;
use salus_wire::Token;

use crate::c_api::c_args::{Args, Field, Handle, entry, field};
use crate::c_api::error::{Result, invalid, unimplemented};
use crate::c_api::owned_bytes::{Serialized, deleter};
use crate::objects::program::{Loaded, Program};

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
    field: Field<T, *mut sys::PJRT_Executable>,
) -> Result<&'a Program> {
    Ok(args.handle::<Executable>(field)?.program())
}

fn loaded<'a, T: sys::CStruct>(
    args: &Args<'a, T>,
    field: Field<T, *mut sys::PJRT_LoadedExecutable>,
) -> Result<&'a Arc<Loaded>> {
    Ok(&args.handle::<LoadedExecutable>(field)?.0)
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
        destroy(args.own::<Executable>(field!(Call.executable)), |e| &e.0);
        Ok(())
    }

    fn PJRT_LoadedExecutable_Destroy(args: PJRT_LoadedExecutable_Destroy_Args) {
        destroy(args.own::<LoadedExecutable>(field!(Call.executable)), |e| &e.0);
        Ok(())
    }

    fn PJRT_LoadedExecutable_GetDeviceAssignment(
        args: PJRT_LoadedExecutable_GetDeviceAssignment_Args
    ) {
        let serialized = Serialized::new(ONE_DEVICE.to_vec());
        args.put(field!(Call.serialized_bytes), serialized.start())?;
        args.put(field!(Call.serialized_bytes_size), serialized.len())?;
        args.put(field!(Call.serialized_device_assignment_deleter), deleter())?;
        args.put(field!(Call.serialized_device_assignment), serialized.give())
    }

    fn PJRT_Executable_Name(args: PJRT_Executable_Name_Args) {
        let name = program(&args, field!(Call.executable))?.name();
        args.put_text(field!(Call.executable_name), field!(Call.executable_name_size), name);
        Ok(())
    }

    fn PJRT_Executable_NumReplicas(args: PJRT_Executable_NumReplicas_Args) {
        args.put(field!(Call.num_replicas), 1)
    }

    fn PJRT_Executable_NumPartitions(args: PJRT_Executable_NumPartitions_Args) {
        args.put(field!(Call.num_partitions), 1)
    }

    fn PJRT_LoadedExecutable_IsDeleted(args: PJRT_LoadedExecutable_IsDeleted_Args) {
        let loaded = loaded(&args, field!(Call.executable))?;
        args.put(field!(Call.is_deleted), loaded.usable().is_err())
    }
}

entry! {
    fn PJRT_LoadedExecutable_GetExecutable(args: PJRT_LoadedExecutable_GetExecutable_Args) {
        let loaded = loaded(&args, field!(Call.loaded_executable))?;
        args.hand(field!(Call.executable), Box::new(Executable(Arc::clone(loaded))))
    }

    fn PJRT_LoadedExecutable_AddressableDevices(
        args: PJRT_LoadedExecutable_AddressableDevices_Args
    ) {
        let hardware = loaded(&args, field!(Call.executable))?.program.client.hardware;
        args.put(field!(Call.addressable_devices), hardware.devices())?;
        args.put(field!(Call.num_addressable_devices), 1)
    }

    fn PJRT_LoadedExecutable_Delete(args: PJRT_LoadedExecutable_Delete_Args) {
        loaded(&args, field!(Call.executable))?.delete();
        Ok(())
    }

    fn PJRT_LoadedExecutable_Fingerprint(args: PJRT_LoadedExecutable_Fingerprint_Args) {
        let fingerprint = loaded(&args, field!(Call.executable))?.program.fingerprint()?;
        args.put(field!(Call.executable_fingerprint), fingerprint.as_ptr().cast())?;
        args.put(field!(Call.executable_fingerprint_size), fingerprint.len())
    }

    fn PJRT_Executable_Fingerprint(args: PJRT_Executable_Fingerprint_Args) {
        let fingerprint = program(&args, field!(Call.executable))?.fingerprint()?;
        args.put(field!(Call.executable_fingerprint), fingerprint.as_ptr().cast())?;
        args.put(field!(Call.executable_fingerprint_size), fingerprint.len())
    }

    fn PJRT_Executable_NumOutputs(args: PJRT_Executable_NumOutputs_Args) {
        args.put(field!(Call.num_outputs), program(&args, field!(Call.executable))?.outputs.len())
    }

    fn PJRT_Executable_SizeOfGeneratedCodeInBytes(
        args: PJRT_Executable_SizeOfGeneratedCodeInBytes_Args
    ) {
        let bytes = program(&args, field!(Call.executable))?.signature.code_bytes;
        args.put(field!(Call.size_in_bytes), bytes)
    }

    fn PJRT_Executable_GetCostAnalysis(args: PJRT_Executable_GetCostAnalysis_Args) {
        let cost = &program(&args, field!(Call.executable))?.lists.cost;
        args.put(field!(Call.num_properties), cost.len())?;
        args.put(field!(Call.properties), cost.as_ptr())
    }

    fn PJRT_Executable_OutputElementTypes(args: PJRT_Executable_OutputElementTypes_Args) {
        let types = &program(&args, field!(Call.executable))?.lists.types;
        args.put(field!(Call.output_types), types.as_ptr().cast_mut())?;
        args.put(field!(Call.num_output_types), types.len())
    }

    fn PJRT_Executable_OutputDimensions(args: PJRT_Executable_OutputDimensions_Args) {
        let lists = &program(&args, field!(Call.executable))?.lists;
        args.put(field!(Call.num_outputs), lists.ranks.len())?;
        args.put(field!(Call.dims), lists.dims.as_ptr())?;
        args.put(field!(Call.dim_sizes), lists.ranks.as_ptr())
    }

    fn PJRT_Executable_OutputMemoryKinds(args: PJRT_Executable_OutputMemoryKinds_Args) {
        let lists = &program(&args, field!(Call.executable))?.lists;
        args.put(field!(Call.num_outputs), lists.kinds.len())?;
        args.put(field!(Call.memory_kinds), lists.kinds.as_ptr())?;
        args.put(field!(Call.memory_kind_sizes), lists.kind_sizes.as_ptr())
    }

    fn PJRT_Executable_GetCompiledMemoryStats(args: PJRT_Executable_GetCompiledMemoryStats_Args) {
        memory_stats(&args)
    }

    fn PJRT_Executable_OptimizedProgram(args: PJRT_Executable_OptimizedProgram_Args) {
        optimized_program(&args)
    }

    fn PJRT_Executable_Serialize(args: PJRT_Executable_Serialize_Args) {
        let source = &args.handle_const::<Executable>(field!(Call.executable))?.program().source;
        let token = Token {
            format: source.format.clone(),
            code: source.code.clone(),
            options: source.options.clone(),
        };
        let serialized = Serialized::new(token.encode());
        args.put(field!(Call.serialized_bytes), serialized.start())?;
        args.put(field!(Call.serialized_bytes_size), serialized.len())?;
        args.put(field!(Call.serialized_executable_deleter), deleter())?;
        args.put(field!(Call.serialized_executable), serialized.give())
    }
}

fn memory_stats(args: &Args<'_, sys::PJRT_Executable_GetCompiledMemoryStats_Args>) -> Result<()> {
    type Call = sys::PJRT_Executable_GetCompiledMemoryStats_Args;
    let stats = program(args, field!(Call.executable))?.signature.memory;
    let stats =
        stats.ok_or_else(|| unimplemented("the device's plugin reports no memory stats"))?;
    args.put(
        field!(Call.generated_code_size_in_bytes),
        stats.generated_code_bytes,
    )?;
    args.put(field!(Call.argument_size_in_bytes), stats.argument_bytes)?;
    args.put(field!(Call.output_size_in_bytes), stats.output_bytes)?;
    args.put(field!(Call.alias_size_in_bytes), stats.alias_bytes)?;
    args.put(field!(Call.temp_size_in_bytes), stats.temp_bytes)?;
    // Older callers end somewhere below.
    args.put_optional(
        field!(Call.host_generated_code_size_in_bytes),
        stats.host_generated_code_bytes,
    );
    args.put_optional(
        field!(Call.host_argument_size_in_bytes),
        stats.host_argument_bytes,
    );
    args.put_optional(
        field!(Call.host_output_size_in_bytes),
        stats.host_output_bytes,
    );
    args.put_optional(
        field!(Call.host_alias_size_in_bytes),
        stats.host_alias_bytes,
    );
    args.put_optional(field!(Call.host_temp_size_in_bytes), stats.host_temp_bytes);
    let peak = stats.argument_bytes + stats.output_bytes - stats.alias_bytes + stats.temp_bytes;
    args.put_optional(field!(Call.peak_memory_in_bytes), peak);
    Ok(())
}

fn optimized_program(args: &Args<'_, sys::PJRT_Executable_OptimizedProgram_Args>) -> Result<()> {
    type Call = sys::PJRT_Executable_OptimizedProgram_Args;
    type Code = sys::PJRT_Program;
    const FORMAT: &str = "hlo_with_config";
    let optimized = &program(args, field!(Call.executable))?
        .signature
        .optimized_program;
    if optimized.is_empty() {
        return Err(unimplemented(
            "the device's plugin gives no optimized program",
        ));
    }
    let target = args.inner_mut(field!(Call.program))?;
    target.put_text(field!(Code.format), field!(Code.format_size), FORMAT);
    let code = target.read(field!(Code.code))?;
    if code.is_null() {
        return target.put(field!(Code.code_size), optimized.len());
    }
    let room = target.read(field!(Code.code_size))?;
    if room < optimized.len() {
        return Err(invalid(format!(
            "the optimized program has {} bytes and there is room for {room}",
            optimized.len()
        )));
    }
    // SAFETY: the caller has `room` bytes there.
    unsafe { std::ptr::copy_nonoverlapping(optimized.as_ptr(), code.cast(), optimized.len()) };
    target.put(field!(Code.code_size), optimized.len())
}
