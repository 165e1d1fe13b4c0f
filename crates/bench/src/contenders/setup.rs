//! What is compared: finds the Python, the vendor's plugin and our library, and says how each
//! side's processes are started.
//!
//! Both sides get the same plugin file, one device and a thread pool of one thread per core: speed
//! and bits depend on the pool's size, and stock JAX on this plugin would otherwise take four.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use salus_console::{library, python};
use salus_daemon::config::Problem;
use salus_harness::{Ending, Keeper, LineReader, Process, TempDir};
use serde_json::{Value, json};

/// What runs in every side, `worker.py` being the program. It is inside the binary, so that an
/// installed `salus` has it.
pub(crate) const WORKER: [(&str, &str); 9] = [
    ("worker.py", include_str!("../../../../bench/worker.py")),
    ("rows.py", include_str!("../../../../bench/rows.py")),
    ("loops.py", include_str!("../../../../bench/loops.py")),
    (
        "callbacks.py",
        include_str!("../../../../bench/callbacks.py"),
    ),
    ("arrays.py", include_str!("../../../../bench/arrays.py")),
    ("models.py", include_str!("../../../../bench/models.py")),
    ("fleet.py", include_str!("../../../../bench/fleet.py")),
    ("train.py", include_str!("../../../../bench/train.py")),
    (
        "workloads.py",
        include_str!("../../../../bench/workloads.py"),
    ),
];
/// The same for all services of the bench, so that the user's own is not read.
const SERVICE_CONFIG: &str = "schema_version = 1\n";
/// Importing nothing but the standard library takes tens of milliseconds; a cold disk, seconds.
const PROBE_TIME: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) python: PathBuf,
    /// What `worker.py probe` says of it.
    pub(crate) probe: Value,
    pub(crate) plugin: PathBuf,
    pub(crate) library: PathBuf,
    /// Threads of the plugin's pool, on every side.
    pub(crate) pool: usize,
    /// The text of its services' salus.toml.
    pub(crate) configuration: String,
    /// More variables of its services.
    pub(crate) service_variables: Vec<(&'static str, OsString)>,
    pub(crate) keeper: Keeper,
    worker: PathBuf,
    /// The file that makes JAX use the plugin directly.
    direct: PathBuf,
    pub(crate) scratch: TempDir,
}

/// How a side's process reaches the device.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    Direct,
    /// Directly, with JAX's persistent compilation cache in this directory.
    DirectCached(PathBuf),
    /// Not at all: JAX's own CPU backend.
    JaxCpu,
    /// Through the service at this socket, with more variables.
    Salus(PathBuf, Vec<(&'static str, String)>),
}

impl Setup {
    pub(crate) fn find(named: Option<&Path>) -> Result<Self, Problem> {
        let python = python::find(named);
        let keeper = Keeper::own();
        let scratch = TempDir::new(&keeper, "salus-bench-")?;
        for (name, text) in WORKER {
            scratch.file(name, text)?;
        }
        let worker = scratch.path().join("worker.py");
        let probe = probe(&keeper, &python, &worker, &scratch)?;
        let plugin = plugin(&probe)?;
        let direct = json!({
            "library_path": plugin,
            "create_options": { "cpu_device_count": 1 },
        });
        Ok(Self {
            library: library::find()?,
            pool: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            configuration: SERVICE_CONFIG.into(),
            service_variables: Vec::new(),
            keeper,
            direct: scratch.file("direct.json", &direct.to_string())?,
            python,
            probe,
            plugin,
            worker,
            scratch,
        })
    }

    /// Has its services be such as admit several users.
    pub(crate) fn admit_several_users(&mut self) {
        self.configuration += "[service]\nallow_users = \"all\"\n";
    }

    /// Starts `worker.py` with its standard output and input as pipes.
    pub(crate) fn start(
        &self,
        name: &str,
        route: &Route,
        arguments: &[&str],
    ) -> Result<Process, Problem> {
        let log = self.scratch.path().join(format!("{name}.log"));
        Process::start(
            &self.keeper,
            self.python.as_os_str(),
            Ending::Kill,
            &log,
            |command| {
                command
                    .arg(&self.worker)
                    .args(arguments)
                    .envs(self.variables(route))
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped());
            },
        )
    }

    pub(crate) fn variables(&self, route: &Route) -> Vec<(&'static str, OsString)> {
        let named = |name: &str, path: &Path| {
            let mut text = OsString::from(name);
            text.push(":");
            text.push(path);
            text
        };
        let mut variables = vec![
            ("PJRT_NPROC", self.pool.to_string().into()),
            // The plugin's own remarks would hide a side's errors in its log.
            ("TF_CPP_MIN_LOG_LEVEL", "3".into()),
        ];
        match route {
            Route::Salus(socket, more) => {
                variables.extend([
                    ("JAX_PLATFORMS", "salus,cpu".into()),
                    (
                        "PJRT_NAMES_AND_LIBRARY_PATHS",
                        named("salus", &self.library),
                    ),
                    (salus_wire::env::SOCKET, socket.into()),
                ]);
                let more = more.iter().map(|(name, value)| (*name, value.into()));
                variables.extend(more);
            }
            Route::JaxCpu => variables.push(("JAX_PLATFORMS", "cpu".into())),
            Route::Direct | Route::DirectCached(_) => variables.extend([
                ("JAX_PLATFORMS", "direct,cpu".into()),
                (
                    "PJRT_NAMES_AND_LIBRARY_PATHS",
                    named("direct", &self.direct),
                ),
                // What the service sets for every program.
                ("XLA_FLAGS", salus_formats::requirements::cpu_flags().into()),
            ]),
        }
        if let Route::DirectCached(directory) = route {
            variables.extend([
                ("JAX_COMPILATION_CACHE_DIR", directory.into()),
                // Everything is kept, as Salus does; by default JAX leaves small programs out.
                ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0".into()),
                ("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1".into()),
            ]);
        }
        variables
    }
}

fn probe(
    keeper: &Keeper,
    python: &Path,
    worker: &Path,
    scratch: &TempDir,
) -> Result<Value, Problem> {
    const HINT: &str = "`--python` or SALUS_PYTHON names another interpreter";
    let shown = python.display();
    // Apart from the rest, for a clear error: `keep` would only say that its command ended.
    if let Err(e) = Command::new(python).arg("--version").output() {
        return Err(Problem::new(format!("`{shown}` cannot be run: {e}")).hint(HINT));
    }
    let log = scratch.path().join("probe.log");
    let mut process = Process::start(keeper, python.as_os_str(), Ending::Kill, &log, |command| {
        command.arg(worker).arg("probe").stdout(Stdio::piped());
    })?;
    let line = match process.output() {
        Some(output) => LineReader::new(output).next(PROBE_TIME).ok(),
        None => None,
    };
    let probe: Value = line
        .and_then(|line| serde_json::from_str(&line).ok())
        .ok_or_else(|| {
            process
                .problem(&format!("`{shown}` does not say what it has"))
                .hint(HINT)
        })?;
    let missing: Vec<&str> = probe["missing"]
        .as_array()
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    if !missing.is_empty() {
        let missing = missing.join(" ");
        return Err(Problem::new(format!(
            "the bench trains small models, and `{shown}` lacks what they need: {missing}"
        ))
        .hint(format!("`{shown} -m pip install {missing}`, or {HINT}")));
    }
    Ok(probe)
}

/// The CPU plugin of that Python's environment; it is the one that needs no hardware.
fn plugin(probe: &Value) -> Result<PathBuf, Problem> {
    let directories: Vec<PathBuf> = probe["site_packages"]
        .as_array()
        .map(|paths| paths.iter().filter_map(Value::as_str).map(PathBuf::from))
        .into_iter()
        .flatten()
        .collect();
    salus_device::discover::find_plugin("cpu", &directories).map_err(|error| match error.hint {
        Some(_) => Problem::new(error.message)
            .hint("`pip install xla-cpu-pjrt` with the same Python that runs the bench"),
        None => Problem::new(error.message),
    })
}
