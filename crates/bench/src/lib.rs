//! `salus bench`: what Salus costs and gains on this machine.
//!
//! In the order in which a run meets them: `benches` and `experiments` have one file per subcommand;
//! `contenders` finds Python, plugin and library and starts what is compared; `rows` has the rows of the
//! benches that are tables, one file per way to measure; `measure` takes rounds in changing order and
//! judges them; `report` prints.
//!
//! Promise: whatever it starts ends with it, and nothing of the user's services, caches or
//! configuration is used or touched.

mod benches;
mod contenders;
mod experiments;
mod measure;
mod report;
mod rows;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use salus_console::{Format, Outcome, output};
use salus_daemon::config::Problem;
use serde_json::json;

use benches::{accelerator, callbacks, overhead, packing, paging, policies, switch};
use contenders::helper_processes;
use contenders::setup::Setup;
pub use experiments::simulated::clocks;
use experiments::{
    fairness, inference, jct, memory, overhead_curve, pairs, replay, sweep, whole_report,
};
use measure::machine;
use report::experiment::Experiment;
use report::text;
use rows::run;

/// What every bench takes.
#[derive(Args)]
struct Common {
    /// How to print it; `json` has every number
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Short and small: shows that everything runs, resolves nothing
    #[arg(long)]
    quick: bool,
    /// A Python with jax, flax, optax and xla-cpu-pjrt [default: SALUS_PYTHON, else the active
    /// environment's, else the one beside this program, else python3]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

impl Common {
    fn setup(&self) -> Result<Setup, Problem> {
        Setup::find(self.python.as_deref())
    }

    /// Prints what an experiment found.
    fn show(&self, setup: &Setup, experiment: &Experiment) -> Outcome {
        let machine = machine::description(setup);
        self.print(
            || json_text(&json!({ "machine": machine, "experiment": experiment })),
            || text::shown(experiment, &machine),
        );
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, json: impl FnOnce() -> String, table: impl FnOnce() -> String) {
        output::data(&match self.output {
            Format::Json => json(),
            Format::Table => table(),
        });
    }
}

/// All numbers, for programs.
fn json_text(found: &serde_json::Value) -> String {
    format!("{found:#}\n")
}

#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Compare the same work directly on the plugin and through Salus
    Overhead(run::Arguments),

    /// Measure what callbacks cost, against JAX's own CPU backend, and what they cost other jobs
    Callbacks(run::Arguments),

    /// Let jobs that do not fit the device together run one after another and at once
    Paging(paging::Arguments),

    /// Let two jobs run side by side, against two processes without Salus
    Packing(packing::Arguments),

    /// Hold shares, latencies and completion times of real jobs against what policies promise
    Policies(policies::Arguments),

    /// Measure what it costs the device to change jobs
    Switch(switch::Arguments),

    /// Let a queue of training jobs of very different lengths complete, against one at a time
    Jct(jct::Arguments),

    /// Compare what the simulator says of a recorded queue with what was measured
    Replay(replay::Arguments),

    /// Run many short trials of one program, against one after another
    Sweep(sweep::Arguments),

    /// Let 42 models answer requests on one device
    Inference(inference::Arguments),

    /// Let jobs join one after the other and many run at once: shares, throughput and memory
    Fairness(fairness::Arguments),

    /// Let all pairs of five workloads run together, against two processes without Salus
    Pairs(pairs::Arguments),

    /// Show what memory workloads hold between iterations and need within one
    Memory(memory::Arguments),

    /// Compare loops through Salus and directly, as a curve over the time of an iteration
    OverheadCurve(overhead_curve::Arguments),

    /// Run all experiments and write them down as one page with plots
    Report(whole_report::Arguments),

    /// Measure what copies to and from a device with memory of its own cost, on the stand-in for CUDA
    Accelerator(accelerator::Arguments),

    /// A part of `salus bench`
    #[command(hide = true)]
    Peer(helper_processes::Arguments),
}

pub fn bench(arguments: &Arguments) -> Outcome {
    match &arguments.what {
        What::Overhead(arguments) => overhead::overhead(arguments),
        What::Callbacks(arguments) => callbacks::callbacks(arguments),
        What::Paging(arguments) => paging::paging(arguments),
        What::Packing(arguments) => packing::packing(arguments),
        What::Policies(arguments) => policies::policies(arguments),
        What::Switch(arguments) => switch::switch(arguments),
        What::Jct(arguments) => jct::jct(arguments),
        What::Replay(arguments) => replay::replay(arguments),
        What::Sweep(arguments) => sweep::sweep(arguments),
        What::Inference(arguments) => inference::inference(arguments),
        What::Fairness(arguments) => fairness::fairness(arguments),
        What::Pairs(arguments) => pairs::pairs(arguments),
        What::Memory(arguments) => memory::memory(arguments),
        What::OverheadCurve(arguments) => overhead_curve::overhead_curve(arguments),
        What::Report(arguments) => whole_report::report(arguments),
        What::Accelerator(arguments) => accelerator::accelerator(arguments),
        What::Peer(arguments) => helper_processes::peer(arguments),
    }
}
