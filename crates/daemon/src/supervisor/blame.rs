//! Whose program ended the device host.
//!
//! The vendor's code runs all programs in one process, and one that crashes it ends everybody's
//! session. When that happens by the process's own signal, what was running is on the [`crate::board`]:
//! a program that ran alone, or was suspected before, is convicted, and refused by its key from then
//! on, also by the services after this one. A process that was killed from outside convicts nobody.
//!
//! A program after which the device failed (`device_host/observe/health.rs`) is convicted when it happens
//! again, also if it ran alone: devices fail by themselves, too.
//!
//! Promise: only programs that were running are suspected. The list is bounded.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use salus_wire::{Convicted, Error, ErrorCode, limits};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::report::Sessions;
use crate::board::Running;
use crate::log;

/// Convictions that are kept, the latest.
const KEPT: usize = limits::CONVICTED;

#[derive(Debug)]
pub(super) struct Blame {
    file: PathBuf,
    /// Programs that were running at a death, beside others.
    suspected: BTreeMap<u64, u32>,
    convicted: Vec<Conviction>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Conviction {
    /// The first bytes of its key.
    pub(super) program: u64,
    pub(super) name: String,
    /// `signal 11 (SIGSEGV)`.
    pub(super) how: String,
    /// ``session 7 (`train.py`, pid 4121, anna)``.
    pub(super) session: String,
    /// Whose session it was, and what others may know of it: `session 7 of anna`.
    #[serde(default)]
    pub(super) uid: Option<u32>,
    #[serde(default)]
    pub(super) whose: String,
    pub(super) unix_seconds: u64,
}

impl Conviction {
    /// The error of every job that wants to run it.
    fn error(&self) -> Error {
        let message = format!(
            "the program `{}` is refused, because it ended the device host of this service ({}) when \
             it ran for {}, and all sessions with it",
            self.name, self.how, self.whose
        );
        Error::new(ErrorCode::FailedPrecondition, message).hint(
            "change the program; if the device's plugin is replaced by one that can run it, it is \
             allowed again",
        )
    }
}

impl Blame {
    /// With those that earlier services convicted.
    pub(super) fn open(cache: &Path) -> Self {
        let file = cache.join("convicted.json");
        let convicted = fs::read(&file)
            .ok()
            .and_then(|text| serde_json::from_slice::<Vec<Conviction>>(&text).ok());
        let mut convicted = convicted.unwrap_or_default();
        convicted.truncate(KEPT);
        Self {
            file,
            suspected: BTreeMap::new(),
            convicted,
        }
    }

    /// The device host has ended. Returns what was running if that is to blame, and whether it is
    /// convicted now.
    pub(super) fn judge(
        &mut self,
        how: &str,
        running: &[Running],
        sessions: &Sessions,
    ) -> Vec<(Running, bool)> {
        if !is_own_signal(how) {
            return Vec::new();
        }
        let mut suspects: Vec<Running> = running.to_vec();
        suspects.sort_unstable_by_key(|one| one.program);
        suspects.dedup_by_key(|one| one.program);
        let alone = suspects.len() == 1;
        let mut judged = Vec::new();
        for suspect in suspects {
            let count = self.suspected.entry(suspect.program).or_default();
            *count += 1;
            let convicted = alone || *count > 1;
            if convicted {
                self.convict(&suspect, how, sessions);
            }
            judged.push((suspect, convicted));
        }
        judged
    }

    /// The device host has ended because the device failed after this program. Returns whether it is
    /// convicted now.
    pub(super) fn judge_by_device(
        &mut self,
        how: &str,
        suspect: &Running,
        sessions: &Sessions,
    ) -> bool {
        let count = self.suspected.entry(suspect.program).or_default();
        *count += 1;
        let convicted = *count > 1;
        if convicted {
            self.convict(suspect, how, sessions);
        }
        convicted
    }

    fn convict(&mut self, program: &Running, how: &str, sessions: &Sessions) {
        let unknown = || format!("session {}", program.session);
        let card = sessions.get(&program.session);
        let session = card.map_or_else(unknown, |card| card.label(program.session));
        let whose = card.map_or_else(unknown, |card| card.whose(program.session));
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.suspected.remove(&program.program);
        self.convicted.retain(|one| one.program != program.program);
        self.convicted.push(Conviction {
            program: program.program,
            name: log::tame_name(&program.name),
            how: how.to_owned(),
            session,
            uid: card.map(|card| card.uid),
            whose,
            unix_seconds: since_1970.map_or(0, |time| time.as_secs()),
        });
        if self.convicted.len() > KEPT {
            self.convicted.remove(0);
        }
        if let Err(e) = self.write() {
            let file = self.file.display();
            log::warn(format_args!(
                "{file} cannot be written, so the next service runs the program again: {e}"
            ));
        }
    }

    /// For the services after this one. The old list stays where the disk has no room for the new.
    fn write(&self) -> io::Result<()> {
        let kept = serde_json::to_vec_pretty(&self.convicted)?;
        let new = self.file.with_extension("new");
        let mut options = OpenOptions::new();
        // What jobs and programs are called is nobody else's business.
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&new)?.write_all(&kept)?;
        fs::rename(new, &self.file)
    }

    /// For a new device host.
    pub(super) fn messages(&self) -> impl Iterator<Item = Convicted> {
        self.convicted.iter().map(|one| Convicted {
            program: one.program,
            error: one.error(),
        })
    }

    /// For `salus ps`.
    pub(super) fn report(&self) -> Value {
        json!(self.convicted)
    }
}

/// The reason that a session gets that was lost with the device host.
pub(super) fn fate(
    session: u64,
    how: &str,
    judged: &[(Running, bool)],
    described: impl Fn(&Running) -> String,
) -> String {
    let convicted = judged.iter().find(|(_, convicted)| *convicted);
    match (convicted, judged) {
        (Some((culprit, _)), _) if culprit.session == session => format!(
            "the device host ended ({how}) while it ran this job's program `{}`, which is refused \
             from now on",
            log::tame_name(&culprit.name)
        ),
        (Some((culprit, _)), _) => format!(
            "the device host ended ({how}) while it ran {}, which is refused from now on",
            described(culprit)
        ),
        (None, []) => format!("the device host ended ({how})"),
        (None, suspects) => {
            let all: Vec<String> = suspects.iter().map(|(one, _)| described(one)).collect();
            format!(
                "the device host ended ({how}) while it ran {}; whichever runs when it ends again is \
                 refused",
                all.join(" and ")
            )
        }
    }
}

/// Whether a process that ended like this did so itself.
fn is_own_signal(how: &str) -> bool {
    const OWN: [&str; 7] = [
        "SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS",
    ];
    OWN.iter().any(|signal| how.contains(signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(program: u64) -> Running {
        Running {
            session: 7,
            program,
            name: format!("jit_{program}"),
        }
    }

    fn judge(blame: &mut Blame, how: &str, programs: &[u64]) -> Vec<(u64, bool)> {
        let running: Vec<Running> = programs.iter().map(|program| ran(*program)).collect();
        let judged = blame.judge(how, &running, &Sessions::new());
        judged
            .iter()
            .map(|(one, convicted)| (one.program, *convicted))
            .collect()
    }

    #[test]
    fn a_program_that_ran_alone_is_convicted_for_good() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut blame = Blame::open(dir.path());
        // The same program in two lanes is one.
        assert_eq!(
            judge(&mut blame, "signal 11 (SIGSEGV)", &[5, 5]),
            [(5, true)]
        );
        let later = Blame::open(dir.path());
        assert_eq!(later.convicted, blame.convicted);
        let told: Vec<Convicted> = later.messages().collect();
        assert_eq!(told[0].program, 5);
        for part in ["`jit_5`", "signal 11 (SIGSEGV)", "session 7"] {
            assert!(told[0].error.message.contains(part), "{}", told[0].error);
        }
    }

    #[test]
    fn beside_others_it_takes_two_times() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut blame = Blame::open(dir.path());
        let abort = "signal 6 (SIGABRT)";
        assert_eq!(judge(&mut blame, abort, &[1, 2]), [(1, false), (2, false)]);
        assert_eq!(blame.convicted, []);
        assert_eq!(judge(&mut blame, abort, &[2, 3]), [(2, true), (3, false)]);
        assert_eq!(judge(&mut blame, abort, &[]), []);
    }

    #[test]
    fn after_a_failure_of_the_device_it_takes_two_times_also_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut blame = Blame::open(dir.path());
        let mut judge = |how| blame.judge_by_device(how, &ran(5), &Sessions::new());
        assert!(!judge("the device failed"));
        assert!(judge("the device failed"));
        assert_eq!(blame.convicted[0].program, 5);
    }

    #[test]
    fn what_comes_from_outside_convicts_nobody() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut blame = Blame::open(dir.path());
        for how in ["signal 9 (SIGKILL)", "signal 15 (SIGTERM)", "exit status 1"] {
            assert_eq!(judge(&mut blame, how, &[1]), []);
        }
        assert_eq!(blame.convicted, []);
        assert!(blame.suspected.is_empty());
    }
}
