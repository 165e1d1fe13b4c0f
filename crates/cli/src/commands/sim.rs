//! `salus sim`: what would happen to some jobs under a policy, in no time and without a device.
//!
//! A file is a scenario, of which a picture is drawn, a trace of jobs, or a recording of a service; its
//! first line tells.
//! Not here: scenarios, traces and runs (`salus-sim`), and any service.

mod progress;
mod recording;
mod scale;
mod scenario;
mod study;
mod trace;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use salus_daemon::config::Problem;
use salus_engine::{Duration, Policy};
use salus_sim::{Recording, Trace, Workloads};

use crate::arguments::parse_policy;
use crate::{Format, Outcome, output};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// A scenario, a trace of jobs or a recording (docs/simulation.md)
    #[arg(value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    /// Run it under this policy [default: the scenario's or recording's own; of traces fair]
    #[arg(long, value_name = "NAME", value_parser = parse_policy)]
    policy: Option<Policy>,
    /// Run it under every policy, and print a line for each
    #[arg(long, conflicts_with = "policy")]
    compare: bool,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Replay a recording that is cut off, or of which records were lost
    #[arg(long)]
    partial: bool,
    #[command(flatten, next_help_heading = "Traces only")]
    trace: trace::Options,
}

#[derive(Subcommand)]
enum Command {
    /// Write a trace of jobs like the original's
    Generate(trace::GenerateArguments),
    /// Compare policies with their ideals on many generated traces
    Study(study::StudyArguments),
    /// Measure what a simulation costs with more and more jobs
    Scale(scale::ScaleArguments),
}

/// A scenario is a page, and a million jobs of a trace are less.
const FILE_BYTES: u64 = 64 << 20;
/// A recording has a line for each iteration: this is five million of them.
const RECORDING_BYTES: u64 = 1 << 30;

pub(crate) fn sim(arguments: &Arguments) -> Outcome {
    match (&arguments.command, &arguments.file) {
        (Some(Command::Generate(arguments)), _) => trace::generate(arguments),
        (Some(Command::Study(arguments)), _) => study::study(arguments),
        (Some(Command::Scale(arguments)), _) => scale::scale(arguments),
        (None, Some(file)) => run(arguments, file),
        (None, None) => Err(Problem::new("expected a scenario, a trace or a recording")),
    }
}

fn run(arguments: &Arguments, file: &Path) -> Outcome {
    let text = read(file, "scenario, trace or recording")?;
    let shown = file.display().to_string();
    let policies = (arguments.policy, arguments.compare);
    let is_recording = Recording::is_recording(&text);
    let is_trace = !is_recording && Trace::is_trace(&text);
    if let (Some(option), false) = (arguments.trace.given(), is_trace) {
        let kind = if is_recording {
            "recording"
        } else {
            "scenario"
        };
        let what = format!("{shown} is a {kind}, and `{option}` is for traces");
        let hint = "a trace begins with job_id,model,iterations,submit_time,duration";
        return Err(Problem::new(what).hint(hint));
    }
    if arguments.partial && !is_recording {
        let what = format!("{shown} is no recording, and `--partial` is for recordings");
        return Err(Problem::new(what).hint("`salus trace record` writes them"));
    }
    let format = arguments.output;
    let out = if is_recording {
        recording::run(&shown, &text, policies, arguments.partial, format)?
    } else if is_trace {
        trace::run(&shown, &text, policies, &arguments.trace, format)?
    } else {
        scenario::run(&shown, &text, policies, format)?
    };
    output::data(&out);
    Ok(ExitCode::SUCCESS)
}

/// The text of a file, which is said to be a `what`.
fn read(path: &Path, what: &str) -> Result<String, Problem> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let file = File::open(path);
    let read = file.and_then(|mut file| {
        file.by_ref().take(FILE_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.starts_with(b"{") {
            let more = RECORDING_BYTES - FILE_BYTES;
            file.take(more).read_to_end(&mut bytes)?;
        }
        Ok(())
    });
    read.map_err(|e| Problem::new(format!("the {what} {shown} cannot be read: {e}")))?;
    let most = match bytes.first() {
        Some(b'{') => RECORDING_BYTES,
        _ => FILE_BYTES,
    };
    if bytes.len() as u64 > most {
        let problem = format!("{shown} has more than {most} bytes: that is no {what}");
        return Err(Problem::new(problem));
    }
    String::from_utf8(bytes)
        .map_err(|_| Problem::new(format!("{shown} is not a text, so it is no {what}")))
}

/// The table of workloads in a file, or the built-in one.
fn workloads(file: Option<&Path>) -> Result<Workloads, Problem> {
    let Some(file) = file else {
        return Ok(Workloads::p100());
    };
    let text = read(file, "table of workloads")?;
    Workloads::parse(&text).map_err(|problem| located(&file.display().to_string(), &problem))
}

/// What is wrong with a file, with its name.
fn located(file: &str, problem: &salus_sim::Problem) -> Problem {
    let at = Problem::new(format!("{file}, {problem}"));
    match &problem.hint {
        Some(hint) => at.hint(hint.clone()),
        None => at,
    }
}

/// As many as there are cores for us.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn ms(time: Duration) -> f64 {
    time.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_named_with_its_file_and_place() {
        let text = "policy fiar\na: 5 x 10ms\n";
        let problem = scenario::run("a.txt", text, (None, false), Format::Table);
        let problem = problem.map(drop).expect_err("there is no such policy");
        assert_eq!(
            problem.what,
            "a.txt, line 1, column 8: `fiar` is not a policy"
        );
        let hint = problem.hint.expect("the policies are listed");
        assert!(hint.starts_with("did you mean `fair`?"), "{hint}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let problem = read(Path::new("/nowhere/a.csv"), "trace");
        let problem = problem.map(drop).expect_err("it is not there");
        let what = "the trace /nowhere/a.csv cannot be read: ";
        assert!(problem.what.starts_with(what), "{}", problem.what);
    }
}
