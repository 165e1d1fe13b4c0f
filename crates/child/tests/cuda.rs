//! A compiler of a service inside the Python that has CUDA's handlers, on a machine without a driver:
//! `make test-cuda`.
//!
//! It is started as a supervisor starts it, and told what to compile as a device host does.

#[path = "../../../tests/cuda/gpu.rs"]
mod gpu;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gpu::{description, lowered, plugin};
use salus_channel::{Inbox, blob, open_blob, send_all};
use salus_daemon::config::Config;
use salus_daemon::paths::Places;
use salus_daemon::supervisor::Launcher;
use salus_device::vendor_package;
use salus_formats::options;
use salus_formats::requirements::required_options;
use salus_wire::{
    CompileRequest, Description, Error, FromCompiler, Reader, StoredProgram, Target, ToCompiler,
    Wire, env,
};

const H100: &str = include_str!("../../../tests/cuda/targets/h100.txtpb");

/// A compiler process, which ends with its connection.
struct Compiler {
    process: Child,
    socket: UnixStream,
    inbox: Inbox,
    description: Description,
}

impl Compiler {
    fn start(launcher: &Launcher, plugin: &Path) -> Self {
        let text = "schema_version = 1\n[device]\ndevice = \"cuda\"\n";
        let config = Config::parse(Path::new("salus.toml"), text, &Places::default());
        let mut settings = config.expect("it is right").host;
        settings.plugin = plugin.to_owned();
        let settings = serde_json::to_string(&settings).expect("settings are JSON");
        let (socket, theirs) = UnixStream::pair().expect("sockets");
        let process = Command::new(&launcher.program)
            .args(&launcher.compiler)
            .envs(launcher.environment.iter().cloned())
            .env(env::CHILD_SETTINGS, settings)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .expect("it starts");
        let description = description(H100);
        let target = Target {
            description: description.clone(),
            tunes: false,
        };
        send_all(&socket, &ToCompiler::from(target), None).expect("it listens");
        Self {
            process,
            socket,
            inbox: Inbox::default(),
            description,
        }
    }

    fn compile(&mut self, name: &str) -> Result<StoredProgram, Error> {
        let (code, options) = lowered(name);
        let options = options::rebuild(&options, &required_options(&self.description));
        let request = CompileRequest {
            format: "mlir".into(),
            code_bytes: code.len() as u64,
            options: options.expect("JAX is well behaved"),
        };
        let code = blob(&code).expect("memory");
        send_all(&self.socket, &ToCompiler::from(request), Some(code)).expect("it listens");
        let received = loop {
            if let Some(received) = self.inbox.take::<FromCompiler>().expect("well formed") {
                break received;
            }
            let filled = self.inbox.fill(&self.socket, true).expect("it answers");
            assert!(filled > 0, "the compiler ended while it compiled `{name}`");
        };
        match received.message {
            FromCompiler::CompileError(refused) => Err(refused.error),
            FromCompiler::CompileResult(result) => {
                let descriptor = received.descriptor.expect("the program comes with it");
                let bytes = open_blob(descriptor, result.bytes).expect("it can be read");
                Ok(StoredProgram::take(&mut Reader::new(&bytes), 0).expect("well formed"))
            }
        }
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "needs the CUDA wheels: make test-cuda"]
fn linear_algebra_compiles_to_calls_of_the_vendors_handlers() {
    let plugin = plugin();
    let package = vendor_package::find(&plugin, &[], &[]).expect("wheels and their Python");
    let beside = std::env::current_exe().expect("this test has a path");
    let library = beside.with_file_name("libsalus_child.so");
    let launcher = Launcher::through_python(&package, &library);
    let mut compiler = Compiler::start(&launcher, &plugin);
    for (name, called) in [
        ("cholesky", "cusolver_potrf_ffi"),
        ("solve", "cusolver_getrf_ffi"),
        ("qr", "cusolver_geqrf_ffi"),
        ("svd", "cusolver_gesvd"),
        ("eigh", "cusolver_syevd_ffi"),
    ] {
        let program = compiler.compile(&format!("vendor_{name}"));
        let program = program.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!program.executable.is_empty());
        let optimized = program.signature.optimized_program;
        let text = String::from_utf8_lossy(&optimized);
        assert!(text.contains(called), "{name} does not call {called}");
    }
}
