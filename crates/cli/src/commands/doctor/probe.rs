//! `salus probe-plugin PATH`: opens a vendor's plugin and tells what it is.
//!
//! In a process of its own, because a plugin may crash, hang or print what it likes; [`ask`] starts
//! it, and takes the last line that looks like an answer.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use salus_daemon::config::PluginOption;
use salus_device::{Device, PjrtConfig, PjrtDevice, Purpose};
use serde_json::{Value, json};

use crate::{Outcome, output};

/// A plugin that looks for hardware over a network may take this long before it gives up.
const PROBE_TIME: Duration = Duration::from_secs(20);
/// How often to look whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// More than any answer.
const OUTPUT_BYTES: u64 = 1 << 20;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The plugin's library
    path: PathBuf,
    /// It is no plugin but LAPACK
    #[arg(long)]
    lapack: bool,
    /// Only count its devices, opened with these options as JSON
    #[arg(long, value_name = "OPTIONS")]
    count: Option<String>,
}

pub(crate) fn probe(arguments: &Arguments) -> Outcome {
    let path = &arguments.path;
    let mut answer = json!({ "path": path });
    if arguments.lapack {
        if let Err(e) = salus_device::check_lapack(path) {
            answer["error"] = json!(e.to_string());
        }
        output::data(&format!("\n{answer}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(options) = &arguments.count {
        match count_devices(path, options) {
            Ok((platform, devices)) => {
                answer["platform"] = json!(platform);
                answer["devices"] = json!(devices);
            }
            Err(e) => answer["error"] = json!(e),
        }
        output::data(&format!("\n{answer}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    match salus_pjrt::Plugin::open(path) {
        Ok(plugin) => {
            let (major, minor) = plugin.api_version();
            answer["pjrt_api"] = json!(format!("{major}.{minor}"));
            let config = PjrtConfig {
                plugin: path.clone(),
                // The service that has the device, or starts later, must find its memory free.
                purpose: Purpose::Try,
                ..PjrtConfig::default()
            };
            match PjrtDevice::open(&config) {
                Ok(device) => {
                    describe(&device, &mut answer);
                    drop(device);
                    if answer["platform"] != "cpu"
                        && let Ok((_, devices)) = PjrtDevice::count(path, &[])
                    {
                        answer["devices"] = json!(devices);
                    }
                }
                Err(e) => answer["error"] = json!(e.to_string()),
            }
        }
        Err(e) => answer["error"] = json!(e.to_string()),
    }
    output::data(&format!("\n{answer}\n"));
    Ok(ExitCode::SUCCESS)
}

fn count_devices(path: &Path, options: &str) -> Result<(String, usize), String> {
    let options: BTreeMap<String, PluginOption> =
        serde_json::from_str(options).map_err(|e| e.to_string())?;
    let options = options.iter();
    let options: Vec<_> = options
        .map(|(name, option)| (name.clone(), option.into()))
        .collect();
    PjrtDevice::count(path, &options).map_err(|e| e.to_string())
}

fn describe(device: &PjrtDevice, answer: &mut Value) {
    let description = device.description();
    answer["platform"] = json!(description.platform_name);
    answer["kind"] = json!(description.kind);
    answer["capacity_bytes"] = json!(description.capacity_bytes);
}

/// What a plugin says of itself, or `{"path", "error"}`.
pub(crate) fn ask(plugin: &Path) -> Value {
    ask_about(plugin, &[])
}

/// How many devices a plugin has, and of which platform: `{"platform", "devices"}`, or `{"error"}`.
pub(crate) fn count(plugin: &Path, options: &BTreeMap<String, PluginOption>) -> Value {
    let options = json!(options).to_string();
    ask_about(plugin, &["--count", &options])
}

/// What is wrong with LAPACK's library, if anything is.
pub(crate) fn ask_lapack(library: &Path) -> Option<String> {
    let answer = ask_about(library, &["--lapack"]);
    answer["error"].as_str().map(Into::into)
}

fn ask_about(library: &Path, options: &[&str]) -> Value {
    let error = |text: String| json!({ "path": library, "error": text });
    let child = Command::new("/proc/self/exe")
        .arg("probe-plugin")
        .arg(library)
        .args(options)
        .env("TF_CPP_MIN_LOG_LEVEL", "3")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(e) => return error(format!("cannot be tried: {e}")),
    };
    let stdout = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stdout) = stdout {
            let _ = stdout.take(OUTPUT_BYTES).read_to_end(&mut bytes);
        }
        bytes
    });
    let deadline = Instant::now() + PROBE_TIME;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                let seconds = PROBE_TIME.as_secs();
                return error(format!("did not open within {seconds} s"));
            }
            Err(e) => return error(format!("cannot be tried: {e}")),
        }
    };
    let bytes = reader.join().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let answer = text.lines().rev().find_map(|line| {
        serde_json::from_str::<Value>(line)
            .ok()
            .filter(Value::is_object)
    });
    answer.unwrap_or_else(|| match status.signal() {
        Some(signal) => error(format!("crashed when it was opened (signal {signal})")),
        None => error(format!("gave no answer ({status})")),
    })
}
