//! `salus doctor`: what is found, what is missing, what to do.
//!
//! Each check looks at one thing and never fails itself. A job can run if all that are *needed* are
//! good; the others are for information. `--try` also has the device do a job's work (`self_test`).

mod checks;
pub(crate) mod probe;
pub(crate) mod sandbox;
mod self_test;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use salus_daemon::config::Config;
use salus_daemon::log::tame;
use salus_daemon::paths::Places;
use serde_json::{Value, json};

use crate::{Format, NO, Outcome, Where, output};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Where,
    /// The device to look at: cpu, cuda, rocm, tpu, or the path of a PJRT plugin [default: the
    /// configured one]
    #[arg(long, value_name = "NAME|PATH")]
    device: Option<String>,
    /// Try the device: transfers, a program, linear algebra, a callback, errors, eviction. Takes a
    /// minute or more and prints a report to send in
    #[arg(long = "try")]
    try_device: bool,
    /// The Python with JAX that `--try` runs [default: SALUS_PYTHON, else the active environment's,
    /// else the one beside this program, else python3]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What one check found.
pub(crate) struct Finding {
    what: String,
    state: State,
    found: String,
    /// What to do about it.
    advice: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    /// Not there, and a job runs without it.
    Absent,
    /// A job cannot run.
    Bad,
    /// It was tried and did not work.
    Failed,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Absent => "-",
            Self::Bad => "missing",
            Self::Failed => "failed",
        }
    }
}

impl Finding {
    fn new(what: impl Into<String>, state: State, found: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            state,
            found: found.into(),
            advice: None,
        }
    }

    fn good(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(what, State::Good, found)
    }

    fn absent(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(what, State::Absent, found)
    }

    fn bad(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(what, State::Bad, found)
    }

    fn failed(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(what, State::Failed, found)
    }

    fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

pub(crate) fn doctor(arguments: &Arguments) -> Outcome {
    let places = Places::of_this_process();
    let loaded = Config::load(None, &places);
    let mut findings = vec![checks::library(), checks::kernel(), checks::config(&loaded)];
    let mut config = loaded.unwrap_or_else(|_| Config::defaults(&places));
    if let Some(device) = &arguments.device {
        config.host.device.name.clone_from(device);
    }
    findings.push(checks::choice(&mut config));
    findings.extend(checks::devices(&config));
    findings.push(checks::lapack(&config));
    findings.extend(checks::handlers(&config));
    findings.extend(sandbox::findings(&config.host.device.name, &places));
    findings.push(checks::python());
    let (service, running) = checks::service(&places, arguments.place.socket.as_deref());
    findings.push(service);
    let limits = running.unwrap_or_else(|| checks::configured_limits(&config));
    findings.push(checks::limits(&limits));
    findings.push(checks::private_dir(&places));
    findings.push(checks::cache(&config));
    if arguments.try_device {
        let device = &config.host.device.name;
        findings.extend(self_test::run(device, arguments.python.as_deref()));
    }
    let wrong = |finding: &Finding| matches!(finding.state, State::Bad | State::Failed);
    let ready = !findings.iter().any(wrong);
    output::data(&match arguments.output {
        Format::Json => format!("{:#}\n", as_json(&findings, &limits, ready)),
        Format::Table => as_text(&findings, ready),
    });
    Ok(if ready { ExitCode::SUCCESS } else { NO })
}

fn as_json(findings: &[Finding], limits: &Value, ready: bool) -> Value {
    let one = |finding: &Finding| {
        json!({
            "check": finding.what,
            "state": match finding.state {
                State::Good => "ok",
                State::Absent => "absent",
                State::Bad => "missing",
                State::Failed => "failed",
            },
            "found": finding.found,
            "advice": finding.advice,
        })
    };
    let checks: Vec<Value> = findings.iter().map(one).collect();
    json!({ "ready": ready, "checks": checks, "limits": limits })
}

fn as_text(findings: &[Finding], ready: bool) -> String {
    let width = findings.iter().map(|f| f.what.chars().count()).max();
    let width = width.unwrap_or(0);
    let mut out = String::new();
    for finding in findings {
        let what = &finding.what;
        // Vendors' messages have lines of their own; those stay in their column.
        let found: Vec<String> = finding.found.lines().map(tame).collect();
        let found = found.join(&format!("\n{:width$}           ", ""));
        out.push_str(&format!(
            "{what:width$}  {:7}  {found}\n",
            finding.state.word()
        ));
        if let Some(advice) = &finding.advice {
            out.push_str(&format!("{:width$}           hint: {advice}\n", ""));
        }
    }
    out.push_str(if ready {
        "\na job can run: `salus run -- python train.py`\n"
    } else {
        "\na job cannot run yet: see what is missing or failed above\n"
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_line_up_and_say_what_to_do() {
        let findings = [
            Finding::good("library", "/x/libpjrt_salus.so"),
            Finding::bad("device cpu", "not installed").advice("`pip install xla-cpu-pjrt`"),
            Finding::absent("service", "none runs"),
        ];
        let expected = "\
library     ok       /x/libpjrt_salus.so
device cpu  missing  not installed
                     hint: `pip install xla-cpu-pjrt`
service     -        none runs

a job cannot run yet: see what is missing or failed above
";
        assert_eq!(as_text(&findings, false), expected);
        let json = as_json(&findings, &json!({ "sessions": 7 }), false);
        assert_eq!(json["ready"], false);
        assert_eq!(json["limits"]["sessions"], 7);
        assert_eq!(json["checks"][1]["advice"], "`pip install xla-cpu-pjrt`");
    }
}
