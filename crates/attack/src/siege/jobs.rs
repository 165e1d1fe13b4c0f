//! The well-behaved: JAX training scripts, run through the service again and again.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Arguments;
use crate::Problem;
use crate::service::{Setup, venv_of};

pub(super) struct Job {
    pub(super) name: String,
    python: PathBuf,
    script: PathBuf,
    steps: u64,
    socket: PathBuf,
    /// Processes that were started for it.
    pub(super) pids: Mutex<Vec<i32>>,
}

/// One run of the script.
pub(super) struct Round {
    /// Of training, as the script's first and last lines tell.
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) output: String,
    pub(super) errors: String,
}

impl Round {
    pub(super) fn time(&self) -> Duration {
        self.ended - self.began
    }
}

/// Scripts, and steps that take them some seconds on two cores while the others run, too.
const SCRIPTS: &[(&str, u64)] = &[
    ("mlp.py", 600),
    ("cnn.py", 200),
    ("transformer.py", 100),
    ("mlp.py", 500),
    ("cnn.py", 160),
];

pub(super) fn all(
    setup: &Setup,
    arguments: &Arguments,
    socket: &Path,
) -> Result<Vec<Job>, Problem> {
    let python = setup.python()?;
    let examples = std::path::absolute(&arguments.examples)?;
    let job = |number: usize| {
        let (script, steps) = SCRIPTS[number % SCRIPTS.len()];
        Job {
            name: format!("job {} ({script})", number + 1),
            python: python.clone(),
            script: examples.join(script),
            steps: (steps * arguments.steps / 100).max(20),
            socket: socket.to_owned(),
            pids: Mutex::default(),
        }
    };
    Ok((0..arguments.jobs).map(job).collect())
}

/// Runs all jobs side by side, once each, or again and again as long as there is time.
pub(super) fn rounds(jobs: &[Job], until: Option<Instant>) -> Result<Vec<Vec<Round>>, Problem> {
    std::thread::scope(|scope| {
        let slots: Vec<_> = jobs
            .iter()
            .map(|job| {
                scope.spawn(move || {
                    let mut rounds = Vec::new();
                    loop {
                        rounds.push(job.round()?);
                        if until.is_none_or(|until| Instant::now() > until) {
                            return Ok::<_, std::io::Error>(rounds);
                        }
                    }
                })
            })
            .collect();
        let mut all = Vec::new();
        for slot in slots {
            all.push(slot.join().map_err(|_| "a job's thread panicked")??);
        }
        Ok(all)
    })
}

impl Job {
    fn round(&self) -> std::io::Result<Round> {
        let mut command = Command::new(&self.python);
        command
            .arg(&self.script)
            .args(["--steps", &self.steps.to_string()])
            .env("JAX_PLATFORMS", "salus,cpu")
            .env("SALUS_SOCKET", &self.socket)
            .env("PJRT_NPROC", "2")
            .env("TF_CPP_MIN_LOG_LEVEL", "3")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(venv) = venv_of(&self.python) {
            command.env("VIRTUAL_ENV", venv);
        }
        let began = Instant::now();
        let mut child = command.spawn()?;
        if let Ok(mut pids) = self.pids.lock() {
            pids.push(child.id().cast_signed());
        }
        let stderr = child.stderr.take();
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.map(|mut pipe| pipe.read_to_string(&mut text));
            text
        });
        let mut round = Round {
            began,
            ended: began,
            output: String::new(),
            errors: String::new(),
        };
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines() {
                round.ended = Instant::now();
                if round.output.is_empty() {
                    round.began = round.ended;
                }
                round.output += &line?;
                round.output.push('\n');
            }
        }
        let status = child.wait()?;
        round.errors = errors.join().unwrap_or_default();
        if !status.success() {
            round.output += &format!("ended with {status}\n");
        }
        Ok(round)
    }
}
