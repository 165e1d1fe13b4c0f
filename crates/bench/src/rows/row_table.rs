//! The rows of the table: what each compares, what it must reach, how many rounds that takes.
//!
//! The median of twenty rounds resolves 3 to 5 % on a small cloud machine and that of sixty about
//! half of it, so rows with a tight target take sixty.

use std::time::Duration;

use salus_daemon::config::Problem;

use crate::rows::reads::RoundTrip;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) measure: Measure,
    /// Unless the user says otherwise.
    pub(crate) rounds: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Measure {
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

/// How much time is spent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Few short rounds: shows that everything runs, resolves nothing.
    pub(crate) quick: bool,
    pub(crate) pairs: Option<usize>,
}

impl Pace {
    pub(crate) fn block(self) -> Duration {
        Duration::from_millis(if self.quick { 200 } else { 500 })
    }

    /// Before the first round: the first second of a program is slower.
    pub(crate) fn warm(self) -> Duration {
        Duration::from_millis(if self.quick { 200 } else { 1000 })
    }

    pub(crate) fn rounds(self, row: &Row) -> usize {
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
    pub(crate) fn seconds(self, row: &Row) -> f64 {
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
pub(crate) fn chosen(
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
    use super::*;
    use crate::benches::callbacks;
    use crate::benches::overhead::ROWS;
    use crate::contenders::setup::WORKER;

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
        let worker = WORKER.map(|(_, text)| text).concat();
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
