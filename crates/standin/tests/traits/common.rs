//! What the tests share: the plugin, clients with traits, programs, a gate that holds a stream.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use salus_formats::options;
use salus_pjrt::sys::{XLA_FFI_CallFrame, XLA_FFI_Error};
use salus_pjrt::{
    Buffer, Client, Device, Error, Event, FromHost, HostLayout, Launch, LoadedExecutable, Memory,
    Plugin, Semantics, Value, handle,
};
use salus_standin::State;

/// Long enough on a busy machine; no test gets near it unless it hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const F32: u32 = 11;

/// What cargo built beside this test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.with_file_name("libsalus_standin.so")
}

pub(crate) fn plugin() -> Plugin {
    Plugin::open(&library()).expect("the stand-in opens")
}

/// A state file of one test, which is removed with it.
pub(crate) struct StateFile(PathBuf);

impl StateFile {
    pub(crate) fn new(test: &str) -> StateFile {
        let name = format!("salus-standin-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        StateFile(path)
    }

    pub(crate) fn path(&self) -> String {
        self.0.display().to_string()
    }

    pub(crate) fn open(&self) -> std::sync::Arc<State> {
        State::open(Some(&self.0)).expect("the file is there")
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A client with traits of its own, and vendor's options.
pub(crate) fn try_client(
    state: &StateFile,
    traits: &str,
    options: &[(&str, Value)],
) -> Result<Client, Error> {
    let traits = format!("state={},{traits}", state.path());
    let mut all = vec![("standin".to_owned(), Value::Text(traits))];
    all.extend(
        options
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone())),
    );
    plugin().create_client(&all)
}

pub(crate) fn client(state: &StateFile, traits: &str) -> Client {
    try_client(state, traits, &[]).expect("a client opens")
}

pub(crate) fn device(client: &Client) -> Device {
    client.addressable_devices().expect("devices").remove(0)
}

pub(crate) fn default_memory(client: &Client) -> Memory {
    device(client).default_memory().expect("a memory")
}

pub(crate) fn upload_to(
    memory: &Memory,
    client: &Client,
    numbers: &[f32],
) -> Result<Buffer, Error> {
    let dims = [numbers.len() as i64];
    let from = FromHost {
        data: numbers.as_ptr().cast(),
        element_type: F32,
        dims: &dims,
        byte_strides: None,
        semantics: Semantics::ImmutableOnlyDuringCall,
        layout: None,
    };
    // SAFETY: as many numbers as the dimensions say.
    unsafe { client.buffer_from_host(&from, memory) }.map(|(buffer, _)| buffer)
}

pub(crate) fn upload(client: &Client, numbers: &[f32]) -> Buffer {
    upload_to(&default_memory(client), client, numbers).expect("there is room")
}

/// An array of this many bytes.
pub(crate) fn bytes(client: &Client, bytes: usize) -> Result<Buffer, Error> {
    upload_to(&default_memory(client), client, &vec![0.0; bytes / 4])
}

pub(crate) fn read(buffer: &Buffer) -> Result<Vec<f32>, Error> {
    let len = buffer.dimensions()?.iter().product::<i64>() as usize;
    let mut numbers = vec![0f32; len];
    let minor_to_major = &[0];
    // SAFETY: as many bytes as the array has, until we have waited.
    unsafe {
        let layout = Some(HostLayout { minor_to_major });
        buffer
            .to_host(numbers.as_mut_ptr().cast(), 4 * len, layout)?
            .wait()?;
    }
    Ok(numbers)
}

pub(crate) fn compile(client: &Client, code: &str) -> LoadedExecutable {
    let options = options::rebuild(&[], &[]).expect("no options are options");
    client
        .compile("mlir", code.as_bytes(), &options)
        .expect("it compiles")
}

/// `f(x) = x + x`, of `len` numbers, in place if it is `donated`.
pub(crate) fn double(name: &str, len: usize, donated: bool) -> String {
    let attribute = if donated {
        " {tf.aliasing_output = 0 : i32}"
    } else {
        ""
    };
    let array = format!("tensor<{len}xf32>");
    format!(
        "module @{name} {{ func.func public @main(%a: {array}{attribute}) -> {array} {{
           %r = stablehlo.add %a, %a : {array}
           return %r : {array} }} }}"
    )
}

/// Launches a program of one result.
pub(crate) fn launch(
    client: &Client,
    program: &LoadedExecutable,
    arguments: &[&Buffer],
) -> Result<(Buffer, Event), Error> {
    let launch = Launch {
        device: &device(client),
        arguments,
        num_outputs: 1,
        keep: &[],
        launch_id: 1,
        context: None,
    };
    // SAFETY: the programs here have one result, and tests pass what they take.
    let (mut outputs, event) = unsafe { program.execute(&launch) }?;
    Ok((outputs.remove(0), event))
}

/// Holds programs that call it until it is opened.
pub(crate) struct Gate {
    target: &'static str,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    const fn new(target: &'static str) -> Gate {
        Gate {
            target,
            is_open: Mutex::new(false),
            opened: Condvar::new(),
        }
    }

    fn pass(&self) {
        let is_open = self.is_open.lock().expect("not poisoned");
        let passed = self
            .opened
            .wait_timeout_while(is_open, DEADLINE, |is_open| !*is_open);
        drop(passed.expect("not poisoned"));
    }

    pub(crate) fn open(&self) {
        *self.is_open.lock().expect("not poisoned") = true;
        self.opened.notify_all();
    }

    /// A program of four numbers that returns when the gate is open.
    pub(crate) fn program(&self, client: &Client) -> LoadedExecutable {
        let ffi = client.ffi().expect("the stand-in takes handlers");
        let handler = match self.target {
            "gate_a" => gate::<0>,
            "gate_b" => gate::<1>,
            _ => gate::<2>,
        };
        ffi.register(self.target, "CUDA", handler)
            .expect("it is registered");
        let target = self.target;
        let code = format!(
            "module @held {{ func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
               %r = stablehlo.custom_call @{target}(%a) {{api_version = 4 : i32}}
                 : (tensor<4xf32>) -> tensor<4xf32>
               return %r : tensor<4xf32> }} }}"
        );
        compile(client, &code)
    }
}

/// One for each test that needs one: it stays open.
pub(crate) static GATES: [Gate; 3] = [
    Gate::new("gate_a"),
    Gate::new("gate_b"),
    Gate::new("gate_c"),
];

unsafe extern "C" fn gate<const N: usize>(frame: *mut XLA_FFI_CallFrame) -> *mut XLA_FFI_Error {
    // SAFETY: called by the plugin with a frame of its own.
    unsafe {
        handle(frame, |_| {
            GATES[N].pass();
            Ok(())
        })
    }
}
