//! What earlier runs of the same programs came to: a small file beside the cache.
//!
//! A job is known by the program that took most of its time. When it ends, the device time that it
//! came to is noted under it; a later job that runs the same program is expected to take about as
//! long. A file that is damaged or cannot be written costs the estimates and nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use salus_engine::{Duration, Program};
use serde::{Deserialize, Serialize};

/// Of each program, so many of the last runs.
const RUNS: usize = 8;
/// Programs, of which the one that ran longest ago is forgotten first.
const PROGRAMS: usize = 2048;

pub(crate) struct History {
    path: PathBuf,
    noted: Mutex<Noted>,
}

#[derive(Default, Serialize, Deserialize)]
struct Noted {
    /// Grows with each run.
    runs: u64,
    programs: BTreeMap<u64, Runs>,
}

#[derive(Default, Serialize, Deserialize)]
struct Runs {
    last: u64,
    /// Device time, the newest last.
    totals_ms: Vec<u64>,
}

impl History {
    pub(super) fn open(directory: &Path) -> Self {
        let path = directory.join("history.json");
        let text = fs::read_to_string(&path).unwrap_or_default();
        Self {
            path,
            noted: Mutex::new(serde_json::from_str(&text).unwrap_or_default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().expect("no panic under this lock")
    }

    /// What a job of this program comes to, by the median of earlier ones.
    pub(super) fn total(&self, program: Program) -> Option<Duration> {
        let noted = self.lock();
        let mut totals = noted.programs.get(&program.0)?.totals_ms.clone();
        totals.sort_unstable();
        let ms = totals.get(totals.len() / 2)?;
        Some(Duration(ms.saturating_mul(1_000_000)))
    }

    /// A job of this program has ended.
    pub(super) fn note(&self, program: Program, total: Duration) {
        let mut noted = self.lock();
        noted.runs += 1;
        let last = noted.runs;
        let runs = noted.programs.entry(program.0).or_default();
        runs.last = last;
        runs.totals_ms.push(total.0 / 1_000_000);
        if runs.totals_ms.len() > RUNS {
            runs.totals_ms.remove(0);
        }
        if noted.programs.len() > PROGRAMS {
            let oldest = noted.programs.iter().min_by_key(|(_, runs)| runs.last);
            if let Some(oldest) = oldest.map(|(program, _)| *program) {
                noted.programs.remove(&oldest);
            }
        }
        // Whole or not at all, so that two services with one cache do not damage it.
        let new = self
            .path
            .with_extension(format!("new-{}", std::process::id()));
        let text = serde_json::to_string(&*noted).unwrap_or_default();
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_median_of_the_last_runs_is_remembered() {
        let directory = tempfile::tempdir().expect("a directory");
        let history = History::open(directory.path());
        assert_eq!(history.total(Program(7)), None);
        for seconds in [100, 1, 2, 3, 4, 5, 6, 7, 8] {
            history.note(Program(7), Duration(seconds * SECOND));
        }
        let again = History::open(directory.path());
        assert_eq!(again.total(Program(7)), Some(Duration(5 * SECOND)));
        assert_eq!(again.total(Program(8)), None);
    }

    #[test]
    fn old_programs_are_forgotten_and_a_damaged_file_is_no_history() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("history.json");
        fs::write(&file, "{ not json").expect("written");
        let history = History::open(directory.path());
        history.lock().programs = (0..PROGRAMS as u64)
            .map(|n| {
                (
                    n,
                    Runs {
                        last: n,
                        totals_ms: vec![1],
                    },
                )
            })
            .collect();
        history.lock().runs = PROGRAMS as u64;
        history.note(Program(PROGRAMS as u64), Duration(SECOND));
        assert_eq!(history.total(Program(0)), None);
        assert!(history.total(Program(1)).is_some());
        assert_eq!(history.lock().programs.len(), PROGRAMS);
    }
}
