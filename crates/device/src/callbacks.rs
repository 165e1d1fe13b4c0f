//! Programs that call functions of their job while they run.
//!
//! JAX lowers its callbacks to custom calls of a few names, for which this process registers a
//! handler with the plugin. A launch carries its [`Callbacks`] as user data, so that programs stay
//! shared between sessions; the handler finds them there and waits for their answer.
//!
//! A device of the CPU plugin runs what it was given strictly in order, so a launch that waits for
//! its job would stop all others of its lane, and a callback that launches a program itself would
//! wait for ever. Such launches therefore run on *sites*: virtual devices of further clients of the
//! plugin, which nobody else uses meanwhile. Arrays are wrapped on their way there and back, not
//! copied, where the device's memory is this process's.
//!
//! Cost: a client (4 to 10 ms, some threads that sleep) for every few launches that call back at the
//! same time, and one load of the program for each client that runs it; 1 to 2 µs an array.
//! Not here: how a call reaches the job, and what its lane does meanwhile.
#![expect(unsafe_code, reason = "a handler of the plugin's, and its user data")]

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use salus_pjrt::sys::{XLA_FFI_CallFrame, XLA_FFI_Error};
use salus_pjrt::{Buffer, Client, FfiBuffer, Launch, LoadedExecutable, Plugin, UserType, handle};

use crate::element::{from_xla, host_bytes, is_sub_byte, is_token, packed_bytes};
use crate::failure::{INTERNAL, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, error, vendor};
use crate::layout;
use crate::pjrt::{Keeper, PjrtArray};
use crate::transfer::Transfers;
use crate::{Error, HostMemory, HostTarget, ReadForm, Shape};

/// The custom calls by which JAX calls Python on platform `cpu`, and how.
pub(crate) const TARGETS: &[(&str, Style)] = &[
    ("xla_ffi_python_cpu_callback", Style::Values),
    ("xla_ffi_partitioned_python_cpu_callback", Style::Values),
    ("xla_buffer_python_cpu_callback", Style::Buffers),
];

/// What the job's function is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// The operands; it returns the results.
    Values,
    /// The operands and the memory of the results, which it fills (`jax.experimental.buffer_callback`).
    Buffers,
}

/// The platform under which the CPU plugin looks handlers up.
const PLATFORM: &str = "Host";

/// The functions that a job gave with a launch.
pub trait Callbacks: Send + Sync {
    /// Runs one of them. Blocks until its results are in place, or there are none.
    fn call(
        &self,
        callback: u64,
        style: Style,
        operands: &[CallArray<'_>],
        results: &[CallArray<'_>],
    ) -> Result<(), Error>;
}

/// An operand or a result of a call, where it lies: dense and row-major, elements of less than a byte
/// packed. It is the call's own until the call returns.
#[derive(Debug, Clone, Copy)]
pub struct CallArray<'a> {
    /// As PJRT numbers it.
    pub element_type: u32,
    pub dims: &'a [i64],
    pub data: *mut u8,
    pub bytes: usize,
}

/// An argument of a launch that calls back: the array, and what keeps it alive.
pub struct Lent<'a, A> {
    pub array: &'a A,
    pub keep: Box<dyn Any + Send + Sync>,
}

/// The user data of a launch.
struct Launched {
    callbacks: Arc<dyn Callbacks>,
    /// Why the first of its calls failed; the plugin wraps it in words of its own.
    failed: OnceLock<Error>,
}

static USER_TYPE: OnceLock<Result<UserType, Error>> = OnceLock::new();

/// Registers the handler, once in a process. `None` where the plugin has no such thing.
pub(crate) fn register(client: &Client) -> Option<Result<(), Error>> {
    let ffi = client.ffi()?;
    let registered = USER_TYPE.get_or_init(|| {
        for (target, style) in TARGETS {
            let handler = match style {
                Style::Values => call_with_values,
                Style::Buffers => call_with_buffers,
            };
            ffi.register(target, PLATFORM, handler).map_err(vendor)?;
        }
        ffi.register_type("salus.Launched").map_err(vendor)
    });
    Some(registered.clone().map(|_| ()))
}

unsafe extern "C" fn call_with_values(frame: *mut XLA_FFI_CallFrame) -> *mut XLA_FFI_Error {
    // SAFETY: called by the plugin with a frame of its own.
    unsafe { call_back(frame, Style::Values) }
}

unsafe extern "C" fn call_with_buffers(frame: *mut XLA_FFI_CallFrame) -> *mut XLA_FFI_Error {
    // SAFETY: as above.
    unsafe { call_back(frame, Style::Buffers) }
}

/// # Safety
/// `frame` is what the plugin gave to a handler.
unsafe fn call_back(frame: *mut XLA_FFI_CallFrame, style: Style) -> *mut XLA_FFI_Error {
    let body = |call: &salus_pjrt::Call<'_>| {
        let failed = |error: Error| salus_pjrt::Error::new(error.code, error.message);
        let launched = match USER_TYPE.get() {
            Some(Ok(user_type)) => call.user_data(*user_type),
            _ => None,
        };
        let Some(launched) = launched else {
            let message = "a program calls back, and its launch has no callbacks";
            return Err(failed(error(INVALID_ARGUMENT, message)));
        };
        // SAFETY: `Sites::run` gave this with the launch, which lasts until the call has returned.
        let launched = unsafe { launched.cast::<Launched>().as_ref() };
        let index = call.integer("index")? as u64;
        let (operands, results) = (call.operands()?, call.results()?);
        let outcome = arrays(&operands).and_then(|operands| {
            let results = arrays(&results)?;
            launched.callbacks.call(index, style, &operands, &results)
        });
        outcome.map_err(|error| {
            let _ = launched.failed.set(error.clone());
            failed(error)
        })
    };
    // SAFETY: the caller's promise.
    unsafe { handle(frame, body) }
}

fn arrays<'a>(buffers: &[FfiBuffer<'a>]) -> Result<Vec<CallArray<'a>>, Error> {
    let array = |buffer: &FfiBuffer<'a>| {
        let element_type = from_xla(u64::from(buffer.element_type)).ok_or_else(|| {
            let number = buffer.element_type;
            error(
                INVALID_ARGUMENT,
                format!("XLA's type {number} is not known"),
            )
        })?;
        let bytes = packed_bytes(element_type, buffer.elements());
        Ok(CallArray {
            element_type,
            dims: buffer.dims,
            data: buffer.data.cast(),
            bytes,
        })
    };
    buffers.iter().map(array).collect()
}

/// Where launches that call back run.
pub(crate) struct Sites {
    plugin: Plugin,
    options: Vec<(String, salus_pjrt::Value)>,
    state: Mutex<State>,
    next_launch: AtomicI32,
}

#[derive(Default)]
struct State {
    clients: Vec<Arc<SiteClient>>,
    /// How many there are.
    sites: usize,
    free: Vec<Site>,
}

struct SiteClient {
    number: usize,
    client: Client,
    transfers: Transfers,
}

#[derive(Clone)]
struct Site {
    client: Arc<SiteClient>,
    device: salus_pjrt::Device,
    memory: salus_pjrt::Memory,
}

/// Launches that may wait for their jobs at once: twice as many as one job may have (see
/// `CALLBACK_CHANNELS` of the wire), so that none can use them up for all others.
const LAUNCHES_MAX: usize = 32;

/// A program that calls back: it is loaded where it is launched.
pub(crate) struct CallingProgram {
    executable: Vec<u8>,
    outputs: Vec<Arc<Shape>>,
    loaded: Mutex<HashMap<usize, Arc<LoadedExecutable>>>,
}

impl CallingProgram {
    pub(crate) fn new(executable: Vec<u8>, outputs: Vec<Arc<Shape>>) -> Self {
        Self {
            executable,
            outputs,
            loaded: Mutex::default(),
        }
    }

    fn on(&self, site: &SiteClient) -> Result<Arc<LoadedExecutable>, Error> {
        let mut loaded = lock(&self.loaded);
        if let Some(found) = loaded.get(&site.number) {
            return Ok(Arc::clone(found));
        }
        let made = site.client.deserialize_and_load(&self.executable, None);
        let made = Arc::new(made.map_err(vendor)?);
        // `Sites::run` relies on it: the vendor writes as many outputs as the program has.
        let count = made
            .executable()
            .and_then(|e| e.num_outputs())
            .map_err(vendor)?;
        if count != self.outputs.len() {
            let message = format!("{count} outputs of a program with {}", self.outputs.len());
            return Err(error(INTERNAL, message));
        }
        loaded.insert(site.number, Arc::clone(&made));
        Ok(made)
    }
}

/// Returns a site when its launch is over.
struct Taken<'a> {
    sites: &'a Sites,
    site: Site,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        lock(&self.sites.state).free.push(self.site.clone());
    }
}

/// Where a launch's arrays come from and go to.
pub(crate) struct Home<'a> {
    pub(crate) transfers: &'a Transfers,
    pub(crate) memory: &'a dyn Fn(usize) -> Result<&'a salus_pjrt::Memory, Error>,
}

impl Sites {
    /// `options` are those of the device's own client.
    pub(crate) fn new(plugin: Plugin, options: Vec<(String, salus_pjrt::Value)>) -> Self {
        Self {
            plugin,
            options,
            state: Mutex::default(),
            next_launch: AtomicI32::new(1),
        }
    }

    fn take(&self) -> Result<Taken<'_>, Error> {
        let mut state = lock(&self.state);
        if state.free.is_empty() {
            let open = state.clients.len();
            if state.sites >= LAUNCHES_MAX {
                return Err(error(
                    RESOURCE_EXHAUSTED,
                    format!(
                        "{} launches of all jobs wait for callbacks at the same time, the most that \
                         may; launch it again later, and let callbacks that launch programs which \
                         call back themselves not nest deeply",
                        state.sites
                    ),
                ));
            }
            let client = self.plugin.create_client(&self.options).map_err(vendor)?;
            let devices = client.addressable_devices().map_err(vendor)?;
            let client = Arc::new(SiteClient {
                number: open,
                transfers: Transfers::new(client.clone(), true),
                client,
            });
            state.sites += devices.len();
            for device in devices {
                state.free.push(Site {
                    memory: device.default_memory().map_err(vendor)?,
                    client: Arc::clone(&client),
                    device,
                });
            }
            state.clients.push(client);
        }
        // The first clients have the programs loaded already.
        let first = state.free.iter().enumerate();
        let first = first.min_by_key(|(_, site)| site.client.number);
        match first.map(|(at, _)| at) {
            Some(at) => Ok(Taken {
                site: state.free.swap_remove(at),
                sites: self,
            }),
            None => Err(error(
                INTERNAL,
                "the plugin opened a client without a device",
            )),
        }
    }

    /// Runs a program to its end and returns its outputs in the arrays' home.
    pub(crate) fn run(
        &self,
        program: &CallingProgram,
        home: &Home<'_>,
        arguments: Vec<Lent<'_, PjrtArray>>,
        keep: &[u32],
        callbacks: Arc<dyn Callbacks>,
    ) -> Result<Vec<PjrtArray>, Error> {
        let taken = self.take()?;
        let site = &taken.site;
        let loaded = program.on(&site.client)?;
        let mut lent = Vec::with_capacity(arguments.len());
        // Until the launch has ended, whatever becomes of the arrays' memory.
        let mut keeps = Vec::new();
        for argument in arguments {
            let array = argument.array;
            let ready = array.buffer.ready_event().map_err(vendor)?;
            ready.wait().map_err(vendor)?;
            let keeper = match &array.keeper {
                Some(keeper) => {
                    keeps.push(argument.keep);
                    Arc::clone(keeper)
                }
                None => Keeper::from(argument.keep),
            };
            let to = (&site.client.transfers, &site.memory);
            lent.push(carry(array, home.transfers, to, keeper)?);
        }
        let given = lent.iter().filter_map(|array| {
            let keeper = array.keeper.clone()?;
            Some((array.buffer.unsafe_pointer().ok()?, keeper))
        });
        let given: Vec<(usize, Keeper)> = given.collect();
        let outputs = self.launch(program, &loaded, site, &lent, keep, callbacks)?;
        // Before the outputs are wrapped, so that what was not donated is given back.
        drop((lent, keeps));
        let outputs = outputs.into_iter().zip(&program.outputs).enumerate();
        let carried = outputs.map(|(index, (buffer, shape))| {
            let address = buffer.unsafe_pointer().ok();
            let array = Arc::new(PjrtArray::new(buffer, Arc::clone(shape))?);
            // What took an argument's place lies in that one's memory, and needs nothing else: if it
            // kept the array of this launch, one that is updated again and again would keep all.
            let replaced = given.iter().find(|(at, _)| Some(*at) == address);
            let keeper = match replaced {
                Some((_, keeper)) => Arc::clone(keeper),
                None => Arc::clone(&array) as Keeper,
            };
            let to = (home.transfers, (home.memory)(index)?);
            carry(&array, &site.client.transfers, to, keeper)
        });
        carried.collect()
    }

    fn launch(
        &self,
        program: &CallingProgram,
        loaded: &LoadedExecutable,
        site: &Site,
        arguments: &[PjrtArray],
        keep: &[u32],
        callbacks: Arc<dyn Callbacks>,
    ) -> Result<Vec<Buffer>, Error> {
        let (Some(ffi), Some(Ok(user_type))) = (site.client.client.ffi(), USER_TYPE.get()) else {
            return Err(error(
                INTERNAL,
                "the plugin takes no handlers of custom calls",
            ));
        };
        let launched = Launched {
            callbacks,
            failed: OnceLock::new(),
        };
        // SAFETY: `launched` lives until this returns, which is after the launch has ended.
        let context = unsafe { ffi.context(*user_type, (&raw const launched).cast()) };
        let context = context.map_err(vendor)?;
        let buffers: Vec<&Buffer> = arguments.iter().map(|array| &array.buffer).collect();
        let keep: Vec<i64> = keep.iter().map(|&index| i64::from(index)).collect();
        let launch = Launch {
            device: &site.device,
            arguments: &buffers,
            num_outputs: program.outputs.len(),
            keep: &keep,
            launch_id: self.next_launch.fetch_add(1, Ordering::Relaxed),
            context: Some(&context),
        };
        // SAFETY: `CallingProgram::on` compared the number of outputs; the caller checked types and
        // shapes.
        let outcome = unsafe { loaded.execute(&launch) }.and_then(|(outputs, complete)| {
            complete.wait()?;
            Ok(outputs)
        });
        outcome.map_err(|failed| {
            launched
                .failed
                .get()
                .cloned()
                .unwrap_or_else(|| vendor(failed))
        })
    }
}

/// The array in another client: wrapped, so that it may be overwritten in place when it is donated,
/// or copied where it cannot be wrapped. The keeper keeps the memory alive.
fn carry(
    array: &PjrtArray,
    from: &Transfers,
    (to, memory): (&Transfers, &salus_pjrt::Memory),
    keeper: Keeper,
) -> Result<PjrtArray, Error> {
    let shape = &array.shape;
    if is_token(shape) {
        return to.another_token(memory);
    }
    let len = host_bytes(shape)?;
    let order = shape.minor_to_major.as_deref();
    let plain = order.is_none_or(layout::is_default) && !is_sub_byte(shape.element_type);
    if plain && len > 0 {
        let address = array.buffer.unsafe_pointer().map_err(vendor)? as *mut u8;
        let host = HostMemory {
            address,
            len,
            release: Box::new(Arc::clone(&keeper)),
        };
        return Ok(PjrtArray {
            keeper: Some(keeper),
            ..to.upload(host, shape, memory, true)?
        });
    }
    let mut copy = vec![0u8; len];
    if len > 0 {
        let target = HostTarget {
            address: copy.as_mut_ptr(),
            len,
            keep: Box::new(keeper),
        };
        let (sender, outcome) = channel();
        let minor_to_major = layout::default(shape.dims.len());
        let form = ReadForm::Host { minor_to_major };
        let done = Box::new(move |result| drop(sender.send(result)));
        from.read(array, target, &form, done);
        let outcome = outcome.recv();
        outcome.unwrap_or_else(|_| Err(error(INTERNAL, "a read was forgotten")))?;
    }
    let host = HostMemory {
        address: copy.as_mut_ptr(),
        len,
        release: Box::new(()),
    };
    // What is not wrapped is copied before `upload` returns.
    to.upload(host, shape, memory, false)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
