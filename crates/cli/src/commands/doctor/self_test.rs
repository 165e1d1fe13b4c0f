//! `salus doctor --try`: has the device do what jobs will have it do, and says what happened.
//!
//! Two private services are started one after the other, with nothing of the user's: one with all of
//! the device's memory for one job, and one with so little that two jobs have to take turns. The jobs
//! are ordinary ones (`self_test.py`), started by `salus run`.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use salus_daemon::config::Problem;
use salus_harness::{Ending, Keeper, LineReader, Process, Service, Start, TempDir};
use salus_units::Bytes;
use serde_json::Value;

use super::Finding;
use super::checks::bad;
use crate::{output, python};

const JOB: &str = include_str!("self_test.py");
/// The longest check: some vendors' compilers take most of a minute for a decomposition.
const CHECK_TIME: Duration = Duration::from_secs(300);
/// The memory that two jobs share in the second part, and what each of them holds.
const SHARED_MIB: u64 = 256;
const HELD_BYTES: u64 = (SHARED_MIB << 20) / 5 * 3;

struct SelfTest<'a> {
    device: &'a str,
    python: &'a Path,
    keeper: Keeper,
    directory: TempDir,
}

/// Tries the device; the lines are in the order in which things were tried.
pub(super) fn run(device: &str, python: Option<&Path>) -> Vec<Finding> {
    let python = python::find(python);
    match SelfTest::new(device, &python) {
        Ok(test) => {
            let mut findings = test.one_job();
            findings.extend(test.two_jobs());
            findings.extend(driver());
            findings
        }
        Err(problem) => vec![bad("self-test", &problem)],
    }
}

impl<'a> SelfTest<'a> {
    fn new(device: &'a str, python: &'a Path) -> Result<Self, Problem> {
        let keeper = Keeper::own();
        let directory = TempDir::new(&keeper, "salus-self-test-")?;
        directory.file("self_test.py", JOB)?;
        Ok(Self {
            device,
            python,
            keeper,
            directory,
        })
    }

    fn service(&self, options: &[&str]) -> Result<Service, Problem> {
        let device = [OsString::from("--device"), self.device.into()];
        let options = options.iter().map(OsString::from);
        Service::start(Start {
            keeper: &self.keeper,
            configuration: "schema_version = 1\n",
            options: device.into_iter().chain(options).collect(),
            variables: Vec::new(),
        })
    }

    fn job(&self, service: &Service, name: &str, arguments: &[&str]) -> Result<Process, Problem> {
        let directory = self.directory.path();
        let log = directory.join(format!("{name}.log"));
        let salus = self.keeper.salus().as_os_str();
        Process::start(&self.keeper, salus, Ending::Term, &log, |command| {
            command
                .args(["run", "--name", name, "--socket"])
                .arg(service.socket())
                .arg("--")
                .arg(self.python)
                .arg(directory.join("self_test.py"))
                .args(arguments)
                .current_dir(directory)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
        })
    }

    /// What a job alone on the device finds.
    fn one_job(&self) -> Vec<Finding> {
        let started = self.service(&[]).and_then(|service| {
            let pool = pool(&service.report()?);
            let job = self.job(&service, "alone", &["alone"])?;
            Ok((service, pool, job))
        });
        match started {
            Ok((service, pool, job)) => {
                let mut findings = vec![pool];
                findings.extend(Job::new(job).results(&service));
                findings.extend(restarts(&service));
                findings
            }
            Err(problem) => vec![bad("service", &problem)],
        }
    }

    /// What two jobs find that do not fit the device together.
    fn two_jobs(&self) -> Vec<Finding> {
        let tried = self.service(&["--memory", &format!("{SHARED_MIB}MiB")]);
        let tried = tried.and_then(|service| {
            let held = HELD_BYTES.to_string();
            let mut jobs = Vec::new();
            for seed in ["1", "2"] {
                let name = format!("job {seed}");
                let job = self.job(&service, &name, &["beside", &held, seed])?;
                jobs.push(Job::new(job));
            }
            // Both hold their arrays now, so one of them was evicted.
            jobs.iter_mut().for_each(Job::wait_until_ready);
            jobs.iter_mut().for_each(Job::go_on);
            let results = jobs.into_iter().map(|job| job.results(&service));
            let mut findings: Vec<Finding> = results.flatten().collect();
            let moves = service.recording(0)?.moves;
            let out: u64 = moves.iter().filter(|m| m.out).map(|m| m.bytes).sum();
            let back: u64 = moves.iter().filter(|m| !m.out).map(|m| m.bytes).sum();
            let found = format!(
                "{} paged out, {} paged in, on {SHARED_MIB} MiB of the device",
                Bytes(out),
                Bytes(back)
            );
            findings.push(match out > 0 && back > 0 {
                true => Finding::good("eviction", found),
                false => Finding::failed("eviction", found),
            });
            findings.extend(restarts(&service));
            Ok(findings)
        });
        tried.unwrap_or_else(|problem| vec![bad("two jobs", &problem)])
    }
}

/// What the service took of the device, and what it is.
fn pool(report: &Value) -> Finding {
    let device = &report["device"];
    let text = |key: &str| device[key].as_str().unwrap_or("?");
    let bytes = |of: &Value| Bytes(of.as_u64().unwrap_or(0)).to_string();
    Finding::good(
        "pool",
        format!(
            "{} of {} ({}), {} for arrays and scratch\n{}, PJRT API {}, {}",
            bytes(&device["capacity_bytes"]),
            text("kind"),
            text("platform"),
            bytes(&device["ledger"]["room_bytes"]),
            text("version"),
            text("pjrt_api"),
            text("plugin"),
        ),
    )
}

/// A job that is being read.
struct Job {
    process: Process,
    lines: Option<LineReader<ChildStdout>>,
}

impl Job {
    fn new(mut process: Process) -> Self {
        let lines = process.output().map(LineReader::new);
        Self { process, lines }
    }

    /// Waits until it holds its arrays; if it never will, its results say why.
    fn wait_until_ready(&mut self) {
        while let Some(Ok(line)) = self.lines.as_mut().map(|lines| lines.next(CHECK_TIME)) {
            if line == "ready" {
                break;
            }
        }
    }

    fn go_on(&mut self) {
        // Its end is as good as a line.
        drop(self.process.input());
    }

    /// Its checks, until it ends.
    fn results(mut self, service: &Service) -> Vec<Finding> {
        let mut findings = Vec::new();
        while let Some(lines) = &mut self.lines {
            match lines.next(CHECK_TIME) {
                // Vendors' libraries print, too.
                Ok(line) => findings.extend(serde_json::from_str(&line).ok().map(finding)),
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => break,
                Err(_) => {
                    let (seconds, log) = (CHECK_TIME.as_secs(), service.log_tail());
                    let found = format!("a check took more than {seconds} s\n{log}");
                    findings.push(Finding::failed("self-test", found));
                    return findings;
                }
            }
        }
        let ended = self.process.ended_within(CHECK_TIME);
        if findings.is_empty() || ended.is_some_and(|status| !status.success()) {
            let problem = self.process.problem("the job of the self-test failed");
            findings.push(bad("self-test", &problem));
        }
        findings
    }
}

fn finding(line: Value) -> Finding {
    let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let (what, found) = (text("check"), text("found"));
    output::note(&format!("{what}: {}", found.lines().next().unwrap_or("")));
    match line["ok"].as_bool() {
        Some(true) => Finding::good(what, found),
        Some(false) => Finding::failed(what, found),
        None => Finding::absent(what, found),
    }
}

/// A device host that had to be started again is a failure, whatever the jobs say.
fn restarts(service: &Service) -> Option<Finding> {
    match service.restarts() {
        Ok(0) => None,
        Ok(n) => {
            let found = format!("the device host ended {n} times\n{}", service.log_tail());
            Some(Finding::failed("device host", found))
        }
        Err(problem) => Some(bad("device host", &problem)),
    }
}

/// The kernel's part of a driver, for the report.
fn driver() -> Option<Finding> {
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    Some(Finding::good("driver", version.trim()))
}
