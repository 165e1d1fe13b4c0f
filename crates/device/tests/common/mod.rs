//! What the tests of this crate share: host memory that tells when it is let go, waiting with a
//! deadline, and the three devices.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use salus_channel::Part;
use salus_device::{
    Clock, Compiled, Device, Done, Error, HeapMemory, HostMemory, PjrtConfig, PjrtDevice,
    Placement, Purpose, ReadForm, ScriptedConfig, ScriptedDevice, Shape, Source, Value, discover,
    element,
};
use salus_formats::options;

/// Long enough for a compile on a busy machine; no test gets near it unless it hangs.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const PRED: u32 = 1;
pub(crate) const S4: u32 = 21;
pub(crate) const S32: u32 = 4;
pub(crate) const F32: u32 = 11;
pub(crate) const F64: u32 = 12;
pub(crate) const BF16: u32 = 13;
pub(crate) const TOKEN: u32 = 23;

pub(crate) const INVALID_ARGUMENT: salus_wire::ErrorCode = salus_wire::ErrorCode::InvalidArgument;

/// Programs that both devices have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sample {
    /// `f32[4,4] -> f32[4,4]`
    Increment,
    /// `f32[1024] -> f32[1024]`, in place.
    Step,
    /// `f32[128,128], f32[128,128] -> f32[128,128]`: too large for a plugin to run it inline.
    Product,
    /// `token[], f32[4] -> token[], f32[4]`
    Ordered,
}

/// A device under test.
pub(crate) trait Subject {
    type Device: Device;
    fn open(&self, lanes: u32) -> Self::Device;
    fn format(&self) -> &'static str;
    fn code(&self, sample: Sample) -> String;
    fn malformed(&self) -> &'static str;

    fn compile(&self, device: &Self::Device, sample: Sample) -> Compiled {
        let options = options::rebuild(&[], &[]).expect("no options are options");
        let code = self.code(sample);
        let source = Source {
            format: self.format(),
            code: code.as_bytes(),
            options: &options,
        };
        device.compile(&source).expect("the samples compile")
    }

    fn program(&self, device: &Self::Device, sample: Sample) -> <Self::Device as Device>::Program {
        let compiled = self.compile(device, sample);
        device
            .load(&compiled)
            .expect("what was compiled can be loaded")
    }
}

pub(crate) struct Scripted;

impl Subject for Scripted {
    type Device = ScriptedDevice;

    fn open(&self, lanes: u32) -> ScriptedDevice {
        ScriptedDevice::open(&ScriptedConfig {
            lanes,
            capacity_bytes: 1 << 30,
            clock: Clock::Real,
            on_host: true,
        })
    }

    fn format(&self) -> &'static str {
        "script"
    }

    fn code(&self, sample: Sample) -> String {
        match sample {
            Sample::Increment => "name: increment; params: f32[4,4]; outputs: f32[4,4]",
            Sample::Step => "name: step; params: f32[1024]; outputs: f32[1024] alias 0; ms: 1",
            Sample::Product => {
                "name: product; params: f32[128,128], f32[128,128]; outputs: f32[128,128]; ms: 1"
            }
            Sample::Ordered => {
                "name: ordered; params: token[], f32[4]; outputs: token[], f32[4]; ms: 1"
            }
        }
        .to_owned()
    }

    fn malformed(&self) -> &'static str {
        "name: bad; params: nothing"
    }
}

pub(crate) struct Pjrt;

impl Subject for Pjrt {
    type Device = PjrtDevice;

    fn open(&self, lanes: u32) -> PjrtDevice {
        open(cpu_plugin(), Vec::new(), lanes)
    }

    fn format(&self) -> &'static str {
        "mlir"
    }

    fn code(&self, sample: Sample) -> String {
        mlir(sample)
    }

    fn malformed(&self) -> &'static str {
        MALFORMED
    }
}

/// CUDA's plugin, as far as it can be without a GPU (`crates/standin`).
pub(crate) struct Standin;

impl Subject for Standin {
    type Device = PjrtDevice;

    fn open(&self, lanes: u32) -> PjrtDevice {
        open(standin_plugin(), Vec::new(), lanes)
    }

    fn format(&self) -> &'static str {
        "mlir"
    }

    fn code(&self, sample: Sample) -> String {
        mlir(sample)
    }

    fn malformed(&self) -> &'static str {
        MALFORMED
    }
}

pub(crate) fn open(plugin: PathBuf, options: Vec<(String, Value)>, lanes: u32) -> PjrtDevice {
    PjrtDevice::open(&PjrtConfig {
        plugin,
        options,
        capacity_bytes: None,
        lanes,
        lapack: Some(lapack()),
        // Tests run side by side: none takes a whole device.
        purpose: Purpose::Try,
    })
    .expect("the plugin opens")
}

const MALFORMED: &str = "module @bad { func.func public @main( }";

fn mlir(sample: Sample) -> String {
    let (name, parameters, result, body) = match sample {
        Sample::Increment => (
            "increment",
            "%a: tensor<4x4xf32>",
            "tensor<4x4xf32>",
            "%one = stablehlo.constant dense<1.0> : tensor<4x4xf32>
             %r = stablehlo.add %a, %one : tensor<4x4xf32>",
        ),
        Sample::Step => (
            "step",
            "%a: tensor<1024xf32> {tf.aliasing_output = 0 : i32}",
            "tensor<1024xf32>",
            "%half = stablehlo.constant dense<0.5> : tensor<1024xf32>
             %scaled = stablehlo.multiply %a, %half : tensor<1024xf32>
             %r = stablehlo.tanh %scaled : tensor<1024xf32>",
        ),
        Sample::Product => (
            "product",
            "%a: tensor<128x128xf32>, %b: tensor<128x128xf32>",
            "tensor<128x128xf32>",
            "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
               : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>",
        ),
        Sample::Ordered => {
            return "module @ordered { func.func public @main(
                  %t: !stablehlo.token, %a: tensor<4xf32>)
                -> (!stablehlo.token, tensor<4xf32>) {
                  %u = stablehlo.after_all %t : !stablehlo.token
                  %r = stablehlo.add %a, %a : tensor<4xf32>
                  return %u, %r : !stablehlo.token, tensor<4xf32> } }"
                .to_owned();
        }
    };
    format!(
        "module @{name} {{ func.func public @main({parameters}) -> {result} {{
           {body}
           return %r : {result} }} }}"
    )
}

/// The plugin that `make venv` installs.
pub(crate) fn cpu_plugin() -> PathBuf {
    let places = match std::env::var_os("SALUS_TEST_SITE_PACKAGES") {
        Some(directory) => vec![directory.into()],
        None => {
            let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
            let pythons = std::fs::read_dir(venv).into_iter().flatten().flatten();
            pythons
                .map(|python| python.path().join("site-packages"))
                .chain(discover::site_packages_candidates())
                .collect()
        }
    };
    discover::find_plugin("cpu", &places).unwrap_or_else(|error| {
        panic!("{error}\nRun `make venv`, or set SALUS_TEST_SITE_PACKAGES.")
    })
}

/// The stand-in for CUDA, which cargo builds beside the tests because they depend on it.
pub(crate) fn standin_plugin() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let plugin = test.with_file_name("libsalus_standin.so");
    assert!(plugin.is_file(), "cargo has built {}", plugin.display());
    plugin
}

/// The LAPACK that came with it.
pub(crate) fn lapack() -> PathBuf {
    discover::find_lapack(&cpu_plugin(), &[]).expect("SciPy is installed with the plugin")
}

/// Dropped with the memory that it belongs to, which is a message.
struct Let {
    go: Sender<()>,
}

impl Drop for Let {
    fn drop(&mut self) {
        // Most tests do not listen.
        let _ = self.go.send(());
    }
}

/// Host memory with these bytes, 64-byte aligned or four bytes off, and when it was let go.
pub(crate) fn host(bytes: &[u8], aligned: bool) -> (Box<dyn HostMemory>, Receiver<()>) {
    let offset = if aligned { 0 } else { 4 };
    let memory = Arc::new(HeapMemory::zeroed(bytes.len() + offset));
    let part = Part::of(&memory, offset as u64, bytes.len() as u64).expect("inside");
    part.bytes().write(bytes);
    let (go, gone) = channel();
    (Box::new((part, Let { go })), gone)
}

/// The default memory of the first lane.
pub(crate) const FIRST: Placement = Placement { lane: 0, memory: 0 };

pub(crate) fn shape(element_type: u32, dims: &[i64]) -> Shape {
    Shape {
        element_type,
        dims: dims.to_vec(),
        minor_to_major: None,
    }
}

pub(crate) fn upload<D: Device>(device: &D, shape: &Shape, bytes: &[u8]) -> D::Array {
    let (memory, _) = host(bytes, true);
    device.upload(memory, shape, FIRST).expect("there is room")
}

pub(crate) fn upload_f32<D: Device>(
    device: &D,
    dims: &[i64],
    value: impl Fn(usize) -> f32,
) -> D::Array {
    upload(device, &shape(F32, dims), &floats(dims, value))
}

pub(crate) fn floats(dims: &[i64], value: impl Fn(usize) -> f32) -> Vec<u8> {
    let len = dims.iter().product::<i64>() as usize;
    (0..len)
        .flat_map(|index| value(index).to_le_bytes())
        .collect()
}

/// A `Done` and the end of a channel where its result arrives.
pub(crate) fn done() -> (Done, Receiver<Result<(), Error>>) {
    let (sender, receiver) = channel();
    let done: Done = Box::new(move |result| {
        // A test that has failed no longer listens.
        let _ = sender.send(result);
    });
    (done, receiver)
}

pub(crate) fn wait<T>(receiver: &Receiver<T>) -> T {
    receiver
        .recv_timeout(DEADLINE)
        .expect("it happens before the deadline")
}

/// Waits for the array and reads it.
pub(crate) fn try_read<D: Device>(
    device: &D,
    array: &D::Array,
    form: &ReadForm,
    len: usize,
) -> Result<Vec<u8>, Error> {
    let (ready, is_ready) = done();
    device.on_ready(array, ready);
    wait(&is_ready)?;
    let target = Arc::new(HeapMemory::copy_of(&vec![0xa5; len]));
    let (read, is_read) = done();
    device.read(array, Box::new(Arc::clone(&target)), form, read);
    wait(&is_read)?;
    Ok(target.bytes().to_vec())
}

/// The array's elements in row-major order.
pub(crate) fn read<D: Device>(device: &D, array: &D::Array, shape: &Shape) -> Vec<u8> {
    let minor_to_major = (0..shape.dims.len() as i64).rev().collect();
    let len = element::host_bytes(shape).expect("a small array");
    let form = ReadForm::Host { minor_to_major };
    try_read(device, array, &form, len).expect("the array is there")
}

/// Launches and does not wait.
pub(crate) fn launch<D: Device>(
    device: &D,
    program: &D::Program,
    arguments: &[&D::Array],
) -> (Vec<D::Array>, Receiver<Result<(), Error>>) {
    let (ended, has_ended) = done();
    let outputs = device
        .launch(program, 0, arguments, &[], ended)
        .expect("it launches");
    (outputs, has_ended)
}
