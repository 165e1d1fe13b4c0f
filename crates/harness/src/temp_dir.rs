//! A private directory that is removed with everything in it, also if its owner is killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;

use salus_daemon::config::Problem;

use crate::keeper::Keeper;

#[derive(Debug)]
pub struct TempDir {
    directory: tempfile::TempDir,
    /// Removes the directory when its standard input ends, that is, with us.
    guard: Child,
}

impl TempDir {
    /// A new directory that only this user can read; its name begins with `prefix`.
    pub fn new(keeper: &Keeper, prefix: &str) -> Result<Self, Problem> {
        let made = tempfile::Builder::new().prefix(prefix).tempdir();
        made.and_then(|directory| {
            let guard = keeper.guard(directory.path())?;
            Ok(Self { directory, guard })
        })
        .map_err(|e: io::Error| {
            let parent = std::env::temp_dir();
            Problem::new(format!(
                "no directory can be made in `{}`: {e}",
                parent.display()
            ))
            .hint("TMPDIR names another place for temporary files")
        })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A new directory in it.
    pub fn directory(&self, name: &str) -> Result<PathBuf, Problem> {
        let path = self.path().join(name);
        fs::create_dir(&path)
            .map_err(|e| Problem::new(format!("`{}` cannot be made: {e}", path.display())))?;
        Ok(path)
    }

    /// A new file in it.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf, Problem> {
        let path = self.path().join(name);
        fs::write(&path, text)
            .map_err(|e| Problem::new(format!("`{}` cannot be written: {e}", path.display())))?;
        Ok(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.path());
        // Its input ends with this; there is nothing left for it to remove.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}
