//! `salus serve`: the supervisor in this process, and the hidden commands of its children.

mod devices;
pub(crate) mod launcher;

pub(crate) use devices::one_device;

use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use salus_daemon::config::{AUTO, Config, DeviceNames, HostSettings, Problem};
use salus_daemon::paths::{self, Places};
use salus_daemon::supervisor::{self, Service};
use salus_device::accelerators::Surroundings;
use salus_device::discover;
use salus_engine::Policy;

use crate::arguments::{parse_bytes, parse_policy};
use crate::{Outcome, Where, background, heap, output, ps};

#[derive(Args, Clone, Default)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) place: Where,
    /// The device to serve: cpu, cuda, rocm, tpu, or the path of a PJRT plugin, all of whose devices
    /// are meant; some are cuda:0,cuda:1 [default: auto, the GPU if there is one and its plugin is
    /// installed, cpu if there is none]
    #[arg(long, value_name = "NAME|PATH")]
    pub(crate) device: Option<String>,
    /// The configuration [default: SALUS_CONFIG, else ~/.config/salus/salus.toml, else
    /// /etc/salus/salus.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The device's memory to share: 1.3GiB, 800MiB, … [default: what the device has; of a CPU
    /// device, three quarters of what the machine has left]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) memory: Option<NonZeroU64>,
    /// Host memory for arrays that must leave the device [default: half of what the machine has
    /// left; with a CPU device, what that leaves of seven eighths]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) host_memory: Option<NonZeroU64>,
    /// In which order jobs are served: exclusive, fifo, srtf, pack, fair, priority, las, deadline
    /// [default: fair]
    #[arg(long, value_name = "NAME", value_parser = parse_policy)]
    pub(crate) policy: Option<Policy>,
    /// Iterations that may run side by side [default: 1, under `pack` as many as help; at most the
    /// cores on a CPU device]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) lanes: Option<u32>,
    /// Return as soon as it serves, and leave it running; its log is beside the socket
    #[arg(long)]
    pub(crate) background: bool,
    /// End after this long without a session; 0 is never
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub(crate) idle_exit_seconds: Option<u64>,
    /// Say on standard output when it serves
    #[arg(long, hide = true)]
    pub(crate) announce: bool,
}

impl Arguments {
    /// The same for another process, which may have another working directory.
    pub(crate) fn to_command_line(&self) -> Vec<std::ffi::OsString> {
        let mut line = Vec::new();
        let mut add = |name: &str, value: std::ffi::OsString| line.extend([name.into(), value]);
        if let Some(socket) = &self.place.socket {
            add("--socket", paths::absolute(socket).into());
        }
        if let Some(device) = &self.device {
            let absolute = DeviceNames::parse(device).map(|names| names.absolute().to_string());
            add(
                "--device",
                absolute.unwrap_or_else(|_| device.clone()).into(),
            );
        }
        if let Some(config) = &self.config {
            add("--config", paths::absolute(config).into());
        }
        let number = |n: u64| std::ffi::OsString::from(n.to_string());
        if let Some(bytes) = self.memory {
            add("--memory", number(bytes.get()));
        }
        if let Some(bytes) = self.host_memory {
            add("--host-memory", number(bytes.get()));
        }
        if let Some(policy) = self.policy {
            add("--policy", policy.name().into());
        }
        if let Some(lanes) = self.lanes {
            add("--lanes", number(lanes.into()));
        }
        if let Some(seconds) = self.idle_exit_seconds {
            add("--idle-exit-seconds", seconds.to_string().into());
        }
        line
    }
}

pub(crate) fn serve(arguments: &Arguments) -> Outcome {
    let places = Places::of_this_process();
    let mut config = Config::load(arguments.config.as_deref(), &places)?;
    if let Some(device) = &arguments.device {
        config.host.device.name.clone_from(device);
    }
    if let Some(because) = choose_device(&mut config)? {
        let device = &config.host.device.name;
        output::note(&format!("the device is `{device}`, because {because}"));
    }
    let names = DeviceNames::parse(&config.host.device.name)?.absolute();
    let device = &mut config.host.device;
    device.name.clone_from(&names.plugin);
    device.memory = arguments.memory.map(NonZeroU64::get).or(device.memory);
    device.host_memory = arguments
        .host_memory
        .map(NonZeroU64::get)
        .or(device.host_memory);
    device.lanes = arguments.lanes.or(device.lanes);
    let scheduling = &mut config.host.scheduling;
    scheduling.policy = arguments.policy.unwrap_or(scheduling.policy);
    check_lanes(&config)?;
    if arguments.background {
        let socket = socket(arguments, &config, &places)?;
        let started = background::start(arguments, &socket)?;
        let log = started.log.display();
        output::say(&format!("{}; log: {log}", started.line));
        return Ok(ExitCode::SUCCESS);
    }
    let socket = socket(arguments, &config, &places)?;
    let plugin = find_plugin(&config.host.device.name)?;
    let devices = devices::indices(&names, &plugin, &config.host, &socket)?;
    config.host.device.lapack = match find_lapack(&config, &plugin) {
        // Most jobs do without; programs that need it are refused when they are compiled.
        Err(_) if config.host.device.lapack.is_none() => None,
        found => Some(found?),
    };
    let (launcher, without) = launcher::launcher(&plugin);
    if let Some(why) = without {
        output::note(&format!(
            "jobs do linear algebra without the vendor's libraries, which is slow: {why}"
        ));
    }
    let idle = arguments
        .idle_exit_seconds
        .or(config.service.idle_exit_seconds.map(u64::from));
    let announce = arguments.announce;
    let at = socket.clone();
    supervisor::serve(Service {
        socket,
        allow_users: config.service.allow_users.clone(),
        idle_exit: idle.filter(|s| *s > 0).map(Duration::from_secs),
        host: HostSettings {
            plugin,
            ..config.host
        },
        devices,
        launcher,
        when_ready: Box::new(move |devices| {
            let line = ps::serves(devices, &at);
            output::say(&line);
            if announce {
                output::data(&format!("{line}\n"));
                release_stdout();
            }
        }),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Lanes of the CPU device that run side by side divide its cores: more would share one and only be in each
/// other's way.
fn check_lanes(config: &Config) -> Result<(), Problem> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let lanes = config.host.device.lanes.unwrap_or(1);
    if config.host.device.name != "cpu" || lanes as usize <= cores {
        return Ok(());
    }
    Err(Problem::new(format!(
        "{lanes} lanes on {cores} cores: each lane of the CPU device needs a core"
    ))
    .hint(format!("the CPU device takes up to {cores} here")))
}

/// The process that waits for the announcement reads to the end of our standard output.
fn release_stdout() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null.as_fd());
    }
}

/// Where to listen. The default place is in a directory that must be ours alone.
pub(crate) fn socket(
    arguments: &Arguments,
    config: &Config,
    places: &Places,
) -> Result<PathBuf, Problem> {
    let named = arguments
        .place
        .socket
        .as_ref()
        .or(places.sockets.named.as_ref());
    if let Some(path) = named.or(config.service.socket.as_ref()) {
        return Ok(paths::absolute(path));
    }
    paths::ensure_private_dir(&places.private_dir(), places.sockets.uid)?;
    Ok(places.sockets.default_socket())
}

/// Puts a device in the place of `auto`, and returns why that one.
pub(crate) fn choose_device(config: &mut Config) -> Result<Option<String>, Problem> {
    if config.host.device.name != AUTO {
        return Ok(None);
    }
    let around = Surroundings {
        root: Path::new("/"),
        site_packages: &discover::site_packages_candidates(),
        variable: &|name| std::env::var(name).ok(),
    };
    let chosen = around.choose()?;
    config.host.device.name = chosen.name.into();
    Ok(Some(chosen.because))
}

/// The vendor's library that a device's name stands for.
pub(crate) fn find_plugin(device: &str) -> Result<PathBuf, Problem> {
    // A device without a library, for tests of everything around it.
    if device == "scripted" {
        return Ok(PathBuf::from(device));
    }
    discover::find_plugin(device, &discover::site_packages_candidates())
        .map(|path| paths::absolute(&path))
        .map_err(Problem::from)
}

/// LAPACK's library for a plugin: the configured one, else SciPy's.
pub(crate) fn find_lapack(config: &Config, plugin: &Path) -> Result<PathBuf, Problem> {
    let Some(path) = &config.host.device.lapack else {
        return discover::find_lapack(plugin, &discover::site_packages_candidates())
            .map(|path| paths::absolute(&path))
            .map_err(Problem::from);
    };
    if path.is_file() {
        return Ok(path.clone());
    }
    let path = path.display();
    Err(Problem::new(format!("there is no LAPACK at `{path}`"))
        .hint("`lapack` in the configuration names it; without that line it is the one of SciPy"))
}

pub(crate) fn device_host() -> Outcome {
    supervisor::device_host(heap::give_back)
}

pub(crate) fn compiler() -> Outcome {
    supervisor::compiler()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_for_another_process_has_no_relative_path() {
        let arguments = Arguments {
            place: Where {
                socket: Some("s.sock".into()),
            },
            device: Some("plugin.so".into()),
            memory: NonZeroU64::new(1 << 30),
            lanes: Some(2),
            idle_exit_seconds: Some(600),
            ..Arguments::default()
        };
        let here = std::env::current_dir().expect("there is one");
        let expected = [
            "--socket".into(),
            here.join("s.sock").into_os_string(),
            "--device".into(),
            here.join("plugin.so").into_os_string(),
            "--memory".into(),
            "1073741824".into(),
            "--lanes".into(),
            "2".into(),
            "--idle-exit-seconds".into(),
            "600".into(),
        ];
        assert_eq!(arguments.to_command_line(), expected);
    }
}
