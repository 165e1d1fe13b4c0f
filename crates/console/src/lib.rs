//! What the commands of `salus` share: asking the service, printing, finding the library and Python.
//!
//! Not here: any command, and numbers as people read them.

pub mod ask;
pub mod library;
pub mod output;
pub mod python;

use std::process::ExitCode;

use clap::ValueEnum;
use salus_daemon::config::Problem;

/// The exit status of a command, or why it failed.
pub type Outcome = Result<ExitCode, Problem>;

/// How data is printed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Table,
    Json,
}
