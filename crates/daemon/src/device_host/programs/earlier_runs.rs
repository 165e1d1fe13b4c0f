//! The device time that earlier runs of the same programs used: a small file beside the cache.
//!
//! A job is identified by the program that took most of its device time. When it ends, the device time
//! that it used is noted under that program; it is the estimate for later jobs that run it. If the file
//! is damaged or cannot be written, estimates are lost and nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use salus_channel::lock;
use salus_engine::{Duration, Program};
use serde::{Deserialize, Serialize};

/// Runs that are kept of each program, the last ones: enough for a median that one odd run does not
/// move.
const RUNS_MAX: usize = 8;
/// Programs that are kept: more than a machine's users run, and still a small file. The one that ran
/// longest ago is forgotten first.
const PROGRAMS_MAX: usize = 2048;

pub(crate) struct EarlierRuns {
    path: PathBuf,
    noted: Mutex<NotedRuns>,
}

#[derive(Default, Serialize, Deserialize)]
struct NotedRuns {
    /// How many runs were ever noted.
    runs: u64,
    programs: BTreeMap<u64, ProgramRuns>,
}

#[derive(Default, Serialize, Deserialize)]
struct ProgramRuns {
    /// The number of its last run.
    last: u64,
    /// Device time of the last runs, the newest last.
    totals_ms: Vec<u64>,
}

impl EarlierRuns {
    pub(crate) fn open(directory: &Path) -> Self {
        let path = directory.join("history.json");
        let text = fs::read_to_string(&path).unwrap_or_default();
        Self {
            path,
            noted: Mutex::new(serde_json::from_str(&text).unwrap_or_default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, NotedRuns> {
        lock(&self.noted)
    }

    /// How much device time a job of this program uses: the median of earlier ones.
    pub(crate) fn device_time(&self, program: Program) -> Option<Duration> {
        let noted = self.lock();
        let mut totals = noted.programs.get(&program.0)?.totals_ms.clone();
        totals.sort_unstable();
        let ms = totals.get(totals.len() / 2)?;
        Some(Duration(ms.saturating_mul(1_000_000)))
    }

    /// A job of this program has ended and used this much device time.
    pub(crate) fn note(&self, program: Program, device_time: Duration) {
        let mut noted = self.lock();
        noted.runs += 1;
        let last = noted.runs;
        let own = noted.programs.entry(program.0).or_default();
        own.last = last;
        own.totals_ms.push(device_time.0 / 1_000_000);
        if own.totals_ms.len() > RUNS_MAX {
            own.totals_ms.remove(0);
        }
        if noted.programs.len() > PROGRAMS_MAX {
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
        let runs = EarlierRuns::open(directory.path());
        assert_eq!(runs.device_time(Program(7)), None);
        for seconds in [100, 1, 2, 3, 4, 5, 6, 7, 8] {
            runs.note(Program(7), Duration(seconds * SECOND));
        }
        let again = EarlierRuns::open(directory.path());
        assert_eq!(again.device_time(Program(7)), Some(Duration(5 * SECOND)));
        assert_eq!(again.device_time(Program(8)), None);
    }

    #[test]
    fn old_programs_are_forgotten_and_a_damaged_file_is_no_history() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("history.json");
        fs::write(&file, "{ not json").expect("written");
        let runs = EarlierRuns::open(directory.path());
        runs.lock().programs = (0..PROGRAMS_MAX as u64)
            .map(|n| {
                (
                    n,
                    ProgramRuns {
                        last: n,
                        totals_ms: vec![1],
                    },
                )
            })
            .collect();
        runs.lock().runs = PROGRAMS_MAX as u64;
        runs.note(Program(PROGRAMS_MAX as u64), Duration(SECOND));
        assert_eq!(runs.device_time(Program(0)), None);
        assert!(runs.device_time(Program(1)).is_some());
        assert_eq!(runs.lock().programs.len(), PROGRAMS_MAX);
    }
}
