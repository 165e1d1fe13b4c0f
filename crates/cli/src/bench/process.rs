//! Processes that end with the bench.
//!
//! Each is started through `salus bench peer keep`, which asks the kernel to end it should the
//! bench die in any way, and then becomes the wanted program. A [`Kept`] that is dropped is dead
//! and reaped. The one thing left by a bench that was killed, its directory, is removed by a guard.
//!
//! All of this is called on the main thread only: for the kernel, "the parent died" means the
//! thread that started the child.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;
use salus_daemon::config::Problem;

use super::peers::{self, Ending};

/// Environment that would make a side's work differ from what is measured.
const FOREIGN: &[&str] = &["JAX", "SALUS_", "PJRT_", "XLA_", "XDG_", "NPROC", "LIBTPU"];
/// What is shown of the log of a process that failed.
const TAIL_LINES: usize = 12;

/// A process of ours, with its standard error in a file.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) child: Child,
    ending: Ending,
    log: PathBuf,
}

impl Kept {
    /// `configure` sets arguments, variables and standard streams.
    pub(super) fn start(
        program: &OsStr,
        ending: Ending,
        log: &Path,
        configure: impl FnOnce(&mut Command),
    ) -> Result<Self, Problem> {
        let shown = Path::new(program).display();
        let failed = |e: io::Error| Problem::new(format!("`{shown}` cannot be started: {e}"));
        let errors = File::options().append(true).create(true).open(log);
        let mut command = Command::new("/proc/self/exe");
        command.args(peers::keep_arguments(ending)).arg(program);
        let foreign = |name: &OsStr| {
            let name = name.to_string_lossy();
            FOREIGN.iter().any(|prefix| name.starts_with(prefix))
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| foreign(name)) {
            command.env_remove(name);
        }
        command.stderr(errors.map_err(failed)?).stdin(Stdio::null());
        configure(&mut command);
        Ok(Self {
            child: command.spawn().map_err(failed)?,
            ending,
            log: log.to_owned(),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `what`, how the process ended if it did, and the end of what it wrote.
    pub(super) fn problem(&mut self, what: &str) -> Problem {
        let ended = match self.child.try_wait() {
            Ok(Some(status)) => format!(" ({status})"),
            _ => String::new(),
        };
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        let last = lines.len().saturating_sub(TAIL_LINES);
        let tail: String = lines[last..]
            .iter()
            .map(|line| format!("\n  {line}"))
            .collect();
        Problem::new(format!("{what}{ended}{tail}"))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let (Ok(None), Some(pid)) = (
            self.child.try_wait(),
            Pid::from_raw(self.child.id().cast_signed()),
        ) {
            // Not reaped yet, so the number is still this child's.
            let _ = rustix::process::kill_process(pid, self.ending.signal());
            if peers::ends_within(&mut self.child, peers::END_TIME).is_none() {
                let _ = self.child.kill();
            }
        }
        let _ = self.child.wait();
    }
}

/// A private directory that is removed with everything in it, also if the bench is killed.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    /// Ends when its standard input does, that is, with us; then it removes the directory.
    _guard: Child,
}

impl Scratch {
    pub(super) fn new() -> Result<Self, Problem> {
        let name = format!("salus-bench-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let failed = |e: io::Error| {
            Problem::new(format!("`{}` cannot be used: {e}", path.display()))
                .hint("TMPDIR names another place for temporary files")
        };
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(failed)?;
        let guard = peers::start_guard(&path).map_err(failed)?;
        Ok(Self {
            path,
            _guard: guard,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A new directory in it.
    pub(super) fn directory(&self, name: &str) -> Result<PathBuf, Problem> {
        let path = self.path.join(name);
        fs::create_dir(&path)
            .map_err(|e| Problem::new(format!("`{}` cannot be made: {e}", path.display())))?;
        Ok(path)
    }

    pub(super) fn file(&self, name: &str, text: &str) -> Result<PathBuf, Problem> {
        let path = self.path.join(name);
        fs::write(&path, text)
            .map_err(|e| Problem::new(format!("`{}` cannot be written: {e}", path.display())))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
