//! What a report keeps in its directory: a part for each experiment, as soon as it has ended.
//!
//! A part says of which version of Salus, machine and pace it is, so that a report that was interrupted
//! goes on where it stopped and never mixes what cannot be compared. A file is written beside its place
//! and then renamed, so whoever stops the report leaves whole parts only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use salus_daemon::config::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::experiment::Experiment;

/// An experiment with what it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The version.
    pub(crate) salus: String,
    /// As `machine::description` has it, with the date.
    pub(crate) machine: Value,
    pub(crate) quick: bool,
    /// What was typed to have all parts.
    pub(crate) report: String,
    pub(crate) took_seconds: f64,
    pub(crate) experiment: Experiment,
}

/// Of the machine's description: what says that numbers can be compared.
const SAME: [&str; 9] = [
    "cpu",
    "cores",
    "kernel",
    "pool_threads",
    "plugin_version",
    "python",
    "jax",
    "jaxlib",
    "flax",
];

impl Part {
    /// Why it is not what a run on this machine, at this pace and with this command would find.
    pub(crate) fn differs(&self, wanted: &Wanted<'_>) -> Option<String> {
        if self.salus != wanted.salus {
            return Some(format!("it is of salus {}", self.salus));
        }
        if self.quick != wanted.quick {
            let pace = if self.quick { "with" } else { "without" };
            return Some(format!("it ran {pace} --quick"));
        }
        let differs = |key: &&&str| self.machine[**key] != wanted.machine[**key];
        if let Some(key) = SAME.iter().find(differs) {
            let was = &self.machine[*key];
            return Some(format!("it is of another machine: `{key}` was {was}"));
        }
        let was = &self.experiment.command;
        (was != wanted.command).then(|| format!("it is of `{was}`"))
    }
}

/// What a part must belong to so as not to be run again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) salus: &'a str,
    pub(crate) machine: &'a Value,
    pub(crate) quick: bool,
    pub(crate) command: &'a str,
}

/// The directory of a report.
#[derive(Debug, Clone)]
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn path_of_part(&self, name: &str) -> PathBuf {
        self.0.join("parts").join(format!("{name}.json"))
    }

    /// The part of this name, if there is one.
    pub(crate) fn part(&self, name: &str) -> Result<Option<Part>, Problem> {
        read_part(&self.path_of_part(name), name)
    }

    /// All that there are: those that are named in their order, then the others by name.
    pub(crate) fn parts(&self, order: &[&str]) -> Result<Vec<Part>, Problem> {
        let folder = self.0.join("parts");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(unusable(&folder, "read", &e)),
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| {
                Some(
                    entry
                        .file_name()
                        .to_str()?
                        .strip_suffix(".json")?
                        .to_owned(),
                )
            })
            .collect();
        let place = |name: &String| order.iter().position(|one| one == name);
        names.sort_by_key(|name| (place(name).unwrap_or(usize::MAX), name.clone()));
        let mut parts = Vec::new();
        for name in names {
            parts.extend(self.part(&name)?);
        }
        Ok(parts)
    }

    /// Writes a file below it.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), Problem> {
        let path = self.0.join(name);
        let folder = path.parent().unwrap_or(&self.0);
        fs::create_dir_all(folder).map_err(|e| unusable(folder, "made", &e))?;
        let beside = path.with_extension("new");
        let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
        written.map_err(|e| unusable(&path, "written", &e))
    }

    pub(crate) fn write_part(&self, part: &Part) -> Result<(), Problem> {
        let name = format!("parts/{}.json", part.experiment.name);
        self.write(&name, &serde_json::to_string_pretty(part).map_err(bug)?)
    }
}

pub(crate) fn bug(error: serde_json::Error) -> Problem {
    Problem::new(format!("a part of the report is no JSON: {error}"))
}

fn unusable(path: &Path, done: &str, error: &io::Error) -> Problem {
    Problem::new(format!("`{}` cannot be {done}: {error}", path.display()))
}

fn read_part(path: &Path, name: &str) -> Result<Option<Part>, Problem> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(unusable(path, "read", &e)),
    };
    let hint = format!("remove it, or have it measured again: `salus bench report --again {name}`");
    let damaged = |why: String| {
        Problem::new(format!("`{}` is damaged: {why}", path.display())).hint(hint.clone())
    };
    let part: Part = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
    match part.experiment.name == name {
        true => Ok(Some(part)),
        false => Err(damaged(format!("it holds `{}`", part.experiment.name))),
    }
}

#[cfg(test)]
pub(crate) mod tests;
