//! The service under attack, how it is started, and what it holds.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use salus_harness::{Keeper, Service, Start};
use serde_json::{Value, json};

use crate::Problem;

#[derive(Args, Debug, Clone)]
pub(crate) struct Setup {
    /// Attack the service there instead of starting one
    #[arg(long, global = true)]
    socket: Option<PathBuf>,
    /// The program to start it with [default: SALUS_TEST_BIN, else the `salus` beside this program]
    #[arg(long, global = true)]
    salus: Option<PathBuf>,
    /// The Python that has JAX and the vendor's plugin [default: that of VENV, else VIRTUAL_ENV]
    #[arg(long, global = true)]
    python: Option<PathBuf>,
    /// Have the C library check the heap at each call (glibc's `libc_malloc_debug`): what writes behind
    /// its array is then found when it does, and not whenever somebody trips over it. For a `salus` that
    /// was built without the feature `mimalloc`; others have another heap
    #[arg(long, global = true)]
    check_heap: bool,
}

impl Setup {
    pub(crate) fn python(&self) -> Result<PathBuf, Problem> {
        let environment = ["VENV", "VIRTUAL_ENV"].map(std::env::var_os);
        let of_venv = |venv| Path::new(&venv).join("bin/python");
        let found = self.python.clone();
        let found = found.or_else(|| environment.into_iter().flatten().next().map(of_venv));
        let found = found.ok_or("no Python is named: use --python, or set VENV")?;
        Ok(std::path::absolute(found)?)
    }

    pub(crate) fn salus(&self) -> Result<PathBuf, Problem> {
        let named = self.salus.clone();
        let named = named.or_else(|| std::env::var_os("SALUS_TEST_BIN").map(PathBuf::from));
        match named {
            Some(path) => Ok(std::path::absolute(path)?),
            None => Ok(std::env::current_exe()?.with_file_name("salus")),
        }
    }

    pub(crate) fn keeper(&self) -> Result<Keeper, Problem> {
        Ok(Keeper::new(self.salus()?))
    }

    /// A service with little memory: random programs ask for a lot, and the machine is others', too.
    pub(crate) fn start(&self) -> Result<Service, Problem> {
        self.start_with(&["--memory", "2GiB", "--host-memory", "512MiB"])
    }

    /// The same with other options, or the service that `--socket` names.
    pub(crate) fn start_with(&self, options: &[&str]) -> Result<Service, Problem> {
        if let Some(socket) = &self.socket {
            return Ok(Service::at(socket));
        }
        let mut variables: Vec<(&str, OsString)> = vec![
            ("PJRT_NPROC", "2".into()),
            ("TF_CPP_MIN_LOG_LEVEL", "3".into()),
        ];
        if self.check_heap {
            variables.extend([
                ("LD_PRELOAD", "libc_malloc_debug.so.0".into()),
                ("GLIBC_TUNABLES", "glibc.malloc.check=3".into()),
            ]);
        }
        if let Some(venv) = self.python().ok().as_deref().and_then(venv_of) {
            variables.push(("VIRTUAL_ENV", venv.into()));
        }
        Ok(Service::start(Start {
            keeper: &self.keeper()?,
            configuration: "schema_version = 1\n",
            options: options.iter().map(OsString::from).collect(),
            variables,
        })?)
    }
}

/// What the processes and the directory of a service hold.
pub(crate) fn footprint(service: &Service) -> Result<Value, Problem> {
    let report = service.report()?;
    let pid = |name: &str| report["service"][name].as_u64();
    let (supervisor, host) = (pid("pid"), pid("device_host_pid"));
    let files = service.directory().map(|path| {
            json!({ "cache": files_in(&path.join("cache")), "tmp": files_in(&path.join("tmp")) })
        });
    Ok(json!({
        "supervisor": supervisor.map(process),
        "device_host": host.map(process),
        "files": files,
        "sessions": report["sessions"].as_array().map(Vec::len),
        "resident_bytes": report["device"]["resident_bytes"],
        "programs": report["device"]["cache"],
    }))
}

/// The virtual environment of a Python in its `bin`.
pub(crate) fn venv_of(python: &Path) -> Option<PathBuf> {
    Some(python.parent()?.parent()?.to_owned())
}

fn process(pid: u64) -> Value {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    json!({
        "rss_kb": field("VmRSS:"),
        "threads": field("Threads:"),
        "descriptors": fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count),
    })
}

/// Files below a directory.
pub(crate) fn files_in(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_in(&entry.path()),
            _ => 1,
        })
        .sum()
}
