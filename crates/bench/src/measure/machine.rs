//! The machine: what it is, and how busy others keep it.
//!
//! Foreign load is what all cores did minus what the bench and its descendants did. It is found
//! from clock ticks, so it is meaningful for a second or more, not for a millisecond.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::contenders::setup::Setup;

/// Ticks since the machine started, and those of the bench.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Load {
    busy: u64,
    stolen: u64,
    /// Busy or not, over all cores.
    all: u64,
    /// Of the machine, not only those that we may use.
    cores: usize,
    own: u64,
}

/// More than this in other processes' hands spoils a measurement on two cores.
pub(crate) const FOREIGN_CORES: f64 = 0.15;

/// What others did in a while, in cores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Foreign {
    /// Other processes of this machine.
    pub(crate) cores: f64,
    /// Taken by the host of a virtual machine.
    pub(crate) stolen: f64,
}

impl Foreign {
    /// Whether it was too much for a measurement to count.
    pub(crate) fn disturbs(self) -> bool {
        self.cores > FOREIGN_CORES
    }
}

impl Load {
    pub(crate) fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self {
            own: own_ticks(&processes(), std::process::id()),
            ..Self::of_machine(&text)
        }
    }

    pub(crate) fn since(self, before: Self) -> Foreign {
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        let busy = self.busy.saturating_sub(before.busy) as f64;
        let own = self.own.saturating_sub(before.own) as f64;
        let stolen = self.stolen.saturating_sub(before.stolen) as f64;
        let cores = self.cores as f64;
        Foreign {
            cores: ((busy - own) / all * cores).max(0.0),
            stolen: stolen / all * cores,
        }
    }

    /// Reads `/proc/stat`.
    fn of_machine(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        let fields: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        // user nice system idle iowait irq softirq steal; guest time is part of user time.
        let at = |i: usize| fields.get(i).copied().unwrap_or(0);
        let busy = at(0) + at(1) + at(2) + at(5) + at(6);
        let stolen = at(7);
        let lines = stat.lines().filter(|line| line.starts_with("cpu"));
        Self {
            busy,
            stolen,
            all: busy + stolen + at(3) + at(4),
            cores: lines.count().saturating_sub(1).max(1),
            own: 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// Its own and those of children that it has reaped.
    ticks: u64,
}

fn processes() -> BTreeMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, process(&stat)?))
        })
        .collect()
}

fn process(stat: &str) -> Option<Process> {
    // The name, in parentheses, may hold anything; the state comes right after it.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    Some(Process {
        parent: number(1)? as u32,
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
    })
}

/// A process and its descendants.
pub(crate) fn family(root: u32) -> Vec<u32> {
    descendants(&processes(), root)
}

fn descendants(all: &BTreeMap<u32, Process>, root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        let children = all.iter().filter(|(_, process)| process.parent == parent);
        found.extend(children.map(|(pid, _)| *pid));
    }
    found
}

fn own_ticks(all: &BTreeMap<u32, Process>, root: u32) -> u64 {
    let ticks = |pid: u32| all.get(&pid).map_or(0, |process| process.ticks);
    descendants(all, root).into_iter().map(ticks).sum()
}

/// What the numbers belong to.
pub(crate) fn description(setup: &Setup) -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = |name: &str| setup.probe["versions"][name].clone();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    json!({
        "date": salus_units::utc_minutes(now.map_or(0, |since| since.as_secs())),
        "cpu": model(&cpuinfo),
        "cores": std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        "kernel": kernel.trim(),
        "plugin": setup.plugin,
        "plugin_version": version("xla-cpu-pjrt"),
        "pool_threads": setup.pool,
        "python": setup.probe["python"],
        "python_path": setup.python,
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "flax": version("flax"),
        "optax": version("optax"),
        "salus": env!("CARGO_PKG_VERSION"),
        "library": setup.library,
    })
}

fn model(cpuinfo: &str) -> &str {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or("unknown", |(_, model)| model.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_sorted_into_busy_stolen_and_idle() {
        let load = |busy, stolen, all, cores| Load {
            busy,
            stolen,
            all,
            cores,
            own: 0,
        };
        let stat = "cpu  100 1 20 300 7 2 3 9 50 0\ncpu0 1 2 3\ncpu1 4 5 6\nintr 7\n";
        assert_eq!(Load::of_machine(stat), load(126, 9, 442, 2));
        assert_eq!(Load::of_machine(""), load(0, 0, 0, 1));
    }

    #[test]
    fn a_process_name_may_hold_parentheses_and_blanks() {
        let stat = "42 (a) b) (c) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 3 4 20 0 1 0 999";
        let expected = Process {
            parent: 7,
            ticks: 37,
        };
        assert_eq!(process(stat), Some(expected));
        assert_eq!(process("42 (cut"), None);
    }

    #[test]
    fn grandchildren_are_ours_and_siblings_are_not() {
        let one = |parent| Process { parent, ticks: 1 };
        let all = BTreeMap::from([
            (1, one(0)),
            (5, one(1)),
            (6, one(5)),
            (7, one(6)),
            (8, one(1)),
        ]);
        assert_eq!(descendants(&all, 5), [5, 6, 7]);
        assert_eq!(own_ticks(&all, 5), 3);
    }

    #[test]
    fn foreign_load_is_what_is_neither_idle_nor_ours() {
        let before = Load {
            busy: 1000,
            stolen: 0,
            all: 5000,
            cores: 2,
            own: 400,
        };
        let after = Load {
            busy: 1150,
            stolen: 20,
            all: 5200,
            own: 500,
            ..before
        };
        let foreign = after.since(before);
        assert!((foreign.cores - 0.5).abs() < 1e-9, "{foreign:?}");
        assert!((foreign.stolen - 0.2).abs() < 1e-9, "{foreign:?}");
        // Ticks are rounded; nothing is less than nothing.
        assert_eq!(before.since(before).cores, 0.0);
    }

    #[test]
    fn the_model_of_the_cpu() {
        assert_eq!(model("processor\t: 0\nmodel name\t: A B 7\n"), "A B 7");
        assert_eq!(model(""), "unknown");
    }
}
