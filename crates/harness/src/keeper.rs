//! Ends what was started here when the process that started it has ended, in whatever way.
//!
//! Only the kernel can do that, and only a process can ask it, for itself. So every process is started
//! through the hidden command `salus bench peer`: `keep` asks for a signal on its parent's death and then
//! becomes the wanted program; `guard` waits for the end of its standard input, which is its parent's,
//! and removes a directory.
//!
//! For the kernel, "the parent died" means the thread that started the child: that thread must outlive it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::{Subcommand, ValueEnum};
use rustix::process::Signal;
use salus_console::Outcome;
use salus_daemon::config::Problem;

/// How long a guard tries to remove what processes that are just ending still write into.
const REMOVE_TIME: Duration = Duration::from_secs(5);
/// How often it tries.
const REMOVE_EVERY: Duration = Duration::from_millis(5);

/// The `salus` that keeps processes and guards directories.
#[derive(Debug, Clone)]
pub struct Keeper {
    salus: PathBuf,
}

/// What a hidden process does.
#[derive(Subcommand)]
pub enum Role {
    /// Become COMMAND, and end with the process that started this one
    Keep {
        #[arg(long)]
        parent: u32,
        #[arg(long, value_enum)]
        ending: Ending,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Remove DIRECTORY when the process that started this one has ended
    Guard { directory: PathBuf },
}

/// How a process is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Ending {
    /// At once.
    Kill,
    /// It may tidy up: services.
    Term,
}

impl Ending {
    pub(crate) fn signal(self) -> Signal {
        match self {
            Self::Kill => Signal::KILL,
            Self::Term => Signal::TERM,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Term => "term",
        }
    }
}

impl Keeper {
    /// With this binary.
    pub fn new(salus: impl Into<PathBuf>) -> Self {
        Self {
            salus: salus.into(),
        }
    }

    /// With the running binary, which is `salus`. Not for unit tests: there it is the test runner, which
    /// would start itself again without end.
    pub fn own() -> Self {
        Self::new("/proc/self/exe")
    }

    pub fn salus(&self) -> &Path {
        &self.salus
    }

    /// A command that becomes `program`; arguments are to be added.
    pub fn command(&self, program: impl Into<OsString>, ending: Ending) -> Command {
        let mut command = Command::new(&self.salus);
        command
            .args(["bench", "peer", "keep", "--parent"])
            .arg(std::process::id().to_string())
            .args(["--ending", ending.name(), "--"])
            .arg(program.into());
        command
    }

    /// Starts the process that removes `directory` after us.
    pub(crate) fn guard(&self, directory: &Path) -> io::Result<Child> {
        Command::new(&self.salus)
            .args(["bench", "peer", "guard"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C at the terminal must not reach it.
            .process_group(0)
            .spawn()
    }
}

/// Runs a hidden process.
pub fn play(role: &Role) -> Outcome {
    match role {
        Role::Keep {
            parent,
            ending,
            command,
        } => keep(*parent, *ending, command),
        Role::Guard { directory } => {
            guard(directory);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn keep(parent: u32, ending: Ending, command: &[OsString]) -> Outcome {
    rustix::process::set_parent_process_death_signal(Some(ending.signal()))
        .map_err(|e| Problem::new(format!("cannot follow the end of the parent: {e}")))?;
    // It may have died before the line above.
    if std::os::unix::process::parent_id() != parent {
        return Ok(ExitCode::FAILURE);
    }
    let (program, rest) = command
        .split_first()
        .ok_or_else(|| Problem::new("no command"))?;
    let error = Command::new(program).args(rest).exec();
    Err(Problem::new(format!(
        "`{}` cannot be run: {error}",
        Path::new(program).display()
    )))
}

fn guard(directory: &Path) {
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    let deadline = Instant::now() + REMOVE_TIME;
    while directory.exists() && Instant::now() < deadline {
        let _ = std::fs::remove_dir_all(directory);
        std::thread::sleep(REMOVE_EVERY);
    }
}
