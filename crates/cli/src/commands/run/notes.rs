//! What a command's processes leave word of, for the line that `salus run` says at the end.
//!
//! A small file whose path is in the environment. `jax_plugin.py` writes a line when JAX asks it
//! whether Salus is wanted, a `salus run` inside of the command when that has opened a session.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use salus_daemon::log::tame;
use salus_daemon::paths::Places;

/// Salus was registered with JAX. `jax_plugin.py` writes the same words.
const REGISTERED: &str = "registered";
/// JAX was set to use other platforms, which follow.
const PLATFORMS: &str = "platforms ";
/// The command could not be started, which was said.
pub(super) const NOT_RUN: &str = "not run";
/// A `salus run` inside of the command has opened a session.
pub(super) const OPENED: &str = "opened";

/// What is read of the file: nobody has to say more.
const READ_CHARS: usize = 4096;
const PLATFORM_CHARS: usize = 64;

/// The file of one `salus run`; it goes with it.
pub(super) struct Notes {
    path: PathBuf,
}

impl Notes {
    pub(super) fn new(places: &Places) -> Self {
        let name = format!("run-{}.notes", std::process::id());
        let path = places.private_dir().join(name);
        // What an earlier process of the same number left.
        let _ = fs::remove_file(&path);
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Why the command opened no session; `None` if it did, or that is said already.
    pub(super) fn why(&self) -> Option<String> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        why(&text)
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Leaves word, if that can be done.
pub(super) fn add(path: &Path, what: &str) {
    let file = OpenOptions::new().append(true).create(true).open(path);
    let _ = file.and_then(|mut file| file.write_all(format!("{what}\n").as_bytes()));
}

fn why(notes: &str) -> Option<String> {
    let text: String = notes.chars().take(READ_CHARS).collect();
    let lines = || text.lines();
    if lines().any(|line| line == OPENED || line == NOT_RUN) {
        return None;
    }
    let platforms = lines().find_map(|line| line.strip_prefix(PLATFORMS));
    Some(match platforms {
        Some(platforms) => {
            let shown: String = tame(platforms).chars().take(PLATFORM_CHARS).collect();
            format!("it chose `{shown}` itself (JAX_PLATFORMS, or jax_platforms of jax.config)")
        }
        None if lines().any(|line| line == REGISTERED) => {
            "JAX asked for one and did not get it, which its error says".into()
        }
        None => "it asked JAX for no device".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_for_each_case_and_silence_where_there_is_nothing_to_say() {
        let cases = [
            ("", Some("it asked JAX for no device")),
            ("opened\n", None),
            ("platforms cpu\nopened\n", None),
            ("not run\n", None),
            (
                "registered\n",
                Some("JAX asked for one and did not get it, which its error says"),
            ),
            (
                "platforms cpu\nplatforms cpu\n",
                Some("it chose `cpu` itself (JAX_PLATFORMS, or jax_platforms of jax.config)"),
            ),
            (
                "platforms \u{1b}[2J\n",
                Some(
                    "it chose `\\u{1b}[2J` itself (JAX_PLATFORMS, or jax_platforms of jax.config)",
                ),
            ),
        ];
        for (notes, expected) in cases {
            assert_eq!(why(notes).as_deref(), expected, "{notes:?}");
        }
    }
}
