//! Launches: enqueued by the caller, run by the compute stream.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use salus_pjrt::sys::*;

use crate::arrays::buffer::{Buffer, Data, Held, Inner, buffer, wait_inner};
use crate::c_api::error::{Error, Outcome};
use crate::c_api::event::{self, Event};
use crate::c_api::inner::{Padded, bytes, call};
use crate::c_api::slot::slots;
use crate::client::{self, Client, DEVICE, Raw};
use crate::config::OutOfMemory;
use crate::context::Context;
use crate::pool::Block;
use crate::program::{self, Program};
use crate::state::{Place, in_place, on_device};
use crate::stream::Ticket;

/// What the stream runs.
struct Launch {
    client: Arc<Client>,
    device: usize,
    program: Arc<Program>,
    arguments: Vec<Arc<Data>>,
    keep: Vec<i64>,
    launch_id: i32,
    context: Context,
    outputs: Vec<Arc<Data>>,
    over: Arc<Event>,
    /// What it failed with before it could run: the event tells it.
    failed: Option<Error>,
    makes_sticky: bool,
    _ticket: Ticket,
}

/// A launch call in the library, counted.
struct Call<'a>(&'a Place);

impl Call<'_> {
    fn enter(place: &Place, device: usize) -> Call<'_> {
        place.word(in_place::CALLS).fetch_add(1, Ordering::Relaxed);
        let now = place.state().sum(device, in_place::CALLS);
        place
            .on_device(on_device::CALLS_MOST)
            .fetch_max(now, Ordering::Relaxed);
        Call(place)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.word(in_place::CALLS).fetch_sub(1, Ordering::Relaxed);
    }
}

/// # Safety
/// Arguments as the header says.
unsafe fn arguments<'a>(args: &PJRT_LoadedExecutable_Execute_Args) -> Vec<&'a Buffer> {
    // SAFETY: the caller's promise: one list of live buffers, which need not be there for none.
    unsafe {
        let list = match args.num_args {
            0 => &[],
            len => bytes(*args.argument_lists, len),
        };
        list.iter().map(|&raw| buffer(raw)).collect()
    }
}

/// The device that a launch names, or that of its first argument, or the program's first.
///
/// # Safety
/// Arguments as the header says.
unsafe fn device_of(
    args: &PJRT_LoadedExecutable_Execute_Args,
    arguments: &[&Buffer],
) -> Result<(Arc<Client>, usize), Error> {
    if !args.execute_device.is_null() {
        return client::device(args.execute_device);
    }
    if let Some(first) = arguments.first() {
        return Ok((Arc::clone(&first.client), first.device));
    }
    let executable = args.executable;
    // SAFETY: live, and it owns the list.
    let first = unsafe {
        let made = call!(PJRT_LoadedExecutable_AddressableDevices(
            PJRT_LoadedExecutable_AddressableDevices_Args { executable }
        ))?;
        bytes(made.addressable_devices, made.num_addressable_devices)
            .first()
            .copied()
    };
    client::device(first.ok_or_else(|| Error::invalid("the program has no device"))?)
}

/// What a launch allocates when it is enqueued (GPUC:2103): its outputs, and scratch that is freed when
/// it has been enqueued (GPUC:2213).
#[derive(Default)]
struct Allocated {
    outputs: Vec<Option<Arc<Block>>>,
    _scratch: Option<Block>,
}

/// A launch on its way into the stream.
struct Enqueued<'a> {
    client: &'a Arc<Client>,
    device: usize,
    program: &'a Arc<Program>,
    arguments: Vec<&'a Buffer>,
    donated: BTreeSet<usize>,
}

impl Enqueued<'_> {
    fn check(&self) -> Outcome {
        let (given, wanted) = (self.arguments.len(), self.program.parameters.len());
        if given != wanted {
            return Err(Error::invalid(format!(
                "Execution supplied {given} buffers but compiled program expected {wanted} buffers"
            )));
        }
        let arguments = self.arguments.iter().zip(&self.program.parameters);
        for (index, (argument, &bytes)) in arguments.enumerate() {
            argument.held()?;
            if !Arc::ptr_eq(&argument.client, self.client) || argument.device != self.device {
                return Err(Error::invalid(format!(
                    "Buffer passed to Execute() as argument {index} to replica 0 is on another \
                     device"
                )));
            }
            if argument.bytes != bytes {
                return Err(Error::invalid(format!(
                    "Executable expected parameter {index} of size {bytes} but got buffer with \
                     incompatible size {}",
                    argument.bytes
                )));
            }
            let same = |other: &&&Buffer| std::ptr::eq(**other, *argument);
            if self.donated.contains(&index) && self.arguments.iter().filter(same).count() > 1 {
                return Err(Error::invalid(format!(
                    "Attempt to donate the same buffer twice in Execute() (argument {index})"
                )));
            }
        }
        Ok(())
    }

    fn allocate(&self) -> Result<Allocated, Error> {
        self.client.healthy()?;
        let pool = &self.client.devices[self.device].pool;
        let scratch = match self.client.config.scratch {
            true => pool.allocate(self.program.temp)?,
            false => None,
        };
        let mut outputs = Vec::with_capacity(self.program.outputs.len());
        for output in &self.program.outputs {
            let alias = output
                .alias
                .filter(|parameter| self.donated.contains(parameter));
            outputs.push(match alias {
                Some(parameter) => self.arguments[parameter].held()?.block,
                None if output.memory != DEVICE => None,
                None => pool.allocate(output.bytes)?.map(Arc::new),
            });
        }
        Ok(Allocated {
            outputs,
            _scratch: scratch,
        })
    }

    /// What it allocates, or what its event will say.
    fn allocate_or_fail(&self, place: &Place) -> Result<(Allocated, Option<Error>), Error> {
        let error = match self.allocate() {
            Ok(allocated) => return Ok((allocated, None)),
            Err(error) => error,
        };
        if error.code == PJRT_Error_Code_RESOURCE_EXHAUSTED {
            place.count(on_device::OUT_OF_MEMORY, 1);
            if self.client.config.out_of_memory == OutOfMemory::Call {
                return Err(error);
            }
        }
        // GPUC:2104, SEC:2021: the launch is over, its event and its outputs say why.
        let allocated = Allocated {
            outputs: vec![None; self.program.outputs.len()],
            _scratch: None,
        };
        Ok((allocated, Some(error)))
    }

    /// The data of its arguments. Donated ones are gone whatever becomes of the launch.
    fn take_arguments(&self) -> Result<Vec<Arc<Data>>, Error> {
        let arguments = self.arguments.iter().enumerate();
        let take = |(index, argument): (usize, &&Buffer)| {
            let held = match self.donated.contains(&index) {
                true => argument.take()?,
                false => argument.held()?,
            };
            Ok(held.data)
        };
        arguments.map(take).collect()
    }
}

/// # Safety
/// Arguments as the header says.
unsafe fn execute(args: &mut PJRT_LoadedExecutable_Execute_Args) -> Outcome {
    if args.num_devices != 1 {
        return Err(Error::unimplemented(
            "the stand-in launches on one device at a time",
        ));
    }
    let program = program::loaded(args.executable)?;
    // SAFETY: the caller's promise: one list of live buffers, options, a list in them.
    let (arguments, options, keep) = unsafe {
        let options = &*args.options;
        let kept = options.num_non_donatable_input_indices;
        let keep = bytes(options.non_donatable_input_indices, kept);
        (arguments(args), options, keep)
    };
    // SAFETY: as above.
    let (client, device) = unsafe { device_of(args, &arguments) }?;
    let aliased = program.outputs.iter().filter_map(|output| output.alias);
    let enqueued = Enqueued {
        client: &client,
        device,
        program: &program,
        arguments,
        donated: aliased
            .filter(|&index| !keep.contains(&(index as i64)))
            .collect(),
    };
    enqueued.check()?;
    let (config, here) = (&client.config, &client.devices[device]);
    let place = here.pool.place();
    let call = Call::enter(place, here.hardware);
    let number = place.count(on_device::LAUNCHES, 1);
    std::thread::sleep(config.enqueue);
    let ticket = here.compute.ticket();
    let (mut allocated, failed) = enqueued.allocate_or_fail(place)?;
    let launch = Launch {
        client: Arc::clone(&client),
        device,
        program: Arc::clone(&program),
        arguments: enqueued.take_arguments()?,
        keep: keep.to_vec(),
        launch_id: options.launch_id,
        context: Context::share(options.context),
        outputs: program.outputs.iter().map(|_| Data::pending()).collect(),
        over: Event::new(),
        failed,
        makes_sticky: config.sticky_at == number
            || config.sticky && program.name.contains("illegal_address"),
        _ticket: ticket,
    };
    // SAFETY: the caller has a place for each output, and for one event if for any.
    unsafe {
        for (index, output) in launch.outputs(&mut allocated).enumerate() {
            (*args.output_lists).add(index).write(output.give());
        }
        if !args.device_complete_events.is_null() {
            args.device_complete_events
                .write(event::give(Arc::clone(&launch.over)));
        }
    }
    let over = Arc::clone(&launch.over);
    match config.stream {
        true => here.compute.enqueue(over, move || launch.run()),
        false => drop(std::thread::spawn(move || launch.run())),
    }
    drop(allocated);
    drop(call);
    Ok(())
}

impl Launch {
    /// The buffers of its outputs, which have nothing in them yet.
    fn outputs(&self, allocated: &mut Allocated) -> impl Iterator<Item = Buffer> {
        let blocks = std::mem::take(&mut allocated.outputs).into_iter();
        let outputs = self.program.outputs.iter().zip(&self.outputs);
        outputs.zip(blocks).map(|((output, data), block)| {
            let data = Arc::clone(data);
            let (place, shape) = ((self.device, output.memory), Arc::clone(&output.shape));
            Buffer::new(
                &self.client,
                place,
                shape,
                output.bytes,
                Held { data, block },
            )
        })
    }

    fn run(mut self) {
        let started = Instant::now();
        let outcome = self.outputs_of_inner();
        let place = self.client.devices[self.device].pool.place();
        let busy = place.on_device(on_device::BUSY_NS);
        busy.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let ended = match outcome {
            Ok(made) => {
                for (data, inner) in self.outputs.iter().zip(made) {
                    data.settle(Ok(inner));
                }
                Ok(())
            }
            Err(error) => {
                for data in &self.outputs {
                    data.settle(Err(error.clone()));
                }
                Err(error)
            }
        };
        // Before anybody hears of the end: what was donated is gone, and the next may be enqueued.
        self.arguments.clear();
        let over = Arc::clone(&self.over);
        drop(self);
        over.set(ended);
    }

    fn outputs_of_inner(&self) -> Result<Vec<Inner>, Error> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let mut arguments = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            arguments.push(argument.wait()?.0.0);
        }
        self.client.healthy()?;
        if self.makes_sticky {
            return Err(self.make_sticky());
        }
        let mut options = Padded::<PJRT_ExecuteOptions>::new();
        options.args.launch_id = self.launch_id;
        options.args.context = self.context.raw();
        options.args.non_donatable_input_indices = self.keep.as_ptr();
        options.args.num_non_donatable_input_indices = self.keep.len();
        let list = arguments.as_ptr();
        let mut outputs = vec![std::ptr::null_mut::<PJRT_Buffer>(); self.outputs.len()];
        let output_list = outputs.as_mut_ptr();
        let mut over: *mut PJRT_Event = std::ptr::null_mut();
        // SAFETY: all live during the call; as many places as the program has outputs.
        let ended = unsafe {
            call!(PJRT_LoadedExecutable_Execute(
                PJRT_LoadedExecutable_Execute_Args {
                    executable: self.program.loaded.0,
                    options: &raw mut options.args,
                    argument_lists: &raw const list,
                    num_devices: 1,
                    num_args: arguments.len(),
                    output_lists: &raw const output_list,
                    device_complete_events: &raw mut over,
                    execute_device: self.client.devices[self.device].raw.0,
                }
            ))?;
            wait_inner(over)
        };
        let outputs = outputs.into_iter().map(|raw| Inner(Raw(raw))).collect();
        ended.map(|()| outputs)
    }

    /// XLA's gpu_client_stream_error_test.cc:122: INTERNAL in the event, then in every call.
    fn make_sticky(&self) -> Error {
        let error = Error::internal(
            "CUDA error: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
        );
        let place = self.client.devices[self.device].pool.place();
        place.count(on_device::STICKY, 1);
        self.client.sticky.get_or_init(|| error).clone()
    }
}

slots! {
    fn PJRT_LoadedExecutable_Execute(args: PJRT_LoadedExecutable_Execute_Args) {
        execute(args)
    }
}
