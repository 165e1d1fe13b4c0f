//! `cargo xtask tidy`: compares what the documents say with what the code does.
//!
//! A document that nobody checks is wrong after a few changes. Each check reads a part of the
//! documents, reads the same thing from the code, and reports the places where they differ:
//!
//! - [`crates`]: the crate table of ARCHITECTURE.md against `cargo metadata`;
//! - [`links`]: links, file names and names of tests;
//! - [`flags`]: command-line flags against `salus … --help`, and environment variables;
//! - [`constants`]: numbers quoted as `` `NAME` (30 s) `` against the constant of that name;
//! - [`protocol`]: the tables of docs/protocol.md against `crates/wire`;
//! - [`shape`]: lengths of files and functions, files per folder, a header in each file;
//! - [`words`]: words that the glossary replaced.

mod constants;
mod crates;
mod flags;
mod links;
mod protocol;
mod repository;
mod shape;
mod words;

use std::io::Write;
use std::process::ExitCode;

use repository::{Finding, Repository};

type Check = fn(&Repository) -> Result<Vec<Finding>, String>;

const CHECKS: [(&str, Check); 7] = [
    ("crates", crates::check),
    ("links", links::check),
    ("flags", flags::check),
    ("constants", constants::check),
    ("protocol", protocol::check),
    ("shape", shape::check),
    ("words", words::check),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, only) = match arguments.split_first() {
        Some((command, only)) => (command.as_str(), only),
        None => ("", &[][..]),
    };
    let unknown = only
        .iter()
        .find(|name| !CHECKS.iter().any(|(known, _)| known == name));
    if command != "tidy" || unknown.is_some() {
        let names: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
        say(&format!(
            "usage: cargo xtask tidy [CHECK …]\n\nchecks: {}",
            names.join(", ")
        ));
        return ExitCode::from(2);
    }
    match tidy(only) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(problem) => {
            say(&format!("error: {problem}"));
            ExitCode::from(2)
        }
    }
}

/// Runs the checks and returns the number of findings.
fn tidy(only: &[String]) -> Result<usize, String> {
    let repository = Repository::open()?;
    let mut count = 0;
    for (name, check) in CHECKS {
        if !only.is_empty() && !only.iter().any(|one| one == name) {
            continue;
        }
        for finding in check(&repository)? {
            say(&format!("{finding} [{name}]"));
            count += 1;
        }
    }
    match count {
        0 => say("tidy: documents and code agree"),
        _ => say(&format!("tidy: {count} findings")),
    }
    Ok(count)
}

fn say(line: &str) {
    // Nothing can be done if the terminal is gone.
    let _ = writeln!(std::io::stderr(), "{line}");
}
