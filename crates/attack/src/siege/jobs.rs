//! The well-behaved: JAX training scripts, run through the service again and again.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use salus_harness::{Ending, Keeper, LineReader, Process, TempDir};

use super::Arguments;
use crate::Problem;
use crate::setup::Setup;
use crate::setup::venv_of;

/// Between two lines of a job: a compilation, or the steps of a busy machine. Longer is a hang.
const LINE_TIME: Duration = Duration::from_secs(600);

/// What goes wrong with a job, in a thread.
type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(super) struct Job {
    pub(super) name: String,
    python: PathBuf,
    script: PathBuf,
    steps: u64,
    socket: PathBuf,
    keeper: Keeper,
    log: PathBuf,
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
    keeper: &Keeper,
    logs: &TempDir,
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
            keeper: keeper.clone(),
            log: logs.path().join(format!("job{number}.log")),
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
                            return Ok::<_, Failure>(rounds);
                        }
                    }
                })
            })
            .collect();
        let mut all = Vec::new();
        for slot in slots {
            let rounds = slot.join().map_err(|_| "a job's thread panicked")?;
            all.push(rounds.map_err(|failure| failure.to_string())?);
        }
        Ok(all)
    })
}

impl Job {
    fn round(&self) -> Result<Round, Failure> {
        let _ = std::fs::remove_file(&self.log);
        let began = Instant::now();
        let mut process = Process::start(
            &self.keeper,
            self.python.as_os_str(),
            Ending::Kill,
            &self.log,
            |command| {
                command
                    .arg(&self.script)
                    .args(["--steps", &self.steps.to_string()])
                    .env("JAX_PLATFORMS", "salus,cpu")
                    .env("SALUS_SOCKET", &self.socket)
                    .env("PJRT_NPROC", "2")
                    .env("TF_CPP_MIN_LOG_LEVEL", "3")
                    // Of the service that is tried out, where it is not the installed one.
                    .envs(std::env::var_os("SALUS_LIBRARY").map(|path| ("SALUS_LIBRARY", path)))
                    .envs(venv_of(&self.python).map(|venv| ("VIRTUAL_ENV", venv)))
                    .stdout(Stdio::piped());
            },
        )?;
        if let Ok(mut pids) = self.pids.lock() {
            pids.push(process.pid().cast_signed());
        }
        let mut round = Round {
            began,
            ended: began,
            output: String::new(),
            errors: String::new(),
        };
        let mut lines = LineReader::new(process.output().ok_or("a job has no output")?);
        while let Ok(line) = lines.next(LINE_TIME) {
            round.ended = Instant::now();
            if round.output.is_empty() {
                round.began = round.ended;
            }
            round.output += &line;
            round.output.push('\n');
        }
        match process.ended_within(LINE_TIME) {
            Some(status) if status.success() => {}
            Some(status) => round.output += &format!("ended with {status}\n"),
            None => round.output += "did not end in time\n",
        }
        round.errors = process.log();
        Ok(round)
    }
}
