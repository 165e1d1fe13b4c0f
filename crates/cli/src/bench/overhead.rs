//! `salus bench overhead`: the same work directly on the plugin and through Salus; and what any
//! bench that is a table of rows has in common.
//!
//! Rows run one after the other. One that fails does not stop the others: it is shown as failed,
//! and only that makes the exit status an error. A target that is missed is a finding, not an
//! error.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use salus_daemon::config::Problem;

use super::progress::Progress;
use super::report::{self, Finding};
use super::rows::{self, Measure, Pace, Row};
use super::setup::Setup;
use super::side::{Reference, Sides};
use super::{blocks, idle, loads, machine, neighbour, reads, start, transfers, wakeups};
use crate::{Format, Outcome, output};

#[derive(Args)]
pub(crate) struct Arguments {
    /// How to print it; `json` has every number
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Few short rounds: shows that everything runs, resolves nothing
    #[arg(long)]
    quick: bool,
    /// Run these rows only
    #[arg(long, value_name = "ROW", num_args = 1.., value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds per row, a tenth of it for the time to first step [default: by the row's target]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pairs: Option<u32>,
    /// A Python with jax, flax, optax and xla-cpu-pjrt [default: SALUS_PYTHON, else the one beside
    /// this program, else python3]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Measure a service that admits several users, which copies what jobs give it
    #[arg(long)]
    several_users: bool,
}

/// A bench that is a table of rows.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) rows: &'static [Row],
    pub(super) reference: Reference,
}

pub(super) const OVERHEAD: Table = Table {
    name: "overhead",
    rows: rows::ROWS,
    reference: Reference::Plugin,
};

/// What rows need to run.
pub(super) struct Run<'a> {
    pub(super) setup: &'a Setup,
    pub(super) pace: Pace,
    pub(super) reference: Reference,
    pub(super) progress: Progress,
    sides: Option<Sides>,
}

impl Run<'_> {
    /// The processes that take turns, started when the first row needs them, and the progress.
    pub(super) fn sides(&mut self) -> Result<(&mut Sides, &Progress), Problem> {
        let sides = match self.sides.take() {
            Some(sides) => sides,
            None => Sides::start(self.setup, self.reference)?,
        };
        Ok((self.sides.insert(sides), &self.progress))
    }

    fn row(&mut self, row: &'static Row) -> Result<Vec<Finding>, Problem> {
        match row.measure {
            Measure::Blocks { key, target } => blocks::measure(self, row, key, target),
            Measure::Reads { target, unit } => reads::measure(self, row, target, unit),
            Measure::Transfers { target } => transfers::measure(self, row, target),
            Measure::WakeUps { steps } => wakeups::measure(self, row, steps),
            Measure::Neighbour { .. }
            | Measure::Start { .. }
            | Measure::Load
            | Measure::Idle
            | Measure::Memory => {
                // These have services of their own; nothing else shall run meanwhile.
                self.sides = None;
                match row.measure {
                    Measure::Neighbour { calls, target } => {
                        neighbour::measure(self, row, calls, target)
                    }
                    Measure::Start { model } => start::measure(self, row, model),
                    Measure::Load => loads::measure(self, row),
                    Measure::Idle => idle::cpu(self, row),
                    _ => idle::memory(self, row),
                }
            }
        }
    }
}

pub(super) fn overhead(arguments: &Arguments) -> Outcome {
    run(&OVERHEAD, arguments)
}

pub(super) fn run(table: &Table, arguments: &Arguments) -> Outcome {
    let rows = rows::chosen(table.rows, &arguments.only)?;
    let pace = Pace {
        quick: arguments.quick,
        pairs: arguments.pairs.map(|pairs| pairs as usize),
    };
    let mut setup = Setup::find(arguments.python.as_deref())?;
    if arguments.several_users {
        setup.admit_several_users()?;
    }
    let mut run = Run {
        setup: &setup,
        pace,
        reference: table.reference,
        progress: Progress::new(&rows, pace),
        sides: None,
    };
    let mut findings = Vec::new();
    let mut failed = false;
    for row in rows {
        run.progress.begin();
        match run.row(row) {
            Ok(found) => {
                // As they come: a run that is stopped has not been in vain.
                for finding in &found {
                    output::say(&finding.line());
                }
                findings.extend(found);
            }
            Err(problem) => {
                failed = true;
                // Whatever state the sides are in, the next row gets new ones.
                run.sides = None;
                output::failure(&problem);
                findings.push(Finding::failed(row, &problem));
            }
        }
        run.progress.end();
    }
    let machine = machine::description(&setup);
    output::data(&match arguments.output {
        Format::Json => report::json(table, &machine, pace, &findings),
        Format::Table => report::table(table, &machine, pace, &findings),
    });
    Ok(if failed {
        ExitCode::from(output::ERROR)
    } else {
        ExitCode::SUCCESS
    })
}
