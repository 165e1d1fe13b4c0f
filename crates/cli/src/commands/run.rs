//! `salus run -- CMD`: the command, with a service and the settings by which JAX finds it.
//!
//! The command's exit status, signals and terminal are its own (`child.rs`). It finds Salus by its
//! environment alone. A Python that has JAX but not our package finds the plugin through a directory of
//! ours on its path. If it has opened no session when it ends, that is said in one line, because
//! who typed `salus run` believes that it did.

pub(crate) mod child;
mod notes;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use notes::Notes;
use salus_channel::Inbox;
use salus_daemon::config::{Config, DeviceNames, Problem};
use salus_daemon::log::tame;
use salus_daemon::paths::{Places, absolute, ensure_private_dir};
use salus_wire::{Priority, Request, Weight, env, job_name, parse_count};

use crate::arguments::{parse_bytes, parse_time};
use crate::{Outcome, Where, ask, background, library, output, serve};

/// What registers Salus with JAX.
const JAX_PLUGIN: &str = include_str!("../../../../python/salus/jax_plugin.py");
/// A service that was started for a job ends after this long without one.
const IDLE_SECONDS: u64 = 600;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Where,
    /// What `salus ps` shows [default: the script's name]
    #[arg(long)]
    name: Option<String>,
    /// The device that the job gets, of those that the service has: cuda:1; where no service runs, it
    /// is what one is started with [default: SALUS_DEVICE, else the one that has least to do]
    #[arg(long, value_name = "NAME|PATH")]
    device: Option<String>,
    /// The most that the job may hold, on the device and paged out: 2GiB, 512MiB, … [default: no
    /// limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory_max: Option<NonZeroU64>,
    /// Its share of the device relative to others, under `fair` and `pack` [default: 1]
    #[arg(long, value_name = "N")]
    weight: Option<Weight>,
    /// `high` goes before `normal` before `low`, under `priority` [default: normal]
    #[arg(long, value_name = "CLASS")]
    priority: Option<Priority>,
    /// How soon an iteration should be done, under `deadline`: 20ms, 1.5s, …
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    deadline: Option<Duration>,
    /// How many iterations it will make, which `srtf` uses
    #[arg(long, value_name = "N", value_parser = parse_count)]
    iterations: Option<NonZeroU64>,
    /// How much device time it will take, which `srtf` uses: 90s, 10m, 2h, …
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    expect: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let places = Places::of_this_process();
    let library = library::find()?;
    let plugin_path = write_plugin(&places)?;
    let named = arguments.place.socket.as_deref();
    let device = wanted_device(arguments)?;
    let socket = match ask::find(&places, named)? {
        Some(socket) => socket,
        None => start(arguments, device.as_deref(), &places)?,
    };
    let name = arguments
        .name
        .clone()
        .or_else(|| std::env::var(env::NAME).ok().filter(|n| !n.is_empty()))
        .unwrap_or_else(|| job_name(&arguments.command));
    let held = hold(&socket);
    let notes = Notes::new(&places);
    let status = child::run(
        Command::new("/proc/self/exe")
            .arg0("salus")
            .arg("become")
            .arg(std::process::id().to_string())
            .arg("--")
            .args(&arguments.command)
            .env(env::SOCKET, absolute(&socket))
            .env(env::NAME, &name)
            .env(
                env::RUN,
                held.as_ref().map_or(0, |held| held.run).to_string(),
            )
            .env(env::RUN_NOTES, notes.path())
            .envs(settings(arguments))
            .envs(device.map(|device| (env::DEVICE, device)))
            .env(env::LIBRARY, library)
            // `cpu` stays there for `jax.devices("cpu")`.
            .env("JAX_PLATFORMS", "salus,cpu")
            .env("PYTHONPATH", python_path(&plugin_path)?),
    )
    .map_err(|e| Problem::new(format!("the command cannot be started: {e}")))?;
    match held.and_then(Held::has_session) {
        // Another `salus run` around this one knows of its own sessions only.
        Some(true) => {
            if let Some(outer) = std::env::var_os(env::RUN_NOTES) {
                notes::add(Path::new(&outer), notes::OPENED);
            }
        }
        Some(false) => {
            if let Some(why) = notes.why() {
                output::note(&format!("`{}` opened no session: {why}", tame(&name)));
            }
        }
        // The service has ended meanwhile, or did not answer.
        None => {}
    }
    drop(notes);
    Ok(child::end_like(status))
}

/// What the job's library tells the service of it. What is not said here stays as it was.
fn settings(arguments: &Arguments) -> Vec<(&'static str, String)> {
    let us = |time: Duration| time.as_micros().to_string();
    let settings = [
        (env::MEMORY_MAX, arguments.memory_max.map(|n| n.to_string())),
        (env::WEIGHT, arguments.weight.map(|n| n.to_string())),
        (
            env::PRIORITY,
            arguments.priority.map(|priority| priority.name().into()),
        ),
        (env::DEADLINE_US, arguments.deadline.map(us)),
        (env::ITERATIONS, arguments.iterations.map(|n| n.to_string())),
        (env::EXPECT_US, arguments.expect.map(us)),
    ];
    let said = settings.into_iter();
    said.filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// A connection that says that the command may still come.
struct Held {
    stream: UnixStream,
    /// By which the service knows the command's sessions.
    run: u64,
}

/// Has the service stay until the command ends, however late it comes to use JAX. The command
/// inherits the connection, because it may leave something running. Without one, an idle service may
/// end before.
fn hold(socket: &Path) -> Option<Held> {
    let held = ask::ask(socket, Request::Hold).ok()??;
    let run = held.json["run"].as_u64()?;
    let stream = held.stream;
    rustix::io::fcntl_setfd(&stream, rustix::io::FdFlags::empty()).ok()?;
    Some(Held { stream, run })
}

impl Held {
    /// Whether the command has opened a session; `None` if the service is gone.
    fn has_session(self) -> Option<bool> {
        match Inbox::default().fill(&self.stream, false) {
            Ok(0) => None,
            Ok(_) => Some(true),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Some(false),
            Err(_) => None,
        }
    }
}

/// The device that the command line or the environment names, as it is right everywhere.
fn wanted_device(arguments: &Arguments) -> Result<Option<String>, Problem> {
    let said = || std::env::var(env::DEVICE).ok();
    let named = arguments.device.clone().or_else(said);
    let names = named.filter(|name| !name.is_empty());
    let names = names.map(|names| DeviceNames::parse(&names)).transpose()?;
    Ok(names.map(|names| names.absolute().to_string()))
}

/// Starts a service for this user, with this device if one is wanted.
fn start(arguments: &Arguments, wanted: Option<&str>, places: &Places) -> Result<PathBuf, Problem> {
    let mut config = Config::load(None, places)?;
    if let Some(wanted) = wanted {
        config.host.device.name = wanted.into();
    }
    // Before it is detached: whoever waits here is told, also if there is none to serve.
    let because = serve::choose_device(&mut config)?;
    let device = config.host.device.name.clone();
    let seconds = match std::env::var(env::IDLE_SECONDS) {
        Ok(text) => text.trim().parse().map_err(|_| {
            Problem::new(format!(
                "{}: expected a whole number, found `{text}`",
                env::IDLE_SECONDS
            ))
        })?,
        Err(_) => config
            .service
            .idle_exit_seconds
            .map_or(IDLE_SECONDS, u64::from),
    };
    let options = serve::Arguments {
        place: arguments.place.clone(),
        config: config.file.clone(),
        device: Some(device.clone()),
        idle_exit_seconds: Some(seconds),
        ..serve::Arguments::default()
    };
    let socket = serve::socket(&options, &config, places)?;
    let started = background::start(&options, &socket)?;
    let until = match seconds {
        0 => "until `salus stop`".to_owned(),
        s if s % 60 == 0 => format!("it ends after {} min without jobs", s / 60),
        s => format!("it ends after {s} s without jobs"),
    };
    let because = because.map_or_else(String::new, |because| format!(" ({because})"));
    output::note(&format!(
        "started a service for this user on device `{device}`{because} at {}, {until}; log: {}",
        socket.display(),
        started.log.display()
    ));
    Ok(socket)
}

/// Our directory first, then what was there.
fn python_path(plugin_path: &Path) -> Result<OsString, Problem> {
    let before = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let rest = std::env::split_paths(&before).filter(|path| !path.as_os_str().is_empty());
    // A job that starts `salus run` again finds the directory there already.
    let rest = rest.filter(|path| path != plugin_path);
    std::env::join_paths([plugin_path.to_owned()].into_iter().chain(rest))
        .map_err(|e| Problem::new(format!("PYTHONPATH cannot be extended: {e}")))
}

/// A directory for PYTHONPATH that holds `jax_plugins/salus/__init__.py`. Its name depends on what
/// the file says, so that versions of Salus that run side by side do not change each other's.
fn write_plugin(places: &Places) -> Result<PathBuf, Problem> {
    ensure_private_dir(&places.private_dir(), places.sockets.uid)?;
    let root = places
        .private_dir()
        .join(format!("python-{:016x}", digest(JAX_PLUGIN.as_bytes())));
    let file = root.join("jax_plugins/salus/__init__.py");
    if fs::read_to_string(&file).is_ok_and(|text| text == JAX_PLUGIN) {
        return Ok(root);
    }
    write_whole(&file, JAX_PLUGIN).map_err(|e| {
        Problem::new(format!("`{}` cannot be written: {e}", file.display()))
            .hint("it tells JAX of Salus; free some space there, or set XDG_RUNTIME_DIR")
    })?;
    Ok(root)
}

/// The file is there with all of the text, or not at all.
fn write_whole(file: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir)?;
    }
    let new = file.with_extension(format!("new-{}", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(&new)
        .and_then(|mut out| out.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// FNV-1a: tells texts apart, proves nothing.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &b| {
        (sum ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use salus_channel::endpoint::Search;

    use super::*;

    #[test]
    fn the_plugin_has_the_names_of_environment_variables_that_rust_has() {
        let names = JAX_PLUGIN.lines().filter_map(|line| {
            let (name, value) = line.split_once(" = \"SALUS_")?;
            Some((name, value.trim_end_matches('"')))
        });
        let names: Vec<_> = names.collect();
        let expected = [env::SOCKET, env::RUN_NOTES, env::LIBRARY];
        let found: Vec<_> = names
            .iter()
            .map(|(_, value)| format!("SALUS_{value}"))
            .collect();
        assert_eq!(found, expected);
        assert!(names.iter().all(|(name, value)| name == value), "{names:?}");
        // Each is written once: elsewhere only prose names them.
        assert!(!JAX_PLUGIN.contains("get(\"SALUS_"));
    }

    #[test]
    fn the_plugin_is_written_once_and_put_right_if_it_was_changed() {
        let dir = std::env::temp_dir().join(format!("salus-run-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("made");
        let places = Places {
            sockets: Search {
                runtime: Some(dir.clone()),
                ..Search::of_this_process()
            },
            ..Places::default()
        };
        let root = write_plugin(&places).expect("it can be written");
        let file = root.join("jax_plugins/salus/__init__.py");
        assert_eq!(fs::read_to_string(&file).expect("there"), JAX_PLUGIN);
        fs::write(&file, "cut off").expect("written");
        assert_eq!(write_plugin(&places).expect("again"), root);
        assert_eq!(fs::read_to_string(&file).expect("there"), JAX_PLUGIN);
        fs::remove_dir_all(dir).expect("removed");
    }
}
