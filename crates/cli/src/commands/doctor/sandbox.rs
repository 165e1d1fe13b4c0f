//! What the box of the service's processes consists of on this machine (`salus_daemon::sandbox`).
//!
//! Asked by trying it: a process of its own, `salus probe-sandbox`, puts itself into the box of a compiler
//! and then tries to get out.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use salus_daemon::config::Config;
use salus_daemon::paths::Places;
use salus_daemon::sandbox::{Process, Strength, confine, escapes};
use serde_json::{Value, json};

use super::Finding;
use crate::{Outcome, output};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The device whose box it is
    device: String,
    /// A directory outside of the box, as `escapes` wants it
    outside: PathBuf,
}

/// `salus probe-sandbox`: in the box.
pub(crate) fn probe(arguments: &Arguments) -> Outcome {
    let config = Config::defaults(&Places::of_this_process());
    let settings = config.host;
    let strength = Strength::of(&arguments.device);
    let held = confine(Process::Compiler, strength, &settings);
    let mechanism = |one: &salus_daemon::sandbox::Mechanism| {
        let (found, missing) = match &one.held {
            Ok(found) => (Some(found), None),
            Err(missing) => (None, Some(missing)),
        };
        json!({ "name": one.name, "found": found, "missing": missing, "without": one.without })
    };
    let mechanisms: Vec<Value> = held.mechanisms.iter().map(mechanism).collect();
    let tried = match strength {
        Strength::Full => escapes(&arguments.outside),
        // It is not meant to refuse these.
        Strength::Light => Vec::new(),
    };
    let open: Vec<&str> = tried
        .iter()
        .filter(|e| !e.is_refused())
        .map(|e| e.what)
        .collect();
    let answer = json!({ "mechanisms": mechanisms, "tried": tried.len(), "open": open });
    output::data(&format!("{answer}\n"));
    Ok(ExitCode::SUCCESS)
}

/// A line for each mechanism, and one for what was tried.
pub(super) fn findings(device: &str, places: &Places) -> Vec<Finding> {
    let failed = |text: String| {
        vec![
            Finding::absent("sandbox", text)
                .advice("compilers and the device host may be less confined than they should be"),
        ]
    };
    let outside = std::env::temp_dir().join(format!("salus-doctor-{}", std::process::id()));
    let answer = prepare(&outside).and_then(|_listener| ask(device, &outside));
    let _ = fs::remove_dir_all(&outside);
    match answer {
        Ok(answer) => tell(device, &answer),
        Err(e) => failed(format!(
            "cannot be tried for user {}: {e}",
            places.sockets.uid
        )),
    }
}

fn prepare(outside: &Path) -> std::io::Result<UnixListener> {
    fs::create_dir(outside)?;
    for file in ["secret", "removable"] {
        fs::write(outside.join(file), file)?;
    }
    UnixListener::bind(outside.join("listens"))
}

fn ask(device: &str, outside: &Path) -> std::io::Result<Value> {
    let output = Command::new("/proc/self/exe")
        .arg("probe-sandbox")
        .arg(device)
        .arg(outside)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        std::io::Error::other(format!(
            "the process that tries it ended ({})",
            output.status
        ))
    })
}

fn tell(device: &str, answer: &Value) -> Vec<Finding> {
    let list = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let mut findings = Vec::new();
    for mechanism in list("mechanisms") {
        let name = format!("sandbox: {}", text(&mechanism["name"]));
        findings.push(match mechanism["found"].as_str() {
            Some(found) => Finding::good(name, found),
            None => Finding::absent(name, text(&mechanism["missing"])).advice(format!(
                "{}; docs/configuration.md says what the kernel needs",
                text(&mechanism["without"])
            )),
        });
    }
    let open: Vec<String> = list("open").iter().map(text).collect();
    findings.push(if Strength::of(device) == Strength::Light {
        let found = format!("device {device}: files, network and programs are left to its plugin");
        Finding::absent("sandbox", found)
    } else if open.is_empty() {
        let tried = &answer["tried"];
        Finding::good(
            "sandbox",
            format!("{tried} ways out were tried, all are closed"),
        )
    } else {
        let found = format!("a compiler is able to {}", open.join(", "));
        Finding::absent("sandbox", found)
            .advice("what is missing above would refuse it; jobs run without")
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::super::{State, as_text};
    use super::*;

    fn mechanism(name: &str, found: Option<&str>, missing: Option<&str>) -> Value {
        json!({ "name": name, "found": found, "missing": missing, "without": "others are read" })
    }

    #[test]
    fn what_the_kernel_lacks_is_said() {
        let mechanisms = [
            mechanism("files", None, Some("the kernel has no Landlock")),
            mechanism("system calls", Some("seccomp"), None),
        ];
        let answer = json!({ "mechanisms": mechanisms, "tried": 3, "open": ["read a file"] });
        let findings = tell("cpu", &answer);
        let expected = "\
sandbox: files         -        the kernel has no Landlock
                                hint: others are read; docs/configuration.md says what the kernel needs
sandbox: system calls  ok       seccomp
sandbox                -        a compiler is able to read a file
                                hint: what is missing above would refuse it; jobs run without
";
        let text = as_text(&findings, true);
        assert!(text.starts_with(expected), "{text}");
        assert!(findings.iter().all(|finding| finding.state != State::Bad));
    }

    #[test]
    fn a_plugin_of_an_accelerator_is_said_to_be_less_confined() {
        let answer = json!({ "mechanisms": [], "tried": 0, "open": [] });
        let findings = tell("cuda", &answer);
        assert!(findings[0].state == State::Absent);
        assert!(findings[0].found.contains("cuda"), "{}", findings[0].found);
    }
}
