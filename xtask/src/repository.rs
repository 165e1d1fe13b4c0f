//! The files of the repository, read once.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Repository {
    pub(crate) root: PathBuf,
    files: Vec<File>,
}

/// A file that git tracks or would track, as text.
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A place where two things differ.
pub(crate) struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

impl Repository {
    pub(crate) fn open() -> Result<Self, String> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().ok_or("xtask has no parent folder")?;
        let listing = output(
            Command::new("git")
                .args(["ls-files", "--cached", "--others", "--exclude-standard"])
                .current_dir(root),
        )?;
        let mut files = Vec::new();
        for path in listing.lines() {
            // Deleted files are still listed, and binary ones are not text.
            if let Ok(text) = std::fs::read_to_string(root.join(path)) {
                files.push(File {
                    path: path.to_owned(),
                    text,
                });
            }
        }
        Ok(Self {
            root: root.to_owned(),
            files,
        })
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    pub(crate) fn file(&self, path: &str) -> Result<&File, String> {
        let found = self.files.iter().find(|file| file.path == path);
        found.ok_or_else(|| format!("expected a file {path}, found none"))
    }

    /// What users and newcomers read.
    pub(crate) fn documents(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".md"))
    }

    /// Rust sources, without tests and benches.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_source())
    }
}

impl File {
    pub(crate) fn is_source(&self) -> bool {
        let rust = self.path.ends_with(".rs") && self.path.contains("/src/");
        rust && !self.path.contains("/tests/") && !self.path.ends_with("/tests.rs")
    }

    /// Lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }

    pub(crate) fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line,
            message: message.into(),
        }
    }
}

/// Standard output of a command that must succeed.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}");
    let result = command
        .output()
        .map_err(|error| format!("{shown} did not start: {error}"))?;
    if !result.status.success() {
        let stderr = String::from_utf8_lossy(&result.stderr);
        return Err(format!("{shown} failed: {}", stderr.trim()));
    }
    String::from_utf8(result.stdout).map_err(|_| format!("{shown} printed no UTF-8"))
}

/// A pattern that is part of this program.
#[expect(
    clippy::expect_used,
    reason = "the pattern is a literal, tried by every run"
)]
pub(crate) fn pattern(text: &str) -> regex::Regex {
    regex::Regex::new(text).expect("a valid pattern")
}
