//! A private service: `salus serve` with its own socket, cache and configuration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use salus_console::{ask, output};
use salus_daemon::config::Problem;
use salus_wire::{Recording, Request, env};
use serde_json::Value;

use crate::keeper::{Ending, Keeper};
use crate::line_reader::LineReader;
use crate::process::Process;
use crate::temp_dir::TempDir;

/// Loading the vendor's library takes a third of a second from a cold disk.
const START_TIME: Duration = Duration::from_secs(60);
/// From one death of the device host to the next one that serves.
const RESTART_TIME: Duration = Duration::from_secs(60);
/// Sessions end within milliseconds, except where an iteration runs.
const IDLE_TIME: Duration = Duration::from_secs(20);
/// A command is answered at once, or after the device host was started again.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// How often to look at a service's state, which gives no event.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How a service is started.
pub struct Start<'a> {
    pub keeper: &'a Keeper,
    /// The text of its salus.toml.
    pub configuration: &'a str,
    /// More options of `salus serve`.
    pub options: Vec<OsString>,
    pub variables: Vec<(&'static str, OsString)>,
}

pub struct Service {
    /// `None` where it is somebody else's. The directory is for everything that the service makes:
    /// socket, log, cache, temporary files.
    own: Option<(Process, TempDir)>,
    socket: PathBuf,
}

impl Service {
    /// Starts a service and waits until it serves.
    pub fn start(start: Start<'_>) -> Result<Self, Problem> {
        let directory = TempDir::new(start.keeper, "salus-service-")?;
        let configuration = directory.file("salus.toml", start.configuration)?;
        let temporary = directory.directory("tmp")?;
        let path = directory.path();
        let socket = path.join("s");
        let salus = start.keeper.salus().as_os_str();
        let mut process = Process::start(
            start.keeper,
            salus,
            Ending::Term,
            &path.join("log"),
            |command| {
                command
                    .args(["serve", "--announce", "--socket"])
                    .arg(&socket)
                    .arg("--config")
                    .arg(configuration)
                    .args(start.options)
                    .current_dir(path)
                    .env(env::CACHE_DIR, path.join("cache"))
                    .env("TMPDIR", temporary)
                    .envs(start.variables)
                    .stdout(Stdio::piped());
            },
        )?;
        // It prints one line when it serves, and closes its output if it never will.
        let announced = process
            .output()
            .and_then(|output| LineReader::new(output).next(START_TIME).ok());
        match announced {
            Some(_) => Ok(Self {
                own: Some((process, directory)),
                socket,
            }),
            None => Err(process.problem("the service did not start")),
        }
    }

    /// A service that somebody else started, and that stays.
    pub fn at(socket: &Path) -> Self {
        Self {
            own: None,
            socket: socket.to_owned(),
        }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where it keeps what it makes; `None` where it is somebody else's.
    pub fn directory(&self) -> Option<&Path> {
        self.own.as_ref().map(|(_, directory)| directory.path())
    }

    /// Its supervisor's process.
    pub fn pid(&self) -> Option<u32> {
        self.own.as_ref().map(|(process, _)| process.pid())
    }

    /// The end of what it wrote.
    pub fn log_tail(&self) -> String {
        let log = self.own.as_ref().map(|(process, _)| process.log_tail());
        log.unwrap_or_default()
    }

    pub fn ask(&self, request: Request) -> Result<Value, Problem> {
        let answered = ask::ask_within(&self.socket, request, ANSWER_TIME)?;
        answered
            .map(|answered| answered.json)
            .ok_or_else(|| self.gone())
    }

    /// What `salus ps -o json` shows.
    pub fn report(&self) -> Result<Value, Problem> {
        self.ask(Request::Report)
    }

    /// What ran on the first device where and when in the last `seconds`, 0 being all that the service remembers.
    pub fn recording(&self, seconds: u32) -> Result<Recording, Problem> {
        let traces = ask::ask_trace(&self.socket, seconds)?;
        let first = traces.and_then(|traces| traces.into_iter().next());
        let recording = first.ok_or_else(|| self.gone())?.recording;
        recording.map_err(|state| Problem::new(format!("there is no trace: the device is {state}")))
    }

    fn gone(&self) -> Problem {
        let at = self.socket.display();
        Problem::new(format!("the service at `{at}` is gone"))
    }

    /// How often the device host was started again.
    pub fn restarts(&self) -> Result<u64, Problem> {
        let report = self.report()?;
        Ok(report["service"]["restarts"].as_u64().unwrap_or(0))
    }

    /// Waits for a device host that serves.
    pub fn wait_until_up(&self) -> Result<(), Problem> {
        let is_up = |report: &Value| {
            let device = &report["device"];
            let platform = device["platform"].as_str().unwrap_or_default();
            device["state"] == "up" && !platform.is_empty()
        };
        match self.wait_until(RESTART_TIME, is_up)? {
            true => Ok(()),
            false => Err(Problem::new("no device host came back")),
        }
    }

    /// Waits until the sessions that were closed here are gone, so that what is left is the
    /// service's. Sessions of others, and those whose iterations go on, are waited for only this long.
    pub fn wait_until_idle(&self) -> Result<(), Problem> {
        let is_idle = |report: &Value| report["sessions"].as_array().is_none_or(Vec::is_empty);
        self.wait_until(IDLE_TIME, is_idle).map(drop)
    }

    fn wait_until(&self, time: Duration, is: impl Fn(&Value) -> bool) -> Result<bool, Problem> {
        let deadline = Instant::now() + time;
        loop {
            if is(&self.report()?) {
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some((process, _)) = &mut self.own
            && !process.end()
        {
            output::note("a service ignored SIGTERM for 30 s and was killed");
        }
    }
}
