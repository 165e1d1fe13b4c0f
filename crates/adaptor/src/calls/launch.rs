//! Launches: `PJRT_LoadedExecutable_Execute`.
//!
//! Errors that can be seen here are refused at once; then one frame is sent, the outputs exist, and
//! donated arguments are gone. The outputs' events end with the launch, with its error if it failed.
//!
//! Cost: an allocation for each output and a handful for the launch; one `sendmsg`.
//! Not here: types and shapes, which the service checks.
#![expect(unsafe_code, reason = "a C entry point; lists of the caller's")]
#![allow(non_snake_case, reason = "the header's names")]

use std::sync::{Arc, Mutex};

use salus_pjrt::sys;
use salus_wire::{Launch, OperationId, limits};

use crate::c_api::c_args::{Args, Handle, entry, field, give};
use crate::c_api::error::{Result, invalid, unimplemented};
use crate::calls::callbacks::{self, Callables};
use crate::objects::buffer::Buffer;
use crate::objects::device::Device;
use crate::objects::event::Event;
use crate::objects::executable::LoadedExecutable;
use crate::objects::program::Program;

type Call = sys::PJRT_LoadedExecutable_Execute_Args;
type Options = sys::PJRT_ExecuteOptions;

entry! {
    fn PJRT_LoadedExecutable_Execute(args: PJRT_LoadedExecutable_Execute_Args) {
        launch(&args)
    }

    fn PJRT_ExecuteContext_Create(args: PJRT_ExecuteContext_Create_Args) {
        args.hand(field!(Call.context), Box::new(ExecuteContext::default()))
    }
}

entry! { sure
    fn PJRT_ExecuteContext_Destroy(args: PJRT_ExecuteContext_Destroy_Args) {
        drop(args.own::<ExecuteContext>(field!(Call.context)));
        Ok(())
    }
}

/// PJRT's own word: what a launch carries for custom calls of its program.
#[derive(Default)]
pub(crate) struct ExecuteContext {
    pub(crate) callables: Mutex<Option<Arc<Callables>>>,
}

impl Handle for ExecuteContext {
    type Raw = sys::PJRT_ExecuteContext;
}

fn launch(args: &Args<'_, Call>) -> Result<()> {
    let loaded = &args.handle::<LoadedExecutable>(field!(Call.executable))?.0;
    let program = &loaded.program;
    let session = &program.client.session;
    session.usable()?;
    loaded.usable()?;
    let num_devices = args.read(field!(Call.num_devices))?;
    if num_devices != 1 {
        return Err(invalid(format!(
            "the program `{}` is launched on {num_devices} devices, and a session has one",
            program.name()
        )));
    }
    program
        .client
        .hardware
        .check_device(args.handle_or_null::<Device>(field!(Call.execute_device)))?;
    let callables = callables(args, program)?;
    let keep = keep(args, program)?;
    let buffers = arguments(args, program)?;
    let outputs = output_list(args, program)?;
    let first_output = session.next_arrays(program.outputs.len() as u64 + 1);
    // One more id than outputs: the spare one is this launch's stamp.
    let stamp = first_output.plus(program.outputs.len() as u64).0;
    check_donations(program, &buffers, &keep, stamp)?;
    let arguments = buffers.iter().map(|buffer| buffer.id).collect();
    let mut operation_sent = OperationId(0);
    let completion = session.operate(|operation| {
        operation_sent = operation;
        if let Some(callables) = callables.clone() {
            session.callables().insert(operation, callables);
        }
        Launch {
            operation,
            program: program.id,
            first_output,
            arguments,
            keep: keep.clone(),
        }
        .into()
    })?;
    for index in donated(program, &keep) {
        buffers[index].donated();
    }
    if callables.is_some() {
        completion.expedite();
        let outcome = session.wait_for(&completion).clone();
        session.callables().remove(operation_sent);
        if let Err(error) = outcome {
            for index in 0..program.outputs.len() as u64 {
                session.drop_array(first_output.plus(index), 0);
            }
            return Err(error);
        }
    }
    for index in 0..program.outputs.len() {
        let buffer = Buffer::output(
            first_output.plus(index as u64),
            Arc::clone(program),
            index as u32,
            Arc::clone(&completion),
        );
        // SAFETY: the caller has room for every output.
        unsafe { outputs.add(index).write(give(buffer)) };
    }
    let events = args.optional(field!(Call.device_complete_events));
    if let Some(events) = events.filter(|events| !events.is_null()) {
        // SAFETY: one event a device, and there is one device.
        unsafe { events.write(give(Event::of(completion, false))) };
    }
    Ok(())
}

/// The functions that a program which calls back was launched with; `None` for all others.
fn callables(args: &Args<'_, Call>, program: &Program) -> Result<Option<Arc<Callables>>> {
    if !program.signature.calls_back {
        return Ok(None);
    }
    // It is waited for below.
    program.client.session.may_wait()?;
    let context = match args.read(field!(Call.options))?.is_null() {
        true => None,
        false => {
            let options = args.inner_mut(field!(Call.options))?;
            options.handle_or_null::<ExecuteContext>(field!(Options.context))
        }
    };
    callbacks::given(context, program).map(Some)
}

/// Arguments that this launch must not donate, by position.
fn keep(args: &Args<'_, Call>, program: &Program) -> Result<Vec<u32>> {
    if args.read(field!(Call.options))?.is_null() {
        return Ok(Vec::new());
    }
    let options = args.inner_mut(field!(Call.options))?;
    let callbacks = options.optional(field!(Options.num_send_ops)).unwrap_or(0)
        + options.optional(field!(Options.num_recv_ops)).unwrap_or(0);
    if callbacks > 0 {
        return Err(unimplemented(format!(
            "the program `{}` uses {callbacks} send or receive callbacks, which Salus does not \
             support",
            program.name()
        )));
    }
    // Absent in the struct of old callers, which then keep nothing.
    let Ok(indices) = options.list(
        field!(Options.non_donatable_input_indices),
        field!(Options.num_non_donatable_input_indices),
    ) else {
        return Ok(Vec::new());
    };
    let mut keep = Vec::with_capacity(indices.len());
    for &index in indices {
        let position = u32::try_from(index)
            .ok()
            .filter(|i| (*i as usize) < program.num_parameters);
        keep.push(position.ok_or_else(|| {
            invalid(format!(
                "argument {index} is not to be donated, and the program `{}` has {} parameters",
                program.name(),
                program.num_parameters
            ))
        })?);
    }
    keep.sort_unstable();
    keep.dedup();
    Ok(keep)
}

/// The caller's arguments, if the program could be launched with them.
fn arguments<'a>(args: &Args<'a, Call>, program: &Program) -> Result<Vec<&'a Buffer>> {
    let count = args.read(field!(Call.num_args))?;
    if count != program.num_parameters {
        return Err(invalid(format!(
            "the program `{}` has {} parameters and was given {count} arguments",
            program.name(),
            program.num_parameters
        )));
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    // The wire cannot carry more; a program with as many parameters cannot have been compiled.
    debug_assert!(count <= limits::ARGUMENTS);
    let lists = args.read(field!(Call.argument_lists))?;
    if lists.is_null() {
        return Err(invalid("the list of arguments is NULL"));
    }
    // SAFETY: one list a device, and there is one device.
    let list = unsafe { *lists };
    if list.is_null() {
        return Err(invalid("the list of arguments is NULL"));
    }
    // SAFETY: the caller has `count` arguments there.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    let mut buffers = Vec::with_capacity(count);
    for (index, raw) in list.iter().enumerate() {
        // SAFETY: the caller names live buffers of ours, or NULL.
        let buffer = unsafe { raw.cast::<Buffer>().as_ref() };
        let buffer = buffer.ok_or_else(|| invalid(format!("argument {index} is NULL")))?;
        if !Arc::ptr_eq(buffer.client(), &program.client) {
            return Err(invalid(format!(
                "argument {index} of the program `{}` is on the device of another client",
                program.name()
            )));
        }
        buffer.usable().map_err(|mut error| {
            error.message = format!(
                "argument {index} of the program `{}`: {}",
                program.name(),
                error.message
            );
            error
        })?;
        buffers.push(buffer);
    }
    Ok(buffers)
}

fn output_list(args: &Args<'_, Call>, program: &Program) -> Result<*mut *mut sys::PJRT_Buffer> {
    let lists = args.read(field!(Call.output_lists))?;
    if program.outputs.is_empty() {
        return Ok(std::ptr::null_mut());
    }
    // SAFETY: one list a device, and there is one device.
    let list = (!lists.is_null()).then(|| unsafe { *lists });
    list.filter(|list| !list.is_null())
        .ok_or_else(|| invalid("there is no room for the outputs: their list is NULL"))
}

/// Parameters that this launch takes over.
fn donated<'a>(program: &'a Program, keep: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
    program
        .donated
        .iter()
        .filter(|index| keep.binary_search(index).is_err())
        .map(|index| *index as usize)
}

/// Refuses a launch that donates an array and uses it a second time.
fn check_donations(program: &Program, buffers: &[&Buffer], keep: &[u32], stamp: u64) -> Result<()> {
    let twice = |index: usize| {
        Err(invalid(format!(
            "argument {index} of the program `{}` is donated and is another argument of the same \
             call, too: pass a copy, or do not donate it",
            program.name()
        )))
    };
    let mut any = false;
    for index in donated(program, keep) {
        any = true;
        if !buffers[index].stamp(stamp) {
            return twice(index);
        }
    }
    if !any {
        return Ok(());
    }
    let mut donations = donated(program, keep).peekable();
    for (index, buffer) in buffers.iter().enumerate() {
        if donations.next_if_eq(&index).is_none() && buffer.is_stamped(stamp) {
            return twice(index);
        }
    }
    Ok(())
}
