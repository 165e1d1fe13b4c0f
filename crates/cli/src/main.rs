//! `salus`: what a person types.
//!
//! Data goes to standard output, everything else to standard error. Exit status: 0 done, 1 no
//! (nothing runs, not ready), 2 an error, which is printed with a hint.
//!
//! Not here: any door to the service that jobs do not have.

mod arguments;
mod background;
mod commands;
mod heap;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use commands::{doctor, job, policy, ps, run, serve, sim, stop, trace};
use salus_console::{Format, Outcome, ask, library, output, python};

/// "No": nothing failed, but the answer is not the one hoped for.
const NO: ExitCode = ExitCode::FAILURE;

#[derive(Parser)]
#[command(
    name = "salus",
    version,
    about = "Several jobs share one accelerator, unmodified"
)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a device, in the foreground
    Serve(serve::Arguments),
    /// Run a command through the service; starts one if none runs
    Run(run::Arguments),
    /// Show the device and the sessions
    Ps(ps::Arguments),
    /// Say why a job waits, and for whom
    Explain(job::ExplainArguments),
    /// Change a job while it runs
    Job(job::Arguments),
    /// Show in which order jobs are served, or change it
    Policy(policy::Arguments),
    /// Write what ran where and when, for the Perfetto UI
    Trace(trace::Arguments),
    /// Show what is found, what is missing and what to do
    Doctor(doctor::Arguments),
    /// End the service
    Stop(stop::Arguments),
    /// Show what would happen to some jobs under a policy, without a device
    Sim(sim::Arguments),
    /// Measure what Salus costs on this machine
    Bench(salus_bench::Arguments),

    /// A part of `salus serve`
    #[command(hide = true)]
    DeviceHost,
    /// A part of `salus serve`
    #[command(hide = true)]
    Compiler,
    /// A part of `salus run`
    #[command(hide = true)]
    Detach(serve::Arguments),
    /// A part of `salus run`
    #[command(hide = true)]
    Become(run::child::Arguments),
    /// A part of `salus doctor`
    #[command(hide = true)]
    ProbePlugin(doctor::probe::Arguments),
    /// A part of `salus doctor`
    #[command(hide = true)]
    ProbeSandbox(doctor::sandbox::Arguments),
}

/// Which service is meant.
#[derive(Args, Clone, Default)]
struct Where {
    /// The service's socket [default: SALUS_SOCKET, else this user's, else the system's]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return if e.use_stderr() {
                ExitCode::from(output::ERROR)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let outcome = match cli.command {
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Ps(arguments) => ps::ps(&arguments),
        Command::Explain(arguments) => job::explain(&arguments),
        Command::Job(arguments) => job::job(&arguments),
        Command::Policy(arguments) => policy::policy(&arguments),
        Command::Trace(arguments) => trace::trace(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Stop(arguments) => stop::stop(&arguments),
        Command::Sim(arguments) => sim::sim(&arguments),
        Command::Bench(arguments) => salus_bench::bench(&arguments),
        Command::DeviceHost => serve::device_host(),
        Command::Compiler => serve::compiler(),
        Command::Detach(arguments) => background::detach(&arguments),
        Command::Become(arguments) => run::child::become_command(&arguments),
        Command::ProbePlugin(arguments) => doctor::probe::probe(&arguments),
        Command::ProbeSandbox(arguments) => doctor::sandbox::probe(&arguments),
    };
    outcome.unwrap_or_else(|problem| output::error(&problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    /// Clap looks at the type of a value when it is read: a parser of another type than its field
    /// panics only then.
    #[test]
    fn every_value_is_read_as_what_it_is_declared() {
        for line in [
            "serve --socket s --device cpu --memory 1GiB --host-memory 2GiB --policy fair --lanes 2",
            "run --name n --memory-max 1GiB --weight 2 --priority high --deadline 20ms -- true",
            "run --iterations 10 -- true",
            "run --expect 2h -- true",
            "job 1 memory-max 1GiB",
            "job 1 memory-max none",
            "job 1 weight 3",
            "job 1 priority low",
            "job 1 deadline 5ms",
            "policy set srtf",
            "policy set srtf --device cuda:1",
            "run --device cuda:1 -- true",
            "trace --last 10s",
            "sim f.txt --policy las",
            "sim f.csv --devices 4 --place first-fit --memory 16GiB --host-memory 1TiB --link 12GiB/s",
            "sim f.csv --estimates wrong=0.5 --failures 0.05 --seed 3 --workloads w.csv",
            "sim study --seeds 3 --jobs 20",
            "sim scale --jobs 100 --devices 10 --policy srtf",
            "sim generate --jobs 10 --seed 2 --load 0.8 --workloads w.csv",
            "bench overhead --pairs 8 --only step_1ms",
        ] {
            let words = std::iter::once("salus").chain(line.split(' '));
            if let Err(e) = Cli::try_parse_from(words) {
                panic!("salus {line}: {e}");
            }
        }
    }

    #[test]
    fn everything_after_the_dashes_is_the_jobs() {
        let cli = Cli::try_parse_from(["salus", "run", "--name", "a", "--", "python", "-c", "1"]);
        let Ok(Cli {
            command: Command::Run(arguments),
        }) = cli
        else {
            panic!("it is a run");
        };
        assert_eq!(arguments.command, ["python", "-c", "1"]);
    }
}
