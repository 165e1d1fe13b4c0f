//! The things that `salus doctor` looks at, one function each.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use salus_daemon::config::{Config, Problem};
use salus_daemon::paths::{Places, ensure_private_dir};
use salus_daemon::supervisor;
use salus_units::Bytes;
use salus_wire::Request;
use serde_json::Value;

use super::Finding;
use super::probe;
use crate::{ask, library, python, serve};

/// Devices that have a name.
const NAMES: &[&str] = &["cpu", "cuda", "rocm", "tpu"];

pub(super) fn bad(what: &str, problem: &Problem) -> Finding {
    let finding = Finding::bad(what, problem.what.clone());
    match &problem.hint {
        Some(hint) => finding.advice(hint.clone()),
        None => finding,
    }
}

pub(super) fn library() -> Finding {
    match library::find() {
        Ok(path) => Finding::good("library", path.display().to_string()),
        Err(problem) => bad("library", &problem),
    }
}

/// Shared memory that can be sealed: all bulk data travels in it.
pub(super) fn kernel() -> Finding {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    match salus_channel::Segment::create(4096, false) {
        Ok(_) => Finding::good("kernel", format!("Linux {release}, sealed memfd works")),
        Err(e) => Finding::bad(
            "kernel",
            format!("Linux {release}, memfd does not work: {e}"),
        )
        .advice("Linux 3.17 or newer, and a container that does not forbid memfd_create"),
    }
}

pub(super) fn config(loaded: &Result<Config, Problem>) -> Finding {
    match loaded {
        Ok(Config {
            file: Some(path), ..
        }) => Finding::good("configuration", path.display().to_string()),
        Ok(_) => Finding::absent("configuration", "no salus.toml; defaults hold"),
        Err(problem) => bad("configuration", problem),
    }
}

/// Which device a service would serve. Where there is none, the CPU stands for it in what follows.
pub(super) fn choice(config: &mut Config) -> Finding {
    let what = "default device";
    match serve::choose_device(config) {
        Ok(None) => Finding::good(what, format!("{}, as configured", config.host.device.name)),
        Ok(Some(because)) => Finding::good(what, format!("{}: {because}", config.host.device.name)),
        Err(problem) => {
            config.host.device.name = "cpu".into();
            bad(what, &problem)
        }
    }
}

/// The device that is configured is needed; the others are shown if they are there.
pub(super) fn devices(config: &Config) -> Vec<Finding> {
    let named = NAMES
        .iter()
        .copied()
        .filter(|name| *name != config.host.device.name);
    let mut findings = vec![device(&config.host.device.name, true)];
    findings.extend(named.map(|name| device(name, false)));
    findings
}

fn device(name: &str, needed: bool) -> Finding {
    let what = format!("device {name}");
    if name == "scripted" {
        return Finding::good(what, "a device for tests, which computes nothing");
    }
    let path = match serve::find_plugin(name) {
        Ok(path) => path,
        Err(problem) if needed => return bad(&what, &problem),
        Err(_) => return Finding::absent(what, "no plugin is installed"),
    };
    let answer = probe::ask(&path);
    let text = |key: &str| answer[key].as_str().unwrap_or("?").to_owned();
    let at = path.display();
    let version = match answer["pjrt_api"].as_str() {
        Some(version) => format!(", PJRT API {version}"),
        None => String::new(),
    };
    if let Some(error) = answer["error"].as_str() {
        let found = format!("{at}{version}\n{error}");
        return if needed {
            Finding::bad(what, found).advice(
                "check the vendor's driver and library, or serve another device with `--device`",
            )
        } else {
            Finding::absent(what, found)
        };
    }
    let capacity = answer["capacity_bytes"].as_u64().map_or(0, |bytes| bytes);
    Finding::good(
        what,
        format!(
            "{at}{version}\n{} ({}), {}",
            text("platform"),
            text("kind"),
            Bytes(capacity)
        ),
    )
}

/// What `jnp.linalg` on a GPU calls; nothing for other devices.
pub(super) fn handlers(config: &Config) -> Option<Finding> {
    let what = "linear algebra";
    let plugin = serve::find_plugin(&config.host.device.name).ok()?;
    match serve::launcher::handlers(&plugin) {
        Ok((package, _)) => {
            let found = format!("`{}`, by {}", package.name, package.python.display());
            Some(Finding::good(what, found))
        }
        Err(None) => None,
        Err(Some(why)) => Some(Finding::absent(
            what,
            format!("in plain operations, which is slow: {why}"),
        )),
    }
}

/// What `jnp.linalg` on the CPU device calls.
pub(super) fn lapack(config: &Config) -> Finding {
    let plugin = serve::find_plugin("cpu").unwrap_or_default();
    let (path, error) = match serve::find_lapack(config, &plugin) {
        Ok(path) => match probe::ask_lapack(&path) {
            None => return Finding::good("lapack", path.display().to_string()),
            Some(error) => (format!("{}\n", path.display()), error),
        },
        Err(problem) if config.host.device.lapack.is_some() => return bad("lapack", &problem),
        Err(problem) => (String::new(), problem.what),
    };
    Finding::absent("lapack", format!("{path}{error}")).advice(
        "only `jnp.linalg` on the CPU device needs it: `pip install scipy` beside the plugin, or \
         set `lapack` in the configuration",
    )
}

/// Prints the versions without importing JAX, which would take a second.
const ASK_PYTHON: &str = "\
import sys, importlib.metadata as m
def v(n):
    try: return m.version(n)
    except m.PackageNotFoundError: return None
print(sys.executable)
print('Python ' + sys.version.split()[0], *(f'{n} {v(n)}' for n in ('jax','jaxlib','salus') if v(n)), sep=', ')
";

/// The Python that a job would probably be run with.
pub(super) fn python() -> Finding {
    let python = python::find(None);
    let output = Command::new(&python).args(["-c", ASK_PYTHON]).output();
    let text = match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        Ok(_) | Err(_) => {
            return Finding::absent("python", format!("`{}` does not run", python.display()))
                .advice("jobs need a Python with JAX; activate its environment");
        }
    };
    if text.contains("jax ") {
        Finding::good("python", text)
    } else {
        Finding::absent("python", format!("{text}, without JAX"))
            .advice("`pip install jax` in the environment of the job")
    }
}

/// The service that jobs would find, and the limits that it says it holds.
pub(super) fn service(places: &Places, named: Option<&Path>) -> (Finding, Option<Value>) {
    let what = "service";
    let none = || Finding::absent(what, "none runs; `salus run` starts one");
    let socket = match ask::find(places, named) {
        Ok(Some(socket)) => socket,
        Ok(None) => return (none(), None),
        Err(problem) => return (bad(what, &problem), None),
    };
    match ask::ask(&socket, Request::Report) {
        Ok(Some(answered)) => {
            let limits = answered.json["service"]["limits"].clone();
            let found = Finding::good(what, running(&socket, &answered.json));
            (found, Some(limits).filter(Value::is_object))
        }
        Ok(None) => (none(), None),
        Err(problem) => (bad(what, &problem), None),
    }
}

/// What a service would hold that was started now.
pub(super) fn configured_limits(config: &Config) -> Value {
    let settings = &config.host;
    settings.limits(supervisor::sessions_max())
}

/// `[limits]` as they hold, a line each.
pub(super) fn limits(limits: &Value) -> Finding {
    let show = |(name, value): (&String, &Value)| {
        let shown = match value.as_u64() {
            None => "no limit".into(),
            Some(bytes) if name.starts_with("memory") || name.starts_with("programs") => {
                Bytes(bytes).to_string()
            }
            Some(bytes) if name == "compile_memory" => Bytes(bytes).to_string(),
            Some(number) => number.to_string(),
        };
        format!("{name} = {shown}")
    };
    let lines: Vec<String> = limits.as_object().into_iter().flatten().map(show).collect();
    Finding::good("limits", lines.join("\n"))
}

fn running(socket: &Path, report: &Value) -> String {
    let service = &report["service"];
    let device = &report["device"];
    let serves = device["platform"].as_str().or(device["state"].as_str());
    let sessions = report["sessions"].as_array().map_or(0, Vec::len);
    format!(
        "{}\nversion {}, pid {}, device {}, {sessions} sessions, {} restarts",
        socket.display(),
        service["version"].as_str().unwrap_or("?"),
        service["pid"],
        serves.unwrap_or("?"),
        service["restarts"],
    )
}

/// The directory for socket, log and lock of a service of this user.
pub(super) fn private_dir(places: &Places) -> Finding {
    let dir = places.private_dir();
    match ensure_private_dir(&dir, places.sockets.uid) {
        Ok(()) => Finding::good("directory", dir.display().to_string()),
        Err(problem) => bad("directory", &problem),
    }
}

pub(super) fn cache(config: &Config) -> Finding {
    let dir = &config.host.cache.directory;
    let at = dir.display();
    if let Err(e) = fs::create_dir_all(dir).and_then(|()| try_to_write(dir)) {
        return Finding::absent("cache", format!("{at} cannot be written: {e}")).advice(
            "programs are compiled again after each start; set SALUS_CACHE_DIR to a directory \
             of yours",
        );
    }
    let limit = Bytes(config.host.cache.disk).to_string();
    Finding::good(
        "cache",
        format!("{at}, {} of {limit}", Bytes(bytes_below(dir, 3))),
    )
}

fn try_to_write(dir: &Path) -> io::Result<()> {
    let file = dir.join(format!(".doctor-{}", std::process::id()));
    // Bytes, not only a name: a full disk still takes names.
    let written = fs::write(&file, [0; 4096]);
    let _ = fs::remove_file(&file);
    written
}

fn bytes_below(dir: &Path, depth: u32) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() && depth > 0 => bytes_below(&entry.path(), depth - 1),
        Ok(found) if found.is_file() => found.len(),
        _ => 0,
    };
    entries.flatten().map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shown_with_their_units_a_line_each() {
        let found = limits(&serde_json::json!({
            "memory_per_user": null,
            "programs_per_user": 4u64 << 30,
            "sessions_per_user": 2048,
            "compile_seconds": 1800,
            "compile_memory": 1u64 << 30,
        }));
        let lines: Vec<&str> = found.found.lines().collect();
        for line in [
            "memory_per_user = no limit",
            "programs_per_user = 4.0 GiB",
            "sessions_per_user = 2048",
            "compile_seconds = 1800",
            "compile_memory = 1.0 GiB",
        ] {
            assert!(lines.contains(&line), "{lines:?}");
        }
    }
}
