//! Runs a bench that is a table of rows, one row after the other.
//!
//! A row that fails does not stop the others: it is shown as failed, and only that makes the exit
//! status an error. A target that is missed is a finding, not an error.

use std::process::ExitCode;

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;

use crate::Common;
use crate::contenders::setup::Setup;
use crate::contenders::{Reference, Sides};
use crate::measure::machine;
use crate::report::progress::Progress;
use crate::report::{self, Finding};
use crate::rows::row_table::{self, Measure, Pace, Row};
use crate::rows::{idle, loads, neighbour, ratio_rows, reads, start, transfers, wakeups};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Run these rows only
    #[arg(long, value_name = "ROW", num_args = 1.., value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds per row, a tenth of it for the time to first step [default: by the row's target]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pairs: Option<u32>,
    /// Measure a service that admits several users, which copies what jobs give it
    #[arg(long)]
    several_users: bool,
}

/// A bench that is a table of rows.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) rows: &'static [Row],
    pub(crate) reference: Reference,
}

/// What rows need to run.
pub(crate) struct Run<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) pace: Pace,
    pub(crate) reference: Reference,
    pub(crate) progress: Progress,
    sides: Option<Sides>,
}

impl Run<'_> {
    /// The processes that take turns, started when the first row needs them, and the progress.
    pub(crate) fn sides(&mut self) -> Result<(&mut Sides, &Progress), Problem> {
        let sides = match self.sides.take() {
            Some(sides) => sides,
            None => Sides::start(self.setup, self.reference)?,
        };
        Ok((self.sides.insert(sides), &self.progress))
    }

    fn row(&mut self, row: &'static Row) -> Result<Vec<Finding>, Problem> {
        match row.measure {
            Measure::Blocks { key, target } => ratio_rows::measure(self, row, key, target),
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

pub(crate) fn run(table: &Table, arguments: &Arguments) -> Outcome {
    let rows = row_table::chosen(table.rows, &arguments.only)?;
    let pace = Pace {
        quick: arguments.common.quick,
        pairs: arguments.pairs.map(|pairs| pairs as usize),
    };
    let mut setup = arguments.common.setup()?;
    if arguments.several_users {
        setup.admit_several_users();
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
    arguments.common.print(
        || report::json(table, &machine, pace, &findings),
        || report::table(table, &machine, pace, &findings),
    );
    Ok(if failed {
        ExitCode::from(output::ERROR)
    } else {
        ExitCode::SUCCESS
    })
}
