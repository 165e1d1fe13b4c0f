//! The rows of the table: what each compares, what it must reach, how many rounds that takes.
//!
//! The median of twenty rounds resolves 3 to 5 % on a small cloud machine and that of sixty about
//! half of it, so rows with a tight target take sixty.

use std::time::Duration;

use salus_daemon::config::Problem;

use super::reads::RoundTrip;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) measure: Measure,
    /// Unless the user says otherwise.
    pub(super) rounds: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Measure {
    /// A time that the sides' blocks report under `key`, as a ratio.
    Blocks { key: &'static str, target: f64 },
    /// Time added to a step, in round trips of a socket.
    Reads { target: f64, unit: RoundTrip },
    /// A large array each way, in plain copies of that size.
    Transfers { target: f64 },
    /// A training step beside a job that calls back.
    Neighbour { calls: &'static str, target: f64 },
    /// From the start of a process to its first loss.
    Start { model: &'static str },
    /// How long a job waits for a program that another has loaded, and what it takes of memory.
    Load,
    /// How often threads are woken for a step.
    WakeUps { steps: &'static str },
    /// CPU of a service with idle sessions.
    Idle,
    /// The service's memory for a session.
    Memory,
}

const STEP: &str = "step_us";

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "step_10ms_mlp",
        what: "training step of about 10 ms, MLP, loss read every 10 steps",
        measure: Measure::Blocks {
            key: STEP,
            target: 1.02,
        },
        rounds: 60,
    },
    Row {
        name: "step_10ms_transformer",
        what: "training step of about 10 ms, transformer, loss read every 10 steps",
        measure: Measure::Blocks {
            key: STEP,
            target: 1.02,
        },
        rounds: 60,
    },
    Row {
        name: "step_1ms",
        what: "step of about 1 ms, loss read every 100 steps",
        measure: Measure::Blocks {
            key: STEP,
            target: 1.03,
        },
        rounds: 60,
    },
    Row {
        name: "step_100us",
        what: "step of about 0.1 ms, loss read every 100 steps",
        measure: Measure::Blocks {
            key: STEP,
            target: 1.2,
        },
        rounds: 40,
    },
    Row {
        name: "step_100ms",
        what: "training step of about 100 ms with 60 MiB of scratch or more",
        measure: Measure::Blocks {
            key: STEP,
            target: 0.85,
        },
        rounds: 20,
    },
    Row {
        name: "unread_1ms",
        what: "loop with donation whose loss is never read, 1 ms",
        measure: Measure::Blocks {
            key: STEP,
            target: 1.0,
        },
        rounds: 60,
    },
    Row {
        name: "unread_10ms",
        what: "loop with donation whose loss is never read, 10 ms",
        measure: Measure::Blocks {
            key: STEP,
            target: 1.0,
        },
        rounds: 60,
    },
    Row {
        name: "read_100us",
        what: "result read each step, 0.1 ms: added time in socket round trips",
        measure: Measure::Reads {
            target: 1.5,
            unit: RoundTrip::AsPlaced,
        },
        rounds: 40,
    },
    Row {
        name: "read_1ms",
        what: "result read each step, 1 ms: added time in socket round trips",
        measure: Measure::Reads {
            target: 1.5,
            unit: RoundTrip::AsPlaced,
        },
        rounds: 60,
    },
    Row {
        name: "execute",
        what: "time in the job's thread for one asynchronous Execute, transformer",
        measure: Measure::Blocks {
            key: "call_us",
            target: 1.0,
        },
        rounds: 40,
    },
    Row {
        name: "transfer",
        what: "64 MiB against one warm memcpy",
        measure: Measure::Transfers { target: 1.5 },
        rounds: 30,
    },
    Row {
        name: "start_mlp",
        what: "time to first step, MLP",
        measure: Measure::Start { model: "mlp_1ms" },
        rounds: 8,
    },
    Row {
        name: "start_transformer",
        what: "time to first step, transformer",
        measure: Measure::Start {
            model: "transformer_10ms",
        },
        rounds: 8,
    },
    Row {
        name: "load_mlp",
        what: "time to have a program that another session has loaded, MLP",
        measure: Measure::Load,
        rounds: 9,
    },
    Row {
        name: "load_transformer",
        what: "time to have a program that another session has loaded, transformer",
        measure: Measure::Load,
        rounds: 9,
    },
    Row {
        name: "wakeups_unread",
        what: "wake-ups a step of job and service, 1 ms, loss never read",
        measure: Measure::WakeUps {
            steps: "unread_1ms",
        },
        rounds: 10,
    },
    Row {
        name: "wakeups_read",
        what: "wake-ups a step of job and service, 1 ms, result read each step",
        measure: Measure::WakeUps { steps: "read_1ms" },
        rounds: 10,
    },
    Row {
        name: "idle_cpu",
        what: "CPU of an idle service with ten idle sessions over 10 s",
        measure: Measure::Idle,
        rounds: 1,
    },
    Row {
        name: "session_memory",
        what: "memory of the service for one more session",
        measure: Measure::Memory,
        rounds: 1,
    },
];

/// How much time is spent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Few short rounds: shows that everything runs, resolves nothing.
    pub(super) quick: bool,
    pub(super) pairs: Option<usize>,
}

impl Pace {
    pub(super) fn block(self) -> Duration {
        Duration::from_millis(if self.quick { 200 } else { 500 })
    }

    /// Before the first round: the first second of a program is slower.
    pub(super) fn warm(self) -> Duration {
        Duration::from_millis(if self.quick { 200 } else { 1000 })
    }

    pub(super) fn rounds(self, row: &Row) -> usize {
        let start = matches!(row.measure, Measure::Start { .. });
        match self.pairs {
            // A start takes as long as twenty blocks, and its targets are coarser.
            Some(pairs) if start => pairs.div_ceil(10),
            Some(pairs) => pairs,
            None if self.quick && start => 1,
            None if self.quick => row.rounds.min(5),
            None => row.rounds,
        }
    }

    /// About how long a row takes.
    pub(super) fn seconds(self, row: &Row) -> f64 {
        let rounds = self.rounds(row) as f64;
        let block = 1.2 * self.block().as_secs_f64() + 0.05;
        match row.measure {
            Measure::Blocks { .. } => 12.0 + rounds * 3.0 * block,
            Measure::Reads { .. } => 8.0 + rounds * 4.0 * block,
            Measure::Transfers { .. } => 4.0 + rounds * 3.0 * (block + 0.2),
            Measure::Neighbour { .. } => 20.0 + rounds * 4.0 * (block + 0.3),
            Measure::Start {
                model: "transformer_10ms",
            } => 8.0 + rounds * 36.0,
            Measure::Start { .. } => 4.0 + rounds * 16.0,
            Measure::Load => 20.0 + rounds * 0.2,
            Measure::WakeUps { .. } => 8.0 + rounds * 2.0 * block,
            Measure::Idle => 13.0,
            Measure::Memory => 4.0,
        }
    }
}

/// The rows that were named, in the table's order; all if none was.
pub(super) fn chosen(
    table: &'static [Row],
    names: &[String],
) -> Result<Vec<&'static Row>, Problem> {
    let known = |name: &String| table.iter().any(|row| row.name == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = table.iter().map(|row| row.name).collect();
        return Err(Problem::new(format!("the bench has no row `{unknown}`"))
            .hint(format!("its rows are {}", all.join(", "))));
    }
    let wanted = |row: &&Row| names.is_empty() || names.iter().any(|name| name == row.name);
    Ok(table.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::super::callbacks;
    use super::*;

    #[test]
    fn rows_are_chosen_by_name_and_keep_their_order() {
        assert_eq!(chosen(ROWS, &[]).expect("all").len(), ROWS.len());
        let names = ["execute".to_owned(), "step_1ms".to_owned()];
        let rows = chosen(ROWS, &names).expect("both are there");
        assert_eq!(
            rows.iter().map(|row| row.name).collect::<Vec<_>>(),
            ["step_1ms", "execute"]
        );
        let problem = chosen(ROWS, &["step_2ms".into()]).expect_err("there is none");
        assert_eq!(problem.what, "the bench has no row `step_2ms`");
    }

    #[test]
    fn rows_whose_blocks_run_in_a_side_are_known_to_it() {
        let worker = include_str!("../../../../bench/worker.py");
        for row in ROWS.iter().chain(callbacks::ROWS) {
            let key = match row.measure {
                Measure::Start { model } => model,
                Measure::Neighbour { calls, .. } => calls,
                Measure::WakeUps { steps } => steps,
                Measure::Idle | Measure::Memory => continue,
                _ => row.name,
            };
            assert!(worker.contains(&format!("\"{key}\": ")), "{key}");
        }
    }
}
