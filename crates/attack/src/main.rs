//! `salus-attack`: hostile clients of a real service, and what becomes of the service and of others.
//!
//! Every attack starts a service of its own in a temporary directory, unless `--socket` names one,
//! speaks the protocol of `wire` to it, and leaves nothing behind. All randomness comes from `--seed`,
//! so that whatever is found can be repeated. Exit status: 0 the service held, 1 it did not (what
//! failed is printed with its seed), 2 the attack itself could not be made.
//!
//! Not here: the product. No part of this is in the wheel.

mod canary;
mod churn;
mod corpus;
mod frames;
mod generated;
mod iteration;
mod options;
mod programs;
mod runs;
mod scribble;
mod setup;
mod siege;
mod tally;
mod tokens;

use crate::setup::Setup;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use tally::Tally;

/// What goes wrong with an attack itself.
type Problem = Box<dyn std::error::Error>;

#[derive(Parser)]
#[command(
    name = "salus-attack",
    about = "Attacks a service of its own and says what held"
)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    setup: Setup,
    /// As a table, or for programs
    #[arg(long, short, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(subcommand)]
    attack: Attack,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Args, Clone, Copy)]
struct Amount {
    /// The seed of all random draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many are sent
    #[arg(long, default_value_t = 200)]
    count: u64,
}

#[derive(Subcommand)]
enum Attack {
    /// Frames with wrong kinds, lengths, ids, regions, shapes and descriptors
    Frames(Amount),
    /// Modules of the corpus with bytes and words changed, run if they compile
    Programs(Amount),
    /// Random valid modules: sorts, gathers, loops, collectives, custom calls, …
    Generated {
        #[command(flatten)]
        amount: Amount,
        /// Only elements that share a byte, where the vendor's code is wrong most often
        #[arg(long)]
        small: bool,
        /// Print the module of `--seed` instead of running it
        #[arg(long)]
        show: bool,
    },
    /// Compile options that nobody should get
    Options(Amount),
    /// Serialized executables that were changed
    Tokens(Amount),
    /// Programs that once did harm: all of `crates/attack/corpus`
    Corpus,
    /// Run one module, the way `generated` and `programs` do
    Run {
        /// MLIR, text or bytecode
        file: PathBuf,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Sessions that come and go, half of them cut off in the middle of a frame
    Churn {
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Change arrays in shared memory while programs work on them
    Scribble {
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// A session that always has something to run, to be killed or stopped
    #[command(hide = true)]
    Victim {
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Everything at once while well-behaved JAX jobs train: they must end with the same bits
    All(siege::Arguments),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Attack::Generated {
        amount,
        small,
        show: true,
    } = &cli.attack
    {
        tally::say(&generated::module(amount.seed, *small).text);
        return ExitCode::SUCCESS;
    }
    match attack(&cli) {
        Ok(tally) => {
            match cli.output {
                Output::Text => tally::say(&tally.text()),
                Output::Json => tally::say(&format!("{:#}\n", tally.json())),
            }
            match tally.held() {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
        Err(problem) => {
            eprintln!("salus-attack: {problem}");
            ExitCode::from(2)
        }
    }
}

fn attack(cli: &Cli) -> Result<Tally, Problem> {
    let start = || cli.setup.start();
    match &cli.attack {
        Attack::Frames(amount) => frames::attack(&start()?, amount.seed, amount.count),
        Attack::Programs(amount) => programs::attack(&start()?, amount.seed, amount.count),
        Attack::Generated { amount, small, .. } => {
            generated::attack(&start()?, amount.seed, amount.count, *small)
        }
        Attack::Options(amount) => options::attack(&start()?, amount.seed, amount.count),
        Attack::Tokens(amount) => tokens::attack(&start()?, amount.seed, amount.count),
        Attack::Corpus => corpus::attack(&start()?),
        Attack::Run { file, seed } => corpus::one(&start()?, file, *seed),
        Attack::Churn { seed, seconds } => churn::attack(&start()?, *seed, *seconds),
        Attack::Scribble { seed, seconds } => scribble::attack(&start()?, *seed, *seconds),
        Attack::Victim { seed } => siege::victim(&start()?, *seed),
        Attack::All(arguments) => siege::attack(&cli.setup, arguments),
    }
}
