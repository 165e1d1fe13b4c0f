//! The service under attack: started here, watched, and ended with all that it made.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal};
use salus_channel::{Inbox, Received, open_blob, send_all, text_of};
use salus_wire::{
    self as wire, FromService, Reader, Recording, Request, ToService, Wire, limits, version,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Problem;

/// A command is answered at once, or after the device host was started again.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// From one death of the device host to the next one that serves.
const RESTART_TIME: Duration = Duration::from_secs(60);
/// Sessions end within milliseconds, but for an iteration that runs.
const IDLE_TIME: Duration = Duration::from_secs(20);
/// A service that was told to end, and ends no sooner, hangs.
const END_TIME: Duration = Duration::from_secs(30);
/// How often to look at what gives no event: other processes.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);

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
    /// its array is then found when it does, and not whenever somebody trips over it
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
}

pub(crate) struct Service {
    /// `None` where it is somebody else's.
    own: Option<(Child, TempDir)>,
    socket: PathBuf,
}

/// A service that an attacker's death leaves alone ends by itself.
const CONFIGURATION: &str = "schema_version = 1\n[service]\nidle_exit_seconds = 30\n";

impl Service {
    /// With little memory: programs by chance ask for a lot, and the machine is others', too.
    pub(crate) fn start(setup: &Setup) -> Result<Self, Problem> {
        Self::start_with(setup, "", &["--memory", "2GiB", "--host-memory", "512MiB"])
    }

    /// The same, with more in its configuration and among its options.
    pub(crate) fn start_with(
        setup: &Setup,
        configuration: &str,
        options: &[&str],
    ) -> Result<Self, Problem> {
        if let Some(socket) = &setup.socket {
            return Ok(Self {
                own: None,
                socket: socket.clone(),
            });
        }
        let directory = tempfile::Builder::new().prefix("salus-attack-").tempdir()?;
        let path = directory.path();
        fs::create_dir(path.join("tmp"))?;
        fs::write(
            path.join("salus.toml"),
            format!("{CONFIGURATION}{configuration}"),
        )?;
        let socket = path.join("s");
        let mut command = Command::new(setup.salus()?);
        command
            .args(["serve", "--announce", "--socket"])
            .arg(&socket)
            .arg("--config")
            .arg(path.join("salus.toml"))
            .args(options)
            .current_dir(path)
            .env("SALUS_CACHE_DIR", path.join("cache"))
            .env("TMPDIR", path.join("tmp"))
            .env("PJRT_NPROC", "2")
            .env("TF_CPP_MIN_LOG_LEVEL", "3")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(path.join("log"))?);
        if setup.check_heap {
            command
                .env("LD_PRELOAD", "libc_malloc_debug.so.0")
                .env("GLIBC_TUNABLES", "glibc.malloc.check=3");
        }
        if let Some(venv) = setup.python().ok().as_deref().and_then(venv_of) {
            command.env("VIRTUAL_ENV", venv);
        }
        let mut child = command.spawn().map_err(|e| {
            format!(
                "`{}` cannot be started: {e}",
                setup.salus().unwrap_or_default().display()
            )
        })?;
        let output = child.stdout.take();
        let service = Self {
            own: Some((child, directory)),
            socket,
        };
        // It says one line when it serves, and closes its output if it never will.
        let mut line = String::new();
        if let Some(output) = output {
            BufReader::new(output).read_line(&mut line)?;
        }
        match line.is_empty() {
            false => Ok(service),
            true => Err(format!("the service did not start:\n{}", service.log()).into()),
        }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where the service keeps what it makes; `None` where it is somebody else's.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.own.as_ref().map(|(_, directory)| directory.path())
    }

    pub(crate) fn log(&self) -> String {
        let read = |directory: &Path| fs::read(directory.join("log")).unwrap_or_default();
        let log = self.directory().map(read).unwrap_or_default();
        let lines = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = lines.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// What `salus ps -o json` shows.
    pub(crate) fn report(&self) -> io::Result<Value> {
        serde_json::from_str(&self.ask(Request::Report)?).map_err(io::Error::other)
    }

    /// What `salus trace` gets.
    pub(crate) fn recording(&self, seconds: u32) -> io::Result<Recording> {
        let received = self.command(Request::Trace { seconds })?;
        match (received.message, received.descriptor) {
            (FromService::Trace(trace), Some(blob)) => {
                let bytes = open_blob(blob, trace.bytes)?;
                Recording::take(&mut Reader::new(&bytes), 0).map_err(io::Error::other)
            }
            _ => Err(io::Error::other("an answer that is none")),
        }
    }

    pub(crate) fn ask(&self, request: Request) -> io::Result<String> {
        let received = self.command(request)?;
        match received.message {
            FromService::Answer(answer) => {
                text_of(answer.json, received.descriptor, limits::REPORT_BYTES)
            }
            FromService::Refused(refused) => Err(io::Error::other(refused.error)),
            _ => Err(io::Error::other("an answer that is none")),
        }
    }

    fn command(&self, request: Request) -> io::Result<Received<FromService>> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        let command = wire::Command {
            protocol_min: version::MIN,
            protocol_max: version::MAX,
            request,
        };
        send_all(&stream, &ToService::from(command), None)?;
        let mut inbox = Inbox::default();
        loop {
            if let Some(received) = inbox.take().map_err(io::Error::other)? {
                return Ok(received);
            }
            if inbox.fill(&stream, true)? == 0 {
                return Err(io::Error::other("the service hung up"));
            }
        }
    }

    /// How often the device host was started again.
    pub(crate) fn restarts(&self) -> io::Result<u64> {
        let report = self.report()?;
        Ok(report["service"]["restarts"].as_u64().unwrap_or(0))
    }

    /// Waits for a device host that serves.
    pub(crate) fn wait_until_up(&self) -> io::Result<()> {
        let deadline = Instant::now() + RESTART_TIME;
        loop {
            let report = self.report()?;
            let device = &report["device"];
            if device["state"] == "up" && device["platform"].as_str().is_some_and(|p| !p.is_empty())
            {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("no device host came back"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until the sessions that were closed here are gone, so that what is left is the service's.
    /// Sessions of others, and those whose iterations go on, are not waited for for ever.
    pub(crate) fn wait_until_idle(&self) -> io::Result<()> {
        let deadline = Instant::now() + IDLE_TIME;
        while Instant::now() < deadline {
            let report = self.report()?;
            if report["sessions"].as_array().is_none_or(Vec::is_empty) {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// What its processes and its directory hold.
    pub(crate) fn footprint(&self) -> io::Result<Value> {
        let report = self.report()?;
        let pid = |name: &str| report["service"][name].as_u64();
        let (supervisor, host) = (pid("pid"), pid("device_host_pid"));
        let files = self.directory().map(|path| {
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
}

impl Drop for Service {
    fn drop(&mut self) {
        let Some((child, _)) = &mut self.own else {
            return;
        };
        if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + END_TIME;
        while let Ok(None) = child.try_wait() {
            if Instant::now() > deadline {
                eprintln!("salus-attack: the service did not end within 30 s and is killed");
                let _ = child.kill();
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
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
